"""The Mojo tests need a compiler, or a library that came with the package; else they say so."""

import pytest

from convref_mojo import build

WITHOUT = ("test_build.py", "test_structures.py")  # what runs without a compiler


def pytest_collection_modifyitems(items):
    reason = build.missing()
    if reason is None:
        return
    for item in items:
        if item.path.parent.name == "mojo" and item.path.name not in WITHOUT:
            item.add_marker(pytest.mark.skip(reason=reason))
