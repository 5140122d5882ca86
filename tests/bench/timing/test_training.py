"""The benches of PyTorch's side, on small images: an arm that is wrong is not timed."""

import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref_bench import records  # noqa: E402
from convref_bench.gpu import runner as gpu  # noqa: E402
from convref_bench.gpu import steps  # noqa: E402
from convref_bench.timing import call_cost, converted, training  # noqa: E402
from convref_bench.timing.cpu import Cpu  # noqa: E402
from convref_bench.timing.measure import Stop  # noqa: E402

SETTING = training.Setting("cpu", torch.float32, size=32, batch=2)
QUICK = Stop(samples=2, noise=1.0, timeout_s=5.0)

OFF = """
from convref.backends.numpy import backend as right

class Off:
    name = "off"
    supports, numerics, fingerprint = right.supports, right.numerics, right.fingerprint

    def run(self, call, *operands):
        found = right.run(call, *operands)
        wrong = (call.op, call.pass_) == ("conv", "fprop")
        return tuple(r * 1.25 for r in found) if wrong else found

backend = Off()
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(training, "JUDGED", 32)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_arms_are_judged_timed_and_compared(tmp_path, monkeypatch):
    (tmp_path / "off.py").write_text(OFF)
    monkeypatch.syspath_prepend(str(tmp_path))
    arms = ("torch", "off:backend", "nowhere")
    found = {r["arm"]: r for r in training.rows(Cpu(0.0), SETTING, arms, QUICK)}
    for row in found.values():
        records.append(tmp_path / "x", row)
    assert list(found) == ["off:backend", "nowhere", "torch.nn", "torch"]
    assert "conv.fprop:n2c3k16_i32x32_f3x3_s2_p1" in found["off:backend"]["refused"]
    assert "nowhere" in found["nowhere"]["absent"]
    assert found["torch.nn"]["ratio"] == 1
    assert found["torch"]["images_s"] > 0
    assert {row["size"] for row in found.values()} == {32}
    sys.modules.pop("off")


def test_step_is_absent_without_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "EXAMPLES", tmp_path)
    assert steps.main("training", tmp_path / "x", 5, "") == gpu.ABSENT


def test_call_cost_measures_both_sides():
    found = call_cost.measured(call_cost.Stop(samples=1, noise=float("inf")))
    assert {"conv2d, alone", "conv2d, recorded", "conv2d, forward and backward"} <= set(found)
    for best in found.values():
        assert set(best) == {"convref", "torch"}
        assert all(0 < us < float("inf") for us in best.values())


def test_converted_networks_are_timed_in_turns(capsys, monkeypatch):
    converted.main(network="unet", size=8, batch=2, seconds=0.0)
    found = capsys.readouterr().out
    assert found.count("unet") == 2
    assert "inference" in found
    assert "training" in found
    with pytest.raises(ValueError, match="network is 'vgg', needs one of"):
        converted.main(network="vgg")
    order = []
    took = [*converted.pairs((lambda: order.append("a"), lambda: order.append("b")), 0.0)]
    assert len(took) == 1
    assert order == ["a", "b"]
    monkeypatch.setattr("convref.integrations.torch.convert", lambda model: model[-1].double())
    monkeypatch.setattr(converted, "network", lambda name: lambda: torch.nn.Sequential(Off()))
    with pytest.raises(ValueError, match="computes other results"):
        converted.main(network="unet", size=8, seconds=0.0)


class Off(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x

    def double(self):
        self.scale.data *= 2
