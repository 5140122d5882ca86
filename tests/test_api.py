"""The public functions: layouts, padding words, kinds of array, the plan cache, the judge."""

import itertools
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import ConvrefError, Spec
from convref import ops as problem
from convref.api import run as api_run
from convref.conformance import fills

SPACE = {1: "W", 2: "HW", 3: "DHW"}
BF16 = ml_dtypes.bfloat16


def data(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).integers(-5, 6, shape).astype(dtype)


def same(got: Any, want: Any) -> None:
    """Raise unless two arrays, or tuples of them, are equal in every respect."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(want)
        for g, a in zip(got, want):
            same(g, a)
    elif want is None:
        assert got is None
    else:
        assert type(got) is type(want)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert bool((got == want).all()), (got, want)


@pytest.fixture(autouse=True)
def no_plans() -> Iterator[None]:
    api_run.plans.clear()
    yield
    api_run.plans.clear()


def named(stem: str, rank: int, suffix: str = "") -> Any:
    return getattr(convref, f"{stem}{rank}d{suffix}")


def operands(rank: int, transposed: bool, groups: int = 2) -> tuple[Any, Any, Any, Any]:
    """Return x, w, b, dy in formula order for a stride of 2 and these groups."""
    size = (5, 4, 6)[:rank]
    x, w, b = data(2, 4, *size), data(6, 4 // groups, *(2, 3, 2)[:rank]), data(6)
    if transposed:
        w = data(4, 6 // groups, *(2, 3, 2)[:rank])
    y = named("conv_transpose" if transposed else "conv", rank)(x, w, b, stride=2, groups=groups)
    return x, w, b, data(*y.shape)


def moved(array: Any, before: str, after: str) -> Any:
    return np.ascontiguousarray(array.transpose([before.index(a) for a in after]))


LAYOUTS = [
    (rank, transposed, weight_layout)
    for rank, transposed, weight_layout in itertools.product((1, 2, 3), (False, True), "dof")
]


@pytest.mark.parametrize(("rank", "transposed", "order"), LAYOUTS)
def test_layout_permutes_axes(rank: int, transposed: bool, order: str) -> None:
    """NHWC with the default weight (HWIO, transposed HWOI), with OHWI, and with OIHW."""
    x, w, b, dy = operands(rank, transposed)
    space = SPACE[rank]
    first, last, logical = f"NC{space}", f"N{space}C", ("IO" if transposed else "OI") + space
    default = space + ("OI" if transposed else "IO")
    weights = {"d": default, "o": f"O{space}I", "f": logical}[order]
    words = {"layout": last, **({} if order == "d" else {"weight_layout": weights})}
    xl, wl, dyl = moved(x, first, last), moved(w, logical, weights), moved(dy, first, last)
    keys: dict[str, Any] = {"stride": 2, "groups": 2}

    forward = named("conv_transpose" if transposed else "conv", rank)
    y = forward(x, w, b, **keys)
    same(moved(forward(xl, wl, b, **keys, **words), last, first), y)

    keys["transposed"] = transposed
    dx, dw, db = named("conv", rank, "_backward")(dy, x, w, **keys)
    got = named("conv", rank, "_backward")(dyl, xl, wl, **keys, **words)
    same((moved(got[0], last, first), moved(got[1], weights, logical), got[2]), (dx, dw, db))

    jvp = named("conv", rank, "_jvp")
    want = jvp((x, w, b), (x + 1, None, b), **keys)
    got = jvp((xl, wl, b), (xl + 1, None, b), **keys, **words)
    same(tuple(moved(y, last, first) for y in got), want)


def test_layout_makes_views_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    evaluate = convref.oracle.evaluate

    def spy(call: Any, *arrays: Any) -> Any:
        seen.extend(arrays)
        return evaluate(call, *arrays)

    monkeypatch.setattr(convref.oracle, "evaluate", spy)
    x, w = data(2, 5, 6, 4), data(3, 3, 4, 6)
    convref.conv2d(x, w, layout="NHWC")
    assert [np.shares_memory(a, b) for a, b in zip(seen, (x, w))] == [True, True]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks_agree_on_axes_of_one(rank: int) -> None:
    """A rank-1 problem is the rank-3 problem whose other axes have one element."""
    x, w, b = data(2, 4, 7), data(6, 2, 3), data(6)
    ones = (1,) * (rank - 1)
    keys = {"stride": (*ones, 2), "padding": (*(0,) * (rank - 1), 1), "groups": 2}
    xr, wr = x.reshape(2, 4, *ones, 7), w.reshape(6, 2, *ones, 3)
    y = convref.conv1d(x, w, b, stride=2, padding=1, groups=2)
    got = named("conv", rank)(xr, wr, b, **keys)
    same(got.reshape(y.shape), y)
    want = convref.conv1d_backward(y, x, w, stride=2, padding=1, groups=2)
    grads = named("conv", rank, "_backward")(y.reshape(got.shape), xr, wr, **keys)
    same(tuple(g.reshape(a.shape) for g, a in zip(grads, want)), want)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_input_without_batch_axis(rank: int, transposed: bool) -> None:
    x, w, b, dy = operands(rank, transposed)
    x, dy = x[:1], dy[:1]
    keys: dict[str, Any] = {"stride": 2, "groups": 2}
    forward = named("conv_transpose" if transposed else "conv", rank)
    same(forward(x[0], w, b, **keys), forward(x, w, b, **keys)[0])
    keys["transposed"] = transposed
    dx, dw, db = named("conv", rank, "_backward")(dy, x, w, **keys)
    same(named("conv", rank, "_backward")(dy[0], x[0], w, **keys), (dx[0], dw, db))
    jvp = named("conv", rank, "_jvp")
    want = tuple(y[0] for y in jvp((x, w, b), (x, None, b), **keys))
    same(jvp((x[0], w, b), (x[0], None, b), **keys), want)


# (padding word, input, filter, stride, dilation) -> pairs worked by hand.
WORDS = [
    ("valid", 7, 3, 1, 1, (0, 0)),
    ("valid", 7, 3, 2, 2, (0, 0)),
    ("same", 7, 3, 1, 1, (1, 1)),
    ("same", 7, 4, 1, 1, (1, 2)),
    ("same", 7, 2, 1, 3, (1, 2)),
    ("same", 2, 5, 1, 1, (2, 2)),
    ("same_upper", 7, 4, 1, 1, (1, 2)),
    ("same_lower", 7, 4, 1, 1, (2, 1)),
    ("same_upper", 5, 3, 2, 1, (1, 1)),
    ("same_upper", 6, 3, 2, 1, (0, 1)),
    ("same_lower", 6, 3, 2, 1, (1, 0)),
    ("same_upper", 7, 2, 3, 1, (0, 1)),
    ("same_lower", 7, 2, 3, 1, (1, 0)),
    ("same_upper", 7, 1, 2, 1, (0, 0)),
    ("same_upper", 9, 1, 4, 1, (0, 0)),
    ("same_lower", 6, 3, 2, 2, (2, 1)),
    ("half", 7, 3, 1, 1, (1, 1)),
    ("half", 7, 4, 1, 1, (2, 2)),
    ("half", 7, 3, 2, 2, (2, 2)),
    ("full", 7, 3, 1, 1, (2, 2)),
    ("full", 7, 3, 1, 2, (4, 4)),
]


@pytest.mark.parametrize(("word", "size", "taps", "stride", "dilation", "pair"), WORDS)
def test_padding_word_equals_its_pairs(
    word: str, size: int, taps: int, stride: int, dilation: int, pair: tuple[int, int]
) -> None:
    x, w = data(1, 2, size), data(3, 2, taps)
    keys = {"stride": stride, "dilation": dilation}
    got = convref.conv1d(x, w, padding=word, **keys)
    same(got, convref.conv1d(x, w, padding=(pair,), **keys))
    case = convref.case_of("conv.fprop", x, w, padding=word, **keys)
    assert case.call.conv.padding == (pair,)
    if word.startswith("same_"):
        assert got.shape[-1] == -(-size // stride)  # the rule of ONNX and TensorFlow


def test_padding_forms_are_equal() -> None:
    x, w = data(1, 2, 7, 6), data(3, 2, 3, 3)
    forms = [
        1,
        (1,),
        [1, 1],
        (1, 1),
        ((1, 1),),
        ((1, 1), (1, 1)),
        np.array(1),
        np.ones((2, 2), int),
    ]
    want = convref.conv2d(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w)
    for form in forms:
        same(convref.conv2d(x, w, padding=form), want)
    x1, w1 = data(1, 2, 7), data(3, 2, 3)
    same(
        convref.conv1d(x1, w1, padding=((1, 2),)),
        convref.conv1d(np.pad(x1, ((0, 0), (0, 0), (1, 2))), w1),
    )


TANGENTS = list(itertools.product((True, False), repeat=3))


@pytest.mark.parametrize("backend", ["numpy", "loops", "torch"])
@pytest.mark.parametrize("given", TANGENTS)
def test_a_missing_tangent_is_zero(given: tuple[bool, ...], backend: str) -> None:
    primals = data(2, 4, 5, 6), data(6, 2, 3, 2), data(6)
    keys: dict[str, Any] = {"groups": 2, "padding": ((1, 0), (-1, 2)), "backend": backend}
    full = tuple(data(*a.shape, seed=1) for a in primals)
    want = convref.conv2d_jvp(primals, tuple(t * on for t, on in zip(full, given)), **keys)
    tangents = tuple(t if on else None for t, on in zip(full, given))
    got = convref.conv2d_jvp(primals, tangents, **keys)
    same(got, want)
    assert not any(np.shares_memory(got[1], t) for t in full)


def test_jvp_takes_two_tangents_without_bias() -> None:
    x, w, b = data(2, 4, 5, 6), data(6, 4, 3, 2), data(6)
    same(convref.conv2d_jvp((x, w, b), (x, w)), convref.conv2d_jvp((x, w, b), [x, w, None]))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_double_backward_is_autograd_twice(transposed: bool, backend: str) -> None:
    """The gradient of <grads, cotangents> by torch.autograd, in ATen's order of arguments."""
    rest = ([2, 1], [1, 0], [1, 2], transposed, [1, 0] if transposed else [0, 0], 2)
    x = torch.from_numpy(data(2, 4, 5, 6)).requires_grad_()
    w = torch.from_numpy(data(*((4, 3) if transposed else (6, 2)), 3, 2)).requires_grad_()
    b = torch.from_numpy(data(6)).requires_grad_()
    y = torch.convolution(x, w, b, *rest)
    dy = torch.from_numpy(data(*y.shape)).requires_grad_()
    grads = torch.autograd.grad(y, (x, w, b), dy, create_graph=True)
    ddx, ddw, ddb = (torch.from_numpy(data(*a.shape, seed=1)) for a in (x, w, b))
    want = torch.autograd.grad(
        sum((g * d).sum() for g, d in zip(grads, (ddx, ddw, ddb))), (dy, x, w)
    )
    plain = (a.detach() for a in (dy, w, x))
    got = convref.convolution_double_backward(
        ddx, ddw, ddb, *plain, *rest, (True, True, True), backend=backend
    )
    same(got, want)


@pytest.mark.parametrize("backend", ["numpy", "loops", "torch"])
def test_flip_is_true_convolution(backend: str) -> None:
    x, w = data(1, 1, 9), data(1, 1, 4)
    got = convref.conv1d(x, w, padding="full", flip=True, backend=backend)
    same(got[0, 0], np.convolve(x[0, 0], w[0, 0]))
    x, w, dy = data(2, 4, 5, 6), data(6, 2, 3, 2), data(2, 6, 3, 5)
    dx, dw, db = convref.conv2d_backward(dy, x, w[..., ::-1, ::-1], groups=2)
    got = convref.conv2d_backward(dy, x, w, groups=2, flip=True, backend=backend)
    same(got, (dx, dw[..., ::-1, ::-1], db))


UNFOLDS = [
    {"kernel_size": (3, 2)},
    {"kernel_size": 2, "stride": (2, 3)},
    {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 2)},
    {"kernel_size": 1, "stride": 2, "padding": 1},
]


ARGUMENT_ORDER = (("dilation", 1), ("padding", 0), ("stride", 1))


@pytest.mark.parametrize("keys", UNFOLDS, ids=str)
@pytest.mark.parametrize("backend", ["numpy", "loops"])
def test_unfold_and_fold_match_torch(keys: dict[str, Any], backend: str) -> None:
    x = torch.from_numpy(data(2, 3, 6, 7))
    cols = torch.nn.functional.unfold(x, **keys)
    same(convref.unfold(x, **keys, backend=backend), cols)
    want = torch.nn.functional.fold(cols, (6, 7), **keys)
    same(convref.fold(cols, (6, 7), **keys, backend=backend), want)
    order = [keys["kernel_size"], *(keys.get(n, d) for n, d in ARGUMENT_ORDER)]
    same(convref.unfold(x, *order), torch.nn.functional.unfold(x, *order))
    same(convref.fold(cols, (6, 7), *order), torch.nn.functional.fold(cols, (6, 7), *order))


KINDS: dict[str, Any] = {
    **{
        f"numpy {np.dtype(t).name}": (lambda a, t=t: a.astype(t))
        for t in (np.float16, np.float32, np.float64, BF16, np.int8, np.int64, np.complex64)
    },
    "numpy object": lambda a: a.astype(int).astype(object),
    **{
        f"torch {str(t)[6:]}": (lambda a, t=t: torch.from_numpy(a).to(t))
        for t in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8)
    },
    "torch complex64": lambda a: torch.from_numpy(a).to(torch.complex64),
}


@pytest.mark.parametrize("cast", KINDS.values(), ids=KINDS)
def test_results_have_the_kind_of_the_operands(cast: Any) -> None:
    x, w, b, dy = (cast(data(*s)) for s in ((2, 4, 5, 6), (6, 4, 3, 3), (6,), (2, 6, 3, 4)))
    results = [
        convref.conv2d(x, w, b),
        *convref.conv2d_backward(dy, x, w),
        *convref.conv2d_jvp((x, w, b), (x, w, b)),
        *convref.convolution_double_backward(
            x, w, b, dy, w, x, 1, 0, 1, False, 0, 1, (True, True, True)
        ),
        convref.unfold(x, 3),
    ]
    assert {type(r) for r in results} == {type(x)}
    assert {r.dtype for r in results} == {x.dtype}
    assert {getattr(r, "device", None) for r in results} == {getattr(x, "device", None)}


VIEWS: dict[str, Any] = {
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "Fortran": np.asfortranarray,
    "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "inside a record": lambda a: in_record(a),
    "read only": lambda a: frozen(a),
}


def in_record(a: Any) -> Any:
    """Return `a` as a field, strided by a fraction of its elements."""
    record = np.zeros(a.shape, [("pad", "u1"), ("a", a.dtype)])
    record["a"] = a
    return record["a"]


def frozen(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("backend", ["numpy", "loops", "torch"])
def test_results_are_independent_of_strides(view: Any, backend: str) -> None:
    x, w, b, dy = data(2, 4, 5, 6), data(6, 4, 3, 3), data(6), data(2, 6, 3, 4)
    same(convref.conv2d(view(x), view(w), view(b), backend=backend), convref.conv2d(x, w, b))
    got = convref.conv2d_backward(view(dy), view(x), view(w), backend=backend)
    same(got, convref.conv2d_backward(dy, x, w))


def test_a_conjugate_view_is_conjugate() -> None:
    x = torch.complex(*(torch.from_numpy(data(2, 4, 5, 6, seed=s)) for s in (0, 1)))
    w = torch.complex(*(torch.from_numpy(data(6, 4, 3, 3, seed=s)) for s in (0, 1)))
    want = convref.conv2d(x.conj().resolve_conj(), w)
    for backend in ("numpy", "torch"):
        same(convref.conv2d(x.conj(), w, backend=backend), want)


def test_read_only_arrays_raise_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, w = frozen(data(1, 2, 5)), frozen(data(3, 2, 3))
        same(convref.conv1d(x, w, backend="torch"), convref.conv1d(x, w))
    assert not x.flags.writeable


class Counting:
    """Counts how often a Problem is built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        build = problem.WindowProblem.__post_init__

        def counted(this: Any) -> None:
            self.count += 1
            build(this)

        monkeypatch.setattr(problem.WindowProblem, "__post_init__", counted)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


X, W, B, DY = data(2, 4, 5, 6), data(6, 4, 3, 3), data(6), data(2, 6, 3, 4)
SEEN: dict[str, Any] = {
    "conv2d": lambda: convref.conv2d(X, W, B),
    "lists": lambda: convref.conv2d(X, W, B, stride=[1, 1], padding=[[0, 0], [0, 0]]),
    "NHWC": lambda: convref.conv2d(X.transpose(0, 2, 3, 1), W.transpose(2, 3, 1, 0), layout="NHWC"),
    "backward": lambda: convref.conv2d_backward(DY, X, W, [6], output_mask=[True, False, True]),
    "jvp": lambda: convref.conv2d_jvp((X, W, B), (X, None, None)),
    "aten": lambda: convref.convolution_backward(
        *(DY, X, W, [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3)
    ),
    "double": lambda: convref.convolution_double_backward(
        *(X, None, B, DY, W, X, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3)
    ),
    "torch": lambda: convref.conv2d(torch.from_numpy(X), torch.from_numpy(W), padding="same"),
}


@pytest.mark.parametrize("call", SEEN.values(), ids=SEEN)
def test_cached_call_builds_no_problem(call: Any, built: Counting) -> None:
    first = call()
    assert built.count > 0
    count = built.count
    same(call(), first)
    assert built.count == count


def test_plan_key_has_all_facts_of_the_operands() -> None:
    x, w = data(1, 2, 6, 6), data(3, 2, 3, 3)
    calls = [
        lambda: convref.conv2d(x, w),
        lambda: convref.conv2d(x, w, stride=2),
        lambda: convref.conv2d(x, w, flip=True),
        lambda: convref.conv2d(x, w, backend="torch"),
        lambda: convref.conv2d(x.transpose(0, 1, 3, 2), w),
        lambda: convref.conv2d(x.astype("f4"), w.astype("f4")),
        lambda: convref.conv2d(torch.from_numpy(x), torch.from_numpy(w)),
        lambda: convref.conv2d(x, w, data(3)),
        lambda: convref.conv2d_backward(data(1, 3, 4, 4), x, w),
        lambda: convref.conv2d_backward(data(1, 3, 4, 4), x, w, output_mask=(1, 0, 0)),
    ]
    for number, call in enumerate(calls, 1):
        call()
        call()
        assert len(api_run.plans) == number


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_run, "MAX_PLANS", 3)
    w = data(3, 2, 1)
    for size in (5, 6, 7, 8, 9):
        convref.conv1d(data(1, 2, size), w)
    assert len(api_run.plans) == 3
    assert [found[0].call.conv.input for found in api_run.plans.values()] == [(7,), (8,), (9,)]


def test_failed_call_is_not_cached() -> None:
    with pytest.raises(ConvrefError):
        convref.conv2d(X, W, stride=0)
    assert not api_run.plans


def test_threads_share_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_run, "MAX_PLANS", 4)
    w = data(3, 2, 2)
    want = {size: convref.conv1d(data(1, 2, size), w) for size in range(4, 12)}
    failed: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for turn in range(60):
                size = 4 + (start + turn) % 8
                same(convref.conv1d(data(1, 2, size), w), want[size])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(api_run.plans) <= 4


def test_host_overhead_of_a_cached_call(
    monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    """Printed, not judged: a machine that is busy is not wrong."""
    calls: list[Any] = []

    class Nothing:
        name = "nothing"

        def run(self, call: Any, *operands: Any) -> tuple[Any, ...]:
            calls.append(call)
            return (y,)

    y = convref.conv2d(X, W, B)
    (key, (prepared, plan)) = api_run.plans.popitem()
    api_run.plans[key] = prepared, replace(plan, backend=Nothing())
    rounds = 2000
    start = time.perf_counter()
    for _ in range(rounds):
        convref.conv2d(X, W, B)
    overhead_us = (time.perf_counter() - start) / rounds * 1e6
    assert len(calls) == rounds
    record_property("overhead_us", overhead_us)
    print(f"a seen conv2d costs {overhead_us:.1f} us of Python")


CASES: dict[str, Any] = {
    "conv.fprop": (X, W, B),
    "conv.backward": (DY, X, W),
    "conv.jvp": (X, W, B, None, W, None),
    "conv.double_backward": (X, None, B, DY, X, W),
}


@pytest.mark.parametrize("name", CASES)
def test_case_of_repeats_the_call(name: str) -> None:
    case = convref.case_of(name, *CASES[name])
    assert convref.parse(str(case)) == case
    assert [None if a is None else a.shape for a in CASES[name]] == [
        case.call.problem.shape(r) if case.call.is_present(r) else None for r in case.call.roles
    ]
    roles = case.call.roles
    arrays = tuple(fills.values(case, r) if case.call.is_present(r) else None for r in roles)
    results = convref.run(case.call, *arrays)
    convref.assert_correct(results, name, arrays, accuracy="rn64")


def test_case_of_keeps_the_arguments() -> None:
    case = convref.case_of("conv.backward", DY, X, W, output_mask=(False, True, False), math="tf32")
    assert str(case) == "conv.wgrad:n2c4k6_i5x6_f3x3:dt=f64:math=tf32"
    case = convref.case_of("conv.fprop", X[0], W, padding="same", dilation=2)
    assert str(case) == "conv.fprop:n1c4k6_i5x6_f3x3_p2_d2:bias=0:dt=f64"
    nhwc = X.transpose(0, 2, 3, 1)
    case = convref.case_of("conv.fprop", nhwc, W, layout="NHWC", weight_layout="OIHW")
    assert str(case) == "conv.fprop:n2c4k6_i5x6_f3x3:bias=0:dt=f64"


def test_case_of_records_memory_layout() -> None:
    x = torch.from_numpy(X).to(memory_format=torch.channels_last)
    w = torch.from_numpy(W)
    case = convref.case_of("conv.fprop", x, w)
    assert case.call.spec("x") == Spec("f64", order="nhwc")
    case = convref.case_of("conv.fprop", np.broadcast_to(X[:1], X.shape), W)
    assert case.call.spec("x") == Spec("f64", expand="n")
    case = convref.case_of("conv.fprop", np.asfortranarray(X), W)
    assert case.call.spec("x") == Spec("f64", order="whcn")
    assert convref.case_of("conv.fprop", X, W).call.spec("x") == Spec("f64")
    assert convref.parse(str(case)) == case


@pytest.mark.parametrize("name", CASES)
def test_assert_correct_passes_right_and_raises_on_wrong_results(name: str) -> None:
    operands = CASES[name]
    got = convref.run(convref.case_of(name, *operands).call, *operands)
    convref.assert_correct(got, name, operands, accuracy="rn64")
    for place, result in enumerate(got):
        wrong = result.copy()
        wrong.flat[3] += 1
        bad = (*got[:place], wrong, *got[place + 1 :])
        with pytest.raises(AssertionError) as caught:
            convref.assert_correct(bad, name, operands, accuracy="rn64")
        assert str(convref.case_of(name, *operands)) in str(caught.value)
        assert "wrong: " in str(caught.value)


class Foreign:
    """An array of a library that exports by DLPack."""

    def __init__(self, array: Any, error: Exception | None = None) -> None:
        self.array, self.error = array, error

    def __dlpack__(self, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_assert_correct_reads_arrays_of_other_libraries() -> None:
    x, w, y = np.ones((1, 1, 4)), np.ones((1, 1, 2)), np.full((1, 1, 3), 2.0)
    convref.assert_correct(Foreign(y), "conv1d", (Foreign(x), Foreign(w)), padding=[0])
    with pytest.raises(AssertionError, match=r"y\[0, 0, 0\] is 3.0, needs exactly 2.0"):
        convref.assert_correct(Foreign(y + 1), "conv1d", (Foreign(x), w))
    convref.assert_correct((Foreign(y), y / 2), "conv1d_jvp", ((x, Foreign(w)), (None, w / 2)))
    far = Foreign(y, BufferError("on a GPU"))
    with pytest.raises(ConvrefError, match=r"Foreign does not export to NumPy \(on a GPU\)"):
        convref.assert_correct(far, "conv1d", (x, w))
    hidden = np.ma.masked_array(y, mask=[[[True, False, False]]])
    with pytest.raises(ConvrefError, match="is a MaskedArray"):
        convref.assert_correct(hidden, "conv1d", (x, w))


def test_assert_correct_in_other_forms() -> None:
    y = convref.conv2d(X, W, B)
    convref.assert_correct(y, "conv.fprop", [X, W, B], accuracy=convref.Numerics("rn64"))
    last = {"layout": "NHWC", "weight_layout": "OIHW"}
    xl, yl = X.transpose(0, 2, 3, 1), y.transpose(0, 2, 3, 1)
    convref.assert_correct(yl, "conv.fprop", (xl, W, B), accuracy="rn64", **last)
    convref.assert_correct(torch.from_numpy(y[0]), "conv.fprop", (X[0], W, B), accuracy="rn64")
    with pytest.raises(AssertionError, match=r"got 2 results, needs 1: y"):
        convref.assert_correct((y, y), "conv.fprop", (X, W, B))
    with pytest.raises(AssertionError):
        convref.assert_correct(y[:1], "conv.fprop", (X, W, B))
    with pytest.raises(AssertionError):
        convref.assert_correct(yl, "conv.fprop", (X, W, B))
    with pytest.raises(AssertionError):
        convref.assert_correct(None, "conv.fprop", (X, W, B))
    with pytest.raises(AssertionError):
        convref.assert_correct(y.astype("f4"), "conv.fprop", (X, W, B))


def test_output_mask_of_one_bit() -> None:
    full = convref.conv2d_backward(DY, X, W)
    for bits in itertools.product((True, False), repeat=3):
        want = tuple(g if on else None for g, on in zip(full, bits))
        same(convref.conv2d_backward(DY, X, W, output_mask=bits), want)
        same(convref.conv2d_backward(DY, X, W, output_mask=np.array(bits)), want)


def test_functions_in_the_order_of_aten_take_flip() -> None:
    """A flipped filter is the filter in reverse order, in every pass."""
    rng = np.random.default_rng(0)
    x, w, dy = (rng.integers(-9, 9, size) for size in ((1, 2, 5), (3, 2, 2), (1, 3, 4)))
    v, r = rng.integers(-9, 9, x.shape), rng.integers(-9, 9, w.shape)
    x, w, dy, v, r = (a.astype(float) for a in (x, w, dy, v, r))  # exact sums
    settings = 1, 0, 1, False, 0, 1

    def flipped(a: Any) -> Any:
        return a[..., ::-1]

    equal = np.testing.assert_array_equal
    equal(
        convref.convolution(x, w, None, *settings, flip=True),
        convref.convolution(x, flipped(w), None, *settings),
    )
    every = True, True, True
    dx, dw, db = convref.convolution_backward(dy, x, w, None, *settings, every, flip=True)
    want = convref.convolution_backward(dy, x, flipped(w), None, *settings, every)
    for got, other in zip((dx, flipped(dw), db), want):
        equal(got, other)
    found = convref.convolution_double_backward(v, r, None, dy, w, x, *settings, every, flip=True)
    want = convref.convolution_double_backward(
        v, flipped(r), None, dy, flipped(w), x, *settings, every
    )
    equal(found[0], want[0])
    equal(found[1], want[1])
    equal(flipped(found[2]), want[2])
