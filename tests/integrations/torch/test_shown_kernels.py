"""Kernels in the graphs that PyTorch's compiler gets, on fake CUDA tensors."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import FakeTensorMode

from convref.integrations import torch as convref_torch
from convref.integrations.torch import functional

pytest.importorskip("triton", reason="triton is not installed")

from triton.backends.compiler import GPUTarget
from triton.runtime import driver as drivers

from convref import dispatch
from convref_triton.backend import TritonBackend
from convref_triton.run import gpu

CL = torch.channels_last


@pytest.fixture
def card(device, monkeypatch):
    """Let the backend plan for a CUDA device, whose driver is the stand-in."""
    card = replace(device, place=torch.device("cuda", 0))
    target = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    monkeypatch.setattr(drivers, "_active", target)  # for PyTorch, to find what kernels write to
    monkeypatch.setattr(gpu, "cuda", lambda index: card)
    monkeypatch.setattr(TritonBackend, "supports", lambda self, call: None)
    dispatch._plan.cache_clear()
    convref_torch.show_kernels()
    yield card
    convref_torch.show_kernels(False)
    dispatch._plan.cache_clear()


def graph_of(function, *shapes, **kind):
    """Return the graph of a function of fake CUDA tensors, without mutations."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = [torch.empty(shape, device="cuda", **kind) for shape in shapes]
        given = [t.to(memory_format=CL) if t.ndim == 4 else t for t in given]
        return aot_export_joint_simple(function, given, trace_joint=False).graph


def names(graph):
    return [node.target.__name__ for node in graph.nodes if node.op == "call_function"]


def kernels(graph):
    return [name for name in names(graph) if name.startswith("triton_kernel_wrapper")]


def conv(x, w, b):
    return (functional.conv2d(x, w, b, stride=2, padding=1, backend="triton"),)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (conv, [(2, 16, 9, 9), (32, 16, 3, 3), (32,)]),
        (lambda x: (functional.avg_pool2d(x, 3, backend="triton"),), [(2, 16, 9, 9)]),
        (lambda x: (functional.silu(x, backend="triton") + 1,), [(2, 16, 9, 9)]),
    ],
)
def test_a_graph_has_a_node_for_each_kernel(card, function, shapes):
    graph = graph_of(function, *shapes, dtype=torch.bfloat16)
    (node,) = (n for n in graph.nodes if "tensors_to_clone" in n.kwargs)
    assert list(node.kwargs["tensors_to_clone"]) == ["y"]  # PyTorch finds what the kernel writes
    assert len(kernels(graph)) == 1
    assert not [name for name in names(graph) if "convref" in name]


def test_results_have_the_layout_of_the_op(card):
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2, 16, 9, 9, device="cuda").to(memory_format=CL)
        y = functional.avg_pool2d(x, 3, backend="triton")
    graph = graph_of(lambda x: (functional.avg_pool2d(x, 3, backend="triton"),), (2, 16, 9, 9))
    (out,) = graph.output_node().args[0]
    assert out.meta["val"].stride() == y.stride()


def test_some_calls_stay_ops(card):
    """Cubic weights are a table; indices are checked when they are there."""

    def cubic(x):
        return (functional.interpolate(x, size=(5, 5), mode="bicubic", backend="triton"),)

    def unpool(x, i):
        return (functional.max_unpool2d(x, i.long(), 2, backend="triton"),)

    for function, shapes in ((cubic, [(2, 16, 9, 9)]), (unpool, [(2, 16, 4, 4)] * 2)):
        graph = graph_of(function, *shapes)
        assert not kernels(graph)
        assert names(graph)


def test_ops_are_whole_unless_kernels_are_shown(card):
    convref_torch.show_kernels(False)
    assert not kernels(graph_of(conv, (2, 16, 9, 9), (32, 16, 3, 3), (32,)))
