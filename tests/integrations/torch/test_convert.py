"""Swapping, fusing and explaining the layers of models that do not use convref."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from math import expm1, log1p
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref.case import parse  # noqa: E402
from convref.errors import ConvrefError  # noqa: E402
from convref.integrations.torch import convert, explain, fuse, nn, revert, use_backend  # noqa: E402
from convref.integrations.torch._folding import folded  # noqa: E402
from convref.integrations.torch._layers import LAYERS  # noqa: E402

T = torch.nn
EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
FEW = settings(max_examples=max(6, settings.default.max_examples // 8), phases=[Phase.generate])
UNIT = 2.0**-53


class Residual(T.Module):
    """Two convolutions around a sum; the activation is one module with two calls."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = T.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = T.BatchNorm2d(channels)
        self.conv2 = T.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.bn2 = T.BatchNorm2d(channels)
        self.act = T.ReLU(inplace=True)

    def forward(self, x):
        y = self.act(self.bn1(self.conv1(x)))
        return self.act(self.bn2(self.conv2(y)) + x)


class Branching(T.Module):
    """Looks at values of its input, so that nothing traces through it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.conv, self.bn = T.Conv2d(4, 4, 1), T.BatchNorm2d(4)

    def forward(self, x):
        if x.shape[0] > 100:
            return x
        return torch.nn.functional.leaky_relu(self.bn(self.conv(self.inner(x))), 0.5)


def network(branching=False):
    """Return a small model of torch.nn's layers in evaluation, with integers all over."""
    residual = Residual(4)
    model = T.Sequential(
        T.Sequential(T.Conv2d(3, 4, 3, 2, 1, bias=False), T.BatchNorm2d(4), T.LeakyReLU(0.5)),
        T.MaxPool2d(3, 2, 1),
        Branching(residual) if branching else residual,
        T.ConvTranspose2d(4, 4, 2, 2, groups=2),
        T.BatchNorm2d(4),
        T.AdaptiveAvgPool2d(1),
        T.Flatten(),
        T.Linear(4, 3),
    ).double()
    return exactly(model.eval())


def integers(shape, seed):
    made = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, tuple(shape), generator=made).double()


def exactly(model):
    """Give every layer small integers, and norms that divide by a power of two."""
    for i, module in enumerate(model.modules()):
        for j, parameter in enumerate(module.parameters(recurse=False)):
            parameter.data.copy_(integers(parameter.shape, 10 * i + j))
        if isinstance(module, T.modules.batchnorm._BatchNorm):
            module.eps = 2.0**-10
            module.running_var.fill_(4.0 - 2.0**-10)
            module.running_mean.copy_(integers(module.running_mean.shape, i))
    return model


IMAGE = integers((2, 3, 16, 16), 1)


@pytest.mark.parametrize("backend", [None, "numpy"])
@pytest.mark.parametrize("branching", [False, True])
def test_converted_and_reverted_models_compute_the_same(branching, backend):
    model = network(branching)
    wanted, parts = model(IMAGE), list(model.modules())
    seen = []
    model[0][0].register_forward_hook(lambda module, *_: seen.append(type(module)))
    report = convert(model, backend)
    assert torch.equal(model(IMAGE), wanted)
    assert seen == [nn.Conv2d]
    assert all(a is b for a, b in zip(parts, model.modules(), strict=True))
    assert {row.name for row in report.left} == {"6", "7"}
    assert {row.why for row in report.left} == {"convref has no such layer"}
    assert not model[0][0].training
    assert all(row.backend == (backend or "torch") for row in explained_calls(model, IMAGE))
    assert len(revert(model).changed) == len(report.changed)
    assert {type(module) for module in model.modules()}.isdisjoint(LAYERS.values())
    assert torch.equal(model(IMAGE), wanted)
    assert seen[1:] == [nn.Conv2d, T.Conv2d]


def explained_calls(model, *inputs):
    """Return the rows of `explain` on convref's calls."""
    return [row for row in explain(model, *inputs, verbose=False) if row.line]


def test_a_converted_model_trains_the_same():
    theirs = network().train()
    ours = copy.deepcopy(theirs)
    convert(ours)
    for model in (theirs, ours):
        model(IMAGE).square().sum().backward()
    for (name, mine), their in zip(ours.named_parameters(), theirs.parameters()):
        assert torch.equal(mine.grad, their.grad), name


def test_a_converted_model_is_saved_and_loaded():
    model = network()
    wanted = model(IMAGE)
    convert(model, "numpy")
    assert torch.equal(pickle.loads(pickle.dumps(model))(IMAGE), wanted)
    plain = network()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain(IMAGE), wanted)


class OwnConv(T.Conv2d):
    def forward(self, x):
        return -super().forward(x)


class Doubled(T.Module):
    def forward(self, x):
        return 2 * x


def scripted():
    return torch.jit.script(T.Conv2d(1, 1, 1))


def replaced():
    layer = T.ReLU()
    layer.forward = lambda x: x
    return layer


LEFT = (
    (Doubled, "its forward calls no function that convref computes"),
    (lambda: T.LazyConv2d(1, 1), "lazy: its sizes are unknown before the first input"),
    (lambda: T.RReLU(), "convref has no such layer"),
    (lambda: T.Softmax(), "dim is None: PyTorch guesses an axis"),
    (lambda: T.LPPool2d(1, 2), "PyTorch sums powers of signed values, convref of absolute values"),
    (lambda: T.LPPool1d(2, 2, ceil_mode=True), "with ceil_mode, PyTorch scales"),
    (lambda: T.utils.parametrizations.weight_norm(T.Conv2d(1, 1, 1)), "parametrized"),
    (scripted, "compiled by torch.jit: its layers cannot be swapped"),
    (replaced, "its forward was replaced on the object"),
)


@pytest.mark.parametrize(("make", "why"), LEFT, ids=[why[:24] for _, why in LEFT])
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_unconverted_layers_have_a_reason(make, why):
    layer = make()
    kind = type(layer)
    report = convert(T.Sequential(layer))
    assert not report.changed
    assert report.left[0].name == "0"
    assert report.left[0].why.startswith(why)
    assert type(layer) is kind


def test_a_quantized_layer_is_left():
    quantized = pytest.importorskip("torch.ao.nn.quantized", reason="this torch has it no more")
    report = convert(T.Sequential(quantized.ReLU6()))
    assert report.left[0].why == "quantized: convref has no quantized layers"


def test_a_lazy_layer_is_swapped_once_it_has_sizes():
    model = T.Sequential(T.LazyConv2d(2, 1))
    convert(model)
    model(torch.ones(1, 3, 2, 2))
    assert convert(model).changed[0].layer == "Conv2d"
    assert type(model[0]) is nn.Conv2d


@pytest.mark.parametrize("refuses", [convert, revert, fuse, explain])
@pytest.mark.parametrize(
    ("model", "kind"), [(None, "None"), (torch.relu, "a builtin"), (T.Conv2d, "a type")]
)
def test_what_is_no_module_is_refused(refuses, model, kind):
    with pytest.raises(ConvrefError, match=f"{refuses.__name__}: model is {kind}"):
        refuses(model)


def test_an_unknown_backend_changes_nothing():
    model = network()
    with pytest.raises(ConvrefError, match="'nobody' is unknown"):
        convert(model, "nobody")
    assert type(model[0][0]) is T.Conv2d


@pytest.mark.parametrize(
    ("backend", "what"), [("nope", "backend: 'nope' is unknown"), (3, "backend is 3, needs a name")]
)
def test_an_unknown_backend_is_refused_where_it_is_named(backend, what):
    with pytest.raises(ConvrefError, match=what), use_backend(backend):
        pass
    with pytest.raises(ConvrefError, match=what):
        nn.Conv2d(1, 1, 1, backend=backend)
    with pytest.raises(ConvrefError, match=what):
        convert(T.Conv2d(1, 1, 1), backend)


def test_a_backend_can_be_named_again():
    model = network()
    convert(model, "numpy")
    convert(model, "loops")
    assert model[0][0].backend == "loops"
    fuse(model)
    convert(model, "numpy")
    assert {row.backend for row in explained_calls(model, IMAGE)} == {"numpy"}
    block = T.Sequential(nn.ConvBNAct1d(1, 1, 1))
    assert len(convert(block, "numpy").changed) == 3
    assert [row.why for row in revert(block).left] == ["part of a layer that only convref has"] * 3


@pytest.mark.parametrize("converted", [False, True])
def test_a_fused_model_computes_the_same(converted):
    model = network()
    wanted = model(IMAGE)
    if converted:
        convert(model, "numpy")
    report = fuse(model, "numpy")
    assert torch.equal(model(IMAGE), wanted)
    assert [row.name for row in report.changed] == ["0.0", "2.conv1", "2.conv2", "3"]
    assert not report.left
    assert not any(isinstance(m, T.BatchNorm2d) for m in model.modules())
    assert report.changed[0].why == "Conv2d + BatchNorm2d + LeakyReLU"
    assert {
        row.backend for row in explained_calls(model, IMAGE) if row.kind.startswith("Conv")
    } == {"numpy"}
    assert torch.equal(pickle.loads(pickle.dumps(model))(IMAGE), wanted)


@pytest.mark.parametrize(
    ("script", "network", "norms"),
    [("yolo11n", "YOLO11n", 81), ("resnet", "ResNet50", 53), ("mobilenet", "MobileNetV3", 46)],
)
def test_every_norm_of_a_real_network_is_folded(script, network, norms, monkeypatch):
    if not EXAMPLES.exists():
        pytest.skip("docs/examples is not there: it is no part of an installed package")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, script, raising=False)
    with torch.device("meta"):
        model = getattr(importlib.import_module(script), network)().eval()
    report = fuse(model)
    assert sum("BatchNorm2d" in row.why for row in report.changed) == norms
    assert not any(isinstance(module, T.BatchNorm2d) for module in model.modules())
    assert all(row.layer == "Conv2d" for row in report.left)


def test_modules_around_an_untraceable_one_are_fused():
    model = network(branching=True)
    wanted = model(IMAGE)
    report = fuse(model, "numpy")
    assert torch.equal(model(IMAGE), wanted)
    names = {row.name for row in report.changed}
    assert names == {"0.0", "2.inner.conv1", "2.inner.conv2", "3"}
    assert {row.name for row in report.left} == {"2.conv", "2.bn"}
    assert all(row.why.startswith("does not trace: ") for row in report.left)


def chain(*layers):
    return T.Sequential(T.Conv2d(2, 2, 1), *layers, T.BatchNorm2d(2))


class Shared(T.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.a, self.b = T.Conv2d(2, 2, 1), T.BatchNorm2d(2), T.BatchNorm2d(2)

    def forward(self, x):
        return self.a(self.conv(x)) + self.b(self.conv(x))


class Reading(Shared):
    def forward(self, x):
        return self.a(self.conv(x)) + self.conv.weight.sum()


def hooked():
    model = chain()
    model[1].register_forward_hook(lambda *_: None)
    return model


def own():
    return T.Sequential(OwnConv(2, 2, 1), T.BatchNorm2d(2))


ALONE = "no convolution of its own right before it"
NOTHING = "no batch norm and no activation of its own right after it"
BATCH = "it normalises with batch statistics"
STAY = (
    (lambda: chain(T.RReLU()), ["0", "2"], [NOTHING, ALONE]),
    (lambda: T.Sequential(T.Conv2d(2, 2, 1), T.BatchNorm2d(2, track_running_stats=False)),
     ["0", "1"], [BATCH, BATCH]),
    (Shared, ["conv", "a", "b"], ["called more than once"] * 3),
    (Reading, ["conv", "a", "b"], ["its parameters are used elsewhere too"] * 2 + [ALONE]),
    (hooked, ["0", "1"], ["it has hooks"] * 2),
    (own, ["0", "1"], ["it has a forward of its own", ALONE]),
)  # fmt: skip


@pytest.mark.parametrize(("make", "names", "why"), STAY, ids=[str(i) for i in range(len(STAY))])
def test_unfused_layers_have_a_reason(make, names, why):
    model = with_integers(make()).double().eval()
    x = integers((2, 2, 3, 3), 4)
    wanted = model(x)
    report = fuse(model)
    assert not report.changed
    assert [row.name for row in report.left] == names
    assert [row.why for row in report.left] == why
    assert torch.equal(model(x), wanted)


def with_integers(model):
    for name, parameter in model.named_parameters():
        parameter.data.copy_(integers(parameter.shape, len(name)))
    return model


def test_a_module_of_two_names_is_not_fused():
    conv = T.Conv2d(4, 4, 1)
    model = T.Sequential(T.Sequential(conv, T.BatchNorm2d(4)), Branching(T.Identity())).eval()
    model[1].conv = conv
    assert fuse(model).left[0].why == "it is registered under several names"


def test_an_activation_of_several_modules_is_fused_into_each():
    act, image = T.ReLU(), integers((2, 4, 3, 3), 5)
    blocks = (T.Sequential(T.Conv2d(4, 4, 1), T.BatchNorm2d(4), act) for _ in range(2))
    model = exactly(T.Sequential(*map(Branching, blocks)).double().eval())
    wanted = model(image)
    assert [row.name for row in fuse(model).changed] == ["0.inner.0", "1.inner.0"]
    assert torch.equal(model(image), wanted)


def test_a_block_alone_is_not_fused():
    report = fuse(nn.ConvBNAct1d(1, 1, 1).eval())
    assert [row.why for row in report.left] == ["it is the model itself"] * 2


def test_a_model_in_training_is_not_fused():
    with pytest.raises(ConvrefError, match=r"fuse: the model is training, needs eval\(\)"):
        fuse(network().train())


@FEW
@given(
    rank=st.integers(1, 3),
    groups=st.integers(1, 3),
    transposed=st.booleans(),
    bias=st.booleans(),
    affine=st.booleans(),
    seed=st.integers(0, 99),
)
def test_folding_is_within_its_bound(rank, groups, transposed, bias, affine, seed):
    kind = f"Conv{'Transpose' if transposed else ''}{rank}d"
    conv = getattr(T, kind)(2 * groups, 3 * groups, 3, groups=groups, bias=bias).double().eval()
    norm = getattr(T, f"BatchNorm{rank}d")(3 * groups, affine=affine).double().eval()
    made = torch.Generator().manual_seed(seed)
    for tensor in (*conv.parameters(), *norm.parameters(), norm.running_mean):
        tensor.data.copy_(torch.randn(tensor.shape, generator=made, dtype=torch.float64))
    norm.running_var.copy_(torch.rand(3 * groups, generator=made, dtype=torch.float64) + 0.1)
    x = torch.randn([2, 2 * groups, *(5,) * rank], generator=made, dtype=torch.float64)
    with torch.no_grad():
        apart = norm(conv(x))
        together = copy.deepcopy(conv)
        weight, shift = folded(conv, norm)
        together.weight, together.bias = T.Parameter(weight), T.Parameter(shift)
        error = (together(x) - apart).abs()
        # the same sum of magnitudes for both: |x| * |w s| + |b s| + |mean s| + |shift|
        for tensor in (conv.weight, *([conv.bias] if bias else [])):
            tensor.copy_(tensor.abs())
        norm.running_mean.copy_(-norm.running_mean.abs())
        if affine:
            norm.weight.copy_(norm.weight.abs())
            norm.bias.copy_(norm.bias.abs())
        sums = norm(conv(x.abs()))
    # products and additions of the sum, of b and of the mean, and the four roundings of s
    count = 2 * 3**rank + 13
    gamma = expm1(count * log1p(UNIT))
    assert (error <= 2 * gamma * sums * (1 + gamma)).all()


def test_a_folded_block_has_gradients():
    block = nn.ConvBNAct2d(2, 3, 3, activation="silu", dtype=torch.float64).eval()
    x = integers((1, 2, 4, 4), 1).requires_grad_()
    names = list(dict(block.named_parameters()))

    def function(x, *values):
        return torch.func.functional_call(block, dict(zip(names, values)), x)

    values = [p.detach().clone().requires_grad_() for p in block.parameters()]
    assert torch.autograd.gradcheck(function, (x, *values), fast_mode=True)


def test_every_layer_is_explained(capsys):
    model = network(branching=True)
    convert(model, "numpy")
    model[1].backend = None
    before = {name: t.clone() for name, t in model.state_dict().items()}
    rows = explain(model.train(), IMAGE)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert [row.layer for row in rows if row.line][:4] == ["0.0", "0.1", "0.2", "1"]
    for row in rows:
        if row.line:
            assert str(parse(row.line).call) == row.line
    line = "conv.fprop:n2c3k4_i16x16_f3x3_s2_p1:bias=0:dt=f64"
    assert (rows[0].line, rows[0].backend, rows[0].why) == (line, "numpy", "selected by the caller")
    assert rows[3].backend == "torch"
    foreign = {row.layer: (row.backend, row.why) for row in rows if not row.line}
    assert foreign["2"] == (
        "torch: leaky_relu",
        "called as a function in a forward: convert(model) replaces layers only",
    )
    assert foreign["7"] == ("torch.nn", "convref has no such layer")
    printed = capsys.readouterr().out
    assert "torch.nn" in printed
    assert line in str(rows)


def test_explain_gives_the_reason_of_a_refusal():
    pytest.importorskip("triton", reason="triton is not installed")
    rows = explain(T.Sequential(nn.Mish(backend="triton")), torch.ones(1, 2, 3), verbose=False)
    assert rows[0].backend == "none"
    assert "no kernel for mish" in rows[0].why


def test_an_unconverted_model_is_explained():
    rows = explain(T.Sequential(T.Conv2d(1, 1, 1)), torch.ones(1, 1, 3, 3), verbose=False)
    assert [(r.layer, r.backend) for r in rows] == [("0", "torch.nn")]
    assert rows[0].why == "a layer of torch.nn: convert(model) replaces it"


def test_tables_without_rich(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.box", None)
    explain(T.Sequential(nn.ReLU(backend="numpy")), torch.ones(1, 1, 3))
    assert capsys.readouterr().out.splitlines() == [
        "1 calls, 1 of them convref's",
        "layer  class  line                backend  why",
        "0      ReLU   relu.fprop:n1c1_i3  numpy    selected by the caller",
    ]
