"""libamdhip64, for kernels that were compiled for AMD: no AMD card has run this."""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from typing import Any

from .kernel import Config
from .library import Driver

LIBRARY = "libamdhip64.so"

_HANDLE = POINTER(c_void_p)


class HipDriver(Driver):
    """The functions of a HIP runtime, under the names of their CUDA counterparts.

    HIP keeps a current device in each thread. The context of a device is its number plus one.
    """

    functions = {
        "cuInit": (c_uint,),
        "cuDriverGetVersion": (POINTER(c_int),),
        "cuGetErrorName": (c_int,),
        "cuGetErrorString": (c_int,),
        "cuGetDevice": (POINTER(c_int),),
        "cuSetDevice": (c_int,),
        "cuModuleLoadDataEx": (_HANDLE, c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
        "cuModuleUnload": (c_void_p,),
        "cuModuleGetFunction": (_HANDLE, c_void_p, c_char_p),
        "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
        "cuModuleLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
    }
    title, prefix = "hip driver", "hip"
    needs = "needs ROCm 6 or newer"
    raises_shared = False  # a block has all of its shared memory without asking

    def __init__(self, path: str = LIBRARY) -> None:
        super().__init__(path)
        for name in ("cuGetErrorName", "cuGetErrorString"):
            self._functions[name].restype = c_char_p

    def _launcher(self) -> Any:
        run = self._functions["cuModuleLaunchKernel"]  # hipDrvLaunchKernelEx is newer than ROCm 6

        def launch(config: Any, function: Any, pointers: Any, extra: Any) -> int:
            its = Config.from_address(config.value)
            sizes = (*its.grid, *its.block, its.shared)
            return int(run(function, *sizes, its.stream, pointers, extra))

        return launch

    def _text(self, function: str, code: int) -> str:
        return (self._functions[function](code) or b"").decode(errors="replace")

    def current(self) -> int:
        found = c_int()
        self.call("cuGetDevice", ctypes.byref(found))
        return found.value + 1

    def context(self, device: int = 0) -> int:
        self.call("cuInit", 0)
        return device + 1

    def set_current(self, context: int) -> None:
        self.call("cuSetDevice", context - 1)


@cache
def hip_driver() -> HipDriver:
    """Return the machine's HIP runtime, loaded at the first call."""
    return HipDriver()
