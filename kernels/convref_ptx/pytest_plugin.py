"""`pytest --ptx sm_90`: run tests of Triton kernels that were written for a GPU on the CPU."""

import contextlib
from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add the option."""
    text = 'run Triton kernels on the CPU as PTX of ARCH, with "cuda" mapped to the CPU'
    parser.addoption("--ptx", metavar="ARCH", help=text)


def pytest_configure(config: Any) -> None:
    """Make the device active before test files are imported, until the run ends."""
    if arch := config.getoption("--ptx"):
        from .triton.device import device

        stack = contextlib.ExitStack()
        stack.enter_context(device(arch))
        config.add_cleanup(stack.close)
