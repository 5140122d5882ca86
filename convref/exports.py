"""A problem or case in other people's words: benchdnn, MIOpenDriver, plain PyTorch, plain JAX.

The snippets are what goes into a bug report: they need no convref and print the result.
"""

from __future__ import annotations

import re
from base64 import b85encode
from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple
from zlib import compress

import numpy as np

from . import dtypes
from .case import SPATIAL, Call, Case, Spec, axis_letters, channels_last
from .errors import ConvrefError, UnsupportedError, message, shorten
from .problem import BASE_ROLE, ConvProblem, Pads, Problem, Sizes

Array = np.ndarray[Any, Any]

__all__ = ["from_benchdnn", "to_benchdnn", "to_jax", "to_miopen", "to_torch"]

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


def _benchdnn_options(text: str) -> tuple[bool, bool, str]:
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
            raise ConvrefError(message("benchdnn", f"option is {shown}, {need}"))
        rest = rest.lstrip()
    return transposed, bias, rest


def _benchdnn_fields(text: str, descriptor: str) -> dict[str, int]:
    fields: dict[str, int] = {}
    at = 0
    while found := _FIELD.match(descriptor, at):
        if found[1] in fields:
            raise ConvrefError(message("benchdnn", f"{found[1]} is given twice, needs once", text))
        fields[found[1]] = int(found[2])
        at = found.end()
    if not re.fullmatch(r"_?(n.*|(\*[0-9]+)?)", descriptor[at:], re.DOTALL):  # a name or weight
        rest = shorten(repr(descriptor[at:]), 40)
        raise ConvrefError(
            message("benchdnn", f"{rest} is no field, needs e.g. mb2ic3ih8oc4kh3ph1", text)
        )
    return fields


def _benchdnn_axes(text: str, fields: dict[str, int]) -> list[_Axis]:
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
                    raise ConvrefError(
                        message("benchdnn", f"{name}{letter} is {value}, needs at least 1", text)
                    )
    if not axes:
        raise ConvrefError(message("benchdnn", "no size is given, needs e.g. ih8 and kh3", text))
    return axes


def from_benchdnn(text: str) -> ConvProblem:
    """Return the problem of a descriptor of benchdnn's conv or deconv driver.

    Parameters
    ----------
    text : str
        The descriptor, with its name and weight if it has them; before it ``--deconv`` for a
        transposed convolution and ``--dir=FWD_D`` for one without bias may stand.

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
    transposed, bias, descriptor = _benchdnn_options(text)
    fields = _benchdnn_fields(text, descriptor)
    if missing := {"ic", "oc"} - fields.keys():
        raise ConvrefError(message("benchdnn", f"{min(missing)} is absent, needs a size", text))
    axes = _benchdnn_axes(text, fields)
    padding, extra = _padding(axes, transposed)
    return ConvProblem(
        n=fields.get("mb", 2),
        c=fields["ic"],
        k=fields["oc"],
        groups=fields.get("g", 1),
        input=tuple(axis.i for axis in axes),
        filter=tuple(axis.k for axis in axes),
        stride=tuple(axis.s for axis in axes),
        padding=padding,
        dilation=tuple(axis.d + 1 for axis in axes),
        transposed=transposed,
        output_padding=extra,
        bias=bias,
    )


def _padding(axes: list[_Axis], transposed: bool) -> tuple[Pads, Sizes]:
    """Return padding and output padding; the latter where it makes the former symmetric."""
    padding, extra = [], []
    for axis in axes:
        lo, hi = axis.padding(transposed)
        more = lo - hi if transposed and 0 < lo - hi < max(axis.s, axis.d + 1) else 0
        padding.append((lo, hi + more))
        extra.append(more)
    return tuple(padding), tuple(extra)


def to_benchdnn(problem: Problem) -> str:
    """Return the benchdnn descriptor of a problem, its driver and direction before it if needed.

    Raises
    ------
    UnsupportedError
        If a descriptor cannot say it: flipped filters, padding that crops, no channels.

    Examples
    --------
    >>> problem = ConvProblem(n=2, c=3, k=4, input=(9,), filter=(3,), stride=2, padding=1)
    >>> to_benchdnn(problem)
    'mb2_ic3iw9_oc4ow5_kw3_sw2_pw1_dw0'
    """
    reason = None
    if not isinstance(problem, ConvProblem):
        reason = "only convolutions have a descriptor"
    elif problem.flip:
        reason = "a descriptor has no flipped filter"
    elif not problem.c or not problem.k or not all(problem.input):
        reason = "channels and input of a descriptor are at least 1"
    elif any(lo < 0 for lo, _ in problem.padding) or any(_crops(problem)):
        reason = "padding of a descriptor crops nothing"
    if reason is not None:
        raise UnsupportedError(message("benchdnn", reason, problem))
    assert isinstance(problem, ConvProblem)
    rows = {
        "i": problem.input,
        "o": problem.output,
        "k": problem.filter,
        "s": problem.stride,
        "p": tuple(lo for lo, _ in problem.padding),
        "d": tuple(d - 1 for d in problem.dilation),
    }
    letters = SPATIAL[problem.rank]
    text = {n: "".join(f"{n}{a}{v}" for a, v in zip(letters, row)) for n, row in rows.items()}
    head = ("--deconv " if problem.transposed else "") + ("" if problem.bias else "--dir=FWD_D ")
    head += (f"g{problem.groups}" if problem.groups > 1 else "") + f"mb{problem.n}"
    sides = (f"ic{problem.c}{text['i']}", f"oc{problem.k}{text['o']}")
    return "_".join((head, *sides, *(text[name] for name in "kspd")))


def _crops(problem: ConvProblem) -> Iterable[bool]:
    """Yield per axis whether a whole stride of the big side is cut off at the high end."""
    for axis in problem.axes:
        used = (axis.small - 1) * axis.stride + axis.dilation * (axis.taps - 1) + 1
        yield used - axis.big - axis.lo <= -axis.stride


_MIOPEN_DTYPES = {"f32": "conv", "f16": "convfp16", "bf16": "convbfp16", "i8": "convint8"}
_MIOPEN_PASSES = {"fprop": 1, "dx": 2, "dw": 4}


def _miopen_refusal(call: Call) -> str | None:
    problem = call.problem
    if not isinstance(problem, ConvProblem) or call.pass_ not in ("fprop", "backward"):
        return "MIOpenDriver runs convolutions, forward and backward"
    if call.dtype not in _MIOPEN_DTYPES or (call.dtype == "i8" and call.pass_ != "fprop"):
        return f"MIOpenDriver has no {call.dtype} for this pass"
    if problem.flip:
        return "MIOpenDriver has no flipped filter"
    if any(lo != hi or lo < 0 for lo, hi in problem.padding):
        return "MIOpenDriver has one padding per axis, at least 0, for both ends"
    if call.pass_ == "backward" and not any(call.mask[:2]):
        return "MIOpenDriver computes db only beside dx or dw"
    if any(spec.step or spec.expand or spec.offset for spec in call.specs):
        return "MIOpenDriver makes dense tensors only"
    return None


def _miopen_layout(call: Call, *roles: str) -> str:
    """Return NCHW or NHWC for the first of `roles` that the call has."""
    role = next((r for r in roles if r in call.roles), "")
    order = call.spec(role).order if role else ""
    if order not in ("", channels_last(axis_letters(call.problem, role))):
        raise UnsupportedError(message("MIOpenDriver", f"{role} lies as {order}", call))
    spatial = "DHW" if call.problem.rank == 3 else "HW"
    return f"N{spatial}C" if order else f"NC{spatial}"


def to_miopen(call: Call) -> str:
    r"""Return the command line of MIOpenDriver that computes `call`, on data of its own.

    A rank of 1 becomes 2 with a height of 1.

    Raises
    ------
    UnsupportedError
        If the driver has no flag for it (asymmetric padding, strided views, JVPs ...).

    Examples
    --------
    >>> from convref.line import parse
    >>> call = parse("conv.wgrad:n2c3k4_i8x8_f3x3_p1:dt=bf16").call
    >>> print(to_miopen(call).replace(" -k", "\n -k"))
    MIOpenDriver convbfp16 -n 2 -c 3 -H 8 -W 8
     -k 4 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -F 4 -V 1
    """
    if reason := _miopen_refusal(call):
        raise UnsupportedError(message("MIOpenDriver", reason, call))
    problem = call.conv
    lo = tuple(lo for lo, _ in problem.padding)
    depth = problem.rank == 3
    rows: list[tuple[str, Sizes, int]] = [
        (" in_d H W", problem.input, 1),
        (" fil_d y x", problem.filter, 1),
        (" pad_d p q", lo, 0),
        (" conv_stride_d u v", problem.stride, 1),
        (" dilation_d l j", problem.dilation, 1),
    ]
    words = [_MIOPEN_DTYPES[call.dtype], f"-n {problem.n}", f"-c {problem.c}"]
    words = ["MIOpenDriver", *words, *(["--spatial_dim 3"] if depth else [])]
    for flags, values, missing in rows:
        words += _miopen_flags(flags, values, missing)
        words += [f"-k {problem.k}"] if flags == " in_d H W" else []
    if problem.transposed:
        words += ["-m trans", *_miopen_flags(" trans_output_pad_d Y X", problem.output_padding, 0)]
    words += [f"-g {problem.groups}"] if problem.groups > 1 else []
    with_bias = problem.bias if call.pass_ == "fprop" else call.mask[2]
    words += ["-b 1"] if with_bias else []
    layouts = (("in", "x"), ("fil", "w"), ("out", "dy", "x"))
    named = [f"--{name}_layout {_miopen_layout(call, *roles)}" for name, *roles in layouts]
    words += named if any(text.endswith("C") for text in named) else []
    passes = [call.pass_] if call.pass_ == "fprop" else [r for r in call.wanted if r != "db"]
    return " ".join((*words, f"-F {sum(_MIOPEN_PASSES[p] for p in passes)}", "-V 1"))


def _miopen_flags(flags: str, values: Sizes, missing: int) -> list[str]:
    """Return one flag per axis, long for depth; `missing` stands in for a height."""
    padded = (missing,) * (2 - len(values)) + values
    names = flags.split()[-len(padded) :]
    return [f"{'-' if len(n) == 1 else '--'}{n} {v}" for n, v in zip(names, padded)]


LITERAL = 64  # numbers; a larger array is packed
PACKED = 1 << 16  # numbers; a still larger one is drawn by the snippet itself
WIDTH = 88  # characters of a line of packed data
_EXCEPTIONS = 16  # elements that may differ from an otherwise constant array
_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_NAMES |= {"c64": "complex64", "c128": "complex128", "u8": "uint8"}
_NAMES |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
_JAX_NAMES = _NAMES | {f"u{bits}": f"uint{bits}" for bits in (16, 32, 64)}


class _Text(NamedTuple):
    """An array as Python: lines that come first, an expression, whether it is the same array."""

    before: tuple[str, ...]
    expression: str
    exact: bool


def _array_text(role: str, array: Array) -> _Text:
    """Return `array` as nested lists, a constant with exceptions, packed, or as draws like it."""
    wide: Array = array.astype(_widest(array))
    if 0 < wide.size <= LITERAL:
        return _Text((), repr(wide.tolist()), True)
    flat: Array = wide.ravel()
    values, counts = np.unique(flat, return_counts=True)
    common = values[counts.argmax()] if flat.size else flat.dtype.type(0)
    odd = np.flatnonzero(~((flat == common) | (np.isnan(flat) & np.isnan(common))))
    exact = len(odd) <= _EXCEPTIONS
    if exact:
        start = f"np.full({wide.shape}, {common.item()!r})"
    elif wide.size <= PACKED:
        return _packed(role, wide)
    else:
        odd = np.flatnonzero(~np.isfinite(flat))[:_EXCEPTIONS]
        start = _drawn(flat[np.isfinite(flat)], wide.shape)
    if not len(odd):
        return _Text((), start, exact)
    name = f"{role}_data"
    put = f"{name}.flat[{odd.tolist()}] = {flat[odd].tolist()!r}"
    return _Text((f"{name} = {start}", put), name, exact)


_UNPACK = """\
def unpacked(text, dtype, shape):
    return np.frombuffer(decompress(b85decode(text)), dtype).reshape(shape).copy()
"""
_PACKABLE = ("<i1", "<i2", "<f2", "<f4", "<f8", "<i8", "<c8", "<c16")


def _packed(role: str, array: Array) -> _Text:
    """Return `array` as compressed bytes of the narrowest type that holds all its numbers."""
    array = np.ascontiguousarray(array)
    kind = next(kind for kind in _PACKABLE if _holds(kind, array))
    data = b85encode(compress(array.astype(kind).tobytes(), 9)).decode()
    rows = [f'    "{data[i : i + WIDTH]}"' for i in range(0, len(data), WIDTH)]
    name = f"{role}_data"
    rows[-1] += ","
    return _Text((f"{name} = unpacked(", *rows, f'    "{kind}", {array.shape},', ")"), name, True)


def _holds(kind: str, array: Array) -> bool:
    if array.dtype.kind == "c" and kind[1] != "c":
        return False
    with np.errstate(all="ignore"):
        back = array.astype(kind).astype(array.dtype)
    return bool(np.array_equal(back.view(np.uint64), array.view(np.uint64)))  # -0.0 and NaN too


def _widest(array: Array) -> type:
    """Return the Python type whose numbers hold those of `array`."""
    return {"c": complex, "i": int, "u": int}.get(array.dtype.kind, float)


def _drawn(finite: Array, shape: Sizes) -> str:
    """Return an expression that draws numbers of the same kind and range."""
    if finite.dtype.kind == "c":
        return " + 1j * ".join((_drawn(finite.real, shape), _drawn(finite.imag, shape)))
    low, high = finite.min(), finite.max()
    if np.all(finite == np.floor(finite)) and max(-low, high) < 2**31:
        return f"rng.integers({int(low)}, {int(high) + 1}, {shape})"
    return f"rng.standard_normal({shape})"


class _Snippet:
    """What both frameworks share: the data of a case as text, its header and its answers."""

    def __init__(self, case: Case, framework: str) -> None:
        from .conformance.operands import operands

        self.case, self.call = case, case.call
        roles = self.call.roles
        self.arrays = dict(zip(roles, operands(case), strict=True))
        present = {role: a for role, a in self.arrays.items() if a is not None}
        self.texts = {role: _array_text(role, a) for role, a in present.items()}
        self.exact = all(text.exact for text in self.texts.values())
        self.framework = framework

    def assemble(self, imports: list[str], body: list[str], show: list[str]) -> str:
        """Return the whole snippet."""
        text = "\n".join((*(line for t in self.texts.values() for line in t.before), *body))
        if "unpacked(" in text:
            imports = ["from base64 import b85decode", "from zlib import decompress", *imports]
            body = [*_UNPACK.splitlines(), "", *body]
        if re.search(r"\b(np|rng)\.|unpacked\(", text):
            imports = ["import numpy as np", *imports]
        if re.search(r"\b(nan|inf)\b", text):
            imports = ["from math import inf, nan", *imports]
        if "rng." in text:
            imports = [*imports, "", f"rng = np.random.default_rng({self.case.seed})"]
        note = "" if self.exact else "\n# Some arrays are large: drawn here, not the case's own."
        head = f"# {self.case}\n# in plain {self.framework}{note}"
        return "\n".join((head, *imports, "", *body, "", *show, *self._answers(), ""))

    def _answers(self) -> list[str]:
        """Return the reference's results as comments, where the data and they are small."""
        from .oracle import evaluate

        small = all(a is None or a.size <= 4096 for a in self.arrays.values())
        counts = [prod(self.call.problem.shape(role)) for role in self.call.wanted]
        if not (self.exact and small and sum(counts) <= LITERAL):
            return []
        results = evaluate(self.call, *self.arrays.values())
        named = zip(self.call.signature.results, results)
        return [
            f"# convref: {role} = {r.astype(_widest(r)).tolist()}"
            for role, r in named
            if r is not None
        ]


def _prints(call: Call) -> list[str]:
    """Return the lines that print each wanted result, whole when it is small."""
    lines = []
    for role in call.wanted:
        if prod(call.problem.shape(role)) <= LITERAL:
            lines.append(f'print("{role} =", {role}.tolist())')
        else:
            lines.append(f'print("{role}", {role}.shape, "sum", {role}.sum().item(), {role})')
    return lines


def _refuse(framework: str, call: Call, names: dict[str, str]) -> None:
    """Raise where no snippet can say the call."""
    reason = None
    if call.op not in ("conv", "unfold", "fold"):
        reason = f"no snippet for {call.op} yet"
    elif call.dtype not in names:
        reason = f"{framework} has no convolution of {call.dtype}"
    elif call.op == "conv" and call.pass_ != "fprop" and call.dtype in dtypes.INTEGERS:
        reason = f"{framework} differentiates no integers"
    elif call.math == "tf32x3":
        reason = f"{framework} has no tf32x3"
    elif call.signature.maskable and not call.wanted:
        reason = "the mask asks for nothing"
    if reason is not None:
        raise UnsupportedError(message(f"snippet in {framework}", reason, call))


def _keywords(**values: tuple[Any, Any]) -> str:
    """Return ``, name=value`` for each (value, default) that differs."""
    return "".join(f", {name}={v}" for name, (v, default) in values.items() if v != default)


def _torch_conv(problem: ConvProblem) -> list[str]:
    rank = problem.rank
    ones, zeros = (1,) * rank, (0,) * rank
    symmetric = all(lo == hi >= 0 for lo, hi in problem.padding)
    lines = ["def conv(x, w, b=None):"]
    if problem.flip:
        lines.append(f"    w = torch.flip(w, {tuple(range(2, 2 + rank))})")
    keywords = _keywords(
        stride=(problem.stride, ones),
        padding=(tuple(lo for lo, _ in problem.padding) if symmetric else zeros, zeros),
        output_padding=(problem.output_padding if symmetric else zeros, zeros),
        dilation=(problem.dilation, ones),
        groups=(problem.groups, 1),
    )
    if not problem.transposed:
        if not symmetric:
            lines.append(f"    x = {_torch_pad('x', problem.padding)}")
        return [*lines, f"    return F.conv{rank}d(x, w, b{keywords})"]
    if symmetric:
        return [*lines, f"    return F.conv_transpose{rank}d(x, w, b{keywords})"]
    crop = [(-lo, e - hi) for (lo, hi), e in zip(problem.padding, problem.output_padding)]
    return [
        *lines,
        f"    y = F.conv_transpose{rank}d(x, w{keywords})",
        f"    y = {_torch_pad('y', crop)}",
        f"    return y if b is None else y + b.reshape(-1{', 1' * rank})",
    ]


def _torch_pad(name: str, padding: Iterable[tuple[int, int]]) -> str:
    """Return `name` padded by (lo, hi) pairs; F.pad takes the last axis first.

    Where an axis grows at one end and is cropped at the other, F.pad would crop first and may run
    out of elements: two steps then.
    """
    pairs = list(padding)
    steps = [pairs]
    if any(lo * hi < 0 for lo, hi in pairs):
        steps = [[(max(lo, 0), max(hi, 0)) for lo, hi in pairs]]
        steps.append([(min(lo, 0), min(hi, 0)) for lo, hi in pairs])
    for step in steps:
        name = f"F.pad({name}, {tuple(size for pair in reversed(step) for size in pair)})"
    return name


def _torch_windows(problem: Problem, unfolds: bool) -> list[str]:
    if problem.rank != 2:
        raise UnsupportedError(
            message("snippet in PyTorch", f"F.fold has no rank {problem.rank}", None)
        )
    keywords = f"{problem.filter}" + _keywords(
        dilation=(problem.dilation, (1, 1)), stride=(problem.stride, (1, 1))
    )
    if unfolds:
        return [
            "def unfold(x):",
            f"    return F.unfold({_torch_pad('x', problem.padding)}, {keywords})",
        ]
    sizes = tuple(i + lo + hi for i, (lo, hi) in zip(problem.input, problem.padding))
    image = f"F.fold(cols, {sizes}, {keywords})"
    crop = [(-lo, -hi) for lo, hi in problem.padding]
    return ["def fold(cols):", f"    return {_torch_pad(image, crop)}"]


_TORCH_LAYOUT = '''\
def laid_out(values, strides, offset=0):
    """Return values in a buffer with these strides, POISON between; stride 0 repeats a slice."""
    sizes = [n if s else min(n, 1) for n, s in zip(values.shape, strides)]
    last = sum(max(n - 1, 0) * s for n, s in zip(sizes, strides))
    view = values.new_full((offset + last + 1,), POISON).as_strided(sizes, strides, offset)
    view.copy_(values[tuple(slice(n) for n in sizes)])
    return view.expand(values.shape)

'''


def _strides(shape: Sizes, letters: str, spec: Spec) -> Sizes:
    """Return the strides, in elements, of an array that lies in memory as `spec` says."""
    steps, sizes = dict(spec.step), dict(zip(letters, shape, strict=True))
    strides, running = {}, 1
    for letter in reversed(spec.order or letters):
        strides[letter] = 0 if letter in spec.expand else running * steps.get(letter, 1)
        running *= 1 if letter in spec.expand else max(sizes[letter], 1) * steps.get(letter, 1)
    return tuple(strides[letter] for letter in letters)


def _torch_data(snippet: _Snippet) -> list[str]:
    """Return the lines that make each operand, where it lies as the case says."""
    call, lines = snippet.call, []
    dtype = f"dtype=torch.{_NAMES[call.dtype]}"
    device = "" if call.specs[0].device == "cpu" else f', device="{call.specs[0].device}"'
    views = False
    for role, text in snippet.texts.items():
        made = f"torch.tensor({text.expression}, {dtype}{device})"
        spec = call.spec(role)
        if spec.order or spec.step or spec.expand or spec.offset:
            views = True
            shape, letters = call.problem.shape(role), axis_letters(call.problem, role)
            offset = f", {spec.offset}" if spec.offset else ""
            made = f"laid_out({made}, {_strides(shape, letters, spec)}{offset})"
        lines += [*text.before, f"{role} = {made}"]
    if call.pass_ in ("backward", "double_backward") and "b" in _differentiated(call):
        lines.append(f"b = torch.zeros({call.conv.k}, {dtype}{device})")
    poison = f"torch.iinfo(torch.{_NAMES[call.dtype]}).max"
    poison = poison if call.dtype in dtypes.INTEGERS else "torch.nan"
    return [*_TORCH_LAYOUT.replace("POISON", poison).splitlines(), *lines] if views else lines


def _differentiated(call: Call) -> list[str]:
    """Return the inputs of the forward function that a backward pass differentiates by."""
    if call.pass_ == "backward":
        return [BASE_ROLE[role] for role in call.wanted]
    return list(call.carried)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _inputs(call: Call) -> str:
    """Return the arguments of conv in this pass."""
    with_bias = call.is_present("b") and "b" in call.roles
    return "x, w, b" if with_bias or "b" in _differentiated(call) else "x, w"


def _torch_pass(call: Call) -> list[str]:
    """Return the lines that compute the wanted results from the operands."""
    inputs = _inputs(call)
    if call.pass_ == "fprop":
        return [f"y = conv({inputs})"]
    if call.pass_ == "jvp" and not call.carried:
        return [f"y = conv({inputs})", "y_dot = torch.zeros_like(y)"]
    by = _differentiated(call)
    if call.pass_ == "jvp":
        primal, dots = f"lambda {', '.join(by)}: conv({inputs})", _listed(f"{n}_dot" for n in by)
        return [f"y, y_dot = torch.func.jvp({primal}, {_listed(by)}, {dots})"]
    if call.pass_ == "backward":
        lines = [f"{name}.requires_grad_()" for name in by]
        grad = f"torch.autograd.grad(conv({inputs}), {_listed(by)}, dy)"
        return [*lines, f"{_listed(call.wanted)} = {grad}"]
    return _torch_double_backward(call, inputs)


def _torch_double_backward(call: Call, inputs: str) -> list[str]:
    source = {"ddy": "dy", "dx": "x", "dw": "w"}
    by = [source[role] for role in call.wanted]
    zeros = [f"{role} = torch.zeros_like({source[role]})" for role in call.wanted]
    if not call.carried:
        return zeros
    bias = ["b"] if "b" in call.carried else []
    lines = [f"{name}.requires_grad_()" for name in ("dy", "x", "w", *bias)]
    first = f"torch.autograd.grad(conv({inputs}), {_listed(call.carried)}, dy, create_graph=True)"
    outer = _listed(f"dd{name}" for name in call.carried)
    return [
        *lines,
        f"first = {first}",
        f"{_listed(call.wanted)} = torch.autograd.grad(",
        f"    first, {_listed(by)}, {outer}, allow_unused=True, materialize_grads=True",
        ")",
    ]


def _window_pass(call: Call) -> tuple[bool, str, str]:
    """Return whether this pass of unfold or fold unfolds, its operand and its result."""
    unfolds = (call.op == "unfold") != (call.pass_ == "backward")
    return unfolds, call.signature.operands[0], call.signature.results[0]


def to_torch(case: Case, *, threads: int = 0) -> str:
    """Return a Python program that computes the case with PyTorch alone and prints the results.

    Parameters
    ----------
    case : Case
    threads : int
        How many threads the program asks for; 0 leaves that to PyTorch.

    Raises
    ------
    UnsupportedError
        If PyTorch has no such dtype, math or derivative.

    Examples
    --------
    >>> from convref.line import parse
    >>> print(to_torch(parse("conv.dgrad:n1c1k1_i3_f2:fill=ones")))
    # conv.dgrad:n1c1k1_i3_f2:fill=ones
    # in plain PyTorch
    import torch
    import torch.nn.functional as F
    <BLANKLINE>
    def conv(x, w, b=None):
        return F.conv1d(x, w, b)
    <BLANKLINE>
    dy = torch.tensor([[[1.0, 1.0]]], dtype=torch.float32)
    x = torch.tensor([[[1.0, 1.0, 1.0]]], dtype=torch.float32)
    w = torch.tensor([[[1.0, 1.0]]], dtype=torch.float32)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(conv(x, w), (x,), dy)
    <BLANKLINE>
    print("dx =", dx.tolist())
    # convref: dx = [[[1.0, 2.0, 1.0]]]
    <BLANKLINE>
    """
    call = case.call
    _refuse("PyTorch", call, _NAMES)
    snippet = _Snippet(case, "PyTorch")
    imports = ["import torch", "import torch.nn.functional as F"]
    imports += ["", f"torch.set_num_threads({threads})"] if threads else []
    if call.specs[0].device == "cuda":
        allow = call.math == "tf32"
        imports += ["", f"torch.backends.cudnn.allow_tf32 = {allow}"]
        imports += [f"torch.backends.cuda.matmul.allow_tf32 = {allow}"]
    if call.op == "conv":
        function, compute = _torch_conv(call.conv), _torch_pass(call)
    else:
        unfolds, operand, result = _window_pass(call)
        function = _torch_windows(call.problem, unfolds)
        compute = [f"{result} = {'unfold' if unfolds else 'fold'}({operand})"]
    return snippet.assemble(
        imports, [*function, "", *_torch_data(snippet), *compute], _prints(call)
    )


def _jax_conv(problem: ConvProblem) -> list[str]:
    rank, groups = problem.rank, problem.groups
    ones = (1,) * rank
    lines = ["def conv(x, w, b=None):"]
    if problem.transposed:
        k, c = problem.k // groups, problem.c // groups
        lines.append(f"    w = w.reshape({groups}, {c}, {k}, *{problem.filter}).swapaxes(1, 2)")
        lines.append(f"    w = w.reshape({problem.k}, {c}, *{problem.filter})")
    if problem.flip != problem.transposed:
        lines.append(f"    w = jnp.flip(w, {tuple(range(2, 2 + rank))})")
    padding: list[tuple[int, int]] = list(problem.padding)
    if problem.transposed:
        reach = [d * (taps - 1) for d, taps in zip(problem.dilation, problem.filter)]
        rows = zip(reach, problem.padding, problem.output_padding)
        padding = [(r - lo, r - hi + extra) for r, (lo, hi), extra in rows]
    keywords = _keywords(
        lhs_dilation=(problem.stride if problem.transposed else ones, ones),
        rhs_dilation=(problem.dilation, ones),
        feature_group_count=(groups, 1),
    )
    strides = ones if problem.transposed else problem.stride
    return [
        *lines,
        f"    y = lax.conv_general_dilated(x, w, {strides}, {padding}{keywords},",
        "                                 precision=lax.Precision.HIGHEST)",
        f"    return y if b is None else y + b.reshape(-1{', 1' * rank})",
    ]


def _jax_windows(problem: Problem, dtype: str, unfolds: bool) -> list[str]:
    keywords = _keywords(rhs_dilation=(problem.dilation, (1,) * problem.rank))
    geometry = f"{problem.filter}, {problem.stride}, {list(problem.padding)}{keywords}"
    n, rows, columns = problem.shape("cols")
    lines = [
        "def unfold(x):",
        f"    patches = lax.conv_general_dilated_patches(x, {geometry},",
        "                                               precision=lax.Precision.HIGHEST)",
        f"    return patches.reshape({n}, {rows}, {columns})",
    ]
    if unfolds:
        return lines
    shape = f"jax.ShapeDtypeStruct({problem.shape('x')}, jnp.{dtype})"
    return [
        *lines,
        "",
        "def fold(cols):",
        f"    return jax.linear_transpose(unfold, {shape})(cols)[0]",
    ]


def _jax_pass(call: Call) -> list[str]:
    """Return the lines that compute the wanted results from the operands."""
    inputs = _inputs(call)
    by = _differentiated(call)
    if call.pass_ == "fprop":
        return [f"y = conv({inputs})"]
    if call.pass_ == "jvp":
        if not call.carried:
            return [f"y = conv({inputs})", "y_dot = jnp.zeros_like(y)"]
        names, dots = ", ".join(by), _listed(f"{name}_dot" for name in by)
        primal = f"lambda {names}: conv({inputs})"
        return [f"y, y_dot = jax.jvp({primal}, {_listed(by)}, {dots})"]
    pulled = f"jax.vjp(lambda {', '.join(by)}: conv({inputs}), {', '.join(by)})[1](dy)"
    if call.pass_ == "backward":
        return [f"{_listed(call.wanted)} = {pulled}"]
    source = {"ddy": "dy", "dx": "x", "dw": "w"}
    if not by:
        return [f"{role} = jnp.zeros_like({source[role]})" for role in call.wanted]
    outer = _listed(f"dd{name}" for name in by)
    return [
        "def backward(dy, x, w):",
        f"    return {pulled}",
        f"ddy, dx, dw = jax.vjp(backward, dy, x, w)[1]({outer})",
    ]


def to_jax(case: Case) -> str:
    """Return a Python program that computes the case with JAX alone and prints the results.

    JAX arrays have no strides: where the case names a memory order, the program leaves it out.

    Raises
    ------
    UnsupportedError
        If JAX has no such dtype, math or derivative (complex ones follow another convention).

    Examples
    --------
    >>> from convref.line import parse
    >>> "lax.conv_general_dilated(x, w, (1,), [(-1, 0)]" in to_jax(
    ...     parse("conv.fprop:n1c1k1_i3_f2_p-1,0:fill=ones")
    ... )
    True
    """
    call = case.call
    _refuse("JAX", call, _JAX_NAMES)
    if call.dtype in dtypes.COMPLEX and call.pass_ in ("backward", "double_backward"):
        raise UnsupportedError(
            message("snippet in JAX", "JAX's complex cotangents are not conjugated", call)
        )
    snippet = _Snippet(case, "JAX")
    dtype = _JAX_NAMES[call.dtype]
    imports = ["import jax", "import jax.numpy as jnp", "from jax import lax"]
    if call.dtype.endswith(("64", "128")) and call.dtype != "c64":
        imports += ["", 'jax.config.update("jax_enable_x64", True)']
    if call.op == "conv":
        function, compute = _jax_conv(call.conv), _jax_pass(call)
    else:
        unfolds, operand, result = _window_pass(call)
        function = _jax_windows(call.problem, dtype, unfolds)
        compute = [f"{result} = {'unfold' if unfolds else 'fold'}({operand})"]
    data = []
    for role, text in snippet.texts.items():
        data += [*text.before, f"{role} = jnp.array({text.expression}, dtype=jnp.{dtype})"]
    if "b" in _differentiated(call) and "b" not in call.roles:
        data.append(f"b = jnp.zeros({call.conv.k}, dtype=jnp.{dtype})")
    return snippet.assemble(imports, [*function, "", *data, *compute], _prints(call))
