"""`assert_close` in place of torch.testing's: bounds follow from how `expected` was computed.

pytest records the operations of tests that import it from here; elsewhere `recording` does.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from ...errors import a_kind, invalid
from ...judge import Numerics
from ...judge.programs import Program, Report, Tape, judge_results

__all__ = ["assert_close", "recording"]

_tape: ContextVar[Tape | None] = ContextVar("convref_tape", default=None)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Record the operations of PyTorch in this context, for `assert_close` in it.

    Copies of the data of the test are kept until it ends.

    Examples
    --------
    >>> import torch
    >>> with recording():
    ...     x, w = torch.randn(3, 50), torch.randn(50, 2)
    ...     actual = x[:, :25] @ w[:25] + x[:, 25:] @ w[25:]
    ...     report = assert_close(actual, x @ w)
    >>> report.verdict.kind
    'pass'
    """
    if _tape.get() is not None:
        yield
        return
    with Tape() as tape:
        token = _tape.set(tape)
        try:
            yield
        finally:
            _tape.reset(token)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    allow_subclasses: bool = True,
    msg: str | Callable[[str], str] | None = None,
    arithmetic: Numerics | str = "rn32",
) -> Report | None:
    """Raise AssertionError unless `actual` is what the operations that led to `expected` compute.

    **There is no tolerance.** `rtol` and `atol` are accepted, so that only an import changes, and
    not used: the bound of each element follows from the recorded operations, as in
    `convref.assert_close`. The dtypes in which `expected` was computed say what may be rounded;
    float64 stands for float32 without roundings in between, unless `actual` has it too.

    Parameters
    ----------
    actual, expected : tensor, number, or pytree of these
        What your kernel returned, and what PyTorch's operations computed of the same data.
        Numbers and tensors that no recorded operation computed need to be equal.
    rtol, atol, equal_nan, check_layout, allow_subclasses
        Not used. NaN is right where `expected` has NaN.
    check_device, check_dtype, check_stride : bool
        Whether these have to agree, as in `torch.testing.assert_close`. If dtypes may differ,
        `expected` is rounded to that of `actual`.
    msg : str or callable, optional
        Replaces the text of the error, or makes it from that.
    arithmetic : Numerics or str
        As in `convref.assert_close`.

    Returns
    -------
    Report or None
        None where nothing was computed by recorded operations.

    Raises
    ------
    AssertionError
        As `convref.assert_close` does.
    ConvrefError
        If no recorded operation computed `expected`, and `actual` differs from it.
    UnsupportedError
        If `expected` was computed by an operation that has no rule.
    """
    __tracebackhide__ = True
    tape = _tape.get() or Tape()
    form = {"dtype": check_dtype, "device": check_device, "stride": check_stride}
    numerics = Numerics(arithmetic) if isinstance(arithmetic, str) else arithmetic
    before, tape.is_paused = tape.is_paused, True
    try:
        with torch.no_grad():
            report, failure = _compare(tape, actual, expected, form, numerics)
    finally:
        tape.is_paused = before
    if failure:
        raise AssertionError(msg(failure) if callable(msg) else msg or failure)
    return report


def _compare(
    tape: Tape, actual: Any, expected: Any, form: dict[str, bool], numerics: Numerics
) -> tuple[Report | None, str]:
    """Return the report, None without recorded operations, and why the comparison fails."""
    (got, _), (wanted, spec) = _leaves(actual), _leaves(expected)
    if set(got) != set(wanted):
        return None, f"actual has {', '.join(got) or 'nothing'}, needs {', '.join(wanted)}"
    computed = {name: t for name, t in wanted.items() if tape.has(t)}
    for name, want in wanted.items():
        failure = _wrong_form(name, got[name], want, form)
        if not failure and name not in computed and not _is_equal(got[name], want):
            failure = _unequal(tape, name, got[name], want)
        if failure:
            return None, failure
    if not computed:
        return None, ""
    # A result that was converted to a wider dtype for the comparison is as exact as it was before.
    dtypes = {name: _dtype(tape, got[name], want) for name, want in computed.items()}
    is_single = torch.float64 not in dtypes.values()

    def tree(leaves: Any) -> Any:
        typed = {name: leaf.to(wanted[name].device, dtypes[name]) for name, leaf in leaves.items()}
        return tree_unflatten([typed.get(name) for name in wanted], spec)

    given = [got[name] for name in computed]
    _check_recorded(tape, computed, given, numerics)
    function, data = tape.program(list(computed.values()), given, is_single)
    program = Program(lambda *d: tree(dict(zip(computed, function(*d)))), data, {}, numerics)
    report = judge_results(program, tree({name: got[name] for name in computed}))
    return report, "" if report else report.explanation()


def _dtype(tape: Tape, got: Any, want: Any) -> Any:
    """Return the dtype in which a result is judged."""
    if not (got.dtype.is_floating_point or got.dtype.is_complex):
        return torch.promote_types(got.dtype, want.dtype)
    are_wider = want.dtype == torch.float64 or tape.source_dtype(want) != want.dtype
    return tape.source_dtype(got) if are_wider else got.dtype


def _check_recorded(
    tape: Tape, computed: dict[str, Any], given: list[Any], numerics: Numerics
) -> None:
    """Raise if the recorded operations do not lead to what the test has."""
    wanted = list(computed.values())
    function, data = tape.program(wanted, given)
    if all(map(_is_equal, wanted, function(*data))):
        return
    if judge_results(Program(function, data, {}, numerics), wanted).verdict.kind == "wrong":
        what = f"{', '.join(computed)} of expected is not what the recorded operations compute"
        raise invalid("assert_close", f"{what}: other code wrote to it, or to its data; copy them")


def _leaves(tree: Any) -> tuple[dict[str, Any], Any]:
    """Return the leaves by name, arrays as tensors, and the form of the tree."""
    flat, spec = tree_flatten_with_path(tree)
    leaves = {f"output{keystr(path)}": leaf for path, leaf in flat}
    arrays = {
        name: torch.as_tensor(leaf)
        for name, leaf in leaves.items()
        if hasattr(leaf, "__array__") and not isinstance(leaf, (float, complex))
    }
    return leaves | arrays, spec


def _wrong_form(name: str, got: Any, want: Any, form: dict[str, bool]) -> str:
    kinds = [isinstance(leaf, torch.Tensor) for leaf in (got, want)]
    if any(kinds) and not all(kinds):
        return f"wrong: {name} is {a_kind(got)}, needs {a_kind(want)}"
    if all(kinds) and got.shape != want.shape:
        return f"wrong: {name} has shape {tuple(got.shape)}, needs {tuple(want.shape)}"
    for what in (what for what, is_checked in form.items() if is_checked and all(kinds)):
        is_, needs = getattr(got, what), getattr(want, what)
        is_, needs = (is_(), needs()) if what == "stride" else (is_, needs)
        if is_ != needs:
            return f"wrong: {name} has {what} {is_}, needs {needs}"
    return ""


def _is_equal(got: Any, want: Any) -> bool:
    """Return whether two leaves have equal values, or NaN at the same places."""
    if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor):
        want = want.to(got.device)
        if got.dtype != want.dtype and any(t.dtype.is_floating_point for t in (got, want)):
            got, want = got.double(), want.double()
        return bool(((got == want) | ((got != got) & (want != want))).all())
    return type(got) is type(want) and bool(got == want or (got != got and want != want))


def _unequal(tape: Tape, name: str, got: Any, want: Any) -> str:
    """Return why data differ; raise where that may be a matter of rounding."""
    floats = isinstance(want, float) or getattr(want, "dtype", torch.bool).is_floating_point
    if not floats:
        return f"wrong: {name} is not equal to expected, which no recorded operation computed"
    what = f"{name} of expected differs, and no recorded operation computed it, so it has no bound"
    how = (
        "compute it in the test, with PyTorch's operations: what was computed before has no record"
    )
    if _tape.get() is None:
        how = (
            "let pytest load convref.integrations.pytest_plugin, which records tests whose module "
            "imports assert_close, or compute it in `recording()`"
        )
    raise invalid("assert_close", f"{what}; {how}")
