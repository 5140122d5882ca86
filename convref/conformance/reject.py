"""Inputs that every backend has to refuse: a valid case with one operand changed.

Each contradicts the other operands, from whichever operand the backend derives its sizes, and so is
not a valid call of another shape. Any exception is correct; a result is "accepts-invalid".
"""

from collections.abc import Callable, Iterator

import numpy as np

from .. import dtypes
from ..arrays import Array
from ..backends import Backend
from ..case import Call, Case, axis_letters
from ..errors import a_kind
from ..ops import BASE_ROLE, GROUPS, OPS, ConvProblem
from .examine import Finding
from .operands import operands

Operands = tuple[Array | None, ...]
Named = tuple[str, Operands]

# Axes whose extent another operand fixes too, by base role; o is K, i is C or C/G. The cotangent
# of the output shares N with x, K with w, and the spatial axes with both.
_FIXED = {"y": "ncdhw", "x": "c", "w": "i", "b": "o"}
# Operands that an adapter may add to a result itself, with broadcasting, unchecked by the library.
_ADDED_OUTSIDE = ("x_dot", "w_dot", "b_dot", "ddx", "ddw", "ddb")
# Ops with one operand, whose sizes only the call determines: adapters pass those on.
_CHECKED = {("resize", "backward"): {"dy"}}
# Ops whose operands share extents by name. A backend that recomputes the statistics ignores them.
_SHARING = (*GROUPS["norm"], *GROUPS["activation"])
_UNREAD = ("mean", "rstd")
_OTHER_DTYPE = {"f64": "f32", "c64": "c128", "c128": "c64"}


def invalid_inputs(call: Call, given: Operands, seed: int = 0) -> list[Named]:
    """Return wrong variants of valid operands of a call, each with the name of its error.

    Names are stable: "dy has smaller n", "w has another dtype", "x is None". The seed chooses by
    how much extents are off: 1 to 3, where there is room.

    >>> from convref.case import parse
    >>> case = parse("conv.fprop:n1c2k1_i1_f1")
    >>> [what for what, _ in invalid_inputs(case.call, operands(case))][:3]
    ['x has smaller c', 'x has larger c', 'x has another dtype']
    """
    if call.op in _SHARING:
        return _of_shared(call, given, seed) if all(call.problem.shape("x")) else []
    of_conv = isinstance(call.problem, ConvProblem)  # other products broadcast their operands
    if (call.op, call.pass_) not in _CHECKED and not (of_conv and call.problem.macs("y")):
        return []  # without any product a backend need not look at the operands
    found: list[Named] = []
    for role, array in zip(call.roles, given):
        if array is not None and role in _checked_roles(call):
            for what, wrong in _variants(call, role, array, seed):
                found.append((f"{role} {what}", _replace_operand(call, given, role, wrong)))
    return found


def _replace_operand(call: Call, given: Operands, role: str, array: Array | None) -> Operands:
    return tuple(array if name == role else a for name, a in zip(call.roles, given))


def _of_shared(call: Call, given: Operands, seed: int) -> list[Named]:
    """Return the variants of a norm or an activation: a wrong extent of a shared axis.

    A target may also be outside of the classes; on a CUDA device that ends the process by design.
    """
    found: list[Named] = []
    for role, letters in _shared_letters(call).items():
        array = given[call.roles.index(role)]
        assert array is not None
        variants = list(_resized(call, role, array, letters, seed))
        if role == "target" and call.specs[0].device == "cpu":
            variants.append(("names a class too many", np.full_like(array, call.problem.c)))
        for what, wrong in variants:
            changed = _replace_operand(call, given, role, wrong)
            if what.startswith("names") or not _is_valid(call, changed):
                found.append((f"{role} {what}", changed))
    return found


def _is_valid(call: Call, given: Operands) -> bool:
    """Return whether operands fit another problem of the op: one slope may serve all channels."""
    family, problem = type(call.problem), call.problem
    shapes = {r: a.shape for r, a in zip(call.roles, given) if a is not None}
    fields = {k: getattr(problem, k) for k in family.__dataclass_fields__}
    fixed = {k: v for k, v in fields.items() if k not in family.OF_OPERANDS}
    by_base = {"x": problem.shape("x"), **{BASE_ROLE[r]: s for r, s in shapes.items()}}
    other = family.unchecked({**fixed, **family.of_operands(call.pass_, by_base, fixed)})
    return all(other.shape(role) == shape for role, shape in shapes.items())


def _shared_letters(call: Call) -> dict[str, str]:
    """Return, by role, the axes that a requested result shares with another operand."""
    found: dict[str, str] = {}
    left_out = (*_UNREAD, *_ADDED_OUTSIDE)
    for result in call.wanted:
        read = [r for r in call.terms(result).reads if call.is_present(r) and r not in left_out]
        for role in read:
            others = {axis for r in read if r != role for axis in axis_letters(call.problem, r)}
            shared = set(found.get(role, "")) | (others & set(axis_letters(call.problem, role)))
            found[role] = "".join(sorted(shared))
    return found


def _checked_roles(call: Call) -> set[str]:
    """Return the roles that a wanted result multiplies with another, and a bias with them.

    Operands that no result needs may be anything, and db needs dy alone.
    """
    if (call.op, call.pass_) in _CHECKED:
        return _CHECKED[call.op, call.pass_]
    terms = [call.terms(role) for role in call.wanted]
    needed = {role for term in terms for pair in term.products for role in pair}
    if not call.conv.transposed:
        needed |= {role for term in terms for role in term.added if role == "b"}
    return needed - set(_ADDED_OUTSIDE)


def _variants(call: Call, role: str, array: Array, seed: int) -> Iterator[tuple[str, Array | None]]:
    yield from _resized(call, role, array, _FIXED[BASE_ROLE[role]], seed)
    other = dtypes.numpy_dtype(_OTHER_DTYPE.get(call.dtype, "f64"))
    if array.dtype.kind != "O" and OPS[call.op].multiplies:  # autograd casts a cotangent
        with np.errstate(all="ignore"):
            yield "has another dtype", array.astype(other)
    yield "lacks an axis", np.zeros(array.shape[:-1], array.dtype)
    yield "has an axis more", array[..., None]
    if role != "b":
        yield "is None", None


def _resized(
    call: Call, role: str, array: Array, letters: str, seed: int
) -> Iterator[tuple[str, Array | None]]:
    """Yield the operand with one of its extents made smaller or larger."""
    for axis, letter in enumerate(axis_letters(call.problem, role)):
        size = array.shape[axis]
        if letter in letters and size > 1:
            smaller = max(1, size - 1 - seed % 3)
            yield f"has smaller {letter}", np.take(array, range(smaller), axis)
        if letter in letters and size:
            larger = [i % size for i in range(size + 1 + seed % 3)]
            yield f"has larger {letter}", np.take(array, larger, axis)


def examine_rejection(
    case: Case,
    backend: Backend,
    announce: Callable[[str], None] = lambda what: None,
    only: str = "",
) -> Finding | None:
    """Return a Finding if a backend accepts an invalid variant of a case that it passes, else None.

    The case's seed chooses the variant to start from. A backend whose attribute
    ``checked_by_dispatch`` is true has no checks of its own, and none is tried. The backend is
    called in this process, and may read beyond the operands; `announce` is called with the name of
    the error before each call. The finding's reason begins with this name and a colon.

    >>> from convref.dispatch import load
    >>> from convref.case import parse
    >>> examine_rejection(parse("conv.fprop:n1c2k1_i1_f1"), load("numpy")) is None
    True
    """
    if getattr(backend, "checked_by_dispatch", False):
        return None
    found = invalid_inputs(case.call, operands(case), case.seed)
    variants = [variant for variant in found if only in ("", variant[0])]
    first = case.seed % len(variants) if variants else 0
    for what, given in variants[first:] + variants[:first]:
        announce(what)
        try:
            results = backend.run(case.call, *given)
        except Exception:  # any exception is a refusal
            continue
        return _finding(case, what, given, results)
    return None


def _finding(case: Case, what: str, given: Operands, results: object) -> Finding:
    role = what.partition(" ")[0]
    array = given[case.call.roles.index(role)]
    got = "None" if array is None else f"{dtypes.code_of(array.dtype)}{array.shape}"
    needs = f"{case.call.dtype}{case.call.problem.shape(role)}"
    kind = a_kind(results)
    reason = f"{what}: {got} given, {needs} needed; returned {kind}, needs an error"
    return Finding(str(case), "accepts-invalid", "form", reason, role)
