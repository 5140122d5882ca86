"""The shrinker: the smallest case that fails the same way, and which of its fields matter.

It changes the fields of a case, not the bytes that generated it. Each trial is a line that a worker
runs, so crashes and hangs are shrunk too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from math import isqrt, prod
from typing import Any

from ..case import SPATIAL, Case, Spec
from ..errors import ConvrefError
from ..ops import ConvProblem, Problem

# For each case: whether it fails in the same way, None if it was not run.
Fails = Callable[[list[Case]], Sequence[bool | None]]
EARLIER = ("data", "dtype", "batch", "memory")  # of `convref.case.AROUND`
SIMPLE_FILLS = ("ones", "int", "normal")
OTHER_SEEDS = 4  # with which a smaller case may fail, where the data of its own seed pass


@dataclass(frozen=True)
class Shrunk:
    """A failure, shrunk."""

    case: Case  # the smallest case found
    needs: tuple[str, ...]  # fields whose neutral value passes, e.g. "stride[1] >= 2"
    independent: tuple[str, ...]  # fields that may have other values too
    trials: int  # cases run on the way


def weight(case: Case) -> tuple[int, ...]:
    """Return how large a case is; shrinking makes it smaller in this order."""
    call, problem = case.call, case.call.problem
    sizes = [abs(getattr(problem, name) - 1) for name in problem.HEAD.values()]
    for name, least in _per_axis_fields(problem).items():
        sizes += [abs(size - least) for size in getattr(problem, name)]
    sizes += [abs(edge) for pair in problem.padding for edge in pair]
    flags = len(_nondefaults(problem)) + max(1, sum(call.mask)) + len(call.carried)
    views = 2 * (call.dtype != "f32") + 2 * len(case.around)
    for spec in call.specs:
        views += bool(spec.order) + 2 * len(spec.step) + 2 * len(spec.expand) + bool(spec.offset)
    fill = SIMPLE_FILLS.index(case.fill) if case.fill in SIMPLE_FILLS else len(SIMPLE_FILLS)
    return (problem.rank, sum(sizes) + 4 * flags, views, fill, case.seed)


def _per_axis_fields(problem: Problem) -> dict[str, int]:
    """Return the fields that hold a number per axis, with the value that shrinking aims at."""
    sizes = {name: 1 for name, _ in problem.SIZES if name != "input"}
    return {**sizes, "input": 1, **_added(problem)}


def _added(problem: Problem) -> dict[str, int]:
    return {field.name: 0 for field in problem.KEYS.values() if field.codec == "sizes"}


def _nondefaults(problem: Problem) -> dict[str, Any]:
    usual = {field.name: field.default for field in fields(problem)}
    names = [field.name for field in problem.KEYS.values() if field.codec != "sizes"]
    return {name: usual[name] for name in names if getattr(problem, name) != usual[name]}


def _changed(case: Case, **fields: Any) -> Case | None:
    """Return the case with other fields of its problem, None where that is invalid.

    A size that the op does not take is rounded up to one that it takes.
    """
    problem = case.call.problem
    given = vars(problem) | fields
    sizes = problem.admissible({name: given[name] for name in ("n", "c", "input")}, given)
    try:
        return replace(case, call=replace(case.call, problem=replace(problem, **fields | sizes)))
    except ConvrefError:
        return None


def _called(case: Case, **fields: Any) -> Case | None:
    """Return the case with other fields of its call, None where that is invalid."""
    try:
        return replace(case, call=replace(case.call, **fields))
    except ConvrefError:
        return None


def _in_f32(case: Case) -> Case | None:
    return _called(case, specs=tuple(replace(s, dtype="f32") for s in case.call.specs))


def _default_spec(spec: Spec) -> Spec:
    return Spec(spec.dtype, device=spec.device)


def _replace_at(values: Sequence[Any], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _padded(problem: Problem, axis: int, side: int, size: int) -> tuple[Any, ...]:
    """Return the padding with one edge changed."""
    return _replace_at(problem.padding, axis, _replace_at(problem.padding[axis], side, size))


def _smaller(value: int, least: int) -> Iterator[int]:
    """Yield smaller values, boldest first: the least, then steps that are halved, to one less."""
    if value < least:
        yield value + 1
    step = value - least
    while step > 0:
        yield value - step
        step = (step + 1) // 2 if step > 1 else 0


def candidates(case: Case) -> Iterator[Case]:
    """Yield smaller neighbours of a case, the boldest steps first; all are valid."""
    most = weight(case)
    for neighbour in _neighbours(case):
        if neighbour is not None and weight(neighbour) < most:
            yield neighbour


def _neighbours(case: Case) -> Iterator[Case | None]:
    call, problem = case.call, case.call.problem
    for around in ((), *((name,) for name in case.around)):
        yield replace(case, around=around)
    yield _called(case, specs=tuple(map(_default_spec, call.specs)))
    yield _in_f32(case)  # while sizes are large: with the smallest ones it may take another path
    yield from _lower_ranks(case)
    yield from _channel_steps(case)
    for name in _nondefaults(problem):
        yield _with_default(case, name)
    if call.op == "conv":
        yield from _conv_steps(case, call.conv)
    if problem.padding:
        yield _changed(case, padding=0)
    for name, least in _per_axis_fields(problem).items():
        values = getattr(problem, name)
        for axis, value in enumerate(values):
            for smaller in _smaller(value, least):
                yield _changed(case, **{name: _replace_at(values, axis, smaller)})
    if problem.padding:
        yield from _pad_steps(case)
    elif "output" in dict(problem.SIZES):
        yield from _ratio_steps(case)
    yield from _call_steps(case)


def _ratio_steps(case: Case) -> Iterator[Case | None]:
    """Yield steps that keep about the ratio of an input size and an output size."""
    problem = case.call.problem
    for axis, (size, made) in enumerate(zip(problem.input, problem.output)):
        for fewer in _smaller(made, 1):
            for smaller in {size * fewer // made, -(-size * fewer // made)} if made else {size}:
                sizes = {"input": max(1, smaller), "output": fewer}
                given = {
                    name: _replace_at(getattr(problem, name), axis, v) for name, v in sizes.items()
                }
                yield _changed(case, **given)


def _with_default(case: Case, name: str) -> Case | None:
    """Return the case with a key at its default, and added sizes at 0 where that requires it.

    With another axis `dim`, the sizes of the two axes are exchanged.
    """
    problem = case.call.problem
    default = {name: _nondefaults(problem)[name]}
    if name == "dim":
        shape = [problem.n, problem.c, *problem.input]
        old, new = problem.dim, default[name]
        shape[old], shape[new] = shape[new], shape[old]
        default |= {"n": shape[0], "c": shape[1], "input": tuple(shape[2:])}
    return _changed(case, **default) or _changed(case, **default, **_added(problem))


def _channel_steps(case: Case) -> Iterator[Case | None]:
    """Yield the case with fewer images, channels and groups."""
    problem, groups = case.call.problem, case.call.problem.groups
    names = [name for name in problem.HEAD.values() if name not in ("n", "groups")]
    per = {name: getattr(problem, name) // groups for name in names}
    if groups > 1:
        yield _changed(case, groups=1, **{**dict.fromkeys(names, 1), "c": max(1, per["c"])})
        yield _changed(case, n=1, **dict.fromkeys(names, groups))
        yield _changed(case, groups=1)
        for fewer in _smaller(groups, 1):
            yield _changed(case, groups=fewer, **{name: n * fewer for name, n in per.items()})
    for n in _smaller(problem.n, 1):
        yield _changed(case, n=n)
    for name, size in per.items():
        for smaller in _smaller(size, 1):
            yield _changed(case, **{name: smaller * groups})


def _conv_steps(case: Case, problem: ConvProblem) -> Iterator[Case | None]:
    """Yield a convolution that is not transposed, pointwise ones, and equal sizes made smaller."""
    mirrored = [(-hi, -lo) for lo, hi in problem.padding]  # one pads where the other crops
    yield _changed(case, transposed=False, output_padding=0, padding=mirrored)
    pointwise = {"filter": 1, "stride": 1, "dilation": 1, "padding": 0, "output_padding": 0}
    yield _changed(case, **pointwise, input=problem.output)
    plain = _called(case, specs=tuple(map(_default_spec, case.call.specs))) or case
    yield _changed(plain, **pointwise, input=(prod(problem.output),))
    terms = problem.c // problem.groups * prod(problem.filter)
    side = isqrt(terms)
    if problem.rank == 1 and side > 2:  # sums as long, of as many taps as channels
        sizes = {"c": -(-terms // side) * problem.groups, "filter": side, "input": side}
        yield _changed(case, **{**pointwise, **sizes})
    yield from _equal_steps(case)


def _lower_ranks(case: Case) -> Iterator[Case | None]:
    """Yield the case with one spatial axis left out, or made one with its neighbour."""
    problem = case.call.problem
    if problem.rank == 1:
        return
    for axis in range(problem.rank):
        changed: dict[str, Any] = {
            field.name: tuple(v for a, v in enumerate(values) if a != axis)
            for field in fields(problem)
            if isinstance(values := getattr(problem, field.name), tuple)
        }
        if getattr(problem, "dim", 0) > axis + 2:
            changed["dim"] = problem.dim - 1
        letters = SPATIAL[problem.rank]
        rest = letters[:axis] + letters[axis + 1 :]
        renamed = {letters[axis]: "", **dict(zip(rest, SPATIAL[problem.rank - 1]))}
        plain = tuple(map(_default_spec, case.call.specs))
        for more, specs in (
            ({}, tuple(_renamed(spec, renamed) for spec in case.call.specs)),
            ({}, plain),
            (_merged(problem, axis, ("input",)), plain),
            (_merged(problem, axis, ("input", "filter")), plain),
        ):
            try:
                lower = replace(problem, **changed | more)
                yield replace(case, call=replace(case.call, problem=lower, specs=specs))
            except ConvrefError:
                continue


def _merged(problem: Problem, axis: int, names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Return sizes without an axis, whose extent the next one (or the one before) takes too."""
    found = {}
    for name in names:
        sizes = list(getattr(problem, name, ()))
        if sizes:
            extent = sizes.pop(axis)
            sizes[min(axis, len(sizes) - 1)] *= extent
            found[name] = tuple(sizes)
    return found


def _renamed(spec: Spec, names: dict[str, str]) -> Spec:
    """Return the Spec with other axis letters; an axis whose new name is empty is left out."""
    order, expand = ("".join(names.get(a, a) for a in text) for text in (spec.order, spec.expand))
    steps = tuple((names.get(a, a), k) for a, k in spec.step if names.get(a, a))
    return replace(spec, order=order, step=steps, expand=expand)


def _equal_steps(case: Case) -> Iterator[Case | None]:
    """Yield steps that make sizes smaller together that are equal, perhaps for a reason."""
    problem = case.call.conv
    sizes = (problem.n, problem.c, problem.k, *problem.input)
    for size in {size for size in sizes if sizes.count(size) > 1}:
        for smaller in _smaller(size, 1):
            n, c, k, *image = (smaller if s == size else s for s in sizes)
            yield _changed(case, n=n, c=c, k=k, input=tuple(image))


def _pad_steps(case: Case) -> Iterator[Case | None]:
    problem = case.call.problem
    for axis, pair in enumerate(problem.padding):
        for side in (0, 1):
            for smaller in _smaller(pair[side], 0):
                yield _changed(case, padding=_padded(problem, axis, side, smaller))
                yield _changed(case, padding=_replace_at(problem.padding, axis, (smaller, smaller)))
        yield from _joint_steps(case, axis)


def _joint_steps(case: Case, axis: int) -> Iterator[Case | None]:
    """Yield steps of two fields that keep the windows in place only together."""
    problem = case.call.problem
    for step in (problem.filter[axis] // 2, 2, 1):  # filter and image; either and its padding
        for names in (("filter", "input"), ("filter",), ("input",)):
            given = {name: getattr(problem, name) for name in names}
            sizes = {name: _replace_at(v, axis, v[axis] - step) for name, v in given.items()}
            pads = problem.padding
            if len(names) == 1:
                lo, hi = pads[axis]
                narrower = (lo - (lo > 0) * ((step + 1) // 2), hi - (hi > 0) * (step // 2))
                pads = _replace_at(pads, axis, narrower)
            if step and all(values[axis] >= 1 for values in sizes.values()):
                yield _changed(case, **sizes, padding=pads)
    for side, edge in enumerate(problem.padding[axis]):
        if edge < 0 and problem.input[axis] > 1:
            for less, pad in ((1, edge + 1), (-edge, 0), (-edge, -edge)):
                # a crop and the positions it cuts off
                image = _replace_at(problem.input, axis, max(1, problem.input[axis] - less))
                yield _changed(case, input=image, padding=_padded(problem, axis, side, pad))


def _call_steps(case: Case) -> Iterator[Case | None]:
    call = case.call
    for i, on in enumerate(call.mask):
        if on and sum(call.mask) > 1:
            yield _called(case, mask=tuple(j == i for j in range(len(call.mask))))
            yield _called(case, mask=tuple(bit and j != i for j, bit in enumerate(call.mask)))
    for tangent in call.carried:
        yield _called(case, tangents=call.carried.replace(tangent, ""))
    yield _in_f32(case)
    for i, spec in enumerate(call.specs):
        for simpler in (
            _default_spec(spec),
            replace(spec, offset=0),
            replace(spec, step=()),
            *(replace(spec, step=(step,)) for step in spec.step),
            replace(spec, expand=""),
            replace(spec, order=""),
        ):
            if simpler != spec:
                yield _called(case, specs=_replace_at(call.specs, i, simpler))
    for fill in SIMPLE_FILLS:
        if fill != case.fill:
            yield replace(case, fill=fill)
    for seed in _smaller(case.seed, 0):
        yield replace(case, seed=seed)


def reproducible(case: Case, fails: Fails) -> Case | None:
    """Return a case that fails in a new process: alone, as it is, or after another call.

    Return None if it does not: it depends on more of what was called before.
    """
    more = [(name, *case.around) for name in EARLIER if name not in case.around]
    arounds = dict.fromkeys(((), case.around, *more))
    for seed in (case.seed, case.seed + 1):  # its parity decides on a larger or a smaller batch
        for around in arounds:
            other = replace(case, around=around, seed=seed)
            if fails([other])[0] is not False:
                return other
    return None


def _unseen(case: Case, seen: set[str]) -> Iterator[Case]:
    """Yield the smaller neighbours whose lines are not in `seen`, and put them there."""
    for neighbour in chain(candidates(case), _with_other_data(case)):
        line = str(neighbour)
        if line not in seen:
            seen.add(line)
            yield neighbour


def shrink(case: Case, fails: Fails, *, batch: int = 8, max_trials: int = 600) -> Shrunk:
    """Return the smallest case found that fails as `case` does, by greedy descent.

    `fails` returns for each of a list of cases whether it fails in the same way, None if not run. A
    batch of neighbours is tried at once, shared by the workers; `max_trials` limits all cases.

    >>> from convref.case import parse
    >>> start = parse("conv.fprop:n2c8k4_i9x9_f3x3_s2x3_p1:fill=normal:seed=5")
    >>> found = shrink(start, lambda cases: [c.call.problem.stride[-1] > 1 for c in cases])
    >>> print(found.case, found.needs)
    conv.fprop:n1c1k1_i1_f1_s2:fill=ones ('stride >= 2',)
    """
    trials, moved = 0, True
    seen = {str(case)}
    while moved and trials < max_trials:
        moved = False
        neighbours = _unseen(case, seen)
        while not moved and (group := list(islice(neighbours, batch))):
            trials += len(group)
            failing = [c for c, bad in zip(group, fails(group)) if bad]
            if failing:
                case, moved = failing[0], True
    needs, independent, tried = _knock_out(case, fails)
    return Shrunk(case, needs, independent, trials + tried)


def _with_other_data(case: Case) -> Iterator[Case]:
    """Yield smaller neighbours with other seeds, if the failure depends on the data."""
    for seed in range(1, OTHER_SEEDS + 1) if case.fill != "ones" else ():
        for neighbour in candidates(case):
            if weight(neighbour)[:-1] < weight(case)[:-1]:
                yield replace(neighbour, seed=seed)


def _knock_out(case: Case, fails: Fails) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return which fields matter: neutral values that pass, and larger ones that still fail."""
    neutral: list[tuple[str, str, Case]] = []
    larger: list[tuple[str, Case]] = []
    for name, text, plain, more in _probes(case):
        neutral += [(name, text, plain)] if plain is not None else []
        larger += [(name, more)] if more is not None else []
    bad = fails([plain for _, _, plain in neutral] + [more for _, more in larger])
    free = {name for (name, _), fail in zip(larger, bad[len(neutral) :]) if fail}
    needs = {}
    for (name, text, _), fail in zip(neutral, bad):
        if fail is False:
            needs[name] = text if name in free else text.replace(">= ", "= ")
    exact = tuple(f"{name} {text}" for name, text in needs.items())
    return exact, tuple(sorted(free - {*needs})), len(neutral) + len(larger)


# Field, value as text, the case with the neutral value, the case with a larger one.
Probe = tuple[str, str, Case | None, Case | None]


def _probes(case: Case) -> Iterator[Probe]:
    yield from _size_probes(case)
    problem = case.call.problem
    for name in _nondefaults(problem):
        value = getattr(problem, name)
        text = f"= {int(value) if isinstance(value, bool) else value}"
        yield name, text, _with_default(case, name), None
    for name, least in _per_axis_fields(problem).items():
        values = getattr(problem, name) if least else ()
        for axis, value in enumerate(values):
            label = name if len(values) == 1 else f"{name}[{axis}]"
            plain, larger = (
                _changed(case, **{name: _replace_at(values, axis, v)}) for v in (1, value + 1)
            )
            yield label, f">= {value}", plain if value != 1 else None, larger
    for axis, pair in enumerate(problem.padding):
        for side, word in enumerate(("lo", "hi")):
            if pair[side]:
                plain = _changed(case, padding=_padded(problem, axis, side, 0))
                yield f"padding[{axis}].{word}", f"= {pair[side]}", plain, None
    yield from _spec_probes(case)
    if case.around:
        yield "around", f"= {','.join(case.around)}", replace(case, around=()), None
    if case.fill not in ("int", "ones"):
        yield "fill", f"= {case.fill}", replace(case, fill="int"), None


def _size_probes(case: Case) -> Iterator[Probe]:
    problem = case.call.problem
    for name in problem.HEAD.values():
        value, step = getattr(problem, name), 1 if name in ("n", "groups") else problem.groups
        larger = _changed(case, **{name: value + step}) if name != "groups" else None
        neutral = _changed(case, **{name: step}) if value != step else None
        yield name, f">= {value}", neutral, larger


def _spec_probes(case: Case) -> Iterator[Probe]:
    call = case.call
    if call.dtype != "f32":
        yield "dtype", f"= {call.dtype}", _in_f32(case), None
    for role, spec in zip(call.roles, call.specs):
        if spec != _default_spec(spec):
            specs = _replace_at(call.specs, call.roles.index(role), _default_spec(spec))
            yield f"mem.{role}", "as it is", _called(case, specs=specs), None
