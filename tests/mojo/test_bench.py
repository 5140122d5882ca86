"""The benchmark's CPU arms: memory order, threads, and what is printed."""

import time

import pytest

from convref.case import Case, parse
from convref.conformance.operands import operands
from convref_bench import options, records
from convref_bench.suites import network, suite
from convref_bench.timing.cpu import CpuPlace
from convref_bench.timing.measure import Stop
from convref_mojo.backend import backend

QUICK = Stop(samples=2, noise=9.0, timeout_s=5.0)


def test_operands_have_the_memory_order_of_the_device():
    layer = suite.read("conv:nNc4k3_i5x5_f3x3 *1 first", "x")[0]
    for device, dense in (("cpu", 0), ("cpu-nhwc", 1)):
        call = layer.call("fprop", 2, layer.keys(*options.keys("f32", device=device)))
        x, w, b = operands(Case(call, fill="normal"))
        axis = 1 if dense else 3
        assert x.strides[axis] == w.strides[axis] == x.itemsize
        assert b.shape == (3,)


def test_mojo_is_timed_against_torch():
    pytest.importorskip("torch")
    layers = suite.read("conv:nNc4k8_i5x5_f3x3_p1:bias=0 *1 first", "x")
    place = CpuPlace(QUICK, 0.0)
    found = list(network.rows(layers, ["mojo", "torch"], place, keys=["mem=nhwc"]))
    assert [(one["what"], one["arm"]) for one in found] == [
        ("point", "mojo"),
        ("point", "torch"),
    ] * 3
    assert all(one["against"] == "torch" for one in found[::2])


def test_asymmetric_padding_is_timed_too():
    pytest.importorskip("torch")
    call = parse("conv.fprop:n1c2k2_i5x5_f3x3_p1,0:bias=0").call
    ready = CpuPlace(QUICK, 0.0).prepare(call, ["mojo", "torch"])
    assert set(ready.works) == {"mojo", "torch"}
    assert [len(work()) for work in ready.works.values()] == [1, 1]


def test_both_arms_use_the_requested_threads(monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    seen = []
    monkeypatch.setattr(suite, "load", lambda name, ops: ())
    monkeypatch.setattr(
        network, "rows", lambda *_: seen.append((backend.count, torch.get_num_threads())) or ()
    )
    before = torch.get_num_threads()
    assert network.run("x", backend="mojo,torch", threads=1, out=tmp_path / "x") == 0
    assert seen == [(1, 1)]
    assert (backend.count, torch.get_num_threads()) == (None, before)


def test_a_suite_is_timed_in_processor_time_and_a_wrong_result_refused(
    monkeypatch, capsys, tmp_path
):
    pytest.importorskip("torch")
    layers = suite.read("conv:nNc4k8_i5x5_f3x3_p1:bias=0 *1 first", "x")
    monkeypatch.setattr(suite, "load", lambda name, ops: layers)
    place_of, clocks = network.place_of, []

    def quick(device, threads):
        place = place_of(device, threads)
        clocks.append(place.device._clock)
        place.stop = QUICK
        return place

    monkeypatch.setattr(network, "place_of", quick)
    options = {"backend": "mojo,torch", "device": "cpu-nhwc", "dtype": "f64"}
    out = tmp_path / "x.jsonl"
    assert network.run("resnet50", threads=1, out=out, **options) == 0
    found, broken = records.read(out)
    assert ([r["what"] for r in found], broken) == (["point"] * 6, [])
    right = backend.run
    monkeypatch.setattr(
        type(backend),
        "run",
        lambda self, *given: tuple(None if a is None else a + 1 for a in right(*given)),
    )
    assert network.run("resnet50", out=out, **options) == 1
    assert capsys.readouterr().out.count("refused") == 3
    assert clocks == [time.thread_time, time.perf_counter]
