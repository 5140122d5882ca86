"""Descriptors of benchdnn, oneDNN's driver."""

import re
from typing import NamedTuple

from ..case import SPATIAL
from ..errors import UnsupportedError, invalid, message, shorten
from ..ops import ConvProblem, Problem

_FIELD = re.compile(r"_?(g|mb|ic|oc|[iokspd][dhw])([0-9]{1,12})", re.ASCII)
_DIRECTIONS = {"FWD_B": True, "FWD_D": False, "FWD_I": False}  # direction -> whether with a bias
_DIRECTIONS |= {"BWD_WB": True, "BWD_D": False, "BWD_W": False}


class _Axis(NamedTuple):
    """One axis of a descriptor; `d` counts inserted zeros; o = 0 and p = -1 are left to deduce."""

    i: int = 0
    o: int = 0
    k: int = 0
    s: int = 1
    p: int = -1
    d: int = 0

    @property
    def absent(self) -> bool:
        return not (self.i or self.o or self.k or self.d) and self.s == 1 and self.p < 1

    @property
    def span(self) -> int:
        return (self.k - 1) * (self.d + 1) + 1

    def padding(self, transposed: bool) -> tuple[int, int]:
        """Return (lo, hi): hi as large as lo or as 0 where that gives the same output."""
        big, small = (self.o, self.i) if transposed else (self.i, self.o)
        if not self.o:
            return (max(self.p, 0),) * 2
        both = (small - 1) * self.s + self.span - big  # lo + hi, if every position is used
        lo = self.p if self.p >= 0 else int(both / 2)  # towards zero, as C divides
        unused = 0 if transposed else self.s - 1
        hi = both - lo
        return lo, next((wide for wide in (lo, 0) if 0 <= wide - hi <= unused), hi)


def _options(text: str) -> tuple[bool, bool, str]:
    """Return (transposed, bias) from the options before a descriptor, and the descriptor."""
    transposed, bias = False, True
    rest = text.strip()
    while rest.startswith("--"):
        option, _, rest = rest.partition(" ")
        if option in ("--conv", "--deconv"):
            transposed = option == "--deconv"
        elif (direction := option.removeprefix("--dir=")) in _DIRECTIONS:
            bias = _DIRECTIONS[direction]
        else:
            shown = shorten(option, 40)
            need = "needs --conv, --deconv or --dir=FWD_D"
            raise invalid("from_benchdnn", f"option is {shown}, {need}")
        rest = rest.lstrip()
    return transposed, bias, rest


def _fields(text: str, descriptor: str) -> dict[str, int]:
    fields: dict[str, int] = {}
    at = 0
    while found := _FIELD.match(descriptor, at):
        if found[1] in fields:
            raise invalid("from_benchdnn", f"{found[1]} is given twice, needs once", text)
        fields[found[1]] = int(found[2])
        at = found.end()
    if not re.fullmatch(r"_?(n.*|(\*[0-9]+)?)", descriptor[at:], re.DOTALL):  # a name or weight
        rest = shorten(repr(descriptor[at:]), 40)
        raise invalid(
            "from_benchdnn", f"{rest} is not a field, needs e.g. mb2ic3ih8oc4kh3ph1", text
        )
    return fields


def _axes(text: str, fields: dict[str, int]) -> list[_Axis]:
    axes: list[_Axis] = []
    for letter in "dhw":
        own = {name: fields[name + letter] for name in "iokspd" if name + letter in fields}
        axis = _Axis(**own)
        if axis.absent and axes:
            axes.append(axes[-1])  # the cubic rule
        elif not axis.absent:
            axes.append(axis)
            for name, value in (("i", axis.i), ("k", axis.k), ("s", axis.s)):
                if value < 1:
                    raise invalid(
                        "from_benchdnn", f"{name}{letter} is {value}, needs at least 1", text
                    )
    if not axes:
        raise invalid("from_benchdnn", "no size is given, needs e.g. ih8 and kh3", text)
    return axes


def from_benchdnn(text: str) -> ConvProblem:
    """Return the problem of a descriptor of benchdnn's conv or deconv driver.

    Parameters
    ----------
    text : str
        The descriptor, with its name and weight if it has them; before it ``--deconv`` for a
        transposed convolution and ``--dir=FWD_D`` for one without bias are optional.

    Returns
    -------
    ConvProblem
        Dilation 1 is dense here (0 there). The high padding, which benchdnn leaves to the output
        size, equals the low one, or with output padding completes it, wherever it can.

    Raises
    ------
    ConvrefError
        If the text is malformed or its sizes disagree.

    Examples
    --------
    >>> problem = from_benchdnn('mb50_ic3ih224oc64oh112_kh7sh2ph3_n"resnet_50:conv1"*4')
    >>> problem.input, problem.output, problem.padding
    ((224, 224), (112, 112), ((3, 3), (3, 3)))

    References
    ----------
    .. [1] oneDNN, tests/benchdnn/conv/conv_aux.cpp, str2desc.
    """
    transposed, bias, descriptor = _options(text)
    fields = _fields(text, descriptor)
    if missing := {"ic", "oc"} - fields.keys():
        raise invalid("from_benchdnn", f"{min(missing)} is absent, needs a size", text)
    axes = _axes(text, fields)
    pairs = [axis.padding(transposed) for axis in axes]
    # Output padding where it makes the padding of a transposed convolution symmetric.
    extra = [
        lo - hi if transposed and 0 < lo - hi < max(axis.s, axis.d + 1) else 0
        for axis, (lo, hi) in zip(axes, pairs)
    ]
    return ConvProblem(
        n=fields.get("mb", 2),
        c=fields["ic"],
        k=fields["oc"],
        groups=fields.get("g", 1),
        input=tuple(axis.i for axis in axes),
        filter=tuple(axis.k for axis in axes),
        stride=tuple(axis.s for axis in axes),
        padding=tuple((lo, hi + more) for (lo, hi), more in zip(pairs, extra)),
        dilation=tuple(axis.d + 1 for axis in axes),
        transposed=transposed,
        output_padding=tuple(extra),
        bias=bias,
    )


def to_benchdnn(problem: Problem) -> str:
    """Return the benchdnn descriptor of a problem, its driver and direction before it if needed.

    Raises
    ------
    UnsupportedError
        If no descriptor exists for it: flipped filters, padding that crops, no channels.

    Examples
    --------
    >>> problem = ConvProblem(n=2, c=3, k=4, input=(9,), filter=(3,), stride=2, padding=1)
    >>> to_benchdnn(problem)
    'mb2_ic3iw9_oc4ow5_kw3_sw2_pw1_dw0'
    """
    if not isinstance(problem, ConvProblem):
        raise UnsupportedError(
            message("to_benchdnn", "only convolutions have a descriptor", problem)
        )
    if reason := _refusal(problem):
        raise UnsupportedError(message("to_benchdnn", reason, problem))
    lo, inserted = (lo for lo, _ in problem.padding), (d - 1 for d in problem.dilation)
    rows = (problem.input, problem.output, problem.filter, problem.stride, lo, inserted)
    text = {
        name: "".join(f"{name}{a}{v}" for a, v in zip(SPATIAL[problem.rank], row))
        for name, row in zip("iokspd", rows)
    }
    head = ("--deconv " if problem.transposed else "") + ("" if problem.bias else "--dir=FWD_D ")
    head += (f"g{problem.groups}" if problem.groups > 1 else "") + f"mb{problem.n}"
    sides = (f"ic{problem.c}{text['i']}", f"oc{problem.k}{text['o']}")
    return "_".join((head, *sides, *(text[name] for name in "kspd")))


def _refusal(problem: ConvProblem) -> str | None:
    if problem.flip:
        return "a descriptor has no flipped filter"
    if not problem.c or not problem.k or not all(problem.input):
        return "channels and input of a descriptor are at least 1"
    for axis in problem.axes:  # is a whole stride of the big side cut off at the high end?
        used = (axis.small - 1) * axis.stride + axis.dilation * (axis.taps - 1) + 1
        if axis.lo < 0 or used - axis.big - axis.lo <= -axis.stride:
            return "padding of a descriptor crops nothing"
    return None
