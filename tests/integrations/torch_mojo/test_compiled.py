"""Gradients in graphs of torch-mojo-backend. Compiling takes minutes: nightly profile."""

from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

import convref
from convref import UnsupportedError
from convref.integrations import torch_mojo

MISSING = find_spec("torch_mojo_backend") is None
needs_package = pytest.mark.skipif(MISSING, reason="torch-mojo-backend is not installed")

# What a graph cannot have without `install`: the function, its operands, and what it lacks.
REFUSED = {
    "conv2d": ("(2, 4, 9, 8) (6, 2, 3, 3)", "None, 2, 1, 1, 2", "convolution_backward"),
    "conv1d": ("(2, 4, 9) (6, 4, 3)", "None, 1, 1, 2", "Non-unit dilation"),
    "conv3d": ("(1, 4, 5, 5, 4) (6, 2, 3, 3, 3)", "None, 2, 1, 1, 2", "Unsupported input rank"),
    "conv_transpose2d": ("(2, 4, 5, 5) (4, 3, 3, 3)", "None, 2, 1, 1, 2", "convolution_backward"),
    "max_pool2d": ("(2, 4, 8, 8)", "3, 2, 1", "max_pool2d_with_indices_backward"),
    "avg_pool2d": ("(2, 4, 8, 8)", "3, 2, 1, True", "avg_pool2d_backward"),
    "adaptive_avg_pool2d": ("(2, 4, 8, 6)", "2", "NotImplementedError"),
    "adaptive_max_pool2d": ("(4, 8, 6)", "2", "adaptive_max_pool2d"),
    "batch_norm": ("(2, 4, 5)", "None, None, None, None, True", "_native_batch_norm_legit"),
    "group_norm": ("(2, 4, 5)", "2", "returning mean"),
}


def test_without_torch_mojo_backend_install_is_refused(monkeypatch):
    monkeypatch.setattr(torch_mojo, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="torch-mojo-backend is not installed"):
        torch_mojo.install()
    torch_mojo.uninstall()  # nothing to do


@pytest.fixture
def installed():
    torch_mojo.install()
    yield
    torch_mojo.uninstall()


@pytest.fixture
def no_compiler(monkeypatch):
    """Graphs are made, but not compiled: each returns zeros."""
    import torch
    from max.experimental.torch.torch import max_dtype_to_torch
    from max.graph import KernelLibrary
    from torch_mojo_backend.torch_compile_backend import compiler

    def load(graph):
        types = [([*map(int, t.shape)], max_dtype_to_torch(t.dtype)) for t in graph.output_types]
        return SimpleNamespace(execute=lambda *_: [torch.zeros(s, dtype=d) for s, d in types])

    @cache  # loading the sources compiles them
    def objects():
        library = KernelLibrary()
        library.load_paths(compiler.paths_to_mojo_kernels)
        return SimpleNamespace(session=SimpleNamespace(load=load), kernel_library=library)

    monkeypatch.setattr(compiler, "global_max_objects", objects)


def gradients(function, inputs, backend):
    """Return the derivatives of the sum of squares of a function's results."""
    import torch

    torch._dynamo.reset()
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    outputs = torch.compile(function, backend=backend)(*leaves)
    loss = sum((y * y).sum() for y in outputs)
    return torch.autograd.grad(loss, leaves)


def backward_graph(name):
    import torch
    from torch_mojo_backend import mojo_backend

    shapes, arguments, _ = REFUSED[name]
    inputs = [torch.ones(eval(shape + ")")) for shape in shapes.split(")")[:-1]]
    call = getattr(torch.nn.functional, name)
    return gradients(lambda *given: (call(*given, *eval(f"[{arguments}]")),), inputs, mojo_backend)


@needs_package
def test_graphs_that_it_refuses(no_compiler):
    for name, (_, _, lacks) in REFUSED.items():
        with pytest.raises(Exception, match=lacks):
            backward_graph(name)


@needs_package
def test_graphs_that_it_makes_with_the_gradients(no_compiler, installed):
    for name in REFUSED:
        backward_graph(name)


@needs_package
def test_uninstall_restores_its_tables():
    from torch_mojo_backend.torch_compile_backend import compiler

    before = dict(compiler.MAPPING_TORCH_ATEN_TO_MOJO), list(compiler.paths_to_mojo_kernels)
    torch_mojo.install()
    torch_mojo.install()
    assert before[0] != compiler.MAPPING_TORCH_ATEN_TO_MOJO
    torch_mojo.uninstall()
    assert before == (compiler.MAPPING_TORCH_ATEN_TO_MOJO, compiler.paths_to_mojo_kernels)


def exact(x, first, second, third, *_):
    """Return results that are integers if the operands are."""
    import torch.nn.functional as F

    h = F.max_pool2d(F.relu(F.conv2d(x, first, stride=2, padding=1, groups=2)), 3, 2, 1)
    h = F.conv2d(h, second, padding=2, dilation=2)
    h = F.avg_pool2d(h, 2, 1, 0, True, False)
    return (F.conv_transpose2d(h, third, stride=2, padding=1, output_padding=1, groups=2),)


def smooth(image, scale, shift, filters):
    import torch.nn.functional as F

    h = F.batch_norm(image, None, None, scale, shift, True)
    return (F.adaptive_avg_pool2d(F.conv2d(h, filters, dilation=2), (2, 3)),)


@pytest.mark.nightly
@needs_package
def test_a_network_with_strides_groups_and_dilation_has_right_gradients(installed):
    import torch
    from torch_mojo_backend import mojo_backend

    torch.manual_seed(0)
    shapes = (2, 4, 14, 13), (8, 2, 3, 3), (6, 8, 3, 3), (6, 2, 3, 3)
    integers = [torch.randint(-2, 3, shape).float() for shape in shapes]
    shapes = (3, 4, 9, 8), (4,), (4,), (5, 4, 3, 3)
    reals = [torch.randn(shape) for shape in shapes]

    def both(*given):
        return *exact(*given[:4]), *smooth(*given[4:])

    found = gradients(both, integers + reals, mojo_backend)
    expected = gradients(exact, integers, "eager")
    for one, other in zip(found, expected):
        assert torch.equal(one, other)

    def reference(*given):
        leaves = [value.detach().requires_grad_() for value in given]
        return torch.autograd.grad((smooth(*leaves)[0] ** 2).sum(), leaves)

    convref.assert_close(tuple(found[4:]), reference, reals)


def losses(backend, steps):
    """Return the losses of so many steps of descent on a small network."""
    import torch
    from torch import nn

    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 6, 3, padding=2, dilation=2),
        nn.AvgPool2d(2, 1),
        nn.ConvTranspose2d(6, 3, 3, 2, 1),
    )
    network = nn.Sequential(*layers)
    images, target = torch.randn(4, 4, 12, 12), torch.randn(4, 3, 3, 3)

    def loss_of(images, target):
        distance = network(images) - target
        return (distance * distance).sum()

    compiled = torch.compile(loss_of, backend=backend)
    descent, found = torch.optim.SGD(network.parameters(), lr=0.002, momentum=0.9), []
    for _ in range(steps):
        descent.zero_grad()
        loss = compiled(images, target)
        loss.backward()
        descent.step()
        found.append(loss.item())
    return found


@pytest.mark.nightly
@needs_package
def test_a_network_trains_only_after_install():
    from torch_mojo_backend import mojo_backend

    with pytest.raises(Exception, match="_native_batch_norm_legit_functional"):
        losses(mojo_backend, 1)
    torch_mojo.install()
    try:
        found = losses(mojo_backend, 20)
    finally:
        torch_mojo.uninstall()
    assert found[-1] < found[0] / 2
