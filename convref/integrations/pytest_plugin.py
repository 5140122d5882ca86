"""pytest records tests whose module uses `convref.integrations.torch.testing.assert_close`."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

_MODULE = "convref.integrations.torch.testing"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    """Record a test and its fixtures."""
    testing = sys.modules.get(_MODULE)
    names = vars(getattr(item, "module", None) or object).values()
    # By identity: arrays of a module compare by element.
    if testing is None or not any(v is testing or v is testing.assert_close for v in names):
        return (yield)
    with testing.recording():
        return (yield)
