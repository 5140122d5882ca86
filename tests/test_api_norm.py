"""The public norms: torch's meaning, layouts, kinds of array, and wrong calls with messages."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("torch", reason="torch is not installed")

import torch
import torch.nn.functional as F

import convref
from convref import ConvrefError, Numerics, UnsupportedError, judge, parse
from convref.case import Call, Spec
from convref.ops import GroupNormProblem

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 10, (2, 4, 3, 5)).astype(np.float64)
DY = RNG.integers(-9, 10, X.shape).astype(np.float64)
W, B = np.arange(1.0, 5), np.arange(4.0)
MEAN, VAR = np.arange(4.0), np.arange(1.0, 5)


def near(got: Any, want: Any, n: int = 4000) -> None:
    """Raise unless float64 results of a few hundred roundings on numbers below 500 agree."""
    got, want = (np.asarray(a) for a in (got, want))
    assert got.shape == want.shape
    assert np.all(np.abs(got - want) <= n * 2.0**-53 * (np.abs(want) + 500))


def tensors(*arrays: Any) -> list[Any]:
    return [torch.from_numpy(a).clone() for a in arrays]


def test_batch_norm_in_training_matches_torch_without_side_effect() -> None:
    x, mean, var, w, b = tensors(X, MEAN, VAR, W, B)
    want = F.batch_norm(x, mean, var, w, b, True, 0.3, 0.01)
    y, _, _, new_mean, new_var = convref.batch_norm_statistics(X, MEAN, VAR, W, B, 0.3, 0.01)
    for got, theirs in ((y, want), (new_mean, mean), (new_var, var)):
        near(got, theirs)
    near(convref.batch_norm(X, MEAN, VAR, W, B, True, 0.3, 0.01), want)
    assert_array_equal(MEAN, np.arange(4.0))
    evaluated = F.batch_norm(*tensors(X, MEAN, VAR, W, B), False, 0.3, 0.01)
    near(convref.batch_norm(X, MEAN, VAR, W, B, False, 0.3, 0.01), evaluated)


def test_cumulative_mean_matches_torch_module() -> None:
    module = torch.nn.BatchNorm2d(4, momentum=None, dtype=torch.float64)
    mean, var = np.zeros(4), np.ones(4)
    for batch in range(3):
        module(torch.from_numpy(X + batch))
        *_, mean, var = convref.batch_norm_statistics(
            X + batch, mean, var, momentum=None, num_batches_tracked=batch
        )
    near(mean, module.running_mean)
    near(var, module.running_var)


def test_group_instance_and_layer_norm_match_torch() -> None:
    near(convref.group_norm(X, 2, W, B, 0.01), F.group_norm(*tensors(X), 2, *tensors(W, B), 0.01))
    want = F.instance_norm(*tensors(X), None, None, *tensors(W, B))
    near(convref.instance_norm(X, None, None, W, B), want)
    for shape in ((5,), (3, 5), (4, 3, 5), X.shape):
        w, b = RNG.integers(-3, 4, shape) + 0.0, RNG.integers(-3, 4, shape) + 0.0
        want = F.layer_norm(*tensors(X), shape, *tensors(w, b), 0.01)
        near(convref.layer_norm(X, shape, w, b, 0.01), want)
        x, wt, bt = (t.requires_grad_() for t in tensors(X, w, b))
        y = F.layer_norm(x, shape, wt, bt, 0.01)
        theirs = torch.autograd.grad(y, (x, wt, bt), torch.from_numpy(DY))
        ours = convref.layer_norm_backward(DY, X, shape, w, eps=0.01)
        for got, want in zip(ours, theirs, strict=True):
            near(got, want)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm", "group_norm", "layer_norm"])
def test_argument_order_matches_torch(name: str) -> None:
    theirs = list(inspect.signature(getattr(F, name)).parameters)
    ours = inspect.signature(getattr(convref, name)).parameters
    plain = [p for p in ours if ours[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [p for p in plain if p in theirs] == theirs


def results(x: Any, dy: Any, w: Any, b: Any, mean: Any, var: Any, **how: Any) -> dict[str, Any]:
    """Return the results of every public norm on an image, by name; images first in each."""
    found = {}
    for training in (True, False):
        run = {"training": training, **how}
        stem = f"batch_norm({training})"
        given = {"running_mean": mean, "running_var": var}
        found[stem] = (convref.batch_norm(x, mean, var, w, b, **run),)
        found[f"{stem} backward"] = convref.batch_norm_backward(dy, x, w, **given, **run)
        dots = (dy, b, None)
        found[f"{stem} jvp"] = convref.batch_norm_jvp((x, w, b), dots, **given, **run)
        first = (dy, b, None, 2 * dy, x, w)
        found[f"{stem} second"] = convref.batch_norm_double_backward(*first, **given, **run)
    found["group"] = convref.group_norm(x, 2, w, b, return_statistics=True, **how)
    found["group backward"] = convref.group_norm_backward(dy, x, 2, w, **how)
    found["group jvp"] = convref.group_norm_jvp((x, w, b), (dy, b, w), 2, **how)
    found["group second"] = convref.group_norm_double_backward(dy, b, w, dy, x, 2, w, **how)
    found["instance"] = (convref.instance_norm(x, None, None, w, b, **how),)
    return found


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_channels_last_and_tensors_are_the_same_numbers(rank: int) -> None:
    shape = (2, 4, *(3, 2, 5)[:rank])
    x, dy = (RNG.integers(-9, 10, shape).astype(float) for _ in range(2))
    plain = results(x, dy, W, B, MEAN, VAR)
    layout = f"N{'DHW'[3 - rank :]}C"
    moved = (np.moveaxis(a, 1, -1) for a in (x, dy))
    last = results(*moved, W, B, MEAN, VAR, layout=layout)
    for name, wants in plain.items():
        for got, want in zip(last[name], wants, strict=True):
            back = np.moveaxis(got, -1, 1) if got.ndim == len(shape) else got
            near(back, want)
    for name, wants in results(*tensors(x, dy, W, B, MEAN, VAR)).items():
        for got, want in zip(wants, plain[name], strict=True):
            assert isinstance(got, torch.Tensor)
            near(got, want, 40_000)


def test_features_without_space() -> None:
    flat = X[..., 0, 0]
    want = convref.batch_norm(flat[..., None], None, None, W, B, True)
    assert_array_equal(convref.batch_norm(flat, None, None, W, B, True), want[..., 0])
    dx, dw, _ = convref.batch_norm_backward(flat, flat, W, eps=1.0)
    assert (dx.shape, dw.shape) == (flat.shape, (4,))


def test_masked_results_are_none_and_saved_statistics_are_used() -> None:
    _, mean, rstd, _, _ = convref.batch_norm_statistics(X)
    kept = convref.batch_norm_backward(DY, X, W, mean=mean, rstd=rstd)
    for got, want in zip(convref.batch_norm_backward(DY, X, W), kept, strict=True):
        assert_array_equal(got, want)
    only = convref.batch_norm_backward(DY, X, W, output_mask=(False, True, False))
    assert only[0] is only[2] is None
    wrong = convref.batch_norm_backward(DY, X, W, mean=mean + 1, rstd=rstd)
    assert np.all(wrong[1] != kept[1])


def test_statistics_of_16_bit_inputs_are_float32() -> None:
    x = X.astype(np.float16)
    y, mean, rstd = convref.group_norm(x, 2, return_statistics=True)
    assert (y.dtype, mean.dtype, rstd.dtype) == (np.float16, np.float32, np.float32)
    problem = GroupNormProblem(n=2, c=4, input=(3, 5), groups=2, weight=False, bias=False)
    call = Call("group_norm", "fprop", problem, specs=(Spec("f16"),))
    assert judge(call, (x, None, None), (y, mean, rstd), Numerics("rn64"))


@pytest.mark.parametrize("backend", ["loops", "torch"])
@pytest.mark.parametrize(
    ("types", "parameters"), [("f4 f4", "wide"), ("f2 f2", "data"), ("f2 f4", "")]
)
def test_parameters_and_statistics_of_16_bit_inputs(
    types: str, parameters: str, backend: str
) -> None:
    """All float32 as under autocast, all of 16 bits as in such a model, or as cuDNN has them."""
    x, (weights, running) = X.astype("f2"), types.split()
    operands = x, MEAN.astype(running), VAR.astype(running), W.astype(weights), B.astype(weights)
    y, mean, rstd, *new = convref.batch_norm_statistics(*operands, backend=backend)
    assert [a.dtype for a in (y, mean, rstd, *new)] == ["f2", "f4", "f4", running, running]
    convref.assert_correct((y, mean, rstd, *new), "batch_norm_statistics", operands)
    assert convref.case_of("batch_norm", *operands).call.problem.parameters == parameters
    operands = DY.astype("f2"), x, W.astype(weights), *operands[1:3], None, None, False
    found = convref.batch_norm_backward(*operands, backend=backend)
    assert [a.dtype for a in found] == ["f2", weights, weights]
    convref.assert_correct(found, "batch_norm_backward", operands)


def test_parameters_of_several_types_are_refused() -> None:
    x, w, b = X.astype("f2"), W.astype("f4"), B.astype("f2")
    with pytest.raises(ConvrefError, match="bias has dtype f16, needs f32"):
        convref.group_norm(x, 2, w, b)
    with pytest.raises(ConvrefError, match="running_mean has dtype f16, needs f32"):
        convref.batch_norm(x, MEAN.astype("f2"), VAR.astype("f2"), w)
    assert "par" not in str(parse("group_norm.fprop:n1c2_i3:par=data:dt=bf16"))
    assert "par" not in str(parse("batch_norm.fprop:n1c2_i3:par=wide"))


def test_named_backend_refuses_unsupported_call() -> None:
    with pytest.raises(UnsupportedError, match="does not call ATen for empty images"):
        convref.layer_norm(X[:0], 5, backend="torch")


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_missing_tangent_is_zero_for_any_primal(kind: Any) -> None:
    endless = kind(np.full(4, np.inf))
    _, tangent = convref.batch_norm_jvp((kind(X), None, endless), (kind(X), None, None))
    _, same = convref.batch_norm_jvp((kind(X), None, kind(W)), (kind(X), None, None))
    assert (np.asarray(tangent) == np.asarray(same)).all()


@pytest.mark.parametrize("eps", [-0.1, -0.9, -1e9])
def test_a_negative_eps_is_computed_as_torch_does(eps: float) -> None:
    """Of a sum var + eps below 0 the root is NaN; batch norm refuses such an eps, as torch does."""
    x = np.tile([1.0, -1.0], (3, 4, 3))  # mean 0 and variance 1, exactly
    (t,) = tensors(x)
    for name, size in (("group_norm", 2), ("layer_norm", [6]), ("rms_norm", [6])):
        got, want = (
            getattr(convref, name)(x, size, eps=eps),
            getattr(F, name)(t, size, eps=eps).numpy(),
        )
        assert (np.isnan(got) == np.isnan(want)).all()
        assert np.isnan(got).all() == (eps < -1)
        near(np.nan_to_num(got), np.nan_to_num(want))
    with pytest.raises(convref.ConvrefError, match="needs a finite number of at least 0"):
        convref.batch_norm(x, MEAN, VAR, eps=eps)


def test_momentum_beyond_0_and_1_is_computed_as_torch_does() -> None:
    mean, var = tensors(MEAN, VAR)
    F.batch_norm(*tensors(X), mean, var, training=True, momentum=-1.2)
    got = convref.batch_norm_statistics(X, MEAN, VAR, momentum=-1.2)
    near(got[3], mean)
    near(got[4], var)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_an_empty_vector(training: bool) -> None:
    """PyTorch's own sample: an input of shape (0,) has no channels."""
    for empty in (np.zeros(0), torch.zeros(0)):
        assert convref.batch_norm(empty, empty, empty, training=training).shape == (0,)
    empty = np.zeros(0)
    found = convref.batch_norm_backward(empty, empty, None, empty, empty, training=training)
    assert [a.shape for a in found] == [(0,)] * 3
    objects = empty.astype(object)
    assert convref.batch_norm(objects, objects, objects, training=training).shape == (0,)
    with pytest.raises(convref.ConvrefError, match="input has 1 axes, needs 2 to 5"):
        convref.batch_norm(np.zeros(3), empty, empty)


@pytest.mark.parametrize("affine", [(None, None), (W, B)])
def test_instance_norm_returns_the_running_statistics_that_torch_writes(affine: Any) -> None:
    mean, var = tensors(MEAN, VAR)
    theirs = affine if affine[0] is None else tensors(*affine)
    want = F.instance_norm(*tensors(X), mean, var, *theirs, True, 0.3, 1e-3)
    y, _, _, *new = convref.instance_norm_statistics(X, MEAN, VAR, *affine, 0.3, 1e-3)
    near(y, want)
    near(new[0], mean)
    near(new[1], var)
    np.testing.assert_array_equal(MEAN, np.arange(4.0))
    assert convref.instance_norm_statistics(X)[3:] == (None, None)
    with pytest.raises(convref.ConvrefError, match="has 1 values per image and channel, needs at"):
        convref.instance_norm_statistics(X[..., :1, :1])


@pytest.mark.parametrize("use_input_stats", [True, False])
def test_derivatives_of_instance_norm_match_torch(use_input_stats: bool) -> None:
    x, w, b = (t.requires_grad_() for t in tensors(X, W, B))
    state = () if use_input_stats else tensors(MEAN, VAR)
    norm = functools.partial(F.instance_norm, use_input_stats=use_input_stats)
    y = norm(x, *(state or (None, None)), w, b)
    first = torch.autograd.grad(y, (x, w, b), tensors(DY)[0], create_graph=True)
    given = {} if use_input_stats else {"running_mean": MEAN, "running_var": VAR}
    given["use_input_stats"] = use_input_stats
    found = convref.instance_norm_backward(DY, X, W, **given)
    for got, want in zip(found, first, strict=True):
        near(got, want.detach())
    outer = tensors(X[::-1].copy(), W[::-1].copy(), B[::-1].copy())
    second = torch.autograd.grad(first, (x, w), outer)
    dots = [t.numpy() for t in outer]
    ddy, *found = convref.instance_norm_double_backward(*dots, DY, X, W, **given)
    for got, want in zip(found, second, strict=True):
        near(got, want)
    near(convref.instance_norm_jvp((X, W, B), dots, **given)[1], torch.from_numpy(ddy))


@pytest.mark.parametrize("use_input_stats", [True, False])
def test_instance_norm_with_running_statistics_as_torch_has_it(use_input_stats: bool) -> None:
    given = X, MEAN, VAR, W, B
    want = F.instance_norm(*tensors(*given), use_input_stats, 0.3, 1e-3)
    near(convref.instance_norm(*given, use_input_stats, 0.3, 1e-3), want)
    np.testing.assert_array_equal(MEAN, np.arange(4.0))
    with pytest.raises(convref.ConvrefError, match="running_mean"):
        convref.instance_norm(X, MEAN[:3], VAR, use_input_stats=use_input_stats)
    with pytest.raises(convref.ConvrefError, match="running_mean is None, needs an array"):
        convref.instance_norm(X, use_input_stats=False)
    with pytest.raises(convref.ConvrefError, match="momentum is 'x', needs a finite number"):
        convref.instance_norm(X, momentum="x")
