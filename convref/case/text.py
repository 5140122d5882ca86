"""The line written: fields of problems and memory orders as text."""

from collections.abc import Callable, Iterator
from typing import Any

from ..ops import SPATIAL, Field, Problem
from .spec import Spec, axis_letters, channels_last


def format_problem(op: str, problem: Problem) -> str:
    """Return the line of a problem alone."""
    return f"{op}:{shape_text(problem)}" + "".join(
        f":{k}={v}" for k, v in problem_keys(problem) if v is not None
    )


def _joined(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))


def _joined_pads(padding: tuple[tuple[int, int], ...]) -> str:
    if all(lo == hi for lo, hi in padding):
        return _joined(tuple(lo for lo, _ in padding))
    items = [f"{lo},{hi}" for lo, hi in padding]
    return items[0] if len(set(items)) == 1 else "x".join(items)


def _spans(pairs: tuple[tuple[float, float], ...]) -> str:
    return "x".join(",".join(map(_float_text, pair)) for pair in pairs)


def _float_text(value: float) -> str:
    """Return the shortest text that reads back as `value`, whole numbers without a point."""
    return repr(float(value)).removesuffix(".0")


def shape_text(problem: Problem) -> str:
    """Return the sizes of a problem: n1c2_i5_f3."""
    known = problem.defaults()
    numbers = {letter: getattr(problem, name) for letter, name in problem.HEAD.items()}
    head = "".join(
        f"{letter}{number}"
        for letter, number in numbers.items()
        if number != known.get(problem.HEAD[letter])
    )
    parts = (
        f"{letter}{WRITE[field.codec](getattr(problem, field.name))}"
        for letter, field in problem.PARTS.items()
        if not _is_default(problem, field)
    )
    return "_".join((head, *parts))


def _is_default(problem: Problem, field: Field) -> bool:
    """Return whether a field has its default, on every axis where it has one per axis."""
    default, value = problem.defaults().get(field.name), getattr(problem, field.name)
    return set(value) == set(default) if isinstance(default, tuple) else value == default


def problem_keys(problem: Problem) -> Iterator[tuple[str, str | None]]:
    """Yield each key of a problem with its text, None where it has its default."""
    for key, field in problem.KEYS.items():
        default = _is_default(problem, field)
        yield key, None if default else WRITE[field.codec](getattr(problem, field.name))


def _features(spec: Spec) -> str:
    items = [spec.order] if spec.order else []
    items += [f"step{k}{axis}" for axis, k in spec.step]
    items += [f"expand{axis}" for axis in spec.expand]
    items += [f"off{spec.offset}"] if spec.offset else []
    return ".".join(items)


def memory_text(problem: Problem, specs: dict[str, Spec]) -> str | None:
    """Return the memory of the operands that are present, None where all are in logical order."""
    texts = {role: text for role, spec in specs.items() if (text := _features(spec))}
    last = {role: channels_last(axis_letters(problem, role)) for role in specs}
    if texts and texts == {r: o for r, o in last.items() if o != axis_letters(problem, r)}:
        return channels_last("nc" + SPATIAL[problem.rank])
    return ",".join(f"{role}.{text}" for role, text in texts.items()) or None


# How a field is written, by the codec that `convref.ops.Field` names; `parse.READ` reads the same.
WRITE: dict[str, Callable[[Any], str]] = {
    "extents": lambda value: "x".join(map(str, value)),
    "sizes": _joined,
    "pads": _joined_pads,
    "flag": lambda value: "01"[value],
    "integer": str,
    "float": _float_text,
    "floats": lambda value: "x".join(map(_float_text, value)),
    "spans": _spans,
    "word": str,
}
