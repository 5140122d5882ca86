"""PyTorch on the same edges: where convref does what ATen does, where it refuses, where it differs.

ATen runs beside us in float64 with oneDNN off, on small integers, so that results are exact.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import convref
from convref import ConvrefError, UnsupportedError

T, F = True, False
PEER_ERRORS = (RuntimeError, TypeError, ValueError, NotImplementedError)


@pytest.fixture(autouse=True)
def slow_kernels() -> Iterator[None]:
    before, threads = torch._C._get_mkldnn_enabled(), torch.get_num_threads()
    torch._C._set_mkldnn_enabled(False)
    torch.set_num_threads(1)  # on small tensors threads only wait for each other
    yield
    torch._C._set_mkldnn_enabled(before)
    torch.set_num_threads(threads)


@pytest.fixture(params=["numpy", "torch"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def data(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    values = np.random.default_rng((seed, *shape)).integers(-5, 6, shape)
    return torch.from_numpy(values).to(dtype)


# What may change in a call; None for w, b, dy means drawn to fit.
DEFAULTS: dict[str, Any] = {
    "x": (2, 4, 5, 6),
    "w": (6, 4, 3, 3),
    "stride": [1],
    "padding": [0],
    "dilation": [1],
    "transposed": False,
    "output_padding": [0],
    "groups": 1,
}

GEOMETRIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "list of length 1": {"stride": [2], "padding": [1], "dilation": [2]},
    "per axis": {"stride": [2, 1], "padding": [0, 2], "dilation": [1, 2]},
    "groups": {"x": (2, 4, 5, 6), "w": (6, 2, 3, 3), "groups": 2},
    "depthwise": {"x": (2, 4, 5, 6), "w": (4, 1, 3, 3), "groups": 4},
    "padding beyond the kernel": {"padding": [5, 4]},
    "1d": {"x": (2, 4, 7), "w": (6, 4, 3), "padding": [1]},
    "3d": {"x": (2, 2, 4, 5, 3), "w": (3, 2, 2, 3, 1), "stride": [1, 2, 1]},
    "N=0": {"x": (0, 4, 5, 6)},
    "N=0 and no space but padding": {"x": (0, 4, 0, 0), "padding": [2]},
    "transposed": {"x": (2, 6, 3, 4), "transposed": True, "stride": [2]},
    "transposed groups": {"x": (2, 6, 3, 4), "transposed": True, "groups": 3, "stride": [2, 3]},
    "output_padding below dilation": {
        "x": (2, 6, 3, 4),
        "transposed": True,
        "dilation": [2],
        "output_padding": [1],
    },
    "transposed, padding, output_padding": {
        "x": (2, 6, 3, 4),
        "transposed": True,
        "stride": [3],
        "padding": [1, 2],
        "output_padding": [2, 1],
    },
}


def arguments(settings: dict[str, Any]) -> tuple[Any, ...]:
    """Return x, w and the rest in ATen's order."""
    found = {**DEFAULTS, **settings}
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    return data(*found["x"]), data(*found["w"]), tuple(found[name] for name in names)


def out_channels(w: torch.Tensor, rest: tuple[Any, ...]) -> int:
    return w.shape[1] * rest[5] if rest[3] else w.shape[0]


def same(got: Any, want: Any) -> None:
    """Raise unless two tuples have equal tensors and None in the same places."""
    assert [g is None for g in got] == [a is None for a in want]
    for g, a in zip(got, want):
        if a is not None:
            assert (g.shape, g.dtype) == (a.shape, a.dtype)
            assert torch.equal(g, a), (g, a)


@pytest.mark.parametrize("settings", GEOMETRIES.values(), ids=GEOMETRIES)
class TestSameAsAten:
    def test_forward(self, settings: dict[str, Any], backend: str) -> None:
        x, w, rest = arguments(settings)
        b = data(out_channels(w, rest))
        want = torch.ops.aten.convolution(x, w, b, *rest)
        same([convref.convolution(x, w, b, *rest, backend=backend)], [want])

    def test_backward(self, settings: dict[str, Any], backend: str) -> None:
        x, w, rest = arguments(settings)
        k = out_channels(w, rest)
        dy = data(*torch.ops.aten.convolution(x, w, None, *rest).shape)
        want = torch.ops.aten.convolution_backward(dy, x, w, [k], *rest, [T, T, T])
        got = convref.convolution_backward(dy, x, w, [k], *rest, [T, T, T], backend=backend)
        same(got, want)

    def test_double_backward(self, settings: dict[str, Any], backend: str) -> None:
        x, w, rest = arguments(settings)
        dy = data(*torch.ops.aten.convolution(x, w, None, *rest).shape)
        ddx, ddw = data(*x.shape, seed=1), data(*w.shape, seed=1)
        ddb = data(out_channels(w, rest), seed=1)
        given = ddx, ddw, ddb, dy, w, x, *rest, [T, T, T]
        want = torch.ops.aten._convolution_double_backward(*given)
        # ATen leaves None where a gradient is zero because N is; we return the zeros asked for.
        want = tuple(a * 0 if g is None else g for g, a in zip(want, (dy, x, w)))
        got = convref.convolution_double_backward(*given, backend=backend)
        same(got, want)

    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
    def test_jvp(self, settings: dict[str, Any], backend: str) -> None:
        x, w, rest = arguments(settings)
        b = data(out_channels(w, rest))
        tangents = tuple(data(*a.shape, seed=1) for a in (x, w, b))
        want = torch.func.jvp(lambda *a: torch.ops.aten.convolution(*a, *rest), (x, w, b), tangents)
        jvp = {3: convref.conv1d_jvp, 4: convref.conv2d_jvp, 5: convref.conv3d_jvp}[x.ndim]
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        same(jvp((x, w, b), tangents, **dict(zip(names, rest)), backend=backend), want)


@pytest.mark.parametrize("mask", [(T, T, T), (T, F, F), (F, T, F), (T, T, F), (F, F, F), (F, F, T)])
def test_a_mask_off_is_none(mask: Any, backend: str) -> None:
    """Also (F, F, T), where ATen with oneDNN returns a weight gradient that was not requested."""
    x, w, rest = arguments({})
    dy = data(2, 6, 3, 4)
    want = torch.ops.aten.convolution_backward(dy, x, w, [6], *rest, mask)
    same(convref.convolution_backward(dy, x, w, [6], *rest, mask, backend=backend), want)


def test_bias_sizes_none_gives_the_bias_gradient(backend: str) -> None:
    x, w, rest = arguments({})
    dy = data(2, 6, 3, 4)
    want = torch.ops.aten.convolution_backward(dy, x, w, None, *rest, [T, T, T])
    assert want[2] is not None
    same(convref.convolution_backward(dy, x, w, None, *rest, [T, T, T], backend=backend), want)


def test_an_input_without_its_batch_axis(backend: str) -> None:
    x, w, b = data(4, 5, 6), data(6, 4, 3, 3), data(6)
    same([convref.conv2d(x, w, b, backend=backend)], [torch.nn.functional.conv2d(x, w, b)])
    transposed = torch.nn.functional.conv_transpose2d(data(6, 5, 6), w, stride=2)
    same([convref.conv_transpose2d(data(6, 5, 6), w, stride=2, backend=backend)], [transposed])


@pytest.mark.parametrize(("taps", "dilation"), [(2, 1), (4, 1), (3, 2), (2, 3), (1, 1), (5, 1)])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_same_puts_the_odd_zero_at_the_end(taps: int, dilation: int, backend: str) -> None:
    x, w = data(2, 4, 7, 6), data(3, 4, taps, taps + 1)
    want = torch.nn.functional.conv2d(x, w, padding="same", dilation=dilation)
    got = convref.conv2d(x, w, padding="same", dilation=dilation, backend=backend)
    same([got], [want])


MEMORY: dict[str, Any] = {
    "x channels last": lambda dy, x, w: (dy, x.to(memory_format=torch.channels_last), w),
    "w channels last": lambda dy, x, w: (dy, x, w.to(memory_format=torch.channels_last)),
    "dy channels last": lambda dy, x, w: (dy.to(memory_format=torch.channels_last), x, w),
    "x not contiguous": lambda dy, x, w: (dy, x.mT.contiguous().mT, w),
    "x every other": lambda dy, x, w: (dy, x.repeat_interleave(2, 3)[..., ::2], w),
    "dy expanded": lambda dy, x, w: (dy[:, :, :1, :1].expand(dy.shape), x, w),
}


@pytest.mark.parametrize("memory", MEMORY.values(), ids=MEMORY)
def test_results_are_independent_of_strides(memory: Any, backend: str) -> None:
    dy, x, w = memory(data(2, 6, 3, 4), data(2, 4, 5, 6), data(6, 4, 3, 3))
    _, _, rest = arguments({})
    want = torch.ops.aten.convolution_backward(dy, x, w, [6], *rest, [T, T, T])
    got = convref.convolution_backward(dy, x, w, [6], *rest, [T, T, T], backend=backend)
    same(got, want)
    output = convref.convolution(x, w, None, *rest, backend=backend)
    expected = torch.ops.aten.convolution(x, w, None, *rest)
    same([output], [expected])
    if backend == "torch":  # what ATen returns is what the caller gets
        assert [g.stride() for g in (*got, output)] == [a.stride() for a in (*want, expected)]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_wrap_as_torch_does(dtype: torch.dtype, backend: str) -> None:
    x, w, b = (data(*s).mul(25).to(dtype) for s in ((2, 4, 5, 6), (6, 4, 3, 3), (6,)))
    got = convref.conv2d(x, w, b, padding=1, backend=backend)
    same([got], [torch.nn.functional.conv2d(x, w, b, padding=1)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_have_gradients(dtype: torch.dtype) -> None:
    """ATen has no integer kernel here; the rule is exact sums, wrapped once to the type."""
    wide = [data(*s).mul(25).to(torch.int64) for s in ((2, 6, 3, 4), (2, 4, 5, 6), (6, 4, 3, 3))]
    narrow = [a.to(dtype) for a in wide]
    exact = [a.double() for a in narrow]
    want = torch.ops.aten.convolution_backward(
        *exact, [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [T, T, T]
    )
    same(convref.conv2d_backward(*narrow), [a.to(torch.int64).to(dtype) for a in want])
    with pytest.raises(UnsupportedError, match="ATen has no backward kernel"):
        convref.conv2d_backward(*narrow, backend="torch")


@pytest.mark.parametrize("transposed", [F, T])
def test_complex_gradients_are_conjugated(transposed: bool) -> None:
    """aten::convolution_backward has no complex kernel; autograd of conv2d agrees with convref."""
    shapes = ((2, 4, 3, 4), (4, 3, 2, 2)) if transposed else ((2, 4, 5, 6), (6, 4, 3, 3))
    x, w = (torch.complex(data(*s), data(*s, seed=1)).requires_grad_() for s in shapes)
    forward = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    y = forward(x, w)
    dy = torch.complex(data(*y.shape, seed=2), data(*y.shape, seed=3))
    want = torch.autograd.grad(y, (x, w), dy)
    got = convref.conv2d_backward(dy, x.detach(), w.detach(), transposed=transposed)
    same(got[:2], want)
    assert torch.equal(got[2], dy.sum((0, 2, 3)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bias_gradients_are_summed_in_a_wider_type(dtype: torch.dtype, backend: str) -> None:
    dy = torch.full((1, 1, 512, 512), 0.1, dtype=dtype)
    x, w = torch.ones((1, 1, 512, 512), dtype=dtype), torch.ones((1, 1, 1, 1), dtype=dtype)
    mask = (F, F, T)
    got = convref.conv2d_backward(dy, x, w, output_mask=mask, backend=backend)
    convref.assert_correct(got, "conv.backward", (dy, x, w), accuracy="rn32", output_mask=mask)


def test_padding_multiplies_in_the_forward_pass(backend: str) -> None:
    x, w = torch.ones(1, 1, 5, 5).double(), torch.full((1, 1, 3, 3), np.inf).double()
    got = convref.conv2d(x, w, padding=1, backend=backend)
    want = torch.nn.functional.conv2d(x, w, padding=1)
    assert int(want.isnan().sum()) == 16
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf(), want.isinf())


def test_padding_multiplies_in_the_weight_gradient(backend: str) -> None:
    x, w = torch.ones(1, 1, 5, 5).double(), torch.ones(1, 1, 3, 3).double()
    dy = torch.full((1, 1, 5, 5), np.inf).double()
    got = convref.conv2d_backward(dy, x, w, padding=1, backend=backend)[1]
    want = torch.nn.grad.conv2d_weight(x, w.shape, dy, padding=1)
    assert int(want.isnan().sum()) == 8
    assert torch.equal(got.isnan(), want.isnan())


def test_gaps_between_strides_do_not_multiply(backend: str) -> None:
    x, w = torch.ones(1, 1, 5, 5).double(), torch.full((1, 1, 3, 3), np.inf).double()
    dy = torch.ones(1, 1, 2, 2).double()
    got = convref.conv2d_backward(dy, x, w, stride=2, backend=backend)[0]
    assert torch.equal(got, torch.nn.grad.conv2d_input(x.shape, w, dy, stride=2))
    assert not got.isnan().any()


def conv(x: Any, w: Any, **changes: Any) -> tuple[Any, Any]:
    """Return the forward call, ours and ATen's, on arrays of these shapes or these arrays."""
    x, w = (a if isinstance(a, torch.Tensor) else data(*a) for a in (x, w))
    found = {**DEFAULTS, **changes}
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    rest = tuple(found[name] for name in names)
    return (
        lambda: convref.convolution(x, w, None, *rest),
        lambda: torch.ops.aten.convolution(x, w, None, *rest),
    )


def backward(dy: Any, **changes: Any) -> tuple[Any, Any]:
    """Return the backward call, ours and ATen's."""
    found = {**DEFAULTS, "mask": [T, T, T], **changes}
    dy, x, w = data(*dy), data(*found["x"]), data(*found["w"])
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups", "mask")
    rest = tuple(found[name] for name in names)
    return (
        lambda: convref.convolution_backward(dy, x, w, [6], *rest),
        lambda: torch.ops.aten.convolution_backward(dy, x, w, [6], *rest),
    )


X, W, DY = (2, 4, 5, 6), (6, 4, 3, 3), (2, 6, 3, 4)
word = torch.nn.functional

REFUSED: dict[str, tuple[tuple[Any, Any], str]] = {
    "mask of length 2": (backward(DY, mask=[T, T]), "output_mask is"),
    "dy with wrong space": (backward((2, 6, 3, 3)), "grad_output has Q=3, needs 4"),
    "dy with wrong K": (backward((2, 5, 3, 4)), "grad_output has K=5, needs 6"),
    "dy of another rank": (backward((2, 6, 3)), "grad_output has 3 axes, needs 4"),
    "K=0 in ATen's forward": (conv((2, 4, 5, 6), (6, 4, 3, 3), groups=4), "needs 16"),
    "no space, no padding": (conv((2, 4, 0, 6), W), "output P is -2"),
    "transposed without space": (conv((2, 6, 0, 4), W, transposed=T), "when transposed"),
    "output below 1": (conv((2, 4, 2, 2), W), "output P is 0"),
    "output below 1, N=0": (conv((0, 4, 2, 2), W), "output P is 0"),
    "output below 1, dilated": (conv(X, W, dilation=[3]), "output P is -1"),
    "output below 1, backward": (backward((2, 6, 0, 0), x=(2, 4, 2, 2)), "output P is 0"),
    "kernel size 0": (conv(X, (6, 4, 0, 3)), "filter R is 0"),
    "C is not groups * C/G": (conv(X, (6, 1, 3, 3), groups=3), "input has C=4, needs 3"),
    "groups does not divide K": (conv(X, (6, 1, 3, 3), groups=4), "K is 6"),
    "groups 0": (conv(X, W, groups=0), "groups is 0"),
    "groups 0, backward": (backward(DY, groups=0), "groups is 0"),
    "stride 0": (conv(X, W, stride=[0]), "stride is"),
    "stride 0, backward": (backward(DY, stride=[0]), "stride is"),
    "dilation 0": (conv(X, W, dilation=[0]), "dilation is"),
    "dilation 0, backward": (backward(DY, dilation=[0]), "dilation is"),
    "stride of length 3": (conv(X, W, stride=[1, 1, 1]), "stride has 3 entries"),
    "output_padding too large": (
        conv((2, 6, 3, 4), W, transposed=T, stride=[2], output_padding=[2]),
        "output_padding[0] is 2, needs 0 to 1",
    ),
    "output_padding negative": (
        conv((2, 6, 3, 4), W, transposed=T, output_padding=[-1]),
        "output_padding[0] is -1",
    ),
    "output_padding, not transposed, backward": (
        backward(DY, output_padding=[1]),
        "needs 0 unless transposed",
    ),
    "transposed output below 1": (
        conv((2, 6, 3, 4), W, transposed=T, padding=[5]),
        "output P is -5",
    ),
    "same with stride 2": (
        (
            lambda: convref.conv2d(data(*X), data(*W), padding="same", stride=2),
            lambda: word.conv2d(data(*X), data(*W), padding="same", stride=2),
        ),
        "needs stride 1",
    ),
    "a word when transposed": (
        (
            lambda: convref.conv_transpose2d(data(*DY), data(*W), padding="same"),
            lambda: word.conv_transpose2d(data(*DY), data(*W), padding="same"),
        ),
        "one of valid",
    ),
    "bool": (conv(data(*X).bool(), data(*W).bool()), "input has dtype bool"),
    "float8": (
        conv(data(*X).to(torch.float8_e4m3fn), data(*W).to(torch.float8_e4m3fn)),
        "conv has no e4m3: only scaled_conv has",
    ),
    "mixed dtypes": (conv(data(*X).float(), data(*W)), "weight has dtype f64, needs f32"),
    "mixed dtypes of the bias": (
        (
            lambda: convref.conv2d(data(*X), data(*W), data(6).float()),
            lambda: word.conv2d(data(*X), data(*W), data(6).float()),
        ),
        "bias has dtype f32, needs f64",
    ),
    "4 axes in space": (conv((1,) * 6, (1,) * 6), "input has 6 axes"),
    "no axis in space": (conv((2, 4), (6, 4)), "input has 2 axes"),
    "no batch axis in aten's order": (conv((4, 5, 6), W), "weight has 4 axes, needs 3"),
}


@pytest.mark.parametrize(("calls", "text"), REFUSED.values(), ids=REFUSED)
def test_refused_by_both(calls: tuple[Any, Any], text: str) -> None:
    ours, theirs = calls
    with pytest.raises(PEER_ERRORS):
        theirs()
    with pytest.raises(ConvrefError) as caught:
        ours()
    assert text in str(caught.value)


# What ATen accepts or answers and we do not, with our rule and its reason. ATen is not called:
# it may read out of bounds, and its answer may change with any release.
OURS: dict[str, tuple[Any, str]] = {
    "N of dy larger: ATen drops the rest": (backward((3, 6, 3, 4))[0], "N=3, needs 2"),
    "N of dy smaller: ATen reads out of bounds": (backward((1, 6, 3, 4))[0], "N=1, needs 2"),
    "bias_sizes wrong: ATen ignores it": (
        lambda: convref.conv2d_backward(data(*DY), data(*X), data(*W), [5]),
        "bias_sizes is (5,), needs (6,)",
    ),
    "output_padding of a convolution: ATen's forward ignores it": (
        conv(X, W, output_padding=[1])[0],
        "needs 0 unless transposed",
    ),
}


@pytest.mark.parametrize(("ours", "text"), OURS.values(), ids=OURS)
def test_refused_by_us_alone(ours: Any, text: str) -> None:
    with pytest.raises(ConvrefError) as caught:
        ours()
    assert text in str(caught.value)


@pytest.mark.parametrize("transposed", [F, T])
def test_no_input_channels_leaves_the_bias(transposed: bool, backend: str) -> None:
    """ATen returns (N, 0, P, Q), drops the bias and zeroes db; an empty sum is zero, not absent."""
    x, b, dy = data(2, 0, 5, 6), data(6), data(2, 6, 3, 4)
    w = data(0, 6, 3, 3) if transposed else data(6, 0, 3, 3)
    dy = data(2, 6, 7, 8) if transposed else dy
    forward = convref.conv_transpose2d if transposed else convref.conv2d
    y = forward(x, w, b, backend=backend)
    same([y], [b.reshape(1, 6, 1, 1).expand(dy.shape)])
    got = convref.conv2d_backward(dy, x, w, transposed=transposed, backend=backend)
    same(got, (x, w, dy.sum((0, 2, 3))))


def test_no_output_channels_is_an_empty_result(backend: str) -> None:
    """ATen refuses K=0; every size may be 0 as far as the sums make sense."""
    x, w, dy = data(*X), data(0, 4, 3, 3), data(2, 0, 3, 4)
    same([convref.conv2d(x, w, data(0), backend=backend)], [dy])
    same(convref.conv2d_backward(dy, x, w, backend=backend), (x * 0, w, data(0)))


def test_an_image_of_padding_alone(backend: str) -> None:
    """ATen refuses H=0 although padding makes windows; each is a sum of zeros, plus the bias."""
    x, w, b, dy = data(2, 4, 0, 6), data(*W), data(6), data(2, 6, 2, 8)
    y = convref.conv2d(x, w, b, padding=2, backend=backend)
    same([y], [b.reshape(1, 6, 1, 1).expand(2, 6, 2, 8)])
    got = convref.conv2d_backward(dy, x, w, padding=2, backend=backend)
    same(got, (x, w * 0, dy.sum((0, 2, 3))))


def test_negative_padding_crops(backend: str) -> None:
    """ATen refuses it; cropping is the same formula, and what asymmetric frameworks need."""
    x, w = data(*X), data(*W)
    got = convref.conv2d(x, w, padding=((-1, 0), (0, -2)), backend=backend)
    same([got], [torch.nn.functional.conv2d(x[:, :, 1:, :-2], w)])


def test_full_is_a_word(backend: str) -> None:
    """ATen has no 'full'; Theano and PyTensor do."""
    x, w = data(*X), data(*W)
    got = convref.conv2d(x, w, padding="full", backend=backend)
    same([got], [torch.nn.functional.conv2d(x, w, padding=2)])


def test_meta_tensors_hold_nothing_to_compute() -> None:
    """ATen gives meta results; `auto` and the oracle refuse, and name the device."""
    x, w = data(*X).to("meta"), data(*W).to("meta")
    with pytest.raises(UnsupportedError, match="no backend for torch on meta"):
        convref.conv2d(x, w)
    with pytest.raises(UnsupportedError, match="operands are on meta"):
        convref.conv2d(x, w, backend="numpy")
    assert convref.conv2d(x, w, backend="torch").shape == DY


def test_fake_tensors_give_fake_results() -> None:
    with FakeTensorMode():
        x, w, dy = torch.empty(X), torch.empty(W), torch.empty(DY)
        results = convref.conv2d_backward(dy, x, w)
        assert [tuple(r.shape) for r in results] == [X, W, (6,)]
