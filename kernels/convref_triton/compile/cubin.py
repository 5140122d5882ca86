"""The functions of several cubins in one, which a disassembler reads in one run.

Only what it reads is kept: machine code and names. Such a file cannot be loaded.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

# ELF: the header of a file, of a section, and a symbol.
HEADER, SECTION, SYMBOL = Struct("<16sHHIQQQIHHHHHH"), Struct("<IIQQQQIIQQ"), Struct("<IBBHQQ")
SYMBOLS, STRINGS = 2, 3  # types of sections
FUNCTION = 0x12  # a global one
TEXT = ".text."
ALIGNED = 128  # machine code begins there
REGISTERS = 0xFF << 24  # in the field of a section that names its symbol


class Function(NamedTuple):
    """The machine code of a kernel, with the header of its file and of its section."""

    name: str
    file: tuple[bytes, int, int, int, int]  # identification, type, machine, version, flags
    section: tuple[int, ...]
    code: bytes


def function(cubin: bytes) -> Function | None:
    """Return the only function of a cubin; None if it has several."""
    header = HEADER.unpack_from(cubin)
    start, size, count, strings = header[6], *header[11:14]
    sections = [SECTION.unpack_from(cubin, start + i * size) for i in range(count)]
    found = []
    for section in sections:
        at = sections[strings][4] + section[0]
        name = cubin[at : cubin.index(b"\0", at)].decode()
        if name.startswith(TEXT):
            code = cubin[section[4] : section[4] + section[5]]
            file = (*header[:4], header[7])
            found.append(Function(name.removeprefix(TEXT), file, section, code))
    return found[0] if len(found) == 1 else None


def merged(functions: Sequence[Function]) -> bytes:
    """Return a cubin with functions whose files have the same header: they are named f0, f1 ..."""
    names = [f"f{i}" for i in range(len(functions))]
    symbol_names, symbol_at = _strings(names)
    section_names, section_at = _strings(["", "", "", *(TEXT + name for name in names)])
    symbols = bytes(SYMBOL.size) + b"".join(
        SYMBOL.pack(at, FUNCTION, 0, 4 + i, 0, len(one.code))
        for i, (at, one) in enumerate(zip(symbol_at, functions))
    )
    body, rows = bytearray(HEADER.size), [bytes(SECTION.size)]

    def add(data: bytes, name: int, kind: int, *about: int) -> None:
        flags, link, info, entry = about or (0, 0, 0, 0)
        body.extend(bytes(-len(body) % ALIGNED))
        place = (0, len(body), len(data))
        rows.append(SECTION.pack(name, kind, flags, *place, link, info, ALIGNED, entry))
        body.extend(data)

    add(section_names, section_at[0], STRINGS)
    add(symbol_names, section_at[1], STRINGS)
    add(symbols, section_at[2], SYMBOLS, 0, 2, 1, SYMBOL.size)
    for i, (at, one) in enumerate(zip(section_at[3:], functions)):
        kind, flags, info = one.section[1], one.section[2], one.section[7]
        add(one.code, at, kind, flags, 3, info & REGISTERS | i + 1, 0)
    *first, flags = functions[0].file
    sizes = (HEADER.size, 0, 0, SECTION.size, len(rows), 1)
    body[: HEADER.size] = HEADER.pack(*first, 0, 0, len(body), flags, *sizes)
    return bytes(body) + b"".join(rows)


def _strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """Return a table of strings, and where each begins."""
    table, places = b"\0", []
    for name in names:
        places.append(len(table))
        table += name.encode() + b"\0"
    return table, places
