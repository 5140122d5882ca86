"""Programs of mixed, integer and ambiguous results: what PyTorch computes passes, others fail."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.func import grad, jvp, vmap  # noqa: E402

from convref import Numerics, UnsupportedError, assert_close  # noqa: E402
from convref.judge.programs import Program, judge_results  # noqa: E402

DTYPES = (
    torch.bool, torch.uint8, torch.int32, torch.int64,
    torch.bfloat16, torch.float16, torch.float32, torch.float64,
)  # fmt: skip
BINARY = (
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.pow,
    torch.fmod, torch.remainder, torch.eq, torch.lt, torch.ge, torch.logical_and,
    torch.floor_divide,
)  # fmt: skip


def verdict(f, args, result):
    return judge_results(Program(f, args, {}, Numerics()), result).verdict


def operand(dtype, shape, generator):
    """Return values that no narrower float has, and no narrower integer."""
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
    high = {torch.bool: 2, torch.uint8: 200}.get(dtype, 1 << 28)
    return torch.randint(0, high, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("f", BINARY, ids=lambda f: f.__name__)
def test_operands_of_two_dtypes_are_converted_as_pytorch_converts_them(f):
    """A 0-dimensional operand of the same category does not widen the result."""
    random, judgements = torch.Generator().manual_seed(0), 0
    for dtypes in product(DTYPES, DTYPES):
        for shapes in (((5,), (5,)), ((5,), ()), ((), (5,)), ((), ())):
            args = [operand(d, s, random) for d, s in zip(dtypes, shapes)]
            try:
                result = f(*args)
            except RuntimeError:  # PyTorch has no subtraction of bool, for example
                continue
            try:
                found = verdict(f, args, result)
            except UnsupportedError:
                continue
            judgements += 1
            assert found.kind != "wrong", f"{f.__name__} {dtypes} {shapes}: {found.reason}"
    assert judgements


def in_place(x):
    y = x * 1
    y[:1] -= 2
    return y.neg_().add_(1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integers_beyond_float64_are_compared_exactly(dtype):
    top = torch.iinfo(dtype).max
    x = torch.tensor([top - 3, 5], dtype=dtype)
    for f in (torch.clone, lambda x: x.flip(0), lambda x: x.sum(), lambda x: x.cumsum(0), in_place):
        right = f(x)
        assert verdict(f, (x,), right).kind == "pass"
        for place in range(right.numel()):
            wrong = right.clone()
            wrong.view(-1)[place] -= 1
            assert verdict(f, (x,), wrong).kind == "wrong"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_sort_may_put_equal_elements_in_any_order(dtype):
    random = torch.Generator().manual_seed(1)
    x = torch.randint(0, 4, (3, 9), generator=random).to(dtype)
    x[:, 0] = 9  # one element without an equal: its place is judged
    values, places = x.sort(-1)
    other = (x + torch.rand(3, 9, generator=random) / 2).sort(-1).indices
    assert not torch.equal(places, other)
    for f in (torch.sort, lambda x: x.sort(dim=-1), lambda x: x.topk(9, largest=False)):
        assert assert_close((values, other), f, (x,))
        wrong = other.clone()
        wrong[:, -1] -= 1
        with pytest.raises(AssertionError, match="wrong"):
            assert_close((values, wrong), f, (x,))
    with pytest.raises(AssertionError, match="wrong"):
        assert_close((values, other), lambda x: torch.sort(x, stable=True), (x,))


def test_the_last_of_the_largest_elements_may_be_another_equal_one():
    x = torch.tensor([5.0, 2.0, 2.0, 1.0])
    values = torch.tensor([5.0, 2.0])
    for place in (1, 2):
        assert assert_close((values, torch.tensor([0, place])), lambda x: x.topk(2), (x,))
    with pytest.raises(AssertionError, match="wrong"):
        assert_close((values, torch.tensor([3, 1])), lambda x: x.topk(2), (x,))


def test_outputs_of_a_dict_have_no_order():
    x = torch.randn(4)
    assert assert_close({"b": x * 2, "a": x}, lambda x: {"a": x * 1, "b": x * 2}, (x,))
    with pytest.raises(AssertionError, match="wrong"):
        assert_close({"b": x, "a": x * 2}, lambda x: {"a": x * 1, "b": x * 2}, (x,))


def test_operations_that_change_only_a_layout_in_place_are_views():
    x = torch.randn(4, 4)
    f = lambda x: x.clone().t_() * 2  # noqa: E731
    assert assert_close(x.t() * 2, f, (x,))
    with pytest.raises(AssertionError, match="wrong"):
        assert_close(x * 2, f, (x,))
    assert assert_close(x[None] + 1, lambda x: x.clone().unsqueeze_(0).add_(1), (x,))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own call
def test_transforms_of_functions_are_references():
    x, dx = torch.randn(8, 16), torch.randn(8, 16)
    for f, args in (
        (lambda x, dx: jvp(torch.sin, (x,), (dx,)), (x, dx)),
        (lambda x, dx: vmap(torch.dot)(x, dx), (x, dx)),
        (lambda x: grad(lambda x: x.sigmoid().sum())(x), (x,)),
    ):
        assert verdict(f, args, f(*args)).kind == "pass"


def test_integers_of_exact_data_are_exact():
    """Places of nonzero elements have no rule; doubled integers have no error."""
    x = torch.tensor([1.0, 0.0, 2.0])
    assert assert_close(torch.tensor([[0], [2]]), lambda x: (x * 2).nonzero(), (x,))
    with pytest.raises(UnsupportedError, match="nonzero, which has no rule"):
        assert_close(torch.tensor([[0], [2]]), lambda x: (x * 0.1).nonzero(), (x,))
