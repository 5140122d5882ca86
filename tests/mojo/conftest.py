"""The Mojo tests need a compiler, or a library that came with the package; else they say so."""

import pytest

from convref_mojo import build

# What runs without the library; test_cuda.py says itself what it needs, which is PTX.
WITHOUT = ("test_build.py", "test_structs.py", "test_cuda.py")


def pytest_collection_modifyitems(items):
    reason = build.missing()
    if reason is None:
        return
    for item in items:
        if item.path.parent.name == "mojo" and item.path.name not in WITHOUT:
            item.add_marker(pytest.mark.skip(reason=reason))
