"""The PyTensor Op: its derivatives are the library's own passes, bit for bit, under any linker."""

from __future__ import annotations

import inspect
import os
import pickle
import runpy
import subprocess
import sys
from dataclasses import fields, replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

pytensor = pytest.importorskip("pytensor", reason="pytensor is not installed")
import pytensor.tensor as pt  # noqa: E402
from pytensor.gradient import NullTypeGradError, pullback, pushforward, verify_grad  # noqa: E402
from pytensor.graph.basic import Apply  # noqa: E402
from pytensor.graph.replace import vectorize_graph  # noqa: E402

import convref  # noqa: E402
from convref import dispatch, judge  # noqa: E402
from convref.api import views  # noqa: E402
from convref.api.definition import Definition  # noqa: E402
from convref.case import Spec  # noqa: E402
from convref.conformance.operands import operands  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.errors import ConvrefError  # noqa: E402
from convref.integrations import pytensor as cp  # noqa: E402
from convref.integrations.pytensor import op as module  # noqa: E402
from convref.ops import FAMILY, OPS, SIGNATURE  # noqa: E402

NIGHTLY = settings.default.max_examples > 100
EXAMPLES = 200 if NIGHTLY else 2
SOURCE = os.environ.get("PYTENSOR_SOURCE")
SMALL = {"max_elements": 24, "max_macs": 200, "empty": False}
DERIVED = sorted(op for op, pass_ in SIGNATURE if pass_ == "double_backward")
MODES = ("CVM", "NUMBA", "JAX", "PYTORCH")
KEPT = ("mean", "rstd", "indices")
PLAIN = pytensor.compile.Mode("py", optimizer=None)  # as fast to compile as can be
pytestmark = [  # PyTensor gives PyTorch constants that are not writable; Inductor uses TorchScript
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
]


class ByFields(Definition):
    """An op whose settings are the fields of its problem, for problems that the court draws."""

    def __init__(self, op):
        super().__init__(lambda input: None, op=op, view=views.images, layouts=False)
        known = FAMILY[op].OF_OPERANDS
        self.name, self.roles, self.required = op, {}, []
        self.settings = tuple(f.name for f in fields(FAMILY[op]) if f.name not in known)
        self.settings += ("math",) * OPS[op].multiplies

    def fields(self, image, shapes, given):
        return dict(given)


RAW = {f"fields of {op}": ByFields(op) for op in sorted({op for op, _ in SIGNATURE})}


@pytest.fixture(autouse=True, scope="module")
def raw_definitions():
    module.DEFINITIONS.update(RAW)
    with pytensor.config.change_flags(traceback__limit=0):  # else each variable keeps its own
        yield
    for name in RAW:
        del module.DEFINITIONS[name]


def campaign(op, graph, check, backend="numpy"):
    """Check problems that the court draws.

    Those of the same attributes and types share what `graph` makes of variables, without known
    shapes, for `check`: it compiles a function once.
    """
    graphs = {}

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(cases([op], ["fprop"], dtypes=["f64"], fills=["int"], **SMALL))
    def run(case):
        call = replace(case.call, specs=(Spec("f64"),))
        arrays = {r: a for r, a in zip(call.roles, operands(case)) if a is not None}
        assume("w" in arrays or "b" not in arrays)  # of a layer norm, b has the axes of w
        assume(getattr(call.problem, "reduction", "none") == "none")  # else y is a number to users
        definition = RAW[f"fields of {op}"]
        problem = {**{f: getattr(call.problem, f, None) for f in definition.settings}}
        problem |= {"math": call.math} if "math" in problem else {}
        form = SIGNATURE[op, "fprop"]
        roles = tuple(arrays)
        given = f"fields of {op}", 0, "fprop", roles, form.results, tuple(problem.values()), backend
        made, variables = cp.ConvrefOp(*given), symbols(arrays)
        key = made, *(v.type for v in variables.values())
        if key not in graphs:
            graphs[key] = graph(made, variables)
        check(call, arrays, graphs[key])

    run()


def symbols(arrays):
    return {r: pt.tensor(r, dtype=a.dtype, shape=(None,) * a.ndim) for r, a in arrays.items()}


def compiled(given, outputs, mode=PLAIN):
    """Return a function of arrays by name that returns the outputs by name."""
    run = pytensor.function([*given.values()], [*outputs.values()], mode, on_unused_input="ignore")
    return lambda arrays: dict(zip(outputs, run(*(arrays[n] for n in given)), strict=True))


def expected(call, pass_, arrays, without=""):
    """Return the results of another pass of the problem of `call`, computed by the library."""
    made = replace(call, pass_=pass_, mask=(), tangents=None, specs=(Spec("f64"),))
    made = replace(made, tangents="".join(t for t in made.carried if t not in without))
    found = dispatch.plan(made, "numpy").run(*(arrays.get(role) for role in made.roles))
    return {r: a for r, a in zip(made.signature.results, found) if a is not None}


def directions(arrays, scale):
    return {r: scale * np.arange(1.0, a.size + 1).reshape(a.shape) for r, a in arrays.items()}


def moved(op, arrays):
    """Return the operands that have tangents, and those of them with second derivatives."""
    first = [r for r in arrays if f"{r}_dot" in SIGNATURE[op, "jvp"].operands]
    second = SIGNATURE[op, "double_backward"].operands
    return first, [r for r in first if r != "b" or "b" in second]


def derivatives(made, given):
    """Return a function of operands, dy and tangents: results by pass and role, both ways."""
    out, *_ = made.wanted
    results = made.make_node(*given.values()).outputs
    first, second = moved(made.op, given)
    dy, dots = results[0].type(), {r: given[r].type() for r in first}
    wrt, along = [given[r] for r in first], list(dots.values())
    found = {("fprop", r): v for r, v in zip(made.wanted, results)}
    back = pullback(results[0], wrt, dy)
    found |= {("backward", f"d{r}"): v for r, v in zip(first, back)}
    for own in (True, False):  # else as a pullback of the pullback
        dot = pushforward([results[0]], wrt, along, use_op_pushforward=own)
        found["jvp", f"{out}_dot", own] = dot[0]
    twice = pullback(
        pullback(results[0], [given[r] for r in second], dy),
        [dy, *(given[r] for r in second)],
        [dots[r] for r in second],
        return_disconnected="zero",
        disconnected_inputs="ignore",
    )
    found |= {("double_backward", f"d{r}"): v for r, v in zip(("dy", *second), twice)}
    return compiled({**given, "dy": dy, **{f"{r}_dot": v for r, v in dots.items()}}, found)


@pytest.mark.parametrize("op", DERIVED)
def test_derivatives_are_the_passes_of_the_library(op):
    """First: pullback and pushforward; second: pullback and double pullback of the gradient."""

    def check(call, arrays, run):
        y, *_ = SIGNATURE[op, "fprop"].results
        exact = {"fprop": expected(call, "fprop", arrays)}
        first, second = moved(op, arrays)
        dy = directions({"dy": exact["fprop"][y]}, 1)
        dots = directions({r: arrays[r] for r in first}, 2)
        given = arrays | dy | {f"{r}_dot": a for r, a in dots.items()}
        known = {r: a for r, a in exact["fprop"].items() if r in KEPT} | given
        outer = known | {f"dd{r}": dots[r] for r in second}
        exact["backward"] = expected(call, "backward", known)
        exact["jvp"] = expected(call, "jvp", known)
        exact["double_backward"] = {f"d{r}": np.zeros_like(arrays[r]) for r in first}
        exact["double_backward"] |= expected(call, "double_backward", outer, without="b")
        for (pass_, role, *_), array in run(given).items():
            message = f"{pass_}, {role}"
            np.testing.assert_array_equal(array, exact[pass_][role], message, strict=True)

    campaign(op, derivatives, check)


@pytest.mark.parametrize("op", DERIVED)
def test_inferred_shapes_are_those_of_the_results(op):
    def graph(made, given):
        outputs = dict(zip(made.wanted, made.make_node(*given.values()).outputs))
        sizes = {r: v.shape for r, v in outputs.items()}
        return made, compiled(given, outputs), compiled(given, sizes, "FAST_COMPILE")

    def check(call, arrays, graph):
        made, values, sizes = graph
        found = [a.shape for a in values(arrays).values()]
        assert [tuple(shape) for shape in sizes(arrays).values()] == found
        static = made.make_node(*(pt.constant(a) for a in arrays.values()))
        assert [v.type.shape for v in static.outputs] == found
        assert made.infer_shape(static, ()) == found  # and nothing is planned when it runs

    campaign(op, graph, check)


PASSES = "fprop", "jvp", "backward", "double_backward"


def along_a_line(made, given):
    """Return functions of operands, directions and t: the results of all passes, and d / dt.

    Each pass moves with its own element of t, the last in its directions alone.
    """
    op, t = made.op, pt.vector("t")
    first, second = moved(op, given)
    y = made.make_node(*given.values()).outputs[0]
    points = {**given, "dy": y.type(), **{f"{r}_dot": given[r].type() for r in first}}
    points |= {f"dd{r}": given[r].type() for r in second}
    steps = {r: v.type() for r, v in points.items() if r in first or r not in given}
    parts = []
    for pass_, length in zip(PASSES, (t[i] for i in range(len(PASSES)))):
        reads, results, _ = SIGNATURE[op, pass_]
        names = [r for r in steps if r in reads and (pass_ != "double_backward" or r[:2] == "dd")]
        wanted = ("ddy", *(f"d{r}" for r in first)) if pass_ != "fprop" else ("y",)
        wanted = [r for r in wanted if r in results] or list(results)
        at = points | {r: points[r] + length * steps[r] for r in names}
        outputs = made.make_node(*(at[r] for r in given)).outputs
        found = made.step(pass_, {**at, **dict(zip(made.wanted, outputs))}, wanted)
        parts += [found[r].ravel() for r in wanted]
    found, cotangent = pt.concatenate(parts), pt.vector("cotangent")
    inputs = {**points, **{f"step of {r}": v for r, v in steps.items()}, "t": t}
    slope = pullback(found, [t], cotangent)[0]
    return compiled(inputs, {"": found}), compiled({**inputs, "cotangent": cotangent}, {"": slope})


class Odd(pytensor.graph.Op):
    """f(t) - f(-t) and its gradient, of compiled functions: `verify_grad` compiles the graph alone.

    It has no second derivative at 0: a one-sided difference errs by the third.
    """

    def __init__(self, given, function, *gradients):
        self.given, self.function, self.gradients = given, function, gradients

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [pt.vector()])

    def perform(self, node, inputs, outputs):
        t, *cotangents = inputs
        at = self.given | dict(zip(["cotangent"], cotangents))
        ahead, behind = (self.function(at | {"t": u})[""] for u in (t, -t))
        outputs[0][0] = ahead + behind if cotangents else ahead - behind

    def pullback(self, inputs, outputs, cotangents):
        return [Odd(self.given, *self.gradients)(*inputs, *cotangents)]


@pytest.mark.nightly(reason="numeric gradients")
@pytest.mark.parametrize("op", DERIVED)
def test_gradients_equal_differences(op):
    """PyTensor's own check of the gradient of each pass, along a random line."""

    def check(call, arrays, functions):
        draws = np.random.default_rng(arrays["x"].size)
        first, second = moved(op, arrays)
        point = {r: arrays[r] + draws.uniform(0.1, 0.4, arrays[r].shape) for r in first}
        if "norm" in op:  # apart: differences of a variance near 0 are inexact
            apart = draws.permutation(point["x"].size).reshape(point["x"].shape)
            point["x"] += apart - arrays["x"]
        y = expected(call, "fprop", arrays | point)[SIGNATURE[op, "fprop"].results[0]]
        assume(np.isfinite(y).all())  # a window of padding alone has no maximum
        like = {"dy": y, **{f"{r}_dot": arrays[r] for r in first}}
        like |= {f"dd{r}": arrays[r] for r in second}
        point |= {r: draws.normal(size=a.shape) for r, a in like.items()}
        steps = {f"step of {r}": draws.normal(size=a.shape) for r, a in point.items()}
        odd = Odd(arrays | point | steps, *functions)
        verify_grad(odd, [np.zeros(len(PASSES))], n_tests=1, rng=draws, mode=PLAIN)

    campaign(op, along_a_line, check)


def compare_c_and_py(inputs, outputs, arrays, assert_fn):
    modes = pytensor.compile.Mode("cvm", optimizer=None), PLAIN
    run, exact = (pytensor.function(inputs, outputs, mode) for mode in modes)
    for found, e in zip(results := run(*arrays), exact(*arrays), strict=True):
        assert_fn(found, e)
    return run, results


def comparison(linker):
    """Return PyTensor's own comparison of a linker with Python; it has none of C."""
    if linker == "c":
        return compare_c_and_py
    pytest.importorskip(linker.replace("py", ""), reason=f"{linker} is not installed")
    if not SOURCE:
        pytest.skip("PYTENSOR_SOURCE, a clone of PyTensor, is not set")
    theirs = runpy.run_path(f"{SOURCE}/tests/link/{linker}/test_basic.py")
    return theirs[f"compare_{linker}_and_py"]


def judged(call, pass_, arrays, found, backend):
    """Judge a pass whose operands are the arrays by role and whose results are `found`."""
    call = replace(call, pass_=pass_, mask=(), specs=(Spec("f64"),))
    results = [found.get(role) for role in call.signature.results]
    operands = [arrays.get(role) for role in call.roles]
    verdict = judge(call, operands, results, dispatch.load(backend).numerics(call), only=[*found])
    assert verdict, f"{verdict.reason} {call}"


@pytest.mark.filterwarnings("ignore:Importing 'ifelse':DeprecationWarning")  # by their files
@pytest.mark.parametrize("linker", ["c", "jax", "numba", "pytorch"])
@pytest.mark.parametrize("op", DERIVED)
def test_linkers_agree_by_their_own_comparisons(op, linker):
    """Types and sizes by PyTensor's own comparison with Python, values by the judge.

    The bound of each result holds for every linker, so they agree with each other.
    """
    compare, backend = comparison(linker), {"jax": "jax", "pytorch": "torch"}.get(linker, "numpy")

    def graph(made, given):
        results = dict(zip(made.wanted, made.make_node(*given.values()).outputs))
        y, *_ = results.values()
        first, _ = moved(made.op, given)
        results |= {f"d{r}": v for r, v in zip(first, pullback(y, [given[r] for r in first], y))}
        return list(given.values()), results, []

    def same_form(found, exact):
        found = np.asarray(found)
        assert (found.dtype, found.shape) == (exact.dtype, exact.shape)

    def check(call, arrays, graph):
        inputs, outputs, functions = graph
        dense = {r: a.copy() for r, a in arrays.items()}  # PyTorch has no steps below 0
        if not functions:
            functions += compare(
                inputs, [*outputs.values()], [*dense.values()], assert_fn=same_form
            )[:1]
        found = dict(zip(outputs, map(np.asarray, functions[0](*dense.values()))))
        wanted = SIGNATURE[call.op, "fprop"].results
        results = {r: a for r, a in found.items() if r in wanted}
        judged(call, "fprop", dense, results, backend)
        known = dense | results | {"dy": found[wanted[0]]}
        gradients = {r: a for r, a in found.items() if r not in results}
        judged(call, "backward", known, gradients, backend)

    campaign(op, graph, check, "auto")


def nearly_equal(found, exact):
    # many passes in a row, each of which may add in another order
    assert np.abs(found - exact).max() <= 2.0**-40 * np.abs(exact).max()


def network():
    """A loss of an image, a filter and a bias, with all families in it."""
    x, w, b = pt.tensor4("x"), pt.tensor4("w"), pt.vector("b")
    y = cp.conv2d(x, w, b, stride=(2, 1), padding="half", groups=2)
    y = cp.batch_norm(y, training=True)
    y = cp.max_pool2d(cp.silu(y), 2, ceil_mode=True)
    y = cp.group_norm(cp.interpolate(y, scale_factor=2, mode="bilinear"), 2, b, b)
    y = cp.concat([y, cp.conv_transpose2d(y, w, stride=2, groups=2)[:, :, :4, :8]], 1)
    y = cp.adaptive_avg_pool2d(y, 1)
    return x, w, b, cp.cross_entropy(y[:, :, 0, 0], np.array([0, 1]))


@pytest.mark.parametrize("mode", MODES)
def test_each_linker_computes_loss_and_gradients(mode):
    if mode != "CVM":
        pytest.importorskip({"NUMBA": "numba", "JAX": "jax", "PYTORCH": "torch"}[mode])
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) for s in ((2, 4, 6, 7), (4, 2, 3, 3), (4,))]
    *inputs, loss = network()
    outputs = [loss, *pytensor.grad(loss, inputs)]
    found = pytensor.function(inputs, outputs, mode=mode)(*arrays)
    exact = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*arrays)
    for a, e in zip(found, exact, strict=True):
        nearly_equal(a, e)


OF_FLOATX = """
import sys
import numpy as np
import pytensor
import pytensor.tensor as pt
from convref.integrations import pytensor as cp

{network}
floatX, rng = pytensor.config.floatX, np.random.default_rng(0)
arrays = [rng.normal(size=s).astype(floatX) for s in ((2, 4, 6, 7), (4, 2, 3, 3), (4,))]
*inputs, loss = network()
outputs = [loss, *pytensor.grad(loss, inputs)]
exact = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*arrays)
for mode in sys.argv[1:]:
    for a, e in zip(pytensor.function(inputs, outputs, mode=mode)(*arrays), exact, strict=True):
        found = np.asarray(a)
        assert found.dtype == e.dtype == floatX, (mode, found.dtype)
        # some passes in a row, which round in another order
        assert np.abs(found - e).max() <= 2**12 * np.finfo(floatX).eps * np.abs(e).max(), mode
"""


def test_all_linkers_keep_a_floatx_of_float32_without_a_warning():
    """In a new process: PyTensor sets the width of JAX's types when it imports JAX."""
    names = {"NUMBA": "numba", "JAX": "jax", "PYTORCH": "torch"}
    modes = [mode for mode in MODES if mode == "CVM" or find_spec(names[mode])]
    warnings = "error", "ignore:The given NumPy array", "ignore:`torch.jit", "ignore:Importing"
    flags = {"PYTENSOR_FLAGS": "floatX=float32", "PYTHONWARNINGS": ",".join(warnings)}
    program = OF_FLOATX.format(network=inspect.getsource(network))
    command = [sys.executable, "-c", program, *modes]
    subprocess.run(command, check=True, env={**os.environ, **flags})


def test_numba_compiles_equal_ops_once():
    basic = pytest.importorskip("pytensor.link.numba.dispatch.basic")
    x = pt.tensor4("x")
    nodes = [cp.silu(v).owner for v in (x, x + 1)] + [cp.mish(x).owner]
    functions = [basic.numba_funcify(node.op, node=node) for node in nodes]
    assert functions[0] is functions[1] is not functions[2]
    called = [inspect.getclosurevars(f.py_func).nonlocals["call"] for f in functions]
    assert called[0] is called[2]  # all of these types, by the numbers of their Ops


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numba_calls_mojo_without_python(monkeypatch, dtype):
    pytest.importorskip("numba", reason="numba is not installed")
    mojo = pytest.importorskip("convref_mojo.build", reason="convref_mojo is not installed")
    if reason := mojo.why_missing():
        pytest.skip(reason)
    x, w, b = (
        pt.tensor4("x", dtype=dtype),
        pt.tensor4("w", dtype=dtype),
        pt.vector("b", dtype=dtype),
    )

    def outputs(backend):
        y = cp.conv2d(x, w, b, padding=1, groups=2, backend=backend)
        y = cp.avg_pool2d(cp.max_pool2d(y, 2, 1, backend=backend), 2, backend=backend)
        return [y, *pytensor.grad((y**2).sum(), [x, w, b])]

    ones = np.ones((1, 1, 1, 1), dtype)
    convref.conv2d(ones, ones, backend="mojo")  # after which the backend keeps C pointers
    exact = pytensor.function([x, w, b], outputs("numpy"), mode="FAST_COMPILE")
    run = pytensor.function([x, w, b], outputs("mojo"), mode="NUMBA")
    rng = np.random.default_rng(0)
    for batch, step in ((2, 1), (3, -1), (2, 2)):  # each is planned; the images' memory differs
        sizes = (batch, 4, 6, 7 * abs(step)), (4, 2, 3, 3), (4,)
        arrays = [rng.integers(-3, 4, size).astype(dtype) for size in sizes]
        arrays[0] = arrays[0][..., ::step]
        found = exact(*arrays)
        with monkeypatch.context() as patch:
            patch.setattr(cp.ConvrefOp, "compute", None)
            for a, e in zip(run(*arrays), found, strict=True):
                np.testing.assert_array_equal(a, e, strict=True)


def test_unknown_batches_leave_the_other_sizes_known():
    x = pt.tensor("x", shape=(None, 4, 9, 9))
    y = cp.max_pool2d(cp.conv2d(x, np.ones((6, 2, 3, 3)), groups=2, padding="same"), 2)
    assert cp.avg_pool3d(pt.tensor5("x"), 2).type.shape == (None,) * 5
    assert y.type.shape == (None, 6, 4, 4)
    assert cp.conv2d(pt.tensor4("x"), np.ones((6, 2, 3, 3))).type.shape == (None,) * 4


def test_a_batch_of_batches_is_a_loop_and_differentiable():
    x, w = pt.tensor4("x"), pt.tensor4("w")
    xs = pt.tensor5("xs")
    y = vectorize_graph(cp.conv2d(x, w), {x: xs})
    (dw,) = pytensor.grad(y.sum(), [w])
    run = pytensor.function([xs, w], [y, dw], mode="FAST_COMPILE")
    images, filters = np.arange(96.0).reshape(3, 2, 1, 4, 4), np.ones((1, 1, 2, 2))
    found, gradient = run(images, filters)
    each = [convref.conv2d(image, filters) for image in images]
    np.testing.assert_array_equal(found, each)
    parts = [convref.conv2d_backward(np.ones_like(e), i, filters)[1] for e, i in zip(each, images)]
    np.testing.assert_array_equal(gradient, sum(parts))


def test_scan_differentiates_through_steps():
    x, w = pt.tensor4("x"), pt.tensor4("w")
    states = pytensor.scan(
        lambda state, w: cp.relu(cp.conv2d(state, w, padding=1)),
        outputs_info=[x],
        non_sequences=[w],
        n_steps=3,
        return_updates=False,
    )
    run = pytensor.function([x, w], pytensor.grad(states[-1].sum(), w), mode="FAST_COMPILE")
    unrolled = x
    for _ in range(3):
        unrolled = cp.relu(cp.conv2d(unrolled, w, padding=1))
    again = pytensor.function([x, w], pytensor.grad(unrolled.sum(), w), mode="FAST_COMPILE")
    arrays = np.arange(16.0).reshape(1, 1, 4, 4), np.arange(9.0).reshape(1, 1, 3, 3) - 3
    np.testing.assert_array_equal(run(*arrays), again(*arrays))


def test_compiled_functions_and_graphs_can_be_pickled():
    x = pt.tensor3("x")
    graph = cp.avg_pool1d(x, 2)
    run = pickle.loads(pickle.dumps(pytensor.function([x], graph, mode="FAST_COMPILE")))
    np.testing.assert_array_equal(run(np.arange(4.0).reshape(1, 1, 4)), [[[0.5, 2.5]]])


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_norms_return_running_statistics_of_training(name):
    arrays = np.arange(24.0).reshape(2, 3, 4), np.zeros(3), np.ones(3)
    x, mean, var = pt.tensor3("x"), pt.vector("mean"), pt.vector("var")
    outputs = getattr(cp, name)(x, mean, var, None, None, True)
    found = pytensor.function([x, mean, var], outputs, mode="FAST_COMPILE")(*arrays)
    y, _, _, *running = getattr(convref, f"{name}_statistics")(*arrays)
    for a, e in zip(found, (y, *running), strict=True):
        np.testing.assert_array_equal(a, e)
    plain = getattr(cp, name)(x, None, None, None, None, True)
    run = pytensor.function([x], plain, mode="FAST_COMPILE")
    np.testing.assert_array_equal(run(arrays[0]), y)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_have_the_axes_that_their_reduction_leaves(reduction):
    x, target = pt.matrix("x"), pt.lvector("target")
    loss = cp.cross_entropy(x, target, reduction=reduction)
    arrays = np.arange(6.0).reshape(2, 3), np.array([0, 2])
    exact = convref.cross_entropy(*arrays, reduction=reduction)
    found = pytensor.function([x, target], [loss, loss.shape], mode="FAST_COMPILE")(*arrays)
    np.testing.assert_array_equal(found[0], exact)
    assert tuple(found[1]) == np.shape(exact)


def test_a_convolution_has_third_derivatives():
    x, t = pt.tensor3("x"), pt.scalar("t")
    cube = (cp.conv1d(x + t, (x[:, :, :2] * t)) ** 2).sum()
    third = cube
    for _ in range(3):
        third = pytensor.grad(third, t)
    array = np.arange(5.0).reshape(1, 1, 5)
    value = np.polynomial.Polynomial([0, 1])
    rows = [sum((v + value) * value * k for v, k in zip(array[0, 0, i:], (0, 1))) for i in range(4)]
    exact = sum(row**2 for row in rows).deriv(3)(2)
    assert pytensor.function([x, t], third, mode="FAST_COMPILE")(array, 2.0) == exact


def test_named_axes_are_those_of_xtensor():
    from pytensor.xtensor import as_xtensor, xtensor

    x = xtensor("x", dims=("image", "channel", "row", "column"), shape=(None, 3, 4, 4))
    y = as_xtensor(cp.max_pool2d(x.values, 2), dims=x.dims)
    assert (y.type.shape, y.dims) == ((None, 3, 2, 2), x.dims)
    dx = pytensor.grad(y.values.sum(), x)  # PyTensor's own sums of such arrays have no pullback
    run = pytensor.function([x], [y.mean("row"), dx], mode="FAST_COMPILE")
    found = run(array := np.arange(48.0).reshape(1, 3, 4, 4))
    np.testing.assert_array_equal(found[0], array[:, :, 1::2, 1::2].mean(2))
    wins = np.zeros((1, 3, 4, 4))
    wins[:, :, 1::2, 1::2] = 1
    np.testing.assert_array_equal(found[1], wins)


@pytest.mark.parametrize("function", [cp.avg_pool2d, cp.batch_norm])
def test_a_pushforward_has_a_pullback(function):
    """The tangent of a linear op reads the shape of x alone; that of a norm, saved statistics."""
    settings = {"training": True} if function is cp.batch_norm else {"kernel_size": 2}

    def tangent(x, dot):
        dots = pushforward([function(x, **settings)], [x], [dot], use_op_pushforward=True)
        return dots[0]

    x = np.random.default_rng(0).normal(size=(2, 2, 3, 3))
    verify_grad(tangent, [x, x[::-1]], n_tests=1, rng=np.random.default_rng(1), mode=PLAIN)


def test_messages_name_the_function_and_the_argument():
    x, w = pt.tensor4("x"), pt.tensor4("w", dtype="float32")
    with pytest.raises(ConvrefError, match=r"conv2d.*: weight has dtype f32, needs f64"):
        cp.conv2d(x, w)
    with pytest.raises(ConvrefError, match="input has C=3, needs 4"):
        cp.conv2d(np.ones((1, 3, 5, 5)), np.ones((2, 4, 3, 3)))
    y = pytensor.grad(pytensor.grad(cp.silu(x).sum(), x).sum(), x)
    with pytest.raises(NullTypeGradError, match="third derivatives are not implemented"):
        pytensor.grad(y.sum(), x)


def test_linkers_are_registered_when_pytensor_imports_them():
    """In a new process: that of Numba was imported before, that of JAX is afterwards."""
    pytest.importorskip("numba")
    pytest.importorskip("jax")
    text = """
import sys
from pytensor.link.numba.dispatch.basic import numba_funcify
from convref.integrations.pytensor import ConvrefOp
assert ConvrefOp in numba_funcify.registry
assert not {"jax", "torch"} & sys.modules.keys()
from pytensor.link.jax.dispatch import jax_funcify
assert ConvrefOp in jax_funcify.registry
"""
    subprocess.run([sys.executable, "-c", text], check=True)
