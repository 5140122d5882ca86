"""libcuda: loaded at first use, with typed functions and errors with names."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from typing import Any

from convref.errors import UnsupportedError, message

LIBRARY = "libcuda.so.1"

_HANDLE = POINTER(c_void_p)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDevicePrimaryCtxRetain": (_HANDLE, c_int),
    "cuCtxGetCurrent": (_HANDLE,),
    "cuCtxGetDevice": (POINTER(c_int),),
    "cuCtxSetCurrent": (c_void_p,),
    "cuModuleLoadDataEx": (_HANDLE, c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_HANDLE, c_void_p, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuTensorMapEncodeTiled": (
        (c_void_p, c_int, c_uint, c_void_p) + (c_void_p,) * 4 + (c_int,) * 4
    ),
    "cuTensorMapEncodeIm2col": (
        (c_void_p, c_int, c_uint, c_void_p)
        + (c_void_p,) * 4
        + (c_uint, c_uint, c_void_p)
        + (c_int,) * 4
    ),
}


class CudaError(RuntimeError):
    """A function of the driver failed; `code` is its CUresult or hipError_t."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class Driver:
    """The functions of a libcuda.

    Parameters
    ----------
    path : str
        The library, as the dynamic linker finds it.

    Raises
    ------
    UnsupportedError
        If it does not load, or is too old to have a function.
    """

    functions = FUNCTIONS
    title, prefix = "cuda driver", "cu"  # of messages; of its functions, in place of "cu"
    needs = "needs an NVIDIA driver for CUDA 12 or newer"
    raises_shared = True  # whether kernels must ask for more shared memory than the default

    def __init__(self, path: str = LIBRARY) -> None:
        try:
            library = ctypes.CDLL(path)
            self._functions = {
                name: getattr(library, self._symbol(name)) for name in self.functions
            }
        except (OSError, AttributeError) as error:
            raise UnsupportedError(message(self.title, f"{error}, {self.needs}")) from None
        for name, types in self.functions.items():
            self._functions[name].argtypes = types
            self._functions[name].restype = c_int
        self.launch = self._launcher()
        self._primary: dict[int, int] = {}

    def _symbol(self, name: str) -> str:
        return self.prefix + name.removeprefix("cu")

    def _launcher(self) -> Any:
        """Return a function of a Config, a kernel, its arguments and None, which returns a code."""
        return self._functions["cuLaunchKernelEx"]

    def call(self, name: str, *arguments: Any, why: str = "") -> None:
        """Call a function and raise CudaError unless it succeeds; the message starts with `why`."""
        code = self._functions[name](*arguments)
        if code:
            raise self.error(name, code, why)

    def error(self, name: str, code: int, why: str = "") -> CudaError:
        """Return the error of a CUresult, with the driver's name and description."""
        codes = ", ".join(filter(None, (self._text("cuGetErrorName", code), str(code))))
        words = self._text("cuGetErrorString", code) or "an error without a description"
        what = f"{self._symbol(name)}: {words} ({codes})"
        return CudaError(message(why or self.title, what), code)

    def _text(self, function: str, code: int) -> str:
        found = c_char_p()
        self._functions[function](code, ctypes.byref(found))
        return (found.value or b"").decode(errors="replace")

    def version(self) -> int:
        """Return the newest CUDA version that the driver supports, such as 13010 for 13.1."""
        found = c_int()
        self.call("cuDriverGetVersion", ctypes.byref(found))
        return found.value

    def current(self) -> int:
        found = c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(found))
        return found.value or 0

    def set_current(self, context: int) -> None:
        self.call("cuCtxSetCurrent", context)

    def context(self, device: int = 0) -> int:
        """Return this thread's context if it is one of `device`, else that device's primary one."""
        self.call("cuInit", 0)
        handle, its = c_int(), c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        if current := self.current():
            self.call("cuCtxGetDevice", ctypes.byref(its))
            if its.value == handle.value:
                return current
        if device not in self._primary:
            found = c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(found), handle)
            self._primary[device] = found.value or 0
        return self._primary[device]

    @contextmanager
    def use_context(self, context: int) -> Iterator[None]:
        """Make a context current in this thread, and restore the previous one afterwards.

        A thread without a context keeps the primary one of device 0, as with the CUDA runtime.
        """
        before = self.current()
        if before == context:
            yield
            return
        self.set_current(context)
        try:
            yield
        finally:
            if before or context != self._primary.get(0):
                self.set_current(before)


@cache
def driver() -> Driver:
    """Return the machine's driver, loaded at the first call."""
    return Driver()
