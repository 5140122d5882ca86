"""Launches of PTX of any compiler: a Manifest, a grid and arguments, from Python or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convref.errors import a_kind, invalid, shorten
from convref_driver.exported import Address, Export, Map, itemsize
from convref_driver.manifest import Manifest, pack

from .asynchronous.maps import Im2colMap, TensorMap
from .cuda import compile_cuda
from .decode.program import Fault, parse
from .memory.allocations import Allocation
from .state.launch import launch

FILLS = ("normal", "zeros", "ones", "arange")


GRID = 2**31 - 1, 65535, 65535  # what CUDA allows
THREADS = 1024, 1024, 64
BLOCK = 1024  # threads along all axes


def _is_sizes(value: Any, limits: tuple[int, ...]) -> bool:
    fits = _is_list(value, int) and 1 <= len(value) <= 3
    return fits and all(0 < size <= most for size, most in zip(value, limits, strict=False))


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


# Of a file that describes a launch: what each field needs, and whether a value is that.
FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "ptx": ("the name of a file", lambda value: isinstance(value, str)),
    "name": ("the name of a kernel", lambda value: isinstance(value, str)),
    "parameters": ("a list of types", lambda value: _is_list(value, str)),
    "threads": (
        f"a list of one to three positive integers, at most {THREADS} and {BLOCK} threads",
        lambda value: _is_sizes(value, THREADS) and math.prod(value) <= BLOCK,
    ),
    "grid": (
        f"a list of one to three positive integers, at most {GRID}",
        lambda value: _is_sizes(value, GRID),
    ),
    "arguments": ("a list", lambda value: isinstance(value, list)),
    "shared": ("a number of bytes", lambda value: type(value) is int and value >= 0),
}


def run(
    text: str,
    manifest: Manifest,
    grid: Sequence[int],
    arguments: Sequence[Any],
    *,
    seed: int = 0,
    late: bool = False,
    tensor_cores: str = "exact",
    jobs: int = 1,
) -> None:
    """Run the kernel that a manifest names, on arrays and numbers.

    Parameters
    ----------
    text : PTX, as of nvcc, NVRTC, Mojo, TileLang or CuTe.
    manifest : its name, types of parameters, threads and dynamic shared memory.
    grid : blocks along x, y, z.
    arguments : one per parameter: for "ptr" an array, which receives results if it is writable, or
        None or 0; a tensor map; else a number, or bytes for a struct.
    seed, late, tensor_cores, jobs : the order of warps and blocks, and of asynchronous work; how
        tensor cores sum; in how many processes blocks run (`convref_ptx.launch`).

    Raises
    ------
    Fault
        If the kernel does something undefined, or has an instruction that is not supported.
    """
    name = manifest.name
    if len(arguments) != len(manifest.parameters):
        what = f"got {len(arguments)} arguments, needs {len(manifest.parameters)}"
        raise invalid(name, what)
    if manifest.cluster != (1, 1, 1):
        raise Fault(f"{name}: clusters are not supported")
    pairs = enumerate(zip(manifest.parameters, arguments, strict=True))
    given = [_argument(f"{name}: argument {n}", kind, value) for n, (kind, value) in pairs]
    for scratch in manifest.scratch:
        size = scratch.bytes_per_block * int(np.prod(grid))
        given.append(Allocation(np.zeros(size, np.uint8), True) if size else None)
    program = parse(text, name)
    launch(program, grid, manifest.threads, given, seed, late, manifest.shared, tensor_cores, jobs)


def _argument(name: str, kind: str, value: Any) -> Any:
    if kind == "tensormap":
        if not isinstance(value, TensorMap):
            raise invalid(name, f"is {a_kind(value)}, needs a TensorMap")
        return value
    if kind != "ptr":
        return pack(name, kind, value)
    if value is None or isinstance(value, Allocation):
        return value
    if type(value) is int and value == 0:  # a null pointer
        return None
    array = _contiguous(name, value)
    label = f"{name.rpartition(': ')[2]} {array.dtype}{array.shape}"
    return Allocation(array, writable=array.flags.writeable, name=label)


def _contiguous(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise invalid(name, f"is {a_kind(value)}, needs a contiguous array")
    if not value.flags.c_contiguous:
        raise invalid(name, f"has strides {value.strides}, needs a contiguous array")
    return value


def run_file(path: str | Path, *, arch: str = "sm_90", seed: int = 0, **options: Any) -> list[Any]:
    """Run a launch that a JSON file describes, by `run`; return its arguments afterwards.

    The file has the fields of a Manifest and `ptx`, a file next to it, `grid` and `arguments`: a
    number, null, or for an array {"file": "x.npy"} or {"shape": [4], "dtype": "float32", "fill":
    "normal"}, with "writable": false for an operand that the kernel only reads. A file "k.cu" is
    compiled for `arch` by NVRTC, and the name may be an instance of a template.
    """
    path = Path(path)
    try:
        fields = {"shared": 0, **json.loads(_read(path, path.name))}
    except (json.JSONDecodeError, TypeError) as error:
        raise invalid(path.name, f"is no JSON object: {error}") from None
    if odd := sorted(FIELDS.keys() ^ fields):
        what = f"{', '.join(odd)}: missing or unknown"
        raise invalid(path.name, f"{what}, needs {', '.join(FIELDS)}")
    for field, (needed, fits) in FIELDS.items():
        if not fits(fields[field]):
            raise invalid(path.name, f"{field} is {shorten(repr(fields[field]))}, needs {needed}")
    source, name = path.parent / fields["ptx"], fields["name"]
    text = _read(source, f"{path.name}: ptx")
    if source.suffix == ".cu":
        text, (name,) = compile_cuda(text, [name], arch, str(source))
    sizes = (*fields["threads"], 1, 1)[:3]
    manifest = Manifest(name, tuple(fields["parameters"]), sizes, fields["shared"])
    draw = np.random.default_rng(seed)
    arguments = [
        _argument_of(value, path.parent, f"{path.name}: argument {n}", draw)
        for n, value in enumerate(fields["arguments"])
    ]
    try:
        run(text, manifest, fields["grid"], arguments, seed=seed, **options)
    except MemoryError as error:
        raise invalid(path.name, f"needs too much memory: {error}") from None
    return arguments


def run_export(
    path: str | Path, arrays: Mapping[str, Any], *, seed: int = 0, late: bool = False
) -> None:
    """Run the launches of `convref export`, from the PTX next to its description.

    Parameters
    ----------
    path : the description, a JSON file.
    arrays : the memory of each tensor by name, contiguous, which receives results.
    seed, late : as in `run`.
    """
    path = Path(path)
    export = Export.read(path)
    if odd := sorted(arrays.keys() ^ export.tensors):
        what = f"{', '.join(odd)}: missing or unknown"
        raise invalid(export.name, f"{what}, needs {', '.join(export.tensors)}")
    buffers = {}
    for name, memory in export.tensors.items():
        array = _contiguous(f"{export.name}: {name}", arrays[name])
        if array.nbytes != memory.bytes:
            what = f"{name} has {array.nbytes} bytes, needs {memory.bytes}"
            raise invalid(export.name, what)
        flat = array.reshape(-1).view(f"u{itemsize(memory.dtype)}")
        buffers[name] = Allocation(flat, memory.use != "operand", name=name)
    for step in export.launches:
        values = [_exported(value, buffers) for value in step.arguments]
        text = _read(path.with_name(f"{step.image}.ptx"), step.image)
        run(text, step.manifest, step.grid, values, seed=seed, late=late)


def _exported(value: Any, buffers: Mapping[str, Allocation]) -> Any:
    """Return an argument of an export; null pointers are None."""
    if isinstance(value, Address):
        return buffers[value.tensor]
    if not isinstance(value, Map):
        return value
    form = value.shape, value.strides, value.box, value.swizzle, value.every
    if value.lower:
        return Im2colMap(buffers[value.tensor], *form, value.lower, value.upper)
    return TensorMap(buffers[value.tensor], *form)


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(name, f"cannot read {path}: {error}") from None


def _argument_of(value: Any, folder: Path, name: str, draw: np.random.Generator) -> Any:
    """Return the argument that a value of JSON describes."""
    if not isinstance(value, dict):
        return value
    needed = {"file"} if "file" in value else {"shape", "dtype"}
    if odd := sorted(needed - value.keys() | value.keys() - needed - {"fill", "writable"}):
        what = f"{', '.join(odd)}: missing or unknown"
        raise invalid(name, f"{what}, needs {' and '.join(sorted(needed))}")
    if (fill := value.get("fill", "zeros")) not in FILLS:
        raise invalid(name, f"fill is {fill!r}, needs one of {', '.join(FILLS)}")
    if type(writable := value.get("writable", True)) is not bool:
        raise invalid(name, f"writable is {writable!r}, needs true or false")
    try:
        if "file" in value:
            array = np.load(folder / value["file"])
        else:
            count = int(np.prod(value["shape"]))
            drawn = (draw.standard_normal if fill == "normal" else getattr(np, fill))(count)
            array = drawn.astype(value["dtype"]).reshape(value["shape"])
    except (MemoryError, OSError, TypeError, ValueError) as error:
        raise invalid(name, f"{shorten(repr(value))}: {error}") from None
    if array.dtype.hasobject:
        raise invalid(name, f"dtype is {array.dtype}, needs one without Python objects")
    array.flags.writeable = writable
    return array
