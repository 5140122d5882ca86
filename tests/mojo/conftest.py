"""The Mojo tests are skipped without a compiler and a prebuilt library."""

import pytest

from convref_mojo import build

# Files that need no library; test_cuda.py needs PTX and skips itself.
WITHOUT = ("test_build.py", "test_structs.py", "test_cuda.py")


def pytest_collection_modifyitems(items):
    reason = build.why_missing()
    if reason is None:
        return
    for item in items:
        if item.path.parent.name == "mojo" and item.path.name not in WITHOUT:
            item.add_marker(pytest.mark.skip(reason=reason))
