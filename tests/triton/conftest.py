"""Without torch and triton nothing of this folder can be read."""

import pytest


def pytest_pycollect_makemodule():
    for package in ("torch", "triton"):
        pytest.importorskip(package, reason=f"{package} is not installed")
