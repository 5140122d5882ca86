"""The line: a whole experiment in one shell word, and back.

    conv.backward:n1c4k2g2_i1x2_f2x1_s1x3_p1,1x0,2_d1x3:dt=bf16:mem=x.nhwc.step2w:fill=normal:seed=7
    OP.PASS:SHAPE(:key=value)*

Keys have a fixed order and defaults are left out, so every case has exactly one line.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from .. import dtypes
from ..errors import ConvrefError, invalid, needs_one, shorten
from ..ops import FAMILY, SIGNATURE, SPATIAL, Problem, mask_names, passes
from .call import Call, Case
from .spec import Spec, axis_letters, channels_last

MAX_LINE = 2000  # characters; a longer line is refused before it is read


class _Reader:
    """Reads a line token by token; an error points at the token that is malformed."""

    def __init__(self, line: str) -> None:
        if not isinstance(line, str):
            raise invalid("line", f"got {type(line).__name__}, needs a str")
        if len(line) > MAX_LINE:
            raise invalid("line", f"has {len(line)} characters, needs at most {MAX_LINE}")
        self.line = line

    def fail(self, token: str, need: str) -> ConvrefError:
        at = self._column(token)
        shown = self.line[max(0, at - 30) : at + 30]
        mark = " " * (at - max(0, at - 30)) + "^"
        return ConvrefError(
            f"line: token {shorten(repr(token))} at column {at + 1}, needs {need}\n"
            f"  {shown}\n  {mark}"
        )

    def refuse(
        self, token: str, given: str, known: Collection[str], wanted: str = "one of "
    ) -> ConvrefError:
        return self.fail(token, needs_one(given, known, wanted).removeprefix("needs "))

    def _column(self, token: str) -> int:
        """Return where `token` begins: at its last occurrence as a whole token, if there is one."""
        if not token:
            return len(self.line)
        whole = rf"(?<![^:_,=]){re.escape(token)}(?![^:_,])"
        found = [match.start() for match in re.finditer(whole, self.line)]
        return found[-1] if found else self.line.find(token)

    def number(self, text: str, token: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
            got = shorten(repr(text))
            raise self.fail(token, f"an integer of at most 19 digits instead of {got}")
        return int(text)

    def numbers(self, text: str, token: str) -> tuple[int, ...]:
        return tuple(self.number(item, token) for item in text.split("x"))

    def pads(self, text: str, token: str) -> tuple[Any, ...]:
        if "," not in text:
            return self.numbers(text, token)
        return self._pairs(text, token, self.number, "lo,hi on every axis, or one number per axis")

    def _pairs(
        self, text: str, token: str, read: Callable[[str, str], Any], need: str
    ) -> tuple[Any, ...]:
        pairs = [tuple(read(n, token) for n in item.split(",")) for item in text.split("x")]
        if any(len(pair) != 2 for pair in pairs):
            raise self.fail(token, need)
        return tuple(pairs)

    def shape(self, text: str, family: type[Problem]) -> dict[str, Any]:
        head, *parts = text.split("_")
        optional = family.defaults()
        letters = "".join(
            f"(?:{letter}([0-9]+)){'?' if name in optional else ''}"
            for letter, name in family.HEAD.items()
        )
        match = re.fullmatch(letters, head, re.ASCII)
        if not match:
            if re.fullmatch(r"(?:[nckg][0-9]+)+", head) and head.startswith("n"):
                raise self.fail(text, f"the sizes of this op, {_form(family)}")
            raise self.fail(head, _form(family))
        found: dict[str, Any] = {
            name: self.number(value, head)
            for name, value in zip(family.HEAD.values(), match.groups())
            if value is not None
        }
        for part in parts:
            field = family.PARTS.get(part[:1])
            if not field or field.name in found:
                some = " ".join(family.PARTS)
                raise self.fail(part, f"each of {some} once, e.g. {_EXAMPLES.get(some, 'i8x8')}")
            found[field.name] = READ[field.codec](self, part[1:], part)
        for letter, field in family.PARTS.items():
            if field.name not in found and field.name not in optional:
                raise self.fail("", f"{letter} with the sizes of the {field.name}")
        return found

    def flag(self, text: str, token: str) -> bool:
        if text not in ("0", "1"):
            raise self.fail(token, "0 or 1")
        return text == "1"

    def spec(self, features: list[str], token: str, base: Spec) -> Spec:
        step, expand, offset, order = [], "", 0, ""
        for feature in features:
            if match := re.fullmatch(r"step(-?[0-9]{1,10})([a-z])", feature, re.ASCII):
                step.append((match[2], int(match[1])))
            elif match := re.fullmatch(r"expand([a-z])", feature):
                expand += match[1]
            elif match := re.fullmatch(r"off([0-9]{1,6})", feature, re.ASCII):
                offset = int(match[1])
            elif re.fullmatch(r"[a-z]{1,5}", feature) and not order:
                order = feature
            else:
                raise self.fail(token, "an axis order, stepKa, expanda or offK")
        return replace(base, order=order, step=tuple(step), expand=expand, offset=offset)

    def real(self, text: str, token: str) -> float:
        if not re.fullmatch(r"-?[0-9]{1,19}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,3})?", text, re.ASCII):
            raise self.fail(token, f"a number instead of {shorten(repr(text))}")
        return float(text)

    def spans(self, text: str, token: str) -> tuple[tuple[float, ...], ...]:
        return self._pairs(text, token, self.real, "start,stop on every axis")

    def word(self, text: str, token: str) -> str:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,40}", text, re.ASCII):
            raise self.fail(token, "a word")
        return text

    def mem(self, text: str, call: Call) -> Call:
        letters = "nc" + SPATIAL[call.problem.rank]
        if text in (channels_last(letters), "nhwc"):
            orders = (channels_last(axis_letters(call.problem, r)) for r in call.roles)
            ordered = (replace(s, order=o) for s, o in zip(call.specs, orders))
            return replace(call, specs=tuple(ordered))
        specs = dict(zip(call.roles, call.specs))
        for token in text.split(","):
            role, *features = token.split(".")
            if role not in specs or not features or not call.is_present(role):
                present = [r for r in call.roles if call.is_present(r)]
                raise self.fail(token, f"ROLE.FEATURE with ROLE one of {', '.join(present)}")
            specs[role] = self.spec(features, token, specs[role])
        return replace(call, specs=tuple(specs.values()))


# How a field is read, by the codec that `convref.ops.Field` names; `text.WRITE` writes the same.
READ: dict[str, Callable[[_Reader, str, str], Any]] = {
    "extents": _Reader.numbers,
    "sizes": _Reader.numbers,
    "pads": _Reader.pads,
    "flag": _Reader.flag,
    "integer": _Reader.number,
    "float": _Reader.real,
    "floats": lambda r, text, token: tuple(r.real(item, token) for item in text.split("x")),
    "spans": _Reader.spans,
    "word": _Reader.word,
}
_EXAMPLES = {"i f s p d": "i8x8_f3x3_s2_p1", "i o": "i8x8_o3x3"}
_CALL_KEYS = ("dt", "math", "mem", "dev", "tan", "mask", "fill", "seed", "around")


def _form(family: type[Problem]) -> str:
    """Return the form of the head of a line: nNcC, or nNcCkK[gG]."""
    optional = family.defaults()
    return "".join(
        f"[{letter}{letter.upper()}]" if name in optional else letter + letter.upper()
        for letter, name in family.HEAD.items()
    )


def _read(line: str) -> tuple[_Reader, str, str, Problem, dict[str, str]]:
    reader = _Reader(line)
    head, _, rest = line.partition(":")
    op, _, pass_ = head.partition(".")
    if op not in FAMILY:
        raise reader.refuse(head, head.partition(".")[0], FAMILY)
    family = FAMILY[op]
    shape, *pairs = rest.split(":")
    found = reader.shape(shape, family)
    keys: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        allowed = (*family.KEYS, *(_CALL_KEYS if pass_ else ()))
        if not equals or key not in allowed or key in keys:
            raise reader.fail(pair, f"key=value, each key once, from {', '.join(allowed)}")
        keys[key] = value
    for key, field in family.KEYS.items():
        if key in keys:
            text = keys.pop(key)
            found[field.name] = READ[field.codec](reader, text, f"{key}={text}")
    return reader, op, pass_, family(**found), keys


def parse_problem(line: str) -> Problem:
    """Return the Problem of a line without pass and data.

    Raises
    ------
    ConvrefError
        If the line is malformed (the text points at the token) or its sizes disagree.

    Examples
    --------
    >>> parse_problem("conv:n1c2k4_i5_f3_p1:t=1").output
    (5,)
    """
    reader, _, pass_, problem, _ = _read(line)
    if "." in line.partition(":")[0]:
        raise reader.fail(f".{pass_}", "no pass; use parse for a case")
    return problem


def parse(line: str) -> Case:
    """Return the Case of a line; keys left out have their defaults.

    Reading computes nothing and allocates nothing, whatever sizes the line names.

    Raises
    ------
    ConvrefError
        If the line is malformed (the text points at the token) or its sizes disagree.

    Examples
    --------
    >>> case = parse("conv.dgrad:n1c4k2_i6x6_f3x3_s2:seed=7")
    >>> case.call.problem.output, case.seed
    ((2, 2), 7)
    """
    reader, op, pass_, problem, keys = _read(line)
    mask: tuple[bool, ...] = ()
    if pass_ in mask_names(op):
        pass_, mask = "backward", mask_names(op)[pass_]
    if (op, pass_) not in SIGNATURE:
        known = (*passes(op), *mask_names(op))
        raise reader.refuse(line.partition(":")[0], pass_, known, f"{op}.PASS with PASS one of ")
    if "mask" in keys:
        if mask or not re.fullmatch("[01]+", keys["mask"]):
            raise reader.fail(f"mask={keys['mask']}", "zeros and ones, and a pass without a mask")
        mask = tuple(bit == "1" for bit in keys["mask"])
    tangents = keys.get("tan")
    if tangents is not None and not re.fullmatch("0|[xwb]+", tangents):
        raise reader.fail(f"tan={tangents}", "some of x, w, b, or 0 for none")
    if (device := keys.get("dev", "cpu")) not in ("cpu", "cuda"):
        raise reader.fail(f"dev={device}", "cpu or cuda")
    dtype = dtypes.short_name(given := keys.get("dt", "f32"))
    if dtype not in dtypes.CODES:
        raise reader.refuse(f"dt={given}", given, dtypes.CODES)
    spec = Spec(dtype, device=device)
    carried = tangents.replace("0", "") if tangents else None
    call = Call(op, pass_, problem, mask, carried, (spec,), keys.get("math", "ieee"))
    if "mem" in keys:
        call = reader.mem(keys["mem"], call)
    seed = reader.number(keys.get("seed", "0"), f"seed={keys.get('seed')}")
    around = keys["around"].split(",") if "around" in keys else ()
    return Case(call, keys.get("fill", "int"), seed, tuple(around))
