"""Parsing of PTX: instructions with their operands, labels and addresses."""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..arithmetic.numbers import width
from .calls import Functions, inlined, renamed

WARP = 32  # threads of a warp
CHUNK = 16  # most bytes that one instruction moves per thread
SHOWN = 120  # characters of an instruction in a message
SHARED = 1 << 24  # generic address of shared memory: null is in no state space
LOCAL = 1 << 28  # address of local memory, past all of shared memory
CONSTANT = 1 << 29  # address of constant memory
PARAMETERS = 1 << 30  # address of the first parameter, within 32 bits


class Fault(RuntimeError):
    """An error of a kernel, or an unsupported instruction; the text starts with the instruction."""

    row = (0, 0)  # first wrong access of how many
    conflict: Any = None  # of a race, a `watch.races.Conflict`


def refuse(wrong: Any, text: str, why: str) -> None:
    """Raise a Fault if any element of `wrong` is true."""
    if wrong.any() if isinstance(wrong, np.ndarray) else wrong:
        fault = Fault(f"{text}: {why}")
        if isinstance(wrong, np.ndarray):
            fault.row = int(np.argwhere(wrong)[0][0]), len(wrong)
        raise fault


class Parameter(NamedTuple):
    """A parameter of an entry: name, offset and size in bytes."""

    name: str
    offset: int
    size: int


class Instruction(NamedTuple):
    """One instruction; messages show `text`.

    Operands are registers, special registers, labels and variables as text, immediates as int,
    vectors as tuples, addresses as [base, offset] or, in a tensor map, [base, offset, coordinates].
    """

    op: str  # with all its suffixes
    operands: tuple[Any, ...]
    predicate: str  # predicate register, empty for none
    negated: bool
    text: str
    where: str = ""  # file and line of the source


@dataclass(eq=False)
class PtxProgram:
    """An entry of a PTX text, from `parse`."""

    name: str
    parameters: tuple[Parameter, ...]
    max_threads: int = 0
    arch: int = 0  # 90 of sm_90, 0 if the text has no target
    # Width of each register; of those with a number after their name by "name<".
    declared: dict[str, int] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)  # width of each register in the code
    addresses: dict[str, int] = field(default_factory=dict)  # of parameters and variables
    sizes: dict[str, int] = field(default_factory=lambda: {"shared": 0, "local": 0})  # in bytes
    constants: bytearray = field(default_factory=bytearray)  # constant memory
    variables: dict[str, bytes] = field(default_factory=dict)  # in global memory, as they begin
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def leaders(self) -> frozenset[int]:
        named = {str(i.operands[0]) for i in self.code if i.op.startswith("bra")}
        named.update(*self.tables.values())
        return frozenset(at for label, at in self.labels.items() if label in named)

    @cached_property
    def is_asynchronous(self) -> bool:
        """Whether anything may complete later than it is issued."""
        return any(_ASYNCHRONOUS.match(i.op) for i in self.code)

    def message_at(self, text: str, why: str) -> str:
        """Return a message for the first instruction with a text, with its place in the source."""
        where = next((f" ({i.where})" for i in self.code if i.where and i.text == text), "")
        return f"{text}: {why}{where}" if text else ""

    @cached_property
    def grains(self) -> dict[str, int]:
        """The sizes of the smallest writes to shared and global memory.

        Writes are aligned to their size, so none covers only a part of such a cell.
        """
        return {space: self._grain(space) for space in ("shared", "global")}

    def _grain(self, space: str) -> int:
        sizes = [CHUNK]
        for i in self.code:
            if match := _WRITE.fullmatch(i.op):
                named = re.search(r"\.(global|shared|local)\b", match[1])
                if named is None or named[1] == space:  # a generic address may be anywhere
                    sizes.append(int(match[3]) // 8 * int(match[2] or 1))
            elif i.op.startswith("mbarrier.") and space in i.op:
                sizes.append(8)
            elif i.op.startswith("wmma.store"):
                sizes.append(4)
            elif space == "shared" and "async.ca." in i.op:
                sizes.append(i.operands[2])
        return min(sizes)


_ASYNCHRONOUS = re.compile(r"cp\.(?:reduce\.)?async\b|wgmma\b")
_WRITE = re.compile(r"(?:st|atom|red)((?:\.[\w:]+)*?)(?:\.v(\d))?\.[subf]+(\d+)(?:x2)?")
_ENTRY = re.compile(r"\.(?:visible|weak)\s+\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w)(\d+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$]+)(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"(?:\.extern\s+)?\.(shared|local)\s+\.align\s+(\d+)\s+\.[busf](8|16|32|64)\s+([\w$]+)((?:\[\d*\])*)"
)
_INITIAL = re.compile(
    r"\.(const|global)\s+(?:\.align\s+(\d+)\s+)?\.([busf](?:8|16|32|64))\s+([\w$]+)((?:\[\d+\])*)"
    r"(?:\s*=\s*(\{[^;]*\}|[^;{}]+))?\s*;"
)
_REGISTERS = re.compile(
    r"\.reg\s*\.(pred|[bsuf](?:8|16|32|64)|b128)\s+([%\w$]+(?:<\d+>)?(?:,\s*[%\w$]+)*)"
)
_GUARD = re.compile(r"@(!?)([%\w$]+)\s+")
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)", re.MULTILINE)
_BOUND = re.compile(r"\.(?:max|req)ntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


@lru_cache(maxsize=64)
def parse(text: str, name: str = "") -> PtxProgram:
    """Return an entry, by default the first; raise a Fault if a statement has an unknown form."""
    loc = r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)([^\n]*)"
    text = re.sub(loc, _line_of, text, flags=re.MULTILINE)
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.MULTILINE))
    text = re.sub(r"^\s*\.file\b[^\n]*", "", text, flags=re.MULTILINE)
    found = next((m for m in _ENTRY.finditer(text) if name in ("", m[1])), None)
    if found is None:
        raise Fault(f"no .visible .entry {name}".rstrip())
    name, parameters, directives = found.groups()
    program = PtxProgram(name, _parameters(parameters))
    program.addresses.update({p.name: PARAMETERS + p.offset for p in program.parameters})
    if bound := _BOUND.search(directives):
        program.max_threads = prod(int(n or 1) for n in bound.groups())
    if target := _TARGET.search(text):
        program.arch = int(target[1])
    _place_initial(program, text[: found.start()])
    parameters = [p.name for p in program.parameters]
    body, functions = _statements(text[found.end() :]), Functions(text, _statements)
    statements = inlined(body, functions, parameters)
    _place(program, _without_bodies(text[: found.start()]) + ";".join(statements))
    where, callers = "", dict[str, str]()
    for statement in statements:
        if statement.startswith(".loc "):
            where = _place_of(statement, files, callers) or where
        else:
            _add(program, statement, where)
    return program


def _line_of(match: re.Match[str]) -> str:
    """Return a statement for a .loc, with the line of the caller where a function is inlined.

    Triton has it in a comment, "inner.py:2:3 @[ kernel.py:5:6 ]"; nvcc has "inlined_at 1 5 6".
    """
    path = re.findall(r"@\[ (\S+):(\d+):\d+", match[4])
    place = re.search(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)", match[4])
    caller = "#".join(path[-1] if path else place.groups() if place else ())
    return f";.loc {'#'.join(match.groups()[:3])} {caller};"  # a colon would end a label


def _place_of(statement: str, files: dict[str, str], callers: dict[str, str]) -> str:
    """Return the place of a .loc in the source, empty if it has none, and remember its caller."""
    _, own, *caller = statement.split()
    file, line, _ = own.split("#")
    if line == "0":
        return ""
    where = f"{files.get(file, '?')}:{line}"
    if not caller:
        return where
    last = caller[0]
    if last.count("#") == 1:
        name, _, line = last.rpartition("#")
        path = next((p for p in files.values() if p.endswith(name)), name)
        return f"{where}, inlined at {path}:{line}"
    callers[own] = last
    for _ in callers:
        last = callers.get(last, last)
    file, line, _ = last.split("#")
    return f"{where}, inlined at {files.get(file, '?')}:{line}"


def _matched(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    if (match := pattern.fullmatch(text)) is None:
        raise Fault(f"{text}: unknown form of {what}")
    return match


def _parameters(text: str) -> tuple[Parameter, ...]:
    found, top = [], 0
    for word in filter(None, map(str.strip, text.split(","))):
        align, _, bits, name, count = _matched(_PARAMETER, word, "parameter").groups()
        size, step = int(bits) // 8 * int(count or 1), int(align or int(bits) // 8)
        top = -(-top // step) * step
        found.append(Parameter(name, top, size))
        top += size
    return tuple(found)


def _statements(text: str) -> list[str]:
    """Return the declarations, instructions and labels of an entry, up to its closing brace.

    Names declared in an inner scope are made unique.
    """
    text = re.sub(r"(?<![:\w$])([$\w]+):(?!:)", r"\1:;", text)
    text = re.sub(r"(?<=[;:{}])\s*([{}])", r"\1;", f";{text}")
    text = re.sub(r"\s+", " ", re.sub(r"\s*;\s*", ";", text))
    inner = re.compile(r"(?<=;)\{;((?:(?!;\s*[{}];).)*;)\s*\};", re.DOTALL)
    numbers = count(1)
    while inner.search(text):
        text = inner.sub(lambda scope: ";".join(renamed(scope[1].split(";"), next(numbers))), text)
    body, end, _ = text.partition(";};")
    refuse(not end, "the entry", "does not end")
    return [part for part in body.split(";") if part]


def _without_bodies(text: str) -> str:
    """Return a text without what is within braces: the bodies of other entries."""
    count = 1
    while count:
        text, count = re.subn(r"\{[^{}]*\}", "", text)
    return text


def _place(program: PtxProgram, text: str) -> None:
    """Place the variables that a text declares: dynamic shared memory, without a size, last."""
    for match in sorted(_VARIABLE.finditer(text), key=lambda match: match[5] == "[]"):
        space, align, bits, name, shape = match.groups()
        size = prod(int(n or 0) for n in re.findall(r"\[(\d*)\]", shape)) * int(bits) // 8
        start = -(-program.sizes[space] // int(align)) * int(align)
        program.addresses[name] = start + (LOCAL if space == "local" else 0)
        program.sizes[space] = start + size


def _place_initial(program: PtxProgram, text: str) -> None:
    """Place the variables in constant and global memory; what has no initial value is zero."""
    for match in _INITIAL.finditer(text):
        space, align, kind, name, shape, values = match.groups()
        count, size = prod(int(n) for n in re.findall(r"\d+", shape)), width(kind) // 8
        words = [_operand(program, word) for word in _split(re.sub(r"[{}]", "", values or ""))]
        odd = len(words) > count or not all(isinstance(word, int) for word in words)
        odd |= shape.count("[") > 1 and 0 < len(words) < count  # zeros within the rows
        refuse(odd, f".{space} {name}", "unknown form of initial values")
        words += [0] * (count - len(words))
        content = b"".join((word % (1 << 8 * size)).to_bytes(size, "little") for word in words)
        if space == "global":
            program.variables[name] = content
            continue
        step = int(align or size)
        start = -(-len(program.constants) // step) * step
        program.addresses[name] = CONSTANT + start
        program.constants += bytes(start - len(program.constants)) + content


def _add(program: PtxProgram, statement: str, where: str) -> None:
    if statement.endswith(":"):
        program.labels[statement[:-1]] = len(program.code)
    elif statement.startswith(".reg"):
        kind, names = _matched(_REGISTERS, statement, "register").groups()
        for word in names.split(","):
            program.declared[re.sub(r"\d+>", "", word.strip())] = width(kind)
    elif statement.startswith((".shared", ".local")):
        _matched(_VARIABLE, statement, "variable")  # it is placed already
    elif statement.startswith(".branchtargets"):
        words = statement.removeprefix(".branchtargets").split(",")
        program.tables[next(reversed(program.labels))] = tuple(word.strip() for word in words)
    elif statement.startswith("."):
        refuse(not statement.startswith(".pragma "), statement, "unknown directive")
    else:
        program.code.append(_instruction(program, statement, where))


def _instruction(program: PtxProgram, text: str, where: str) -> Instruction:
    guard = _GUARD.match(text)
    rest = text[guard.end() :] if guard else text
    op, _, words = rest.partition(" ")
    op = re.sub(r"^(ld|st)\b(.*)\.b128$", r"\1\2.v2.b64", op)
    operands = tuple(_operand(program, word) for word in _split(words))
    predicate = _operand(program, guard[2]) if guard else ""
    shown = text if len(text) < SHOWN else f"{text[:SHOWN]}..."
    return Instruction(op, operands, predicate, bool(guard and guard[1]), shown, where)


def _split(words: str) -> list[str]:
    found = re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|[^,])+", words)
    return [word.strip() for word in found if word.strip()]


def _operand(program: PtxProgram, word: str) -> Any:
    if word in program.registers:  # as most are
        return word
    if word.startswith("{"):
        return tuple(_operand(program, item) for item in _split(word[1:-1]))
    if word.startswith("["):
        place, *more = (item for item in _split(word[1:-1]))
        base, _, offset = place.partition("+")
        inner = [_operand(program, item) for item in more]
        return [_operand(program, base.strip()), int(offset or 0), *inner]
    if re.fullmatch(r"0f[0-9A-Fa-f]{8}|0d[0-9A-Fa-f]{16}|-?(0[xX][0-9A-Fa-f]+|\d+)U?", word):
        return int(word[2:], 16) if word[1:2] in ("f", "d") else int(word.rstrip("U"), 0)
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][+-]?\d+)?", word):
        return float(word)
    if word in program.addresses:
        return program.addresses[word]
    if word == "WARP_SZ":
        return WARP
    refuse(not re.fullmatch(r"!?[%$\w.|]+", word), word, "unknown form of operand")
    for name in word.lstrip("!").split("|"):
        several = f"{name.rstrip('0123456789')}<"
        bits = program.declared.get(name) or program.declared.get(several, 0)
        if bits == 128:  # two registers
            halves = f"{name}.low", f"{name}.high"
            program.registers.update(dict.fromkeys(halves, 64))
            return halves
        if bits:
            program.registers[name] = bits
    return word
