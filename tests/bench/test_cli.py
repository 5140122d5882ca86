"""The command line of the bench: commands, options, names of number types."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from convref.errors import ConvrefError
from convref_bench import cli, options, records
from convref_bench.suites import suite

ROOT = Path(__file__).resolve().parents[2]


def test_a_suite_as_first_word_means_run(monkeypatch):
    seen = []

    def run(suite_: str, *, batch: int = 1, pass_: str = "", out: Path | None = None):
        seen.append((suite_, batch, pass_, out))

    monkeypatch.setattr("convref_bench.suites.network.run", run)
    assert cli.main(["resnet50", "--batch", "2", "--pass", "dgrad"]) == 0
    assert cli.main(["run", "resnet50", "--out", "x"]) == 0
    assert seen == [("resnet50", 2, "dgrad", None), ("resnet50", 1, "", Path("x"))]


def test_without_a_command_the_marks_are_measured(monkeypatch):
    marks = pytest.importorskip("convref_bench.timing.marks", exc_type=ImportError)
    monkeypatch.setattr(marks, "MARKS", {})
    assert cli.main([]) == 0
    monkeypatch.setattr(marks, "main", lambda: 1)
    assert cli.main([]) == 1


def test_every_command_has_a_parser(capsys):
    pytest.importorskip("torch")
    for name in cli.COMMANDS | cli.MAINTAINERS:
        with pytest.raises(SystemExit, match="0"):
            cli.main([name, "--help"])
        assert f"usage: convref bench {name}" in capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    users, _, maintainers = text.partition("for maintainers:")
    assert all(f"  {name} " in users for name in cli.COMMANDS)
    assert all(f"  {name} " in maintainers for name in cli.MAINTAINERS)


def test_wrong_options_are_one_sentence():
    words = [sys.executable, "-m", "convref_bench", "gpu", "--nope"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "convref: bench gpu: unrecognized arguments: --nope\n"


def test_options_have_types_and_defaults():
    given = cli.parser("gpu", cli.load("gpu")).parse_args(["--seconds", "7"])
    assert (given.seconds, given.steps, given.out.name) == (7.0, None, "gpu")
    given = cli.parser("oracle", cli.load("oracle")).parse_args(["relu", "silu"])
    assert given.ops == ["relu", "silu"]


def test_convref_finds_the_bench_by_its_entry_point(tmp_path):
    pytest.importorskip("typer")
    path = os.pathsep.join(map(str, [tmp_path, ROOT, ROOT / "bench"]))
    env = os.environ | {"PYTHONPATH": path}
    subprocess.run([sys.executable, ROOT / "tools" / "dist_info.py", tmp_path], check=True)

    def convref(*words):
        command = [sys.executable, "-m", "convref", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert "resnet50: 23 shapes, 53 layers of conv" in convref("bench", "suites")
    assert "usage: convref bench run" in convref("bench", "run", "--help")
    assert "bench" in convref("--help")


def test_no_suite_has_the_name_of_a_command():
    assert not set(suite.names()) & (cli.COMMANDS | cli.MAINTAINERS).keys()


@pytest.mark.parametrize(
    ("dtype", "math", "device", "keys"),
    [
        ("bf16", "ieee", "cpu", "dt=bf16"),
        ("f16", "ieee", "cuda", "dt=f16:mem=nhwc:dev=cuda"),
        ("half", "ieee", "cpu", "dt=f16"),
        ("f32", "tf32", "cuda", "math=tf32:mem=nhwc:dev=cuda"),
        ("fp32", "ieee", "cuda", "mem=nhwc:dev=cuda"),
        ("f32", "ieee", "cpu", ""),
        ("fp64", "ieee", "cpu", "dt=f64"),
    ],
)
def test_number_types_and_math_are_those_of_lines(dtype, math, device, keys):
    assert options.keys(dtype, math, device) == (keys,)
    for name in ("resnet50", "wavenet", "unet3d"):
        layer = suite.load(name)[0]
        line = str(layer.call("dgrad", 2, layer.keys(keys)))
        assert ("mem=" in line) == (device == "cuda" and layer.problem(1).rank == 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resnet51"], "suite: 'resnet51' is unknown"),
        (["resnet50", "--dtype", "fp8"], "--dtype is 'fp8', needs one of bf16, f16"),
        (["resnet50", "--dtype", "f16,tf32"], "--dtype is 'tf32', needs f32 with --math tf32"),
        (["resnet50", "--dtype", "f16", "--math", "tf32"], "--math is 'tf32', needs --dtype f32"),
        (["resnet50", "--math", "fast"], "--math is 'fast', needs one of ieee"),
        (["resnet50", "--pass", "jvp"], "--pass is 'jvp', needs one of fprop"),
        (["resnet50", "--device", "tpu"], "--device is 'tpu', needs one of cpu, cuda"),
        (["resnet50", "--backend", "x"], "'x' is unknown"),
    ],
)
def test_unknown_words_are_named_in_the_message(words, says):
    with pytest.raises(ConvrefError, match=re.escape(says)):
        cli.main(words)


def test_cuda_without_a_card_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConvrefError, match="--device is 'cuda', needs one that torch sees"):
        cli.main(["resnet50", "--backend", "torch", "--device", "cuda"])


def test_run_prints_and_records_each_row_and_prints_means(monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    from convref_bench.suites import network
    from convref_bench.timing import cpu
    from convref_bench.timing.measure import Stop

    layers = suite.read("conv:nNc2k3_i5x5_f3x3:bias=0 *2 first", "x")
    monkeypatch.setattr(suite, "load", lambda name, ops: layers)
    quick = cpu.CpuPlace(Stop(samples=2, noise=9.0, timeout_s=5.0), 0.0)
    monkeypatch.setattr(network, "place_of", lambda device, threads: quick)
    out = tmp_path / "x.jsonl"
    words = ["x", "--pass", "fprop", "--dtype", "f64,f32", "--math", "tf32"]
    assert cli.main([*words, "--backend", "numpy,torch", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "conv.fprop:n1c2k3_i5x5_f3x3:bias=0:dt=f64" in text
    assert "reference / arm" in text
    rows, _ = records.read(out)
    assert {row["suite"] for row in rows} == {"x"}
    assert {row["arm"] for row in rows if row["what"] == "point"} == {"numpy", "torch"}
