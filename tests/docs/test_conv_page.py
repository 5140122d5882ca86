"""The claims of docs/conv.md: hand-worked sums, adjoints, well-known tricks, every edge rule."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import convref
from convref import ConvrefError
from convref.case import parse
from convref.ops import ConvProblem, WindowProblem
from convref.oracle import loops
from convref.oracle.conv import (
    conv_bgrad,
    conv_dgrad,
    conv_double_backward,
    conv_fprop,
    conv_jvp,
    conv_wgrad,
    correlate,
    gather,
    scatter,
)
from convref.oracle.unfold import fold, unfold

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conv.md"

PROBLEMS = {
    "plain": ConvProblem(n=2, c=2, k=3, input=(5,), filter=(3,)),
    "stride": ConvProblem(n=1, c=1, k=2, input=(8, 6), filter=(3, 2), stride=(2, 3), padding=1),
    "crop": ConvProblem(n=2, c=2, k=1, input=(7,), filter=(2,), padding=((-1, 3),), dilation=2),
    "groups": ConvProblem(n=1, c=4, k=6, groups=2, input=(4, 3), filter=(2, 2), dilation=(1, 2)),
    "flip": ConvProblem(n=1, c=2, k=2, input=(6,), filter=(3,), stride=2, padding=2, flip=True),
    "transposed": ConvProblem(
        **{"n": 2, "c": 4, "k": 2, "groups": 2, "input": (3, 2), "filter": (3, 2)},
        **{"stride": (2, 3), "padding": ((1, 0), (-1, 2)), "dilation": (2, 1)},
        **{"transposed": True, "output_padding": (1, 0)},
    ),
}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def integers(problem, *roles, seed=0, dtype=np.int64):
    """Return small random integers (Gaussian ones for a complex dtype) in the roles' shapes."""
    rng = np.random.default_rng(seed)
    shapes = [problem.shape(role) for role in roles]
    arrays = [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]
    if np.dtype(dtype).kind == "c":
        arrays = [a + 1j * rng.integers(-4, 5, a.shape) for a in arrays]
    return arrays


def inner(a, b):
    """Return the real inner product Re sum conj(a) b."""
    return np.real(np.vdot(a, b))


# The three sums.


def test_gather_hand_case():
    problem = ConvProblem(n=1, c=1, k=1, input=(5,), filter=(2,), stride=2, padding=((1, 0),))
    x, w = np.array([[[5, 1, 2, 3, 4]]]), np.array([[[1, 10]]])
    y = [[[0 + 10 * 5, 1 + 10 * 2, 3 + 10 * 4]]]  # windows (0, 5), (1, 2), (3, 4)
    assert_array_equal(gather(x, w, problem), y)
    assert_array_equal(loops.conv.conv_fprop(x, w, None, problem), y)


def test_scatter_hand_case():
    problem = ConvProblem(n=1, c=1, k=1, input=(5,), filter=(2,), stride=2, padding=((1, 0),))
    dy, w = np.array([[[1, 2, 3]]]), np.array([[[1, 10]]])
    dx = [[[10, 2, 20, 3, 30]]]  # the first copy of w starts in the padding and loses its 1
    assert_array_equal(scatter(dy, w, problem), dx)
    assert_array_equal(loops.conv.conv_dgrad(dy, w, problem), dx)


def test_correlate_hand_case():
    problem = ConvProblem(n=1, c=1, k=1, input=(5,), filter=(2,), stride=2, padding=((1, 0),))
    x, dy = np.array([[[5, 1, 2, 3, 4]]]), np.array([[[1, 2, 3]]])
    dw = [[[0 * 1 + 1 * 2 + 3 * 3, 5 * 1 + 2 * 2 + 4 * 3]]]
    assert_array_equal(correlate(x, dy, problem), dw)
    assert_array_equal(loops.conv.conv_wgrad(dy, x, problem), dw)


@each_problem
def test_sums_agree_with_loops(problem):
    x, w, b, dy = integers(problem, "x", "w", "b", "y")
    assert_array_equal(conv_fprop(x, w, b, problem), loops.conv.conv_fprop(x, w, b, problem))
    assert_array_equal(conv_dgrad(dy, w, problem), loops.conv.conv_dgrad(dy, w, problem))
    assert_array_equal(conv_wgrad(dy, x, problem), loops.conv.conv_wgrad(dy, x, problem))
    assert_array_equal(conv_bgrad(dy, problem), loops.conv.conv_bgrad(dy, problem))


# Derivatives.


@each_problem
@pytest.mark.parametrize("dtype", [np.int64, np.complex128])
def test_gradients_are_adjoints(problem, dtype):
    x, w, b, dy = integers(problem, "x", "w", "b", "y", dtype=dtype)
    zero = np.zeros_like(x), np.zeros_like(w)
    assert inner(dy, conv_fprop(x, w, None, problem)) == inner(conv_dgrad(dy, w, problem), x)
    assert inner(dy, conv_fprop(x, w, None, problem)) == inner(conv_wgrad(dy, x, problem), w)
    assert inner(dy, conv_fprop(*zero, b, problem)) == inner(conv_bgrad(dy, problem), b)


@each_problem
def test_conjugation_is_in_the_adjoint_and_not_in_the_sums(problem):
    x, w, dy = integers(problem, "x", "w", "y", dtype=np.complex128)
    forward, backward = (scatter, gather) if problem.transposed else (gather, scatter)
    if problem.flip:
        w = np.flip(w, -1)
    assert inner(dy, forward(x, w, problem)) == inner(backward(dy, np.conj(w), problem), x)
    assert inner(dy, forward(x, w, problem)) != inner(backward(dy, w, problem), x)


@each_problem
def test_jvp_is_the_product_rule(problem):
    x, w, b, x_dot, w_dot, b_dot = integers(problem, *"xwbxwb")
    moved = conv_fprop(x + x_dot, w + w_dot, b + b_dot, problem)
    second_order = conv_fprop(x_dot, w_dot, None, problem)
    y_dot = moved - conv_fprop(x, w, b, problem) - second_order
    assert_array_equal(conv_jvp(x, w, x_dot, w_dot, b_dot, problem), y_dot)


@each_problem
@pytest.mark.parametrize("dtype", [np.int64, np.complex128])
def test_double_backward_is_the_adjoint_of_backward(problem, dtype):
    ddx, ddw, ddb, dy, x, w = integers(problem, *"xwbyxw", dtype=dtype)
    v_dy, v_x, v_w = integers(problem, *"yxw", seed=1, dtype=dtype)

    def backward(dy, x, w):
        dx, dw = conv_dgrad(dy, w, problem), conv_wgrad(dy, x, problem)
        return inner(ddx, dx) + inner(ddw, dw) + inner(ddb, conv_bgrad(dy, problem))

    at = backward(dy, x, w)
    ddy, dx, dw = conv_double_backward(ddx, ddw, ddb, dy, x, w, problem)
    assert backward(dy + v_dy, x, w) - at == inner(ddy, v_dy)
    assert backward(dy, x + v_x, w) - at == inner(dx, v_x)
    assert backward(dy, x, w + v_w) - at == inner(dw, v_w)


# Tricks: each agrees on integers; the test after it shows where it parts.

STRIDED = ConvProblem(n=2, c=2, k=3, input=(9,), filter=(3,), stride=2, padding=((1, 0),))


def wgrad_as_convolution(dy, x, problem):
    """Return dw by one convolution: batch and channels swap, so do stride and dilation."""
    swapped = ConvProblem(
        **{"n": problem.c, "c": problem.n, "k": problem.k, "input": problem.input},
        **{"filter": problem.output, "stride": problem.dilation, "dilation": problem.stride},
        padding=problem.padding,
    )
    dw = conv_fprop(x.swapaxes(0, 1), dy.swapaxes(0, 1), None, swapped)  # (C, K, at least filter)
    return dw.swapaxes(0, 1)[(..., *(slice(taps) for taps in problem.filter))]


def zero_dilated(small, problem):
    """Return `small` with stride - 1 zeros between neighbors (rank 1)."""
    step = problem.stride[0]
    wide = np.zeros((*small.shape[:2], (small.shape[2] - 1) * step + 1), small.dtype)
    wide[..., ::step] = small
    return wide


def wgrad_by_zero_dilation(dy, x, problem):
    """Return dw by a dense correlation with the zero-dilated dy (rank 1)."""
    (low, high), wide = problem.padding[0], zero_dilated(dy, problem)
    last = (problem.filter[0] - 1) * problem.dilation[0] + wide.shape[2]
    high = last - problem.input[0] - low  # drop the rows that no window reads
    dense = ConvProblem(
        **{"n": problem.n, "c": problem.c, "k": problem.k, "input": problem.input},
        **{"filter": problem.filter, "dilation": problem.dilation, "padding": ((low, high),)},
    )
    return conv_wgrad(wide, x, dense)


def dgrad_by_zero_dilation(dy, w, problem):
    """Return dx by a dense convolution of the zero-dilated dy with the flipped filter (rank 1)."""
    (low, _), wide = problem.padding[0], zero_dilated(dy, problem)
    reach = problem.dilation[0] * (problem.filter[0] - 1)
    dense = ConvProblem(
        **{"n": problem.n, "c": problem.k, "k": problem.c, "input": wide.shape[2:]},
        **{"filter": problem.filter, "dilation": problem.dilation, "flip": True},
        padding=((reach - low, problem.input[0] - wide.shape[2] + low),),
    )
    return conv_fprop(wide, w.swapaxes(0, 1), None, dense)


def dgrad_as_transposed(dy, w, problem):
    """Return dx by a transposed convolution, its output_padding solved from the shapes."""
    extra = [
        (size + lo + hi - dilation * (taps - 1) - 1) % stride
        for size, (lo, hi), dilation, taps, stride in zip(
            *(problem.input, problem.padding, problem.dilation, problem.filter, problem.stride)
        )
    ]
    transposed = ConvProblem(
        **{"n": problem.n, "c": problem.k, "k": problem.c, "groups": problem.groups},
        **{"input": problem.output, "filter": problem.filter, "stride": problem.stride},
        **{"padding": problem.padding, "dilation": problem.dilation, "transposed": True},
        output_padding=tuple(extra),
    )
    return conv_fprop(dy, w, None, transposed)


def by_im2col(x, w, dy, problem):
    """Return (y, dx, dw) by matrix products with the columns of `unfold` (one group)."""
    windows = WindowProblem(
        **{"n": problem.n, "c": problem.c, "input": problem.input, "filter": problem.filter},
        **{"stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation},
    )
    cols, rows = unfold(x, windows), w.reshape(problem.k, -1)  # (N, CR, P), (K, CR)
    flat = dy.reshape(*dy.shape[:2], -1)  # (N, K, P)
    y = (rows @ cols).reshape(problem.shape("y"))
    dw = (flat @ cols.swapaxes(1, 2)).sum(0).reshape(problem.shape("w"))
    return y, fold(rows.T @ flat, windows), dw


def test_tricks_agree_on_integers():
    x, w, dy = integers(STRIDED, "x", "w", "y")
    y = conv_fprop(x, w, None, STRIDED)
    dx, dw = conv_dgrad(dy, w, STRIDED), conv_wgrad(dy, x, STRIDED)
    assert_array_equal(wgrad_as_convolution(dy, x, STRIDED), dw)
    assert_array_equal(wgrad_by_zero_dilation(dy, x, STRIDED), dw)
    assert_array_equal(dgrad_by_zero_dilation(dy, w, STRIDED), dx)
    assert_array_equal(dgrad_as_transposed(dy, w, STRIDED), dx)
    for got, want in zip(by_im2col(x, w, dy, STRIDED), (y, dx, dw)):
        assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_zero_dilated_dgrad_leaks_an_infinite_weight():
    _, w, dy = (a.astype(float) for a in integers(STRIDED, "x", "w", "y"))
    w[0, 0, 1], dy = np.inf, np.abs(dy) + 1
    assert not np.isnan(conv_dgrad(dy, w, STRIDED)).any()
    assert_array_equal(dgrad_as_transposed(dy, w, STRIDED), conv_dgrad(dy, w, STRIDED))
    leaked = np.isnan(dgrad_by_zero_dilation(dy, w, STRIDED))
    between_strides, past_the_last_window = [False, True] * 4, [True]
    assert_array_equal(leaked[0, 0], between_strides + past_the_last_window)
    assert not leaked[:, 1].any()  # the other channel has no infinite weight


@pytest.mark.filterwarnings("ignore:invalid value")
def test_zero_dilated_wgrad_leaks_an_infinite_input():
    problem = ConvProblem(n=1, c=1, k=1, input=(7,), filter=(1,), stride=2)
    x, dy = np.ones((1, 1, 7)), np.ones((1, 1, 4))
    x[..., 1] = np.inf  # no window reads it
    assert_array_equal(conv_wgrad(dy, x, problem), [[[4.0]]])
    assert_array_equal(wgrad_as_convolution(dy, x, problem), [[[4.0]]])
    assert_array_equal(wgrad_by_zero_dilation(dy, x, problem), [[[np.nan]]])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_im2col_and_the_oracle_have_the_same_kinds():
    x, w, dy = (a.astype(float) for a in integers(STRIDED, "x", "w", "y"))
    w[0, 0, 0], x[0, 1, 2], dy[1, 2, 0] = np.inf, -np.inf, np.nan
    want = conv_fprop(x, w, None, STRIDED), conv_dgrad(dy, w, STRIDED), conv_wgrad(dy, x, STRIDED)
    for got, right in zip(by_im2col(x, w, dy, STRIDED), want):
        assert_array_equal(got, right)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_full_convolution_leaks_at_the_border():
    problem = ConvProblem(n=1, c=1, k=1, input=(4,), filter=(2,))
    w, dy = np.array([[[np.inf, 1.0]]]), np.ones((1, 1, 3))
    assert_array_equal(conv_dgrad(dy, w, problem), [[[np.inf, np.inf, np.inf, 1.0]]])
    full = dgrad_by_zero_dilation(dy, w, problem)  # dy is padded by the filter's reach
    assert_array_equal(full, [[[np.inf, np.inf, np.inf, np.nan]]])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_stuffed_filter_and_block_diagonal_leak_too():
    dilated = ConvProblem(n=1, c=1, k=1, input=(3,), filter=(2,), dilation=2)
    stuffed = ConvProblem(n=1, c=1, k=1, input=(3,), filter=(3,))
    x = np.array([[[1.0, np.inf, 1.0]]])
    assert_array_equal(conv_fprop(x, np.ones((1, 1, 2)), None, dilated), [[[2.0]]])
    zeros_between = np.array([[[1.0, 0.0, 1.0]]])
    assert_array_equal(conv_fprop(x, zeros_between, None, stuffed), [[[np.nan]]])
    grouped = ConvProblem(n=1, c=2, k=2, groups=2, input=(1,), filter=(1,))
    dense = ConvProblem(n=1, c=2, k=2, input=(1,), filter=(1,))
    x = np.array([[[1.0], [np.inf]]])
    assert_array_equal(conv_fprop(x, np.ones((2, 1, 1)), None, grouped), x)
    blocks = np.eye(2).reshape(2, 2, 1)
    assert np.isnan(conv_fprop(x, blocks, None, dense)[0, 0, 0])


def test_tricks_round_differently():
    x, dy = np.ones((3, 1, 1), np.float32), np.array([1, 2**-24, 2**-24], np.float32)
    dy = dy.reshape(3, 1, 1)
    left = np.float32(0)
    for term in (x * dy).ravel():
        left = left + term
    right = np.float32(0)
    for term in (x * dy).ravel()[::-1]:
        right = right + term
    assert left == 1
    assert right == 1 + 2**-23
    assert convref.conv1d_backward(dy, x, np.ones((1, 1, 1), np.float32))[1] == right


def test_input_size_is_ambiguous_under_stride():
    sizes = (7, 8)
    problems = [ConvProblem(n=1, c=1, k=1, input=(i,), filter=(3,), stride=2) for i in sizes]
    assert [p.output for p in problems] == [(3,), (3,)]
    dy, w = np.ones((1, 1, 3), int), np.ones((1, 1, 3), int)
    assert [dgrad_as_transposed(dy, w, p).shape[2] for p in problems] == list(sizes)


@pytest.mark.parametrize("name", ["plain", "stride", "crop", "groups"])
def test_transposed_is_dgrad_with_the_roles_exchanged(name):
    problem = PROBLEMS[name]
    w, dy = integers(problem, "w", "y")
    assert_array_equal(dgrad_as_transposed(dy, w, problem), conv_dgrad(dy, w, problem))


# Unfold and fold.


def test_unfold_hand_case():
    problem = WindowProblem(n=1, c=1, input=(4,), filter=(2,), stride=2, padding=((1, 1),))
    x = np.array([[[1, 2, 3, 4]]])
    assert_array_equal(unfold(x, problem), [[[0, 2, 4], [1, 3, 0]]])
    assert_array_equal(unfold(x, problem), loops.unfold.unfold(x, problem))


def test_fold_is_the_adjoint_of_unfold():
    problem = WindowProblem(n=2, c=2, input=(5, 4), filter=(3, 2), stride=(1, 2), padding=1)
    x, cols = integers(problem, "x", "cols")
    assert inner(cols, unfold(x, problem)) == inner(fold(cols, problem), x)
    assert_array_equal(fold(cols, problem), loops.unfold.fold(cols, problem))


# Edge rules.


def test_mask_false_gives_none():
    one = np.ones((1, 1, 1))
    for mask in np.ndindex(2, 2, 2):
        results = convref.conv1d_backward(one, one, one, output_mask=tuple(map(bool, mask)))
        assert [r is not None for r in results] == list(map(bool, mask))


def test_bias_sizes_does_not_switch_db_off_and_must_fit():
    dy, x, w = np.ones((2, 3, 4)), np.ones((2, 1, 4)), np.ones((3, 1, 1))
    assert_array_equal(convref.conv1d_backward(dy, x, w, None)[2], [8.0, 8.0, 8.0])
    with pytest.raises(ConvrefError, match="bias_sizes"):
        convref.conv1d_backward(dy, x, w, (4,))


def test_every_size_of_grad_output_is_checked():
    x, w = np.ones((2, 3, 8)), np.ones((4, 3, 3))
    for shape, named in (((1, 4, 6), "N=1"), ((2, 5, 6), "K=5"), ((2, 4, 5), "Q=5")):
        with pytest.raises(ConvrefError, match=f"grad_output has {named}, needs"):
            convref.conv1d_backward(np.ones(shape), x, w)


@pytest.mark.parametrize(("n", "c", "k"), [(0, 2, 3), (2, 0, 3), (2, 2, 0)])
def test_empty_sums(n, c, k):
    x, w, b, dy = np.ones((n, c, 4)), np.ones((k, c, 2)), np.arange(k) + 1.0, np.ones((n, k, 3))
    y = convref.conv1d(x, w, b)
    assert y.shape == (n, k, 3)
    if not c:
        assert_array_equal(y, np.broadcast_to(b[:, None], y.shape))
    dx, dw, db = convref.conv1d_backward(dy, x, w)
    assert (dx.shape, dw.shape) == (x.shape, w.shape)
    assert_array_equal(db, np.full(k, 3.0 * n))


def test_an_empty_input_needs_padding():
    x, w = np.ones((1, 1, 0)), np.ones((1, 1, 2))
    assert_array_equal(convref.conv1d(x, w, np.array([5.0]), padding=1), [[[5.0]]])
    with pytest.raises(ConvrefError, match="output Q"):
        convref.conv1d(x, w)


def test_output_below_one_names_axis_and_sizes():
    x, w = np.ones((0, 1, 5, 2)), np.ones((1, 1, 3, 3))
    with pytest.raises(ConvrefError, match=r"output Q is 0, needs at least 1: input W is 2.*spans"):
        convref.conv2d(x, w)


def test_windows_wholly_in_padding():
    x, w = np.ones((1, 1, 1)), np.ones((1, 1, 2))
    assert_array_equal(convref.conv1d(x, w, padding=3), [[[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]]])


def test_output_padding_range():
    x, w = np.ones((1, 1, 2)), np.ones((1, 1, 2))
    y = convref.conv_transpose1d(x, w, stride=1, dilation=2, output_padding=1)
    assert_array_equal(y, [[[1.0, 1.0, 1.0, 1.0, 0.0]]])
    with pytest.raises(ConvrefError, match=r"output_padding\[0\] is 2, needs 0 to 1"):
        convref.conv_transpose1d(x, w, stride=2, output_padding=2)
    with pytest.raises(ConvrefError, match="needs 0 unless transposed"):
        convref.convolution(x, w, None, [1], [0], [1], False, [1], 1)


def test_padded_zeros_multiply_and_stride_gaps_do_not():
    x, w, dy = np.ones((1, 1, 3)), np.array([[[np.inf, 1.0]]]), np.ones((1, 1, 2))
    given = {"stride": 2, "padding": ((1, 0),)}
    assert_array_equal(convref.conv1d(x, w, **given), [[[np.nan, np.inf]]])
    dx, _, _ = convref.conv1d_backward(dy, x, w, **given)
    assert_array_equal(dx, [[[1.0, np.inf, 1.0]]])  # as a convolution it would have a NaN
    dy[..., 0] = np.inf
    _, dw, _ = convref.conv1d_backward(dy, x, w, **given)
    assert_array_equal(dw, [[[np.nan, np.inf]]])  # tap 0 of window 0 is padding


def test_integers_wrap_once_at_the_end():
    x, w = np.full((1, 1, 3), 100, np.int8), np.ones((1, 1, 3), np.int8)
    assert convref.conv1d(x, w).item() == 300 - 256
    w[..., 2] = -1
    assert convref.conv1d(x, w).item() == 100  # 200 on the way does not count
    _, dw, db = convref.conv1d_backward(np.full((1, 1, 1), 2, np.int8), x, w)
    assert_array_equal(dw, np.full((1, 1, 3), 200 - 256, np.int8))
    assert_array_equal(db, np.array([2], np.int8))


def test_one_message_form():
    with pytest.raises(ConvrefError) as caught:
        convref.conv1d_backward(np.ones((1, 1, 7)), np.ones((1, 1, 8)), np.ones((1, 1, 1)))
    text = str(caught.value)
    form = r"conv1d_backward: grad_output has Q=7, needs 8 \((conv\.backward:\S+)\)"
    line = re.fullmatch(form, text)
    assert line
    assert (parse(line[1]).call.problem.output, parse(line[1]).call.dtype) == ((8,), "f64")


# Cost.


@each_problem
def test_macs_counts_products_without_padding(problem):
    met = sum(x is not None and y is not None for x, _, y in loops.conv.terms(problem))
    assert problem.macs("y") == problem.macs("x") == problem.macs("w") == met
    assert problem.macs("b") == 0


@each_problem
def test_products_bounds_what_one_element_sums(problem):
    met = {role: np.zeros(problem.shape(role), int) for role in "xwy"}
    for at in loops.conv.terms(problem):
        for role, index in zip("xwy", at):
            if index is not None:
                met[role][index] += 1
    met["y"] += problem.bias
    for role in "xwy":
        assert met[role].max() <= problem.products(role)


def test_flop_and_bytes_of_one_call():
    call = parse("conv.backward:n2c3k4_i5_f3_s2:dt=f16").call
    x, w, y = 2 * 3 * 5, 4 * 3 * 3, 2 * 4 * 2
    products = 2 * 3 * 4 * 2 * 3  # N C K windows taps
    assert call.flop() == 2 * 2 * products  # dx and dw; db needs none
    assert call.bytes_moved() == 2 * (x + w + y + x + w + 4)
    unread = parse("conv.fprop:n1c1k1_i6_f1_s3:bias=0").call
    assert unread.bytes_moved() == 4 * (2 + 1 + 2)  # four of six inputs are never read
