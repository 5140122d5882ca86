"""Kernels: load a binary with its manifest, and launch it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_uint, c_void_p
from typing import Any

from convref.errors import invalid

from .library import CudaError, Driver
from .library import driver as machines_driver
from .manifest import Manifest, format_of, pack
from .tensormap import ALIGN

VARIES = object()  # marks an argument that is passed at each launch of a Prepared

ERROR_LOG, ERROR_LOG_BYTES = 5, 6  # CUjit_option
# CUfunction_attribute
STATIC_SHARED, MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 1, 8, 14
CLUSTER_DIMENSION, CLUSTER_SCHEDULING, SPREAD = 4, 5, 1  # CUlaunchAttributeID, its policy
DEFAULT_SHARED = 48 << 10  # bytes of static and dynamic shared memory without the attribute
PORTABLE_CLUSTER = 8  # blocks
LIMITS = (2**31 - 1, 65535, 65535)
WORD = 8  # bytes of the largest number
BINARY = (b"\x7fELF", b"\x50\xed\x55\xba")  # cubin, fatbin; anything else is PTX


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", c_uint),
    )


def load(image: bytes, manifest: Manifest, device: int = 0, driver: Driver | None = None) -> Kernel:
    """Return the kernel of a cubin, fatbin or PTX, loaded into a context of a device.

    Parameters
    ----------
    image : bytes
    manifest : Manifest
    device : int
        The device of its operands. The thread's context is used if it belongs to this device, else
        the device's primary context; the thread's own context is restored afterwards.
    driver : Driver, optional
        By default that of libcuda.

    Raises
    ------
    UnsupportedError
        If there is no CUDA driver.
    CudaError
        If the driver refuses it; for PTX with the assembler's log.
    """
    driver = driver or machines_driver()
    context = driver.context(device)
    with driver.use_context(context):
        module = _load_module(driver, image, manifest.name)
        try:
            return Kernel(driver, context, module, manifest)
        except CudaError:
            driver.call("cuModuleUnload", module)
            raise


def _load_module(driver: Driver, image: bytes, name: str) -> c_void_p:
    module = c_void_p()
    if image.startswith(BINARY):
        driver.call("cuModuleLoadDataEx", ctypes.byref(module), image, 0, None, None, why=name)
        return module
    log = ctypes.create_string_buffer(1 << 14)
    options = (c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
    values = (c_void_p * 2)(ctypes.addressof(log), len(log))  # an integer is passed as a pointer
    text = c_char_p(image)  # null-terminated
    try:
        driver.call("cuModuleLoadDataEx", ctypes.byref(module), text, 2, options, values, why=name)
    except CudaError as error:
        jit_log = log.value.decode(errors="replace").strip()
        raise CudaError(f"{error}\n{jit_log}" if jit_log else str(error), error.code) from None
    return module


class Kernel:
    """A kernel in a context of the driver; made by `load`."""

    def __init__(self, driver: Driver, context: int, module: c_void_p, manifest: Manifest) -> None:
        self.driver, self.manifest = driver, manifest
        self._context, self._module = context, module
        found = c_void_p()
        name = manifest.name
        driver.call("cuModuleGetFunction", ctypes.byref(found), module, name.encode(), why=name)
        self.function = found
        static_shared = self._static_shared()  # loads the code now, not at the first launch
        more = manifest.shared and manifest.shared + static_shared > DEFAULT_SHARED
        if more and driver.raises_shared:
            self._set(MAX_DYNAMIC_SHARED, manifest.shared, f"{manifest.shared} B of shared memory")
        x, y, z = manifest.cluster
        if x * y * z > PORTABLE_CLUSTER:
            self._set(NON_PORTABLE_CLUSTER, 1, f"clusters of {x * y * z} blocks")

    def _static_shared(self) -> int:
        value = c_int()
        arguments = (ctypes.byref(value), STATIC_SHARED, self.function)
        self.driver.call("cuFuncGetAttribute", *arguments, why=self.manifest.name)
        return value.value

    def _set(self, which: int, value: int, request: str) -> None:
        why = f"{self.manifest.name}: {request}"
        self.driver.call("cuFuncSetAttribute", self.function, which, value, why=why)

    def launch(
        self,
        grid: Sequence[int],
        arguments: Sequence[Any],
        stream: int = 0,
        scratch: Sequence[int] = (),
    ) -> None:
        """Launch the kernel once.

        Parameters
        ----------
        grid : sequence of int
            Blocks along x, y, z; nothing is launched if one of them is 0.
        arguments : sequence
            One per parameter: addresses as ints, tensor maps as bytes, numbers.
        stream : int
            A CUstream; 0 is the legacy default stream.
        scratch : sequence of int
            Addresses for the manifest's hidden pointers; optional if all of them need 0 bytes.
        """
        self.prepare(grid, arguments, scratch)(stream)

    def prepare(
        self, grid: Sequence[int], arguments: Sequence[Any], scratch: Sequence[Any] = ()
    ) -> Prepared:
        """Return a launch with all arguments fixed except those that are `VARIES`."""
        return Prepared(self, grid, arguments, scratch)

    def unload(self) -> None:
        with self.driver.use_context(self._context):
            self.driver.call("cuModuleUnload", self._module, why=self.manifest.name)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def retry(self, code: int, frame: _Frame) -> None:
        """Launch again if the thread has another context or none; else raise."""
        if self.driver.current() != self._context:
            with self.driver.use_context(self._context):
                code = self.driver.launch(frame.config, self.function, frame.pointers, None)
        if code:
            raise self.driver.error("cuLaunchKernelEx", code, self.manifest.name)


class Prepared:
    """A launch that is repeated: called with the stream and the arguments that vary, in order.

    A call writes the arguments to a frame and makes one driver call. Concurrent calls have a frame
    each.

    Attributes
    ----------
    varying : tuple of int
        Positions of the arguments that a call takes: tensor maps first, then addresses.
    """

    def __init__(
        self, kernel: Kernel, grid: Sequence[int], arguments: Sequence[Any], scratch: Sequence[Any]
    ) -> None:
        manifest = kernel.manifest
        self.kernel, self.grid = kernel, _checked_grid(manifest, grid)
        values = [*arguments, *_checked_scratch(manifest, scratch)]
        self.kinds = (*manifest.parameters, *("ptr" for _ in manifest.scratch))
        if len(values) != len(self.kinds):
            what = f"got {len(arguments)} arguments, needs {len(manifest.parameters)}"
            raise invalid(manifest.name, what)
        self.varying = _varying(self.kinds, values)
        self._places, self._size, layout = _layout(self.kinds, self.varying)
        self._fixed = {
            place: pack(f"{manifest.name}: argument {i}", kind, value)
            for i, (place, kind, value) in enumerate(zip(self._places, self.kinds, values))
            if value is not VARIES
        }
        self._write = struct.Struct(layout).pack_into
        self._launch, self._function = kernel.driver.launch, kernel.function
        self._free: list[_Frame] = []
        self._empty = 0 in self.grid

    def __call__(self, stream: int, *varying: Any) -> None:
        """Launch on `stream` with the arguments that vary, in the order of `varying`."""
        if self._empty:
            return
        try:
            frame = self._free.pop()
        except IndexError:  # other threads use all frames
            frame = _Frame(self.kernel.manifest, self.grid, self._size, self._places, self._fixed)
        try:
            if varying:
                self._write(frame.memory, frame.start, *varying)
            if stream != frame.stream:
                frame.set_stream(stream)
            code = self._launch(frame.config, self._function, frame.pointers, None)
            if code:
                self.kernel.retry(code, frame)
        finally:
            self._free.append(frame)


class _Frame:
    def __init__(
        self,
        manifest: Manifest,
        grid: tuple[int, int, int],
        size: int,
        places: Sequence[int],
        fixed: dict[int, bytes],
    ) -> None:
        self.memory = ctypes.create_string_buffer(size + ALIGN)
        base = ctypes.addressof(self.memory)
        self.start = -base % ALIGN
        for place, data in fixed.items():
            ctypes.memmove(base + self.start + place, data, len(data))
        self._table = (c_void_p * max(len(places), 1))(*(base + self.start + p for p in places))
        self._attributes = _attributes(manifest)
        threads, count = (c_uint * 3)(*manifest.threads), len(self._attributes)
        self._config = Config(
            (c_uint * 3)(*grid), threads, manifest.shared, None, self._attributes, count
        )
        self.stream = 0
        self.pointers = c_void_p(ctypes.addressof(self._table))
        self.config = c_void_p(ctypes.addressof(self._config))

    def set_stream(self, stream: int) -> None:
        self.stream = self._config.stream = stream


def _attributes(manifest: Manifest) -> Any:
    if manifest.cluster == (1, 1, 1):
        return (Attribute * 0)()
    size = Attribute(CLUSTER_DIMENSION, 0, (c_uint * 16)(*manifest.cluster))
    spread = Attribute(CLUSTER_SCHEDULING, 0, (c_uint * 16)(SPREAD))
    return (Attribute * 2)(size, spread)


def _checked_grid(manifest: Manifest, grid: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1, 1)[:3]
    if not all(0 <= size <= limit for size, limit in zip((x, y, z), LIMITS)) or len(grid) > 3:
        raise invalid(manifest.name, f"grid is {tuple(grid)}, needs at most {LIMITS}")
    if any(size % blocks for size, blocks in zip((x, y, z), manifest.cluster)):
        what = f"grid is {tuple(grid)}, needs whole clusters of {manifest.cluster}"
        raise invalid(manifest.name, what)
    return x, y, z


def _checked_scratch(manifest: Manifest, scratch: Sequence[Any]) -> Sequence[Any]:
    if not scratch and not any(entry.bytes_per_block for entry in manifest.scratch):
        return (0,) * len(manifest.scratch)
    if len(scratch) != len(manifest.scratch):
        what = f"got {len(scratch)} scratch pointers, needs {len(manifest.scratch)}"
        raise invalid(manifest.name, what)
    return scratch


def _varying(kinds: Sequence[str], values: Sequence[Any]) -> tuple[int, ...]:
    found = [i for i, value in enumerate(values) if value is VARIES]
    assert all(kinds[i] in ("tensormap", "ptr") for i in found), "numbers do not vary"
    return tuple(sorted(found, key=lambda i: kinds[i] == "ptr"))


def _layout(kinds: Sequence[str], varying: Sequence[int]) -> tuple[list[int], int, str]:
    """Return the offset of each argument, the size of all, and the format of the varying ones.

    Varying arguments come first and are contiguous, so that one call of `struct` writes them.
    """
    fixed = sorted(set(range(len(kinds))) - set(varying), key=lambda i: kinds[i] != "tensormap")
    places, top = [0] * len(kinds), 0
    for i in (*varying, *fixed):
        size = struct.calcsize(f"<{format_of(kinds[i])}")
        align = size if size <= WORD else ALIGN
        places[i] = -(-top // align) * align
        top = places[i] + size
    return places, top, "<" + "".join(str(format_of(kinds[i])) for i in varying)
