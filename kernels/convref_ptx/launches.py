"""Launches of PTX of any compiler: a Manifest, a grid and arguments, from Python or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convref.errors import invalid
from convref_driver.manifest import Manifest, pack

from .machine import launch
from .memory import Allocation
from .program import Fault, parse

KEYS = {"ptx", "name", "parameters", "threads", "grid", "arguments"}  # and `shared`
FILLS = ("normal", "zeros", "ones", "arange")


def run(
    text: str,
    manifest: Manifest,
    grid: Sequence[int],
    arguments: Sequence[Any],
    *,
    seed: int = 0,
    late: bool = False,
) -> None:
    """Run the kernel that a manifest names, on arrays and numbers.

    Parameters
    ----------
    text : PTX, as of nvcc, NVRTC, Mojo, TileLang or CuTe.
    manifest : its name, types of parameters, threads and dynamic shared memory.
    grid : blocks along x, y, z.
    arguments : one per parameter: for "ptr" an array, which receives results if it is writable, or
        None; a tensor map; else a number, or bytes for a struct.
    seed, late : the order of warps and blocks, and of asynchronous work (`convref_ptx.launch`).

    Raises
    ------
    Fault
        If the kernel does something undefined, or has an instruction that is not supported.
    """
    name = manifest.name
    if len(arguments) != len(manifest.parameters):
        what = f"{len(arguments)} arguments, needs {len(manifest.parameters)}"
        raise invalid(name, what)
    if manifest.cluster != (1, 1, 1):
        raise Fault(f"{name}: clusters are not supported")
    pairs = enumerate(zip(manifest.parameters, arguments, strict=True))
    given = [_argument(f"{name}: argument {n}", kind, value) for n, (kind, value) in pairs]
    for scratch in manifest.scratch:
        size = scratch.bytes_per_block * int(np.prod(grid))
        given.append(Allocation(np.zeros(size, np.uint8), True) if size else None)
    program = parse(text, name)
    launch(program, grid, manifest.threads, given, seed, late, manifest.shared)


def _argument(name: str, kind: str, value: Any) -> Any:
    if kind == "tensormap":
        return value
    if kind != "ptr":
        return pack(name, kind, value)
    if value is None or isinstance(value, Allocation):
        return value
    if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
        raise invalid(name, f"is a {type(value).__name__}, needs a contiguous array")
    label = f"{name.rpartition(': ')[2]} {value.dtype}{value.shape}"
    return Allocation(value, writable=value.flags.writeable, name=label)


def run_file(path: str | Path, *, seed: int = 0, late: bool = False) -> list[Any]:
    """Run a launch that a JSON file describes; return its arguments afterwards.

    The file has the fields of a Manifest and `ptx`, a file next to it, `grid` and `arguments`: a
    number, null, or for an array {"file": "x.npy"} or {"shape": [4], "dtype": "float32", "fill":
    "normal"}, with "writable": false for an operand that the kernel only reads.
    """
    path = Path(path)
    fields = json.loads(path.read_text("utf-8"))
    if odd := sorted(KEYS ^ (set(fields) - {"shared"})):
        raise invalid(path.name, f"{', '.join(odd)}: missing or unknown")
    name, parameters, shared = fields["name"], tuple(fields["parameters"]), fields.get("shared", 0)
    manifest = Manifest(name, parameters, (*fields["threads"], 1, 1)[:3], shared)
    draw = np.random.default_rng(seed)
    arguments = [_made(value, path, draw) for value in fields["arguments"]]
    text = (path.parent / fields["ptx"]).read_text("utf-8")
    run(text, manifest, fields["grid"], arguments, seed=seed, late=late)
    return arguments


def _made(value: Any, path: Path, draw: np.random.Generator) -> Any:
    """Return the argument that a value of JSON describes."""
    if not isinstance(value, dict):
        return value
    if "file" in value:
        array = np.load(path.parent / value["file"])
    else:
        fill, shape, dtype = value.get("fill", "zeros"), value["shape"], value["dtype"]
        if fill not in FILLS:
            raise invalid(path.name, f"fill is {fill!r}, needs one of {', '.join(FILLS)}")
        count = int(np.prod(shape))
        drawn = (draw.standard_normal if fill == "normal" else getattr(np, fill))(count)
        array = drawn.astype(dtype).reshape(shape)
    array.flags.writeable = value.get("writable", True)
    return array
