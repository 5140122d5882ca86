"""PyTorch's tools on converted models: what "auto" gives to PyTorch, they see as PyTorch's own."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.ao.quantization import get_default_qconfig_mapping  # noqa: E402
from torch.ao.quantization.quantize_fx import prepare_fx  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from convref.errors import UnsupportedError  # noqa: E402
from convref.integrations.torch import convert, functional, nn, revert  # noqa: E402
from convref.integrations.torch.recording import Calls  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the tools themselves
X = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


@pytest.fixture
def plain():
    """Return a model of torch.nn with stateful, in-place and two-dimensional layers."""
    torch.manual_seed(0)
    layers = (
        *(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)),
        *(torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2), torch.nn.AdaptiveAvgPool2d(1)),
        *(torch.nn.Flatten(), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Softmax(1)),
    )
    return torch.nn.Sequential(*layers)


@pytest.fixture
def model(plain):
    found = copy.deepcopy(plain)
    convert(found)
    return found


@pytest.mark.parametrize("training", [False, True])
def test_traced_by_jit_for_any_batch_size(plain, model, training):
    traced = torch.jit.trace(model.train(training), X, check_trace=False)
    assert all(n.kind().startswith(("aten", "prim")) for n in traced.inlined_graph.nodes())
    plain.train(training)(X)  # as tracing did
    more = torch.cat((X, X + 1))
    assert torch.equal(traced(more), plain(more))
    assert all(map(torch.equal, model.buffers(), plain.buffers()))


@pytest.mark.parametrize("training", [False, True])
def test_traced_by_fx_as_the_layers_of_torch(plain, model, training):
    nodes = [str(n) for n in torch.fx.symbolic_trace(plain).graph.nodes if n.op == "call_module"]
    traced = torch.fx.symbolic_trace(model.train(training))
    assert [str(n) for n in traced.graph.nodes if n.op == "call_module"] == nodes
    assert torch.equal(traced(X), plain.train(training)(X))


def test_functions_are_nodes_of_fx():
    def program(x, w):
        y = functional.conv2d(x, w, stride=2)
        y = functional.batch_norm(y, None, None, training=True)
        y = functional.instance_norm(y)
        return functional.softmax(functional.relu(y, inplace=True), 1)

    traced = torch.fx.symbolic_trace(program)
    assert "convref.integrations.torch.functional.conv2d" in traced.code.replace("_", ".")
    w = torch.ones(4, 3, 2, 2)
    assert torch.equal(traced(X, w), program(X, w))


def test_exported_as_aten_for_any_batch_size(plain, model):
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    found = [torch.export.export(m.eval(), (X,), dynamic_shapes=sizes) for m in (plain, model)]
    calls = [[str(n.target) for n in program.graph.nodes] for program in found]
    assert calls[0] == calls[1]


@pytest.mark.parametrize("training", [False, True])
def test_layers_of_several_steps_are_one_node(training):
    """Some of their derivatives are not PyTorch's, which does not show in an exported graph."""
    norm = torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    plain = torch.nn.Sequential(norm, torch.nn.PReLU(), torch.nn.Hardsigmoid())
    plain.train(training)
    model = copy.deepcopy(plain)
    convert(model)
    for trace in (torch.fx.symbolic_trace, lambda m: torch.export.export(m, (X,)).graph_module):
        found = [[str(n.target) for n in trace(m).graph.nodes] for m in (plain, model)]
        assert found[0] == found[1]
    assert torch.equal(model(X), plain(X))
    assert all(map(torch.equal, model.buffers(), plain.buffers()))


@pytest.mark.parametrize("backend", [None, "torch"])
def test_traced_by_make_fx_for_any_size(backend):
    def program(x, w):
        y = functional.max_pool2d(functional.conv2d(x, w, stride=2, backend=backend), 2)
        return torch.autograd.grad(y.square().sum(), (x, w))

    x, w = X.clone().requires_grad_(), torch.ones(4, 3, 2, 2, requires_grad=True)
    graph = make_fx(program, tracing_mode="symbolic")(x, w)
    called = {node.target for node in graph.graph.nodes}
    assert (torch.ops.convref.convolution_backward.default in called) == (backend is not None)
    more = torch.cat((x, x + 1)).detach().requires_grad_()
    assert all(map(torch.equal, graph(more, w), program(more, w)))


def test_compiled_as_aten_where_its_second_derivative_is_not():
    called = []

    def listed(graph, inputs):
        called.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=listed)
    compiled = torch.compile(functional.prelu, backend=backend, fullgraph=True)
    compiled(X.clone().requires_grad_(), torch.ones(3)).sum().backward()
    torch.compiler.reset()
    assert "aten._prelu_kernel.default" in called
    assert not [name for name in called if name.startswith("convref")]


def test_written_as_onnx(plain, model):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    found = []
    for of in (plain, model):
        file = io.BytesIO()
        torch.onnx.export(of.eval(), (X,), file, dynamo=False)
        graph = onnx.load_from_string(file.getvalue()).graph
        found.append([node.op_type for node in graph.node])
    assert found[0] == found[1]


def test_flops_are_counted(plain, model):
    counts = []
    for of in (plain, model):
        with FlopCounterMode(display=False) as counter:
            of(X).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_the_profiler_names_the_ops_of_a_backend():
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        functional.relu(X.clone().requires_grad_(), backend="numpy").sum().backward()
    names = [event.key for event in profile.key_averages()]
    assert {"convref::relu", "convref::relu_backward"} <= {*names}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch.ao's own observers
@pytest.mark.parametrize(
    ("tool", "where"),
    [
        (lambda m: torch.jit.script(m), "torch.jit.script"),
        (lambda m: torch.jit.trace(m, X), "torch.jit.trace"),
        (lambda m: torch.onnx.export(m, (X,), io.BytesIO(), dynamo=False), "torch.jit.trace"),
        (lambda m: torch.ao.quantization.prepare(m), "torch.ao.quantization"),
        (lambda m: torch.ao.quantization.fuse_modules(m, ["0", "1"]), "torch.ao.quantization"),
        (lambda m: prepare_fx(m, get_default_qconfig_mapping(), X), "torch.ao.quantization"),
    ],
)
def test_other_uses_name_revert(plain, tool, where):
    convert(plain, "numpy")
    plain.qconfig = torch.ao.quantization.default_qconfig
    with pytest.raises(UnsupportedError, match=rf"{where}.*revert\(model\) first"):
        tool(plain.eval())
    revert(plain)


def test_a_known_bug_is_not_left_to_pytorch():
    """ATen's batch norm reads a gradient in the memory order of its input."""
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(2, 4, 3, 3, dtype=torch.float64).to(memory_format=torch.channels_last)
    norm = nn.BatchNorm2d(4, dtype=torch.float64)
    oracle = nn.BatchNorm2d(4, dtype=torch.float64, backend="numpy")
    found, wanted = (torch.autograd.grad(layer(x), x, dy)[0] for layer in (norm, oracle))
    torch.testing.assert_close(found, wanted)
    x = torch.zeros(1, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    y = functional.conv2d(x, torch.zeros(4, 2, 1, 1), groups=2)  # torch-grouped-order
    assert "Fprop" in type(y.grad_fn).__name__


def test_settings_that_pytorch_lacks_are_computed():
    y = functional.conv2d(X, torch.ones(1, 3, 2, 2), padding=((1, 0), (1, 0)))
    assert y.shape == (2, 1, 8, 8)


def test_the_recorder_sees_every_call(model):
    with Calls() as calls:
        model(X)
    names = [seen.call.op for seen in calls.seen]
    assert names[:4] == ["conv", "batch_norm", "relu", "max_pool"]
