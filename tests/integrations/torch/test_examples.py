"""The examples of docs/examples: they run, learn, and are torch.nn's within the judge's bounds."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("rich", reason="rich is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from convref.integrations.torch import convert, nn, revert, use_backend  # noqa: E402
from convref.integrations.torch._kernels import PassConfig, call_of  # noqa: E402
from convref.integrations.torch._table import ROWS  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
NETWORKS = {  # script: class, parameters as published, suite, size of its images
    "yolo11n": ("YOLO11n", 2_624_080 - 16, "yolo11n", 640),  # 16: the fixed sum of the box head
    "resnet": ("ResNet50", 25_557_032, "resnet50", 224),
    "mobilenet": ("MobileNetV3", 5_483_032, "mobilenet_v3_large", 224),
}
COUNTED = ("conv", "max_pool", "adaptive_avg_pool", "batch_norm", "resize")
STEPS = 3

# torch scripts its own rules of forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")


@pytest.fixture
def example(monkeypatch):
    """Return a function that imports a script; one core is enough for small images."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield importlib.import_module
    torch.set_num_threads(threads)
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


class Problems(TorchDispatchMode):
    """Counts the problems that are computed inside; tensors need no data."""

    def __init__(self):
        super().__init__()
        self.rows = {row.name: row for row in ROWS.values()}
        self.found = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "convref":
            row = self.rows[op._schema.name.partition("::")[2]]
            count = len(row.signature.operands)
            if row.op in COUNTED:
                call = call_of(PassConfig.of(row, args[count:]), args[:count])
                self.found[plain(call.problem)] += 1
        return op(*args, **(kwargs or {}))


def plain(problem):
    """Return a problem without fields that suites lack: constants of a norm, a scale's digits."""
    unsaid = {"eps": 0.0, "momentum": 0.0, "scale": ()}
    return replace(problem, **{k: v for k, v in unsaid.items() if hasattr(problem, k)})


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_the_layers_of_its_suite(example, name):
    suite = pytest.importorskip("convref_bench.suites.suite")
    kind, parameters, title, size = NETWORKS[name]
    model = getattr(example(name), kind)()
    assert sum(p.numel() for p in model.parameters()) == parameters
    convert(model)
    with Problems() as problems:
        model.to("meta")(torch.empty(1, 3, size, size, device="meta"))
    wanted = Counter()
    for layer in suite.load(title, COUNTED):
        wanted[plain(layer.problem(1))] += layer.times
    assert problems.found == wanted


@pytest.mark.parametrize(
    ("name", "size", "backend"),
    [("yolo11n", 64, "numpy"), ("resnet", 32, "torch"), ("mobilenet", 32, "numpy")],
)
def test_every_layer_matches_torch_within_the_bound(example, tmp_path, name, size, backend):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    model = getattr(example(name), NETWORKS[name][0])
    words = ["--size", str(size), "--backend", backend, "--once", "--out", str(tmp_path)]
    rows = example("compare").main(model, name, words)
    assert {row.backend for row in rows} == {backend}
    assert 0 < max(row.theirs for row in rows) <= 1
    assert (tmp_path / "layers.svg").stat().st_size > 0


@pytest.mark.nightly(reason="a minute in all")
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_of_larger_images_matches_torch(example, name, backend):
    model = getattr(example(name), NETWORKS[name][0])
    assert example("compare").main(model, name, ["--size", "96", "--backend", backend])


def test_layer_with_relative_error_of_1e_9_is_named(example):
    compare, model = example("compare"), torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3)).double()

    class Off(torch.nn.Conv2d):
        def forward(self, input):
            return super().forward(input) * (1 + 1e-9)

    wrong = deepcopy(model)
    wrong[0].__class__ = Off
    convert(model)
    x = torch.ones(1, 2, 5, 5, dtype=torch.float64)
    visits = compare.visits(model, wrong, lambda one: compare.backward(one, x))
    with pytest.raises(AssertionError, match=r"0 of torch\.nn: y\[0, 0, 0, 0\] is .*; error "):
        list(compare.rows(visits))


def test_digits_example_reaches_97_percent(example, tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert example("digits").main(["--epochs", "6", "--out", str(tmp_path)]) >= 0.97
    assert {path.name for path in tmp_path.iterdir()} == {"course.svg", "misread.svg"}


class Loss(torch.nn.Module):
    """A network and what it is trained on, as one function of the images."""

    def __init__(self, network, labels):
        super().__init__()
        self.network, self.criterion, self.labels = network, nn.CrossEntropyLoss(), labels

    def forward(self, x):
        return self.criterion(self.network(x), self.labels)


@pytest.mark.parametrize("backend", ["auto", "numpy"])
def test_first_steps_match_torch_within_the_bound(example, backend):
    """Each layer's results are; so the loss is off by no more than their bounds can move it."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    compare, digits = example("compare"), example("digits")
    torch.manual_seed(0)
    x, labels, *_ = digits.digits()
    ours = Loss(digits.network(8), labels[:32]).double()
    descent = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        images = x[32 * step : 32 * (step + 1)].double()
        ours.labels = labels[32 * step : 32 * (step + 1)]
        theirs = deepcopy(ours)
        revert(theirs)
        losses = []

        def run(model, images=images, losses=losses):
            losses.append(model(images))
            losses[-1].backward()

        descent.zero_grad()
        with use_backend(backend):
            found = compare.visits(ours, theirs, run)
            rows = list(compare.rows(found))
        run(theirs)
        assert {row.backend for row in rows} == {"torch" if backend == "auto" else backend}
        apart = abs(float(losses[0].detach() - losses[1].detach()))
        moved = sum(row.loss for row in rows)  # of each model: what the bounds allow, first order
        assert apart <= 2 * moved
        assert moved < 2.0**-30  # tight enough: half of the digits of float64
        descent.step()


def test_the_compiled_network_computes_the_same(example):
    network = example("digits").network(8).double()
    x = torch.randn(6, 1, 8, 8, dtype=torch.float64)

    def step(model, images):
        model.zero_grad()
        y = model(images)
        y.square().sum().backward()
        return [y.detach(), *(p.grad.clone() for p in model.parameters())]

    torch.compiler.reset()
    compiled = torch.compile(deepcopy(network), fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in (6, 4, 5):
            images = x[:batch].clone()  # a view would be one more thing to compile for
            for got, want in zip(step(compiled, images), step(network, images), strict=True):
                assert torch.equal(got, want)


@pytest.mark.parametrize("mode", ["conv", "pool", "norm", "silu"])
def test_result_of_half_the_channels_is_channels_last(mode):
    whole = torch.randn(2, 8, 5, 5).contiguous(memory_format=torch.channels_last)
    layers = {
        "conv": nn.Conv2d(4, 6, 3, padding=1),
        "pool": nn.MaxPool2d(3, 1, 1),
        "norm": nn.BatchNorm2d(4),
        "silu": nn.SiLU(),
    }
    half = whole.chunk(2, 1)[1].detach().requires_grad_()
    y = layers[mode](half)
    (dx,) = torch.autograd.grad(y, half, torch.ones_like(y))
    for tensor in (y, dx):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
