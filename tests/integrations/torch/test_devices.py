"""Training and inference on the CPU and, where there is one, on a GPU: every call judged."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref.errors import ConvrefError  # noqa: E402
from convref.integrations.torch import convert, explain, fuse, nn  # noqa: E402
from convref.integrations.torch.recording import Calls  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
)
NIGHTLY = pytest.mark.nightly(reason="half a minute")
CUDA = pytest.param("cuda", marks=GPU)
DEVICES = ["cpu", CUDA]
on_a_gpu = pytest.mark.parametrize("device", [CUDA])


class Net(torch.nn.Module):
    """A few layers of each family, written with torch.nn."""

    def __init__(self):
        super().__init__()
        T = torch.nn
        self.body = T.Sequential(
            *(T.Conv2d(3, 16, 3, 2, 1, bias=False), T.BatchNorm2d(16), T.SiLU()),
            T.MaxPool2d(3, 2, 1),
            *(T.Conv2d(16, 16, 3, padding=1, groups=16), T.BatchNorm2d(16), T.Hardswish()),
            *(T.Conv2d(16, 32, 1), T.BatchNorm2d(32), T.ReLU(inplace=True)),
            *(T.ConvTranspose2d(32, 8, 2, 2), T.GroupNorm(2, 8), T.Upsample(scale_factor=2)),
            *(T.AdaptiveAvgPool2d(1), T.Flatten()),
        )
        self.head = T.Linear(8, 5)

    def forward(self, x):
        return self.head(self.body(x))


def network(device, backend=None):
    torch.manual_seed(0)
    model = Net().to(device, memory_format=torch.channels_last)
    convert(model, backend)
    return model


def batch(device, n=4, size=32):
    made = torch.Generator().manual_seed(n)
    x = torch.randn(n, 3, size, size, generator=made)
    return x.to(device).to(memory_format=torch.channels_last)


def trained(model, x, dtype):
    """Make one step under autocast; return the loss."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    device = x.device.type
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        y = model(x)
    loss = sum(one.float().square().mean() for one in (y if isinstance(y, list) else [y]))
    loss.backward()
    optimizer.step()
    return loss


def assert_all_right(calls):
    wrong = [(str(one.call), one.backend, one.verdict()) for one in calls.seen]
    assert not [row for row in wrong if not row[2]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_step_of_training_is_right_call_by_call(device, dtype):
    model = network(device)
    with Calls() as calls:
        loss = trained(model, batch(device), dtype)
    assert loss.isfinite()
    assert {one.call.pass_ for one in calls.seen} == {"fprop", "backward"}
    assert_all_right(calls)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=NIGHTLY), CUDA])
def test_a_step_of_yolo11n_in_bf16_channels_last(device, monkeypatch):
    if not (EXAMPLES / "yolo11n.py").exists():
        pytest.skip("docs/examples is not there: it is no part of an installed package")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    model = importlib.import_module("yolo11n").YOLO11n(classes=4)
    sys.modules.pop("yolo11n")
    report = convert(model.to(device, memory_format=torch.channels_last))
    kinds = {row.layer for row in report.changed}
    assert {"Conv2d", "BatchNorm2d", "SiLU", "MaxPool2d"} <= kinds
    seen = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda m, inputs, y: seen.append((inputs[0], y)))
    x = batch(device, 1, 64)
    with Calls() as calls:
        loss = trained(model, x, torch.bfloat16)
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert all(y.dtype == torch.bfloat16 for _, y in seen)
    last = [(x.stride(1) == 1, y.is_contiguous(memory_format=torch.channels_last)) for x, y in seen]
    assert all(y for x, y in last if x)
    assert sum(x for x, _ in last) > len(last) - 4  # attention reshapes to N, C, H, W
    assert len(calls.seen) > 400
    assert_all_right(calls)


@pytest.mark.parametrize("device", DEVICES)
def test_fused_for_evaluation(device):
    model = network(device).eval()
    with torch.no_grad():
        wanted = model(batch(device))
        assert len(fuse(model).changed) == 3
        with Calls() as calls:
            found = model(batch(device))
    assert_all_right(calls)
    assert found.shape == wanted.shape
    assert {one.call.op for one in calls.seen}.isdisjoint({"batch_norm", "batch_norm_eval"})


@pytest.mark.parametrize("device", DEVICES)
def test_explain_gives_a_reason_for_every_layer(device):
    rows = explain(network(device), batch(device), verbose=False)
    assert {row.backend for row in rows if row.line} <= {"torch", "triton"}
    assert all(row.why for row in rows)


# torch 2.11 imports a module of its own, where it compiles for a GPU, that uses what it deprecates
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_whole(device):
    torch.compiler.reset()
    # On the CPU auto calls PyTorch's own functions, but not while it compiles.
    model = network(device, "torch" if device == "cpu" else None)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (2, 3):
        with torch._dynamo.config.patch(error_on_recompile=n > 2), torch.no_grad():
            assert torch.equal(compiled.eval()(batch(device, n)), model.eval()(batch(device, n)))
    torch.compiler.reset()


@on_a_gpu
@pytest.mark.parametrize("fused", [False, True])
def test_captured_in_a_graph(device, fused):
    model = network(device).eval()
    if fused:
        fuse(model)
    image = batch(device)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(image)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = model(image)
        image.neg_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, model(image))


@on_a_gpu
def test_a_thousand_steps_keep_no_memory(device):
    model, x = network(device), batch(device)
    for _ in range(20):
        trained(model, x, torch.float32)
    before = torch.cuda.memory_allocated()
    for _ in range(1_000):
        trained(model, x, torch.float32)
    assert torch.cuda.memory_allocated() <= before


@on_a_gpu
def test_four_threads_with_streams_of_their_own(device):
    model, x = network(device).eval(), batch(device)
    with torch.no_grad():
        wanted = model(x)
    torch.cuda.synchronize()
    found = {}

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(5):
                found[i] = model(x)
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]
    assert all(torch.equal(y, wanted) for y in found.values())


@on_a_gpu
def test_operands_on_two_devices_are_refused(device):
    layer = nn.Conv2d(3, 4, 3)
    with pytest.raises(ConvrefError, match="weight has device cpu, needs cuda"):
        layer(batch(device))


@on_a_gpu
def test_scaled_gradients_in_half_precision(device):
    model, x = network(device), batch(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler(device)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16):
            loss = nn.CrossEntropyLoss()(model(x), torch.arange(4, device=device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert loss.isfinite()
    assert all(p.isfinite().all() for p in model.parameters())
