"""How to launch a binary: parameters, threads, shared memory, hidden arguments."""

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from convref.errors import invalid, shorten

# Code of `struct` of each type of parameter; a tensor map is 128 bytes at a multiple of 64.
FORMATS = {
    "ptr": "Q",
    "bool": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
    "tensormap": "128s",
}
TENSORMAP = 128  # bytes


def format_of(kind: str) -> str | None:
    """Return the code of `struct` for a type of parameter, None if there is no such type.

    >>> format_of("f32"), format_of("bytes160"), format_of("bytes")
    ('f', '160s', None)
    """
    size = kind.removeprefix("bytes")
    return f"{size}s" if kind.startswith("bytes") and size.isdecimal() else FORMATS.get(kind)


class Scratch(NamedTuple):
    """Memory for a hidden pointer after the last parameter; with 0 bytes it is null."""

    bytes_per_block: int
    align: int = 1


@dataclass(frozen=True)
class Manifest:
    """How to launch a kernel.

    Parameters
    ----------
    name : str
        Its symbol in the binary.
    parameters : tuple of str
        Their types in order: "ptr", "tensormap", "bool", a code of `convref.dtypes`, or, for a
        struct passed by value, "bytes160" with its size.
    threads : tuple of int
        Threads of a block along x, y, z.
    shared : int
        Bytes of dynamic shared memory of a block.
    cluster : tuple of int
        Blocks of a cluster along x, y, z.
    scratch : tuple of Scratch
        Hidden pointers after the parameters.
    """

    name: str
    parameters: tuple[str, ...]
    threads: tuple[int, int, int]
    shared: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    scratch: tuple[Scratch, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.parameters:
            if format_of(kind) is None:
                known = f"{', '.join(FORMATS)} or bytes and a number"
                what = f"a parameter is {shorten(repr(kind))}, needs one of {known}"
                raise invalid(self.name, what)
        for name in ("threads", "cluster"):
            sizes = getattr(self, name)
            if len(sizes) != 3 or min(sizes) < 1:
                raise invalid(self.name, f"{name} is {sizes}, needs three from 1 up")


def pack(name: str, kind: str, value: Any) -> bytes:
    """Return the bytes of an argument; errors start with `name`."""
    code = f"<{format_of(kind)}"
    if isinstance(value, bytes) and len(value) != struct.calcsize(code):
        raise invalid(name, f"{len(value)} bytes, needs a {kind}")
    try:
        return struct.pack(code, value)
    except (struct.error, OverflowError) as error:
        raise invalid(name, f"{shorten(repr(value), 40)} is not a {kind}: {error}") from None
