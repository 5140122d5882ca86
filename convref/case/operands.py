"""Operands against a call: the one check of presence, sizes, kind, dtype and device."""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from ..arrays import Facts, facts, has_values, to_numpy
from ..errors import invalid
from ..ops import (
    BASE_ROLE,
    FAMILY,
    FILTER_AXES,
    OUTPUT_AXES,
    OWN_TYPE,
    RANKS,
    SIGNATURE,
    STATISTICS,
    Problem,
    Sizes,
)
from . import memory
from .call import Call
from .spec import Spec, axis_letters

# The name of each base role in the public functions and in messages, where it has another.
ARGUMENT = {
    "x": "input",
    "k": "key",
    "v": "value",
    "w": "weight",
    "b": "bias",
    "y": "output",
    "cols": "input",
    "p": "target",
    "b32": "bias",
    "zero": "weight_zero_point",
    "rmean": "running_mean",
    "rvar": "running_var",
    "mod": "mask",
}


def argument(role: str) -> str:
    """Return the name of a role in messages.

    >>> argument("dy"), argument("ddw"), argument("grid_dot")
    ('grad_output', 'grad_grad_weight', 'grid tangent')
    """
    base = BASE_ROLE.get(role, role)
    name = ARGUMENT.get(base, base)
    if role.endswith("_dot"):
        return f"{name} tangent"
    return "grad_" * (len(role) - len(base)) + name  # a d for each


def check_operand(call: Call, role: str, fact: Facts | None, like: Facts | None = None) -> None:
    """Raise unless an operand has the presence, sizes and dtype that the call gives its role.

    The fact is None where the operand is None. It needs the kind and device of `like`. The text is
    like ``max_pool.backward: grad_output has Q=7, needs 8 (LINE)``.
    """
    problem = None
    if (fact is not None) != call.is_present(role):
        state, needs = ("None", "an array") if fact is None else ("an array", "None")
        problem = f"is {state}, needs {needs}"
    elif fact is not None:
        problem = _mismatch(call, role, fact, like)
    if problem is not None:
        raise invalid(call.where, f"{argument(role)} {problem}", call)


def check_result(call: Call, role: str, fact: Facts | None, kind: str) -> str | None:
    """Return what is wrong with the presence, kind, sizes or dtype of a result; None if nothing."""
    wanted = role in call.wanted
    if fact is None or not wanted:
        state, needs = ("None", "an array") if wanted else ("an array", "None")
        return None if (fact is not None) == wanted else f"is {state}, needs {needs}"
    return _mismatch(call, role, fact, fact._replace(kind=kind))


def _mismatch(call: Call, role: str, fact: Facts, like: Facts | None) -> str | None:
    needs = call.problem.shape(role)
    pairs = [("dtype", fact.dtype, call.dtype_of(role))]
    if like is not None:
        pairs = [("kind", fact.kind, like.kind), *pairs, ("device", fact.device, like.device)]
    for name, got, need in pairs:
        narrow = fact.kind == "jax" and (got, need) == ("i32", "i64")  # JAX without x64
        if got != need and not narrow:
            return f"has {name} {got}, needs {need}"
    if len(fact.shape) != len(needs):
        return f"has {len(fact.shape)} axes, needs {len(needs)}"
    for axis, size, required in zip(size_letters(call.problem, role), fact.shape, needs):
        if size != required:
            return f"has {axis}={size}, needs {required}"
    return None


def check_count(call: Call, operands: Sequence[Any]) -> None:
    """Raise unless there are as many operands, absent ones included, as the call has roles."""
    if len(operands) != len(call.roles):
        needs = f"{len(call.roles)}: {', '.join(map(argument, call.roles))}"
        raise invalid(call.where, f"got {len(operands)} operands, needs {needs}", call)


def first_array(call: Call, operands: Sequence[Any]) -> Any:
    """Return the first operand that is not None: results are arrays of its kind.

    Raise if all are None, or if their number is wrong.
    """
    check_count(call, operands)
    for operand in operands:
        if operand is not None:
            return operand
    raise invalid(call.where, "every operand is None, needs an array", call)


def check_operands(call: Call, operands: Sequence[Any], where: str = "") -> None:
    """Raise unless each operand, by role, fits the call; kinds and devices may differ.

    `where` begins messages on arrays of unknown libraries; by default it is the pass.
    """
    check_count(call, operands)
    for role, array in zip(call.roles, operands):
        place = where or call.where
        check_operand(call, role, None if array is None else facts(place, argument(role), array))


def check_positions(call: Call, role: str, array: Any) -> None:
    """Raise if an operand on the CPU holds a position or a class that its problem does not have.

    On other devices nothing is read: the kernel decides, as in PyTorch. The text is like
    ``cross_entropy.fprop: target holds 9, needs a class from 0 to 2 or -100 (LINE)``.
    """
    valid = call.problem.positions(role)
    if valid is None or array is None or call.specs[0].device != "cpu" or not has_values(array):
        return
    total, other, thing, column = valid
    whole = to_numpy(array)
    values = whole if column is None else whole[:, column]
    if values.size and not (values.min() >= 0 and values.max() < total):
        wrong = values[~((values >= 0) & (values < total)) & (values != other)]
        if wrong.size:
            needs = f"needs {thing} from 0 to {total - 1}"
            needs += "" if other is None else f" or {other}"
            what = f"{argument(role)} holds {wrong[0]}, {needs}"
            raise invalid(call.where, what, call)
    if flaw := call.problem.flaw(whole, memory.available()):
        raise invalid(call.where, f"{argument(role)} {flaw}", call)


def check_objects(call: Call, operands: Sequence[Any]) -> None:
    """Raise if an array of objects holds a complex number where its problem has none."""
    reason = call.problem.refuses("c128")
    for role, array in zip(call.roles, operands):
        if reason and array is not None and role not in OWN_TYPE:
            if all(isinstance(value, Real) for value in array.flat):
                continue
            what = f"{argument(role)} holds a complex number: {reason}"
            raise invalid(call.where, what, call)


def size_letters(problem: Problem, role: str) -> Sequence[str]:
    """Return the letter of each size of the array in `role`, as the formulas have them.

    >>> from convref.ops import ConvProblem
    >>> size_letters(ConvProblem(n=1, c=1, k=1, input=(5, 5), filter=(3, 3)), "dy")
    ('N', 'K', 'P', 'Q')
    """
    letters, base, rank = axis_letters(problem, role).upper(), BASE_ROLE[role], problem.rank
    if "filter" in problem.__dataclass_fields__ and base == "w":
        return (*(("C", "K/G") if problem.transposed else ("K", "C/G")), *FILTER_AXES[rank])
    if base in ("y", "indices") and letters.endswith(RANKS[rank]):
        lead = letters.removesuffix(RANKS[rank])
        lead = lead.replace("C", "K") if "k" in problem.HEAD else lead
        same = problem.shape("x")[-rank:] == problem.shape(role)[-rank:]
        return (*lead, *(RANKS if same and base == "indices" else OUTPUT_AXES)[rank])
    return tuple("K" if letter == "O" else letter for letter in letters)


def call_of(
    op: str,
    pass_: str,
    found: dict[str, Facts],
    fields: dict[str, Any],
    x: Sizes,
    *,
    mask: tuple[bool, ...] = (),
    math: str = "ieee",
    zero_tangents: bool = False,
) -> Call:
    """Return the Call of a pass on operands with these facts, each of them checked.

    The facts are by role, without those that are None; `fields` are those of the Problem except
    sizes and presence of operands; `x` is the shape of the input. With `zero_tangents`, an absent
    tangent means zeros.
    """
    data = [role for role in SIGNATURE[op, pass_].operands if role not in (*OWN_TYPE, *STATISTICS)]
    first = "x" if "x" in found else next((role for role in data if role in found), "")
    if not first:
        raise invalid(f"{op}.{pass_}", f"{argument(data[0])} is None, needs an array")
    lead = found[first]
    family, shapes = FAMILY[op], {**base_shapes(found), "x": x}
    fields = {**fields, **family.of_dtypes(pass_, {r: fact.dtype for r, fact in found.items()})}
    problem = family(**family.of_operands(pass_, shapes, fields), **fields)
    absent = Spec(lead.dtype, device=lead.device)
    carried = None
    if problem.tangents(pass_):
        carried = "".join(BASE_ROLE[role] for role in found if _is_tangent(role))
    call = Call(op, pass_, problem, mask, carried, (absent,), math)
    for role in call.roles:
        if role in found or not (zero_tangents and _is_tangent(role)):
            check_operand(call, role, found.get(role), lead)
    specs = (spec_of(call, r, found[r]) if r in found else absent for r in call.roles)
    return replace(call, specs=tuple(specs))


def _is_tangent(role: str) -> bool:
    return role.endswith("_dot") or role.startswith("dd")


def base_shapes(found: dict[str, Facts]) -> dict[str, Sizes]:
    """Return shapes by base role: the primal's own, else that of its tangent or cotangent."""
    shapes = {BASE_ROLE[role]: fact.shape for role, fact in found.items()}
    return {**shapes, **{role: found[role].shape for role in shapes if role in found}}


def spec_of(call: Call, role: str, fact: Facts) -> Spec:
    """Return the memory order and the expanded axes of an array with the axes of the formulas."""
    letters, shape, strides = axis_letters(call.problem, role), fact.shape, fact.strides
    expand = "".join(a for a, size, s in zip(letters, shape, strides) if s == 0 and size > 1)
    if 0 in shape:
        return Spec(fact.dtype, device=fact.device)
    real = [i for i, size in enumerate(shape) if size > 1 and strides[i] != 0]
    ranked = iter(sorted(real, key=lambda i: -abs(strides[i])))
    order = "".join(letters[next(ranked) if i in real else i] for i in range(len(shape)))
    order = "" if order == letters else order
    return Spec(fact.dtype, order=order, expand=expand, device=fact.device)
