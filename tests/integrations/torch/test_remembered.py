"""Layers that remember an input: whatever decides who computes is compared at each call."""

import copy
import importlib
import pickle
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref.integrations.torch import _native, _remember, nn, revert, use_backend  # noqa: E402
from convref.integrations.torch.recording import Calls  # noqa: E402

# torch scripts its own rules of forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

LAYERS = {
    "Conv2d": lambda: nn.Conv2d(2, 2, 3, padding=1),
    "ConvTranspose2d": lambda: nn.ConvTranspose2d(2, 2, 2, stride=2),
    "BatchNorm2d": lambda: nn.BatchNorm2d(2),
    "GroupNorm": lambda: nn.GroupNorm(1, 2),
    "MaxPool2d": lambda: nn.MaxPool2d(2),
    "SiLU": lambda: nn.SiLU(),
    "Hardsigmoid": lambda: nn.Hardsigmoid(),  # ATen has no second derivative of it
}


def image(size=4):
    return torch.arange(2.0 * size * size).reshape(1, 2, size, size)


def remembering(name):
    layer = LAYERS[name]()
    with torch.no_grad():
        layer(image())
    assert layer._known
    return layer


@pytest.fixture
def slow(monkeypatch):
    """Return a list with an entry for each call that was decided anew."""
    found = []
    decisions = _native.decisions
    monkeypatch.setattr(_native, "decisions", lambda: found.append(1) or decisions())
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_remembered_calls_are_those_of_torch_nn(name, slow):
    layer = remembering(name)
    plain = copy.deepcopy(layer)
    revert(plain)
    del slow[:]
    for _ in range(3):
        x, z = image().requires_grad_(), image().requires_grad_()
        y, wanted = layer(x), plain(z)
        assert type(y.grad_fn) is type(wanted.grad_fn)
        assert torch.equal(y, wanted)
        y.square().sum().backward()
        wanted.square().sum().backward()
        assert torch.equal(x.grad, z.grad)
        assert all(map(torch.equal, layer.state_dict().values(), plain.state_dict().values()))
    assert len(slow) == 1  # the first with a gradient


@pytest.mark.parametrize("name", LAYERS)
def test_other_calls_are_decided_anew(name, slow):
    layer = remembering(name)
    x, count = image(), len(slow)

    def is_new(call):
        nonlocal count
        call()
        before, count = count, len(slow)
        return count > before

    with torch.no_grad():
        assert not is_new(lambda: layer(x))
        assert is_new(lambda: layer(image(6)))
        assert is_new(lambda: layer(x.to(memory_format=torch.channels_last)))
        assert is_new(lambda: layer(image().requires_grad_()))
        assert not is_new(lambda: layer(x))
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype=dtype):
                assert is_new(lambda: layer(x))
        with Calls() as calls:
            assert is_new(lambda: layer(x))
        assert calls.seen
        with torch.inference_mode():
            assert is_new(lambda: layer(x.clone()))
        if hasattr(layer, "weight"):
            old = layer.weight.data  # kept, or its address might be given out again
            layer.weight.data = old.clone()
            assert is_new(lambda: layer(x))
            torch.func.functional_call(layer, {"weight": layer.weight + 1}, (x,))
            assert is_new(lambda: None)
        layer.train(layer.training)  # sets an attribute
        assert is_new(lambda: layer(x))
        assert not is_new(lambda: layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_remembered_inputs_have_derivatives_and_backends(name):
    layer = remembering(name)
    x = image().requires_grad_()
    layer(x)
    with torch.autograd.forward_ad.dual_level():
        y = layer(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        assert "Fprop" in type(y.grad_fn).__name__  # convref's: ATen's jvp is not what is compared
        assert torch.autograd.forward_ad.unpack_dual(y).tangent is not None
    if name != "BatchNorm2d":  # which writes statistics
        assert torch.func.vmap(layer)(torch.stack([x, x])).shape[0] == 2
    assert "Fprop" not in type(layer(x).grad_fn).__name__
    with use_backend("numpy"):
        assert "Fprop" in type(layer(x).grad_fn).__name__
    layer.backend = "nowhere"
    with pytest.raises(ValueError, match="nowhere"):
        layer(x)


def test_a_second_derivative_that_aten_lacks_is_remembered_too(slow):
    layer = LAYERS["Hardsigmoid"]()
    for _ in range(3):
        x = torch.tensor([-4.0, 0.0, 2.0, 4.0], requires_grad=True)
        (dx,) = torch.autograd.grad(layer(x * 1).square().sum(), x, create_graph=True)
        dx.sum().backward()
        assert x.grad.mul(18).round().tolist() == [0.0, 1.0, 1.0, 0.0]
    assert len(slow) == 1
    with torch.no_grad():
        assert not layer(x).requires_grad


@pytest.mark.parametrize("name", LAYERS)
def test_copies_remember_nothing(name):
    layer = remembering(name)
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert "_known" not in vars(other)
        assert torch.equal(other(image()), layer(image()))


def test_reverted_layers_remember_nothing():
    layer = remembering("Conv2d")
    revert(layer)
    assert "_known" not in vars(layer)


def test_an_output_size_is_followed():
    layer = remembering("ConvTranspose2d")
    assert layer(image(), output_size=(9, 9)).shape[2:] == (9, 9)


def test_inputs_that_torch_refuses_are_not_remembered():
    layer = nn.MaxPool2d(2, padding=2)
    for _ in range(2):
        assert layer(image()).shape[2:] == (4, 4)


def test_second_derivatives_that_aten_lacks():
    layer = nn.Hardsigmoid()
    for _ in range(2):
        x, dy = image().requires_grad_(), image().requires_grad_()
        (dx,) = torch.autograd.grad(layer(x), x, dy, create_graph=True)
        (slope,) = torch.autograd.grad(dx.sum(), dy)
        assert torch.equal(slope > 0, x < 3)


def test_a_weight_may_be_unfrozen():
    layer = nn.PReLU(2).requires_grad_(False)
    layer(image())
    y = layer.requires_grad_(True)(image())
    assert "Fprop" in type(y.grad_fn).__name__  # ATen's second derivatives are not convref's


def test_a_weight_that_is_no_parameter_is_used():
    layer = LAYERS["Conv2d"]()
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    wanted = torch.nn.functional.conv2d(image(), weight, layer.bias, padding=1)
    for _ in range(2):
        assert torch.equal(layer(image()), wanted)


@pytest.mark.parametrize(
    "guards",
    [None, lambda x: None, lambda *_, **__: None, lambda *_, **__: SimpleNamespace(check=id)],
)
def test_without_the_check_of_torch_each_call_is_decided_anew(guards, monkeypatch):
    monkeypatch.setattr(_remember, "_checks", {})
    monkeypatch.setattr(_remember, "TensorGuards", guards)
    layer = LAYERS["Conv2d"]()
    assert torch.equal(layer(image()), layer(image()))
    assert not layer._known


def test_the_check_of_torch_may_be_absent(monkeypatch):
    with monkeypatch.context() as without:
        without.delattr(torch._C._dynamo, "guards")
        importlib.reload(_remember)
    found = _remember.TensorGuards
    importlib.reload(_remember)
    assert found is None


def test_changed_settings_are_followed():
    layer = remembering("Conv2d")
    layer.stride = (2, 2)
    assert layer(image()).shape[2:] == (2, 2)
    layer.padding_mode = "circular"
    wanted = torch.nn.Conv2d.forward(layer, image())
    for _ in range(2):
        assert torch.equal(layer(image()), wanted)
    layer._conv_forward = lambda *given: given[0]
    for _ in range(2):
        assert layer(image()).shape == (1, 2, 4, 4)


def test_overridden_method_of_a_subclass_is_called():
    class Doubled(nn.Conv2d):
        def _conv_forward(self, input, weight, bias):
            return super()._conv_forward(input, 2 * weight, bias)

    layer = Doubled(2, 2, 1, bias=False)
    plain = torch.nn.functional.conv2d(image(), layer.weight)
    for _ in range(3):
        assert torch.equal(layer(image()), 2 * plain)
