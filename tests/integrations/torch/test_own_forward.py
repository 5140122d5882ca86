"""Layers that compute in a forward of their own, as other packages write them."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref.integrations.torch import convert, explain, fuse, nn, revert  # noqa: E402
from convref.integrations.torch._layers import Layer  # noqa: E402

T, F = torch.nn, torch.nn.functional


def conv2d_same(x, layer):
    return F.conv2d(F.pad(x, (1, 1, 1, 1)), layer.weight, layer.bias, layer.stride)


class Same(T.Conv2d):
    """Calls a function that calls conv2d."""

    def forward(self, x):
        return conv2d_same(x, self)


class Inherits(T.Conv2d):
    """Has a state, and the forward of torch.nn."""

    def __init__(self, *args):
        super().__init__(*args)
        self.gain = T.Parameter(torch.ones(1))


class Negated(T.Conv2d):
    """Calls the forward of torch.nn."""

    def forward(self, x):
        return -super().forward(x)


class Standardized(T.Conv2d):
    """Normalises its filter by a batch norm."""

    def forward(self, x):
        filters = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(filters, None, None, training=True, momentum=0.0)
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias)


class NormAct(T.BatchNorm2d):
    """Applies an activation, as an attribute."""

    def __init__(self, channels, act=None):
        super().__init__(channels)
        self.drop, self.act = T.Identity(), act or T.ReLU(inplace=True)

    def forward(self, x):
        moving = self.running_mean, self.running_var
        y = F.batch_norm(x, *moving, self.weight, self.bias, self.training, self.momentum, self.eps)
        return self.act(self.drop(y))


class NormOfLast(T.LayerNorm):
    """Normalises over channels of an image."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))


class Swish(T.Module):
    def forward(self, x):
        return Squash.apply(x)


class Pool(T.Module):
    """Has an attribute of the name of a function that it does not call."""

    threshold = 0.5

    def forward(self, x):
        pooled = F.max_pool2d(x, 2, return_indices=True)[0]
        return F.softmax(pooled, 1) * self.threshold + F.adaptive_avg_pool2d(pooled.relu(), 1)


LAYERS = (
    (lambda: Same(2, 4, 3), "conv2d"),
    (lambda: Inherits(2, 4, 3), "conv2d"),
    (lambda: Negated(2, 4, 3), "conv2d"),
    (lambda: Standardized(2, 4, 3), "batch_norm, conv2d"),
    (lambda: NormAct(2), "batch_norm"),
    (lambda: NormOfLast(2), "layer_norm"),
    (Swish, "sigmoid"),
    (Pool, "adaptive_avg_pool2d, max_pool2d, relu, softmax"),
    (T.Softmax2d, "softmax"),
    (lambda: T.SyncBatchNorm(2), "batch_norm"),
)


def image():
    values = torch.arange(2 * 2 * 4 * 4) * 7 % 11 - 5
    return values.reshape(2, 2, 4, 4).double()


def trained(model):
    """Return y, the gradients and the state after a step of training."""
    x = image().requires_grad_()
    y = model(x * 1)
    sources = (x, *(p for p in model.parameters() if p is not getattr(model[0], "gain", None)))
    grads = torch.autograd.grad(y.square().sum(), sources)
    return [y.detach(), *grads, *(t.double() for t in model.state_dict().values())]


@pytest.mark.parametrize(("make", "calls"), LAYERS)
def test_its_functions_are_computed_by_convref(make, calls):
    torch.manual_seed(0)
    theirs = T.Sequential(make()).double()
    kind = type(theirs[0])
    ours = copy.deepcopy(theirs)
    report = convert(ours)
    assert [row.why for row in report.changed] == [f"computed by convref: {calls} in its forward"]
    assert not report.left
    assert isinstance(ours[0], kind)
    assert repr(ours[0]) == f"convref.{theirs[0]!r}"
    ours = pickle.loads(pickle.dumps(copy.deepcopy(ours)))
    ours.load_state_dict(theirs.state_dict())
    assert all(map(torch.equal, trained(ours), trained(theirs)))
    convert(ours, "numpy")
    lines = [row for row in explain(ours, image(), verbose=False) if row.line]
    assert lines
    assert {row.backend for row in lines} == {"numpy"}
    assert revert(ours).changed
    assert type(ours[0]) is kind
    assert not hasattr(ours[0], "backend")


def test_it_is_compiled_whole():
    model = T.Sequential(Same(2, 4, 3), NormAct(4)).double()
    wanted = model(image())
    convert(model)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.equal(compiled(image()), wanted)


class OldArguments(T.Module):
    def forward(self, x):
        return F.cross_entropy(x, x.argmax(1), size_average=False), F.softmax(x, 1, _stacklevel=5)


@pytest.mark.filterwarnings("ignore:size_average:UserWarning")
def test_arguments_that_convref_lacks_are_left_to_torch():
    layer = OldArguments()
    wanted = layer(image())
    convert(layer, "numpy")
    rows = explain(layer, image(), verbose=False)
    assert [row.line.partition(".")[0] for row in rows if row.line] == ["softmax"]
    assert torch.equal(layer(image())[0], wanted[0])


def test_what_is_inside_belongs_to_the_layer():
    model = T.Sequential(NormAct(2, T.Softmax()), NormAct(2))
    report = convert(model)
    assert [row.name for row in report.left] == ["0", "0.act"]
    assert {row.why for row in report.left} == {"dim is None: PyTorch guesses an axis"}
    assert not isinstance(model[0].act, Layer)
    assert [row.name for row in report.changed] == ["1"]
    assert type(model[1].act) is T.ReLU
    assert [row.name for row in revert(model).changed] == ["1"]


def test_reports_count_classes_and_list_names():
    report = convert(T.Sequential(T.ReLU(), T.ReLU(), T.RReLU()))
    assert str(report).splitlines() == [
        "converted: 2, left: 1",
        "class  count  what",
        "ReLU   2      computed by convref",
        "RReLU  1      convref has no such layer",
    ]
    assert report.listing().splitlines()[1:] == [
        "name  class  what",
        "0     ReLU   computed by convref",
        "1     ReLU   computed by convref",
        "2     RReLU  convref has no such layer",
    ]


@pytest.mark.parametrize("act", [T.ReLU(), T.Identity(), T.LeakyReLU(0.5)])
@pytest.mark.parametrize("converted", [False, True])
def test_a_norm_with_its_activation_is_fused(act, converted):
    model = T.Sequential(Inherits(2, 3, 1), NormAct(3, act)).double().eval()
    if converted:
        convert(model)
    norm = model[1]
    norm.running_var.fill_(4.0 - 2.0**-10)  # 1 / sqrt(var + eps) is 1 / 2
    norm.eps = 2.0**-10
    for parameter in model.parameters():
        parameter.data.copy_((torch.arange(parameter.numel()) % 5 - 2.0).view_as(parameter))
    wanted = model(image())
    assert [row.why for row in fuse(model).changed] == ["Inherits + NormAct"]
    assert type(model[0]) is nn.ConvAct2d
    assert type(model[1]) is T.Identity
    assert torch.equal(model(image()), wanted)


@pytest.mark.parametrize("norm", [T.BatchNorm2d, NormAct])
@pytest.mark.parametrize("converted", [False, True])
def test_a_norm_is_folded_into_a_convolution_with_its_own_forward(norm, converted):
    model = T.Sequential(Same(2, 3, 3, bias=False), norm(3), T.SiLU()).double().eval()
    if converted:
        convert(model)
    model[1].running_var.fill_(4.0 - 2.0**-10)  # 1 / sqrt(var + eps) is 1 / 2
    model[1].eps = 2.0**-10
    for parameter in model.parameters():
        parameter.data.copy_((torch.arange(parameter.numel()) % 5 - 2.0).view_as(parameter))
    wanted = model(image())
    report = fuse(model)
    assert [row.why for row in report.changed] == [f"Same + {norm.__name__}"]
    assert not report.left
    assert isinstance(model[0], Same)
    assert isinstance(model[0], Layer)
    assert not any(isinstance(layer, T.BatchNorm2d) for layer in model)
    assert torch.equal(model(image()), wanted)


@pytest.mark.parametrize("kind", [Negated, Standardized])
def test_no_norm_is_folded_into_a_convolution_that_is_not_linear(kind):
    model = T.Sequential(kind(2, 3, 3), T.BatchNorm2d(3)).eval()
    assert next(row.why for row in fuse(model).left) == "it has a forward of its own"


class NormTwice(NormAct):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_norm_that_computes_something_else_is_not_fused():
    model = T.Sequential(T.Conv2d(2, 3, 1), NormTwice(3)).eval()
    report = fuse(model)
    assert not report.changed
    assert [row.why for row in report.left][1] == "it has a forward of its own"
