"""Every custom op, on generated problems: against the oracle, and against PyTorch's own checks."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields

import pytest
from hypothesis import Phase, given, settings

torch = pytest.importorskip("torch", reason="torch is not installed")

import convref  # noqa: E402
from convref.arrays import to_torch  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.reject import invalid_inputs  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.errors import ConvrefError, UnsupportedError  # noqa: E402
from convref.integrations.torch import functional  # noqa: E402
from convref.integrations.torch._autograd import invoke  # noqa: E402
from convref.integrations.torch._kernels import PassConfig, call_of, compute, empty  # noqa: E402
from convref.integrations.torch._table import ROWS  # noqa: E402

# torch scripts its own rules of forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")

OPS = sorted({op for op, _ in ROWS})
DERIVED = [op for op in OPS if (op, "backward") in ROWS]
SMALL = {"max_elements": 24, "max_macs": 200, "empty": False}
EXAMPLES = max(3, settings.default.max_examples // 20)
TINY = {"max_elements": 8, "max_macs": 60}  # differences take the square of the elements
BACKEND = "numpy"  # the oracle: only the path to it is tested


def campaign(check, op, passes=("fprop",), only=bool, **more):
    """Run a check on generated cases of one op."""
    drawn = cases([op], passes, dtypes=["f64"], fills=["normal"], **{**SMALL, **more})

    @settings(max_examples=EXAMPLES, phases=[Phase.generate])
    @given(drawn.filter(only))
    def run(case):
        check(case)

    run()


def op_inputs(case, backend=BACKEND):
    """Return the arguments of the custom op for a case: (PassConfig, tensors by role)."""
    call = case.call
    row = ROWS[call.op, call.pass_]
    tensors = tuple(None if a is None else to_torch(a.copy()) for a in operands(case))
    problem = call.problem
    input = problem.input if row.needs_input else ()
    return PassConfig(
        row, row.attributes_of({**vars(problem), "math": call.math}), call.mask, input, backend
    ), tensors


def is_finite(case):
    """Return whether results have differences: not the maximum of nothing, nor its mean."""
    config, tensors = op_inputs(case)
    return all(r is None or bool(r.isfinite().all()) for r in compute(config, tensors))


def differentiable(config, tensors):
    """Return the function of the operands that have a gradient, and these."""
    results = ROWS[config.row.op, "backward"].signature.results
    roles = config.row.signature.operands
    moved = [i for i, r in enumerate(roles) if f"d{r}" in results and tensors[i] is not None]

    def function(*values):
        given = list(tensors)
        for i, value in zip(moved, values):
            given[i] = value
        return invoke(config, *given)[0]

    return function, tuple(tensors[i].clone().requires_grad_() for i in moved)


def _shown(problem):
    """Return the problem as far as operands determine it: a bias may show in its gradient only."""
    return {f.name: getattr(problem, f.name) for f in fields(problem) if f.name != "bias"}


@pytest.mark.parametrize("op", OPS)
def test_a_custom_op_equals_the_call_of_its_case(op):
    def check(case):
        config, tensors = op_inputs(case)
        found, wanted = call_of(config, tensors).problem, case.call.problem
        assert _shown(found) == _shown(wanted)
        with torch._subclasses.FakeTensorMode() as mode:
            fakes = [None if t is None else mode.from_tensor(t) for t in tensors]
            guessed = empty(config, tuple(fakes))
        for guess, result in zip(guessed, compute(config, tensors), strict=True):
            assert (guess is None) == (result is None)
            if result is not None:
                assert (guess.shape, guess.dtype, guess.stride()) == (
                    result.shape,
                    result.dtype,
                    result.stride(),
                )

    campaign(check, op, None, max_elements=2_000, max_macs=20_000, memory=True, empty=True)


def _refusal(config, tensors, make):
    try:
        make(config, tensors)
    except ConvrefError as error:
        return str(error).replace(":dev=meta", "")
    return None


@pytest.mark.parametrize("op", ["conv", "batch_norm", "layer_norm", "silu", "softmax"])
def test_wrong_operands_are_refused_without_data(op):
    """A traced call, and one on the device "meta", raises the same errors as the call with data."""
    told_both = []

    def check(case):
        config, _ = op_inputs(case)
        for what, wrong in invalid_inputs(case.call, operands(case)):
            tensors = tuple(None if a is None else to_torch(a) for a in wrong)
            if "is None" not in what:
                without = tuple(None if t is None else t.to("meta") for t in tensors)
                both = _refusal(config, tensors, compute), _refusal(config, without, empty)
                assert both[0] == both[1], what
                told_both.append(both[0])

    campaign(check, op, ("fprop", "backward"))
    assert any(told_both)


@pytest.mark.parametrize("op", DERIVED)
def test_first_derivatives(op):
    def check(case):
        function, values = differentiable(*op_inputs(case))
        assert torch.autograd.gradcheck(
            function,
            values,
            check_forward_ad=True,
            check_batched_grad=True,
            check_batched_forward_grad=True,
        )

    campaign(check, op, only=is_finite, **TINY)


@pytest.mark.parametrize("op", DERIVED)
def test_second_derivatives(op):
    def check(case):
        function, values = differentiable(*op_inputs(case))
        assert torch.autograd.gradgradcheck(
            function,
            values,
            check_fwd_over_rev=True,
            check_rev_over_rev=True,
        )

    campaign(check, op, only=is_finite, **TINY)


@pytest.mark.parametrize("op", OPS)
def test_opcheck(op):
    def check(case):
        config, tensors = op_inputs(case)
        name = getattr(torch.ops.convref, config.row.name)
        torch.library.opcheck(name.default, (*tensors, *config.arguments))

    campaign(check, op, None, only=is_finite)


@pytest.mark.parametrize("op", DERIVED)
def test_vmap_equals_a_loop(op):
    """With any of the operands batched, along any axis: bit for bit as in a loop."""

    def check(case):
        config, tensors = op_inputs(case, "loops")  # which add in one order, whatever the batch
        place = case.seed % 3
        moved = [i for i, t in enumerate(tensors) if t is not None and (i + case.seed) % 4]
        if not moved:
            moved = [next(i for i, t in enumerate(tensors) if t is not None)]
        dims = [min(place, tensors[i].ndim) for i in moved]
        stacks = [torch.stack([tensors[i], tensors[i].flip(0)], dim) for i, dim in zip(moved, dims)]

        def function(*values):
            given = list(tensors)
            for i, value in zip(moved, values):
                given[i] = value
            return tuple(r for r in invoke(config, *given) if r is not None)

        found = torch.func.vmap(function, in_dims=tuple(dims))(*stacks)
        each = [function(*(t.select(dim, i) for t, dim in zip(stacks, dims))) for i in range(2)]
        for result, parts in zip(found, zip(*each), strict=True):
            torch.testing.assert_close(result, torch.stack(parts), rtol=0, atol=0, equal_nan=True)

    campaign(check, op, None)


@pytest.mark.parametrize("op", DERIVED)
def test_modes_of_torch_func_agree(op):
    """Forward and reverse mode give the same numbers, and so do both orders of the two."""

    def check(case):
        function, values = differentiable(*op_inputs(case))
        primals = tuple(v.detach() for v in values)
        tangents = tuple(torch.full_like(p, 0.5) for p in primals)
        y, y_dot = torch.func.jvp(function, primals, tangents)
        _, pull = torch.func.vjp(function, *primals)
        assert_near(y_dot.sum(), inner(pull(torch.ones_like(y)), tangents))

        def loss(*moved):
            return function(*moved).square().sum()

        def slope(*moved):
            return torch.func.jvp(loss, moved, tangents)[1]

        every = tuple(range(len(primals)))
        forward_over_reverse = torch.func.jvp(torch.func.grad(loss, every), primals, tangents)[1]
        reverse_over_forward = torch.func.grad(slope, every)(*primals)
        for one, other in zip(forward_over_reverse, reverse_over_forward, strict=True):
            assert_near(one, other)

    campaign(check, op, only=is_finite)


@pytest.mark.parametrize("op", DERIVED)
def test_both_results_of_a_jvp_have_gradients(op):
    def check(case):
        config, tensors = op_inputs(case)
        results = ROWS[op, "backward"].signature.results
        roles = config.row.signature.operands
        moved = [
            i
            for i, role in enumerate(roles)
            if f"d{role.removesuffix('_dot')}" in results and tensors[i] is not None
        ]

        def function(*values):
            given = list(tensors)
            for i, value in zip(moved, values):
                given[i] = value
            return invoke(config, *given)

        assert torch.autograd.gradcheck(
            function, tuple(tensors[i].clone().requires_grad_() for i in moved)
        )

    campaign(check, op, ["jvp"], only=is_finite)


def inner(left, right):
    return sum((one * other).sum() for one, other in zip(left, right, strict=True))


def assert_near(one, other):
    """Compare half of the digits: two ways round an expression differ in the last, bugs in all."""
    limit = torch.finfo(one.dtype).eps ** 0.5 * (1 + other.abs())
    assert ((one - other).abs() <= limit).all()


def test_message_names_operand_without_derivative():
    x, ones = torch.randn(2, 3, 4, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    config = PassConfig(ROWS["batch_norm_eval", "fprop"], (1e-5,), backend=BACKEND)

    def by_variance(variance):
        return invoke(config, x, ones, ones, ones, variance)[0]

    with pytest.raises(UnsupportedError, match="running_var has no tangent"):
        torch.func.jvp(by_variance, (ones,), (ones,))
    with pytest.raises(UnsupportedError, match="running_var has no gradient"):
        by_variance(ones.clone().requires_grad_()).sum().backward()


SECOND = {  # way to request a second derivative: None, or the text of the refusal
    "hessian": (torch.func.hessian, None),
    "reverse over reverse": (lambda f: torch.func.jacrev(torch.func.jacrev(f)), None),
    "reverse over forward": (lambda f: torch.func.jacrev(torch.func.jacfwd(f)), None),
    "forward over forward": (lambda f: torch.func.jacfwd(torch.func.jacfwd(f)), "forward mode"),
    "hvp": (lambda f: lambda x: torch.autograd.functional.hvp(f, x, x)[1], "needs vhp"),
    "vhp": (lambda f: lambda x: torch.autograd.functional.vhp(f, x, x)[1], None),
}


GEOMETRY = (1,), (0, 0), (1,), 1, False, (0,), False, "ieee", BACKEND
CALLS = {
    "op": lambda x, w: torch.ops.convref.convolution(x, w, None, *GEOMETRY),
    "function": lambda x, w: functional.conv1d(x, w, backend=BACKEND),
}
CASES = [(call, way, False) for call in CALLS for way in SECOND]
CASES.append(("function", "hessian", True))  # grad, jvp and vmap in one graph


@pytest.mark.parametrize(("call", "way", "compiled"), CASES)
def test_ways_to_a_second_derivative(call, way, compiled):
    """On integers, so that each way that is not refused is exact."""
    w = torch.tensor([[[1.0, -2.0, 3.0]]], dtype=torch.float64)
    x = torch.arange(5.0, dtype=torch.float64).reshape(1, 1, 5)
    take, refusal = SECOND[way]
    ours = take(lambda image: CALLS[call](image, w).square().sum())
    if refusal is not None:
        with pytest.raises(UnsupportedError, match=refusal):
            ours(x)
        return
    if compiled:
        torch._dynamo.reset()
        ours = torch.compile(ours, backend="aot_eager", fullgraph=True)
    theirs = take(lambda image: torch.nn.functional.conv1d(image, w).square().sum())
    assert torch.equal(ours(x), theirs(x))


def test_a_third_derivative_is_refused():
    config = PassConfig(ROWS["silu", "fprop"], (), backend=BACKEND)
    x = torch.randn(1, 1, 3, dtype=torch.float64, requires_grad=True)
    (y,) = invoke(config, x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="third derivative"):
        second.sum().backward()


def test_a_graph_keeps_only_operands_that_derivatives_read():
    x = torch.ones(1, 1, 4, dtype=torch.float64, requires_grad=True)
    middle = x * 2
    held = weakref.ref(middle)
    config = PassConfig(ROWS["avg_pool", "fprop"], ((2,), (2,), (0, 0), (1,), False, True, 0))
    (y,) = invoke(config, middle)
    del middle
    gc.collect()
    assert held() is None
    y.sum().backward()
    assert x.grad.tolist() == [[[1.0] * 4]]


def test_derivatives_of_functions_equal_those_of_torch():
    x = torch.arange(-13.0, 14).reshape(3, 1, 1, 9)

    def mine(x):
        return convref.relu(convref.avg_pool1d(x, 4)).square().sum()

    def theirs(x):
        return torch.nn.functional.avg_pool1d(x, 4).relu().square().sum()

    found, wanted = (
        [
            torch.func.grad(f)(x[0]),
            torch.func.vmap(torch.func.grad(f))(x),
            *torch.func.jvp(f, (x[0],), (x[1],)),
            torch.func.hessian(f)(x[0]),
        ]
        for f in (mine, theirs)
    )
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize(
    ("lost", "compute"),
    [
        ("mean", lambda x: convref.layer_norm(x, 4, return_statistics=True)[1]),
        ("weight", lambda x: convref.nll_loss_jvp((x,), (x,), x[:, 0].long(), x[0])[1]),
        ("running_mean", lambda x: convref.batch_norm(x, x[0], x[1].square())),
    ],
)
def test_what_has_no_gradient_is_refused(lost, compute):
    x = torch.ones(2, 4, requires_grad=True)
    with pytest.raises(UnsupportedError, match=f"{lost}.* has no gradient"):
        (compute(x).sum() + x.sum()).backward()


def test_second_derivative_that_aten_lacks():
    """ATen computes the first derivative, and refuses to differentiate it."""
    x = torch.tensor([-4.0, -1.0, 2.0, 5.0], requires_grad=True)
    dy = torch.tensor([1.0, 6.0, 12.0, 3.0], requires_grad=True)
    y = functional.hardsigmoid(2 * x)
    assert type(y.grad_fn).__name__ == "HardsigmoidBackward0"
    (plain,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    assert torch.equal(dx, plain)
    (slope,) = torch.autograd.grad(dx.sum(), dy)
    assert torch.equal(slope > 0, (2 * x).abs() < 3)
