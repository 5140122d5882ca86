"""The loader on HIP, against a stand-in for libamdhip64 that is compiled with HIP's own headers."""

import ctypes

import driver_stub as stub
import pytest

from convref.errors import UnsupportedError
from convref_driver import CudaError, Manifest, load
from convref_driver.hip import LIBRARY, HipDriver

HSACO = b"\x7fELF and more"
MANIFEST = Manifest("f", ("ptr", "i32", "ptr"), (256, 1, 1), shared=160 << 10)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    try:
        return stub.build(tmp_path_factory.mktemp("hip"), LIBRARY)
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture
def logged(library):
    """Return a driver, and a function that returns the calls since its last call."""
    calls = ctypes.CDLL(str(library))
    calls.stub_log.restype = ctypes.c_char_p
    calls.stub_layout(3, (ctypes.c_int * 3)(8, 4, 8))

    def log():
        lines = calls.stub_log().decode().splitlines()
        calls.stub_clear()
        return lines

    log()
    return HipDriver(str(library)), log


def test_a_kernel_is_loaded_launched_and_unloaded(logged):
    """160 KiB of shared memory need no attribute, and the thread keeps its own device."""
    driver, log = logged
    with load(HSACO, MANIFEST, device=2, driver=driver) as kernel:
        kernel.launch((5, 2), [0xABCDEF, -2, 1], stream=0x77)
    assert log() == [
        "hipInit 0",
        "hipSetDevice 2",
        "hipModuleLoadDataEx 0",
        "hipModuleGetFunction f",
        "hipSetDevice 0",
        "hipModuleLaunchKernel 5 2 1 block 256 1 1 shared 163840 stream 0x77 extra (nil)",
        "efcdab0000000000",
        "feffffff",
        "0100000000000000",
        "hipSetDevice 2",
        "hipModuleUnload",
        "hipSetDevice 0",
    ]


def test_errors_have_the_names_of_hip(library, logged):
    driver, _ = logged
    ctypes.CDLL(str(library)).stub_fail(b"hipModuleLoadDataEx", 200, 0)
    words = r"f: hipModuleLoadDataEx: device kernel image is invalid \(hipErrorInvalidImage, 200\)"
    with pytest.raises(CudaError, match=words):
        load(HSACO, MANIFEST, driver=driver)
    ctypes.CDLL(str(library)).stub_fail(b"", 0, 0)


def test_without_the_library_it_says_what_is_needed(tmp_path):
    with pytest.raises(UnsupportedError, match=r"hip driver: .* needs ROCm 6 or newer"):
        HipDriver(str(tmp_path / LIBRARY))
