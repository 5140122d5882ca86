"""The public pools: layouts, kinds of array, global pools, and wrong calls with their messages."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("torch", reason="torch is not installed")

import torch
import torch.nn.functional as F

import convref
from convref import UnsupportedError

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 10, (2, 3, 6, 7)).astype(np.float64)
AT = convref.max_pool2d(X, 2, return_indices=True)[1]
DY = np.ones((2, 3, 3, 3))

TORCH: dict[str, tuple[Any, ...]] = {
    "max_pool2d": ((3, 2, 1, 1, True), (2,), ((3, 2), (2, 1), (1, 0), (1, 2))),
    "avg_pool2d": ((3, 2, 1, True, False), (2,), ((3, 2), (2, 1), (1, 0), False, True, 5)),
    "adaptive_avg_pool2d": ((4,), ((4, None),)),
    "adaptive_max_pool2d": ((4,), ((5, 2),)),
}


@pytest.mark.parametrize(("name", "arguments"), [(n, a) for n, rows in TORCH.items() for a in rows])
def test_same_call_as_torch_gives_same_result(name: str, arguments: tuple[Any, ...]) -> None:
    want = getattr(F, name)(torch.from_numpy(X), *arguments).numpy()
    got = getattr(convref, name)(X, *arguments)
    sums = np.abs(want) if "avg" in name else 0
    assert np.all(np.abs(got - want) <= 2 * 49 * 2.0**-53 * (sums + 9))
    assert_array_equal(getattr(convref, name)(torch.from_numpy(X), *arguments).numpy(), want)


@pytest.mark.parametrize("name", [n for n in convref.api.__all__ if n.endswith("pool2d")])
def test_argument_order_matches_torch(name: str) -> None:
    theirs = getattr(F, name)
    theirs = getattr(F, f"{name}_with_indices", theirs)
    try:
        order = list(inspect.signature(theirs).parameters)
    except ValueError:  # a builtin: its docstring begins with the signature
        (listed,) = re.findall(rf"^\s*{name}\(([^)]*)\)", theirs.__doc__ or "", re.MULTILINE)
        order = [entry.split("=")[0].strip() for entry in listed.split(",")]
    ours = inspect.signature(getattr(convref, name)).parameters
    plain = [p for p in ours if ours[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    shared = [p for p in order if p in plain]
    assert plain == shared


def calls(layout: str | None, x: Any, y: Any, rank: int) -> dict[str, Any]:
    """Return calls of every public pool of a rank, by name."""

    def of(name: str, *arrays: Any, **keywords: Any) -> Any:
        return getattr(convref, name.replace("Nd", f"{rank}d"))(*arrays, layout=layout, **keywords)

    found: dict[str, Any] = {}
    for stem, arguments in (
        ("max_poolNd", (2,)),
        ("avg_poolNd", (2,)),
        ("adaptive_max_poolNd", (3,)),
        ("adaptive_avg_poolNd", (3,)),
    ):
        found[stem] = of(stem, x, *arguments)
        found[f"{stem}_backward"] = of(f"{stem}_backward", y, x, *arguments)
        found[f"{stem}_jvp"] = of(f"{stem}_jvp", (x,), (2 * x,), *arguments)[1]
        more = (x,) if "max" in stem else ()
        found[f"{stem}_double_backward"] = of(f"{stem}_double_backward", x, *more, *arguments)
    found["lp_poolNd"] = of("lp_poolNd", x, 2, 2)
    found["lp_poolNd_backward"] = of("lp_poolNd_backward", y, x, 2, 2)
    found["lp_poolNd_jvp"] = of("lp_poolNd_jvp", (x,), (x,), 2, 2)[1]
    found["lp_poolNd_double_backward"] = of("lp_poolNd_double_backward", x, y, x, 2, 2)[1]
    values, at = of("max_poolNd", x, 2, return_indices=True)
    found["max_unpoolNd"] = of("max_unpoolNd", values, at, 2)
    back = of("max_unpoolNd_backward", of("max_unpoolNd", values, at, 2), values, at, 2)
    found["max_unpoolNd_backward"] = back
    found["max_unpoolNd_jvp"] = of("max_unpoolNd_jvp", (values,), (values,), at, 2)[1]
    found["max_unpoolNd_double_backward"] = of("max_unpoolNd_double_backward", values, at, 2)
    return found


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_channels_last_and_a_missing_batch_are_the_same_numbers(rank: int) -> None:
    x = RNG.integers(-9, 10, (2, 3, *(6,) * rank)).astype(float)
    y = RNG.integers(-9, 10, (2, 3, *(3,) * rank)).astype(float)
    plain = calls(None, x, y, rank)
    space = "DHW"[3 - rank :]
    last = calls(f"N{space}C", np.moveaxis(x, 1, -1), np.moveaxis(y, 1, -1), rank)
    for name, want in plain.items():
        assert_array_equal(np.moveaxis(last[name], -1, 1), want, err_msg=name)
    single = calls(None, x[0], y[0], rank)
    for name, got in single.items():
        assert_array_equal(got, plain[name][0], err_msg=name)
    tensors = calls(None, torch.from_numpy(x), torch.from_numpy(y), rank)
    for name, got in tensors.items():
        assert isinstance(got, torch.Tensor)
        limit = 64 * 2.0**-53 * (np.abs(plain[name]) + 81) if "lp" in name else 0 * plain[name]
        assert np.all(np.abs(got.numpy() - plain[name]) <= limit), name


def test_global_pools_reduce_each_channel() -> None:
    for x in (X[..., 0], X, X[..., None]):
        lead, axes = x.shape[:2], tuple(range(2, x.ndim))
        assert_array_equal(convref.global_max_pool(x), x.max(axis=axes, keepdims=True))
        assert convref.global_avg_pool(x).shape == (*lead, *(1,) * len(axes))
        dx = convref.global_avg_pool_backward(np.ones((*lead, *(1,) * len(axes))), x)
        assert_array_equal(dx, np.full(x.shape, 1 / x[0, 0].size))
        norms = convref.global_lp_pool(x, 1.0)
        assert_array_equal(norms, np.abs(x).sum(axis=axes, keepdims=True))


def test_given_indices_are_used() -> None:
    dx = convref.max_pool2d_backward(DY, X, 2, indices=AT)
    assert_array_equal(dx, convref.max_pool2d_backward(DY, X, 2))


def test_named_backend_refuses_unsupported_call() -> None:
    with pytest.raises(UnsupportedError, match="ATen supports only equal padding at both ends"):
        convref.max_pool2d(X, 3, padding=((1, 0), (0, 0)), backend="torch")
    with pytest.raises(UnsupportedError, match="ATen has no dilation in avg_pool"):
        convref.avg_pool2d(X, 2, dilation=2, backend="torch")


ARGUMENTS = [  # arguments, what the TypeError says
    ((), "missing 1 required positional argument: 'kernel_size'"),
    (range(9), "takes from 2 to 7 positional arguments but 10 were given"),
]


@pytest.mark.parametrize(("arguments", "text"), ARGUMENTS)
def test_type_error_names_the_public_function(arguments, text):
    with pytest.raises(TypeError, match=rf"^max_pool2d\(\) {text}$"):
        convref.max_pool2d(np.ones((1, 1, 4, 4)), *arguments)
