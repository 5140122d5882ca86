"""The command line of the bench: a suite as its first word, the names people give to types."""

import re

import pytest

from convref.errors import ConvrefError
from convref_bench import __main__ as bench
from convref_bench import options, records
from convref_bench.suites import suite

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")


def invoke(*words):
    from convref_bench.cli import app

    return testing.CliRunner().invoke(app, list(words))


@pytest.fixture
def seen(monkeypatch):
    found = []
    monkeypatch.setattr("convref_bench.suites.network.run", lambda *given: found.append(given) or 0)
    return found


WORDS = ["resnet50", "--backend", "triton,torch", "--pass", "fprop,dgrad,wgrad"]
WORDS += ["--dtype", "bf16,fp16,tf32,fp32", "--device", "cuda"]


def test_a_suite_is_the_argument_of_bench_itself(seen):
    assert invoke(*WORDS).exit_code == 0
    assert invoke("run", *WORDS).exit_code == 0
    assert bench.main(WORDS) == 0
    want = ("resnet50", "triton,torch", "fprop,dgrad,wgrad", "bf16,fp16,tf32,fp32", "cuda", 1)
    assert [given[:6] for given in seen] == [want] * 3
    assert {given[6].name for given in seen} == {"network.jsonl"}


def test_it_is_so_below_convref_too(seen):
    from convref.commands import app

    assert testing.CliRunner().invoke(app, ["bench", *WORDS]).exit_code == 0
    assert seen[0][0] == "resnet50"


def test_the_other_commands_stay(seen):
    listed = invoke("suites")
    assert listed.exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", invoke("--help").output)
    for name in ("suites", "compare", "report", "tune", "regret", "fit", "keep", "cpu", "gpu"):
        assert name in text
    assert seen == []


def test_no_suite_is_called_like_a_command():
    assert not set(suite.names()) & set(bench.COMMANDS)


@pytest.mark.parametrize(
    ("dtype", "device", "keys"),
    [
        ("bf16", "cpu", "dt=bf16"),
        ("fp16", "cuda", "dt=f16:mem=nhwc:dev=cuda"),
        ("half", "cpu", "dt=f16"),
        ("tf32", "cuda", "math=tf32:mem=nhwc:dev=cuda"),
        ("fp32", "cuda", "mem=nhwc:dev=cuda"),
        ("f32", "cpu", ""),
        ("fp64", "cpu", "dt=f64"),
    ],
)
def test_types_have_the_names_people_use(dtype, device, keys):
    assert options.keys(dtype, device) == keys
    for name in ("resnet50", "wavenet", "unet3d"):
        layer = suite.load(name)[0]
        line = str(layer.call("dgrad", 2, layer.keys(keys)))
        assert ("mem=" in line) == (device == "cuda" and layer.problem(1).rank == 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resnet51"], "suite: 'resnet51' is unknown"),
        (["resnet50", "--dtype", "fp8"], "--dtype is 'fp8', needs one of bf16, fp16"),
        (["resnet50", "--pass", "jvp"], "--pass is 'jvp', needs one of fprop"),
        (["resnet50", "--device", "tpu"], "--device is 'tpu', needs one of cpu, cuda"),
        (["resnet50", "--backend", "x"], "'x' is unknown"),
    ],
)
def test_what_is_unknown_is_named(words, says):
    with pytest.raises(ConvrefError, match=re.escape(says)):
        bench.main(words)


def test_cuda_without_a_card_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConvrefError, match="--device is 'cuda', needs one that torch sees"):
        bench.main(["resnet50", "--backend", "torch", "--device", "cuda"])


def test_a_run_is_printed_recorded_and_summed_up(monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    from convref_bench.suites import network
    from convref_bench.timing.measure import Stop

    layers = suite.read("conv:nNc2k3_i5x5_f3x3:bias=0 *2 first", "x")
    monkeypatch.setattr(suite, "load", lambda name, ops: layers)
    quick = network.CpuPlace(Stop(samples=2, noise=9.0, timeout_s=5.0), 0.0)
    monkeypatch.setattr(network, "place_of", lambda device: quick)
    out = tmp_path / "x.jsonl"
    words = ["x", "--pass", "fprop", "--dtype", "fp64,tf32", "--backend", "numpy,torch"]
    assert bench.main([*words, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "conv.fprop:n1c2k3_i5x5_f3x3:bias=0:dt=f64" in text
    assert "reference / arm" in text
    rows, _ = records.read(out)
    assert {row["suite"] for row in rows} == {"x"}
    assert {row["arm"] for row in rows if row["what"] == "point"} == {"numpy", "torch"}
