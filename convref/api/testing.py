"""The court in your own tests: the line of a call, and the judge on its result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import facts, imported, to_numpy
from ..case import Call, Case, Spec, axis_letters
from ..errors import a_kind, invalid, shorten
from ..judge import Numerics, judge
from .named import Recorded, record
from .run import ResultMark, Traced

if TYPE_CHECKING:
    from ..judge.programs import Program, ProgramFinding, Report

_LARGEST_STEP = 999_999  # that the line takes


def case_of(name: str | Callable[..., Any], *operands: Any, **arguments: Any) -> Case:
    """Return the Case of a call: the line that repeats it, on generated data.

    Parameters
    ----------
    name : str or callable
        A function of this package or its name, such as "max_pool2d_backward", or OP.PASS, such as
        "conv.backward": a key of `convref.SIGNATURE`, or "interpolate.PASS".
    *operands
        A function's own first arguments; after OP.PASS arrays or None in the order of
        `convref.SIGNATURE`, whose number of axes gives the rank.
    **arguments
        All other arguments by the function's own names, with its defaults, but `backend`. Of
        OP.PASS they are those of the function of this pass (of unfold.backward, `fold`'s).
        "conv.PASS" takes stride, padding, dilation, groups, transposed, output_padding,
        output_mask, layout, weight_layout, math and flip in every pass.

    Returns
    -------
    Case
        With the types, sizes and memory of the operands: order, steps and repeated axes. Of a
        function that makes two calls, as `avg_pool2d_jvp` does, that of the second.

    Raises
    ------
    ConvrefError
        As the function itself raises it.

    Examples
    --------
    >>> dy, x, w = np.ones((1, 2, 3, 3)), np.ones((1, 1, 5, 5)), np.ones((2, 1, 3, 3))
    >>> print(case_of("conv.backward", dy, x, w))
    conv.backward:n1c1k2_i5x5_f3x3:dt=f64
    >>> print(case_of("max_pool2d", x, 3, stride=2, padding="same_upper"))
    max_pool.fprop:n1c1_i5x5_f3x3_s2_p1:dt=f64
    """
    return _case(record(name, operands, arguments).calls[-1])


def _case(traced: Traced) -> Case:
    """Return the case of a call, with the steps of its operands."""
    call = traced.prepared.call
    specs = tuple(
        spec if array is None else _stepped(call, role, spec, array)
        for role, spec, array in zip(call.roles, call.specs, traced.operands)
    )
    return Case(replace(call, specs=specs))


def _stepped(call: Call, role: str, spec: Spec, array: Any) -> Spec:
    """Return the Spec of an operand with its steps; only a view of a denser buffer has some."""
    found, letters = facts("case_of", role, array), axis_letters(call.problem, role)
    layout = dict(zip(letters, zip(found.shape, found.strides)))
    dense, steps = 1, list[tuple[str, int]]()
    if 0 in found.shape:
        return spec
    for letter in reversed(spec.order or letters):
        size, stride = layout[letter]
        if size < 2 or letter in spec.expand:
            continue
        step, rest = divmod(abs(stride), dense)
        if rest or not 1 <= step <= _LARGEST_STEP:
            return spec
        step = -step if stride < 0 else step
        steps += [(letter, step)] if step != 1 else []
        dense = abs(stride) * size
    return replace(spec, step=tuple(steps))


def assert_correct(
    got: Any,
    name: str | Callable[..., Any],
    operands: tuple[Any, ...],
    *,
    accuracy: Numerics | str = "undeclared",
    **arguments: Any,
) -> None:
    """Raise AssertionError unless `got` is right by the judge: the oracle in your own tests.

    Parameters
    ----------
    got : array or tuple of (array or None)
        What your kernel returned, in the form in which the function of this name returns it; after
        OP.PASS every result in the order of `convref.SIGNATURE`. Arrays of other libraries, here
        and in `operands`, are read through DLPack where they are in the host's memory.
    name : str or callable
        As in `case_of`.
    operands : tuple
        Your kernel's operands: the function's first arguments, or after OP.PASS arrays by role.
        Statistics and indices that are left out come from the oracle.
    accuracy : Numerics or str
        Its declared arithmetic; a str is the model's name. Undeclared arithmetic is judged as
        round-to-nearest sums in float32 (float64 for float64).
    **arguments
        As in `case_of`.

    Raises
    ------
    AssertionError
        If the result is wrong or suspect; the text has the role, the element, what it is and needs,
        the bound, and the line.
    ConvrefError
        If the call is invalid, as the function itself raises it.

    Examples
    --------
    >>> x, w = np.ones((1, 1, 3)), np.ones((1, 1, 2))
    >>> assert_correct(np.full((1, 1, 2), 2.), "conv.fprop", (x, w), accuracy="rn64")
    >>> from convref import max_pool1d
    >>> assert_correct(np.ones((1, 1, 1)), max_pool1d, (x, 3))
    """
    __tracebackhide__ = True  # pytest shows the line of the calling test
    if not isinstance(operands, (tuple, list)):
        what = f"operands is {a_kind(operands)}, needs a tuple of arrays"
        raise invalid("assert_correct", what)
    if not isinstance(accuracy, (Numerics, str)):
        what = f"accuracy is {shorten(repr(accuracy))}, needs a Numerics or the name of a model"
        raise invalid("assert_correct", what)
    numerics = Numerics(accuracy) if isinstance(accuracy, str) else accuracy
    operands, got = _imported(tuple(operands)), _imported(got)
    recorded = record(name, operands, arguments, "assert_correct")
    found = _results_with_marks(recorded, got)
    for number, traced in enumerate(recorded.calls):
        given = {mark.place[1]: a for mark, a in found if mark.place[0] == number}
        if given:
            _judge(traced, given, numerics)


def _imported(arrays: Any) -> Any:
    if isinstance(arrays, (tuple, list)):
        return tuple(_imported(array) for array in arrays)
    return imported("assert_correct", arrays)


def _results_with_marks(recorded: Recorded, got: Any) -> list[tuple[ResultMark, Any]]:
    """Return each result with its mark; their number, presence and shapes are as they must be."""
    __tracebackhide__ = True
    results = got if isinstance(got, (tuple, list)) else (got,)
    results = [np.asarray(a) if isinstance(a, np.generic) else a for a in results]
    roles = ["None" if mark is None else mark.place[1] for mark in recorded.results]
    line = f"\n  {_case(recorded.calls[-1])}"
    if len(results) != len(roles):
        what = f"got {len(results)} results, needs {len(roles)}: {', '.join(roles)}"
        raise AssertionError(f"wrong: {what}{line}")
    found = []
    for place, (mark, array) in enumerate(zip(recorded.results, results)):
        if mark is None:
            if array is not None:
                raise AssertionError(f"wrong: result {place} is present, needs None{line}")
            continue
        role = mark.place[1]
        if array is None:
            raise AssertionError(f"wrong: {role} is None, needs an array{line}")
        shape = facts("assert_correct", f"result {role}", array).shape
        if shape != mark.shape:
            raise AssertionError(f"wrong: {role} has shape {shape}, needs {mark.shape}{line}")
        found.append((mark, array))
    return found


def _judge(traced: Traced, given: dict[str, Any], numerics: Numerics) -> None:
    """Raise unless these results of one call are right; indices in messages are the user's."""
    __tracebackhide__ = True
    call = traced.prepared.call
    results = [
        to_numpy(traced.formula(role, given[role])) if role in given else None
        for role in call.signature.results
    ]
    verdict = judge(call, traced.inputs, results, numerics, only=tuple(given))
    if verdict:
        return
    reason = verdict.reason
    if verdict.index:
        place = traced.user_index(verdict.role, tuple(given[verdict.role].shape), verdict.index)
        reason = reason.replace(_bracketed(verdict.index), _bracketed(place), 1)
    raise AssertionError(f"{verdict.kind}: {reason}\n  {_case(traced)}")


def _bracketed(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def assert_close(
    actual: Any,
    reference: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    arithmetic: Numerics | str = "rn32",
) -> "Report":
    """Raise AssertionError unless `actual` is what `reference` computes, by a derived bound.

    Parameters
    ----------
    actual : tensor or pytree of tensors
        What your kernel returned.
    reference : callable
        A function or module made of PyTorch operations. It may use autograd and `torch.func`.
    args : sequence
        The arguments of the reference, as your kernel got them.
    kwargs : dict, optional
    arithmetic : Numerics or str
        The arithmetic of your kernel's sums; a str is the model's name. "rn32" rounds to nearest
        in float32 (float64 for float64); "mma32" truncates as tensor cores do.

    Returns
    -------
    Report

    Raises
    ------
    AssertionError
        If a result is wrong, or has no bound; the text has the element, what it is and needs, the
        bound, what it consists of, and the arithmetic under which it would pass.
    ConvrefError
        If the reference writes to its arguments or returns no tensors.
    UnsupportedError
        If the reference calls an operation that has no rule.

    Examples
    --------
    >>> import torch
    >>> from convref import assert_close
    >>> x, w = torch.randn(3, 5), torch.randn(5, 2)
    >>> report = assert_close((x @ w).relu(), lambda x, w: torch.relu(x @ w), (x, w))
    >>> report.verdict.kind
    'pass'
    """
    __tracebackhide__ = True  # pytest shows the line of the calling test
    from ..judge.programs import judge_results

    report = judge_results(_program("assert_close", reference, args, kwargs, arithmetic), actual)
    if not report:
        raise AssertionError(report.explanation())
    return report


def check_program(
    candidate: Callable[..., Any],
    reference: Callable[..., Any],
    make_args: Callable[[], Sequence[Any]],
    *,
    arithmetic: Numerics | str = "rn32",
    draws: int = 3,
    batched: Sequence[int] = (),
) -> "list[ProgramFinding]":
    """Return what is wrong with a function, on data that show it.

    Each kind of data is judged as `assert_close` does, and the candidate is called again: it must
    return the same bits, leave its arguments unchanged, take arguments that are not contiguous,
    and write all of its results.

    Parameters
    ----------
    candidate, reference : callable
        Functions of the same arguments.
    make_args : callable
        Returns arguments; their shapes and dtypes are used, their values are one kind of data.
    arithmetic : Numerics or str
        As in `assert_close`.
    draws : int
        How many times each kind of data is drawn.
    batched : sequence of int, optional
        Places of arguments whose first axis are independent images, as that of each result; an
        image alone must then give the same bits as in the batch.

    Returns
    -------
    list of Finding
        With the broken law, the kind of data and the reason; empty for a candidate without fault.

    Examples
    --------
    >>> import torch
    >>> from convref import check_program
    >>> def wrong(x, w):
    ...     return x[:, :-1] @ w[:-1]
    >>> make = lambda: (torch.randn(4, 64), torch.randn(64, 4))
    >>> check_program(torch.matmul, torch.matmul, make, draws=1)
    []
    >>> {finding.law for finding in check_program(wrong, torch.matmul, make, draws=1)}
    {'right'}
    """
    from ..judge.programs import findings

    for name, given in (("candidate", candidate), ("make_args", make_args)):
        if not callable(given):
            raise invalid("check_program", f"{name} is {a_kind(given)}, needs a function")
    args = make_args()
    program = _program("check_program", reference, args, None, arithmetic)
    found = findings(candidate, reference, program.args, program.numerics, draws, tuple(batched))
    return list(found)


def program_data(
    reference: Callable[..., Any], args: Sequence[Any], *, draws: int = 3, seed: int = 0
) -> "Iterator[tuple[str, tuple[Any, ...]]]":
    """Yield the data of `check_program`, for a loop of your own over `assert_close`.

    Parameters
    ----------
    reference : callable
        Where it takes odd sizes, some data have them.
    args : sequence
        Their shapes and dtypes are used; their values are one kind of data.
    draws, seed : int
        How many times each kind of data is drawn, and of what.

    Returns
    -------
    iterator of (str, tuple)
        The name of the data, as "sparse argument 0, 1", and the arguments.

    Examples
    --------
    >>> import torch
    >>> from convref import program_data
    >>> x = torch.randn(4)
    >>> [name for name, _ in program_data(torch.relu, (x,), draws=1)][:3]
    ['given', 'integers 0', 'positive 0']
    """
    from ..judge.programs import with_odd_sizes

    given = _program("program_data", reference, args, None, "rn32").args
    found = with_odd_sizes(reference, given, draws, seed)
    return ((name, tuple(data)) for name, data in found)


def _program(where: str, reference: Any, args: Any, kwargs: Any, arithmetic: Any) -> "Program":
    from ..judge.programs import Program

    what = None
    if not callable(reference):
        what = f"reference is {a_kind(reference)}, needs a function or module"
    elif not isinstance(args, (tuple, list)):
        what = f"args is {a_kind(args)}, needs a tuple of arguments"
    elif not isinstance(kwargs, (Mapping, type(None))):
        what = f"kwargs is {a_kind(kwargs)}, needs a dict"
    elif not isinstance(arithmetic, (Numerics, str)):
        what = f"arithmetic is {shorten(repr(arithmetic))}, needs a Numerics or the name of a model"
    if what is not None:
        raise invalid(where, what)
    numerics = Numerics(arithmetic) if isinstance(arithmetic, str) else arithmetic
    return Program(reference, tuple(args), dict(kwargs or {}), numerics)
