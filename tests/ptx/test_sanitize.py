"""`convref sanitize` and `pytest --ptx` on programs that were written for a GPU."""

import os

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
from convref.errors import ConvrefError
from convref_ptx.cli import by_cause, main
from convref_ptx.triton.device import LaunchFinding

PROGRAM = """
import torch, triton, triton.language as tl

@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, i < n), i < n PAST)

def main():
    for n in (100, 130):
        x = torch.ones(n, device="cuda")
        out = torch.empty_like(x)
        twice[(3,)](x, out, n, BLOCK=64)
        print(out.sum().item())

def test_twice():
    assert torch.cuda.is_available()
    x = torch.ones(100, device="cuda")
    out = torch.empty_like(x)
    twice[(2,)](x, out, 100, BLOCK=64)
    assert out.sum().item() == 200
"""

# What a program loads, torch._dynamo with its first operation under a mode.
PACKAGES = ("torch", "triton", "torch._dynamo", "convref_ptx.triton.device")


@pytest.fixture
def ran(tmp_path, forked):
    """Return a function that runs a module with the program in a process of its own."""

    def run(past, *words):
        (tmp_path / "test_program.py").write_text(PROGRAM.replace("PAST", past), "utf-8")
        own = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}  # PTX of a cache names old files
        return forked(PACKAGES, list(words), tmp_path, own, [str(tmp_path)])

    return run


def test_sanitize_prints_one_finding_for_all_launches_of_a_slip(ran, tmp_path):
    pytest.importorskip("jinja2")
    found = ran("+ 1", "convref_ptx.cli", "test_program:main", "--html", "page.html")
    assert found.returncode == 1, found.stderr
    first, second, last = found.stdout.splitlines()[-3:]
    assert first.startswith("1. twice[(3, 1, 1)](float32(100,), float32(100,), 100, 64): ")
    assert "4 bytes past the last of 400 bytes of out float32(100) (" in first
    assert "test_program.py:7, program (1, 0, 0), warp 1, lane 4)" in first
    assert second.strip() == "2 launches of twice"
    assert last == "2 launches, 2 with a finding"
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<h2>") == 1
    assert "4 bytes past the last of 400 bytes of out float32(100)" in page
    assert "<pre>tl.store(out + i, 2 * tl.load(x + i, i &lt; n), i &lt; n + 1)</pre>" in page
    assert ", and 1 more" in page


def test_sanitize_of_a_correct_program(ran):
    options = ("--arch", "sm_80", "--tensor-cores", "model")
    found = ran("", "convref_ptx.cli", "test_program:main", *options)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["200.0", "260.0", "2 launches, 0 with a finding"]


def test_a_program_that_raises_ends_with_its_findings_and_its_own_frames(ran):
    found = ran("+ 1", "convref_ptx.cli", "test_program:test_twice")
    assert found.returncode == 1
    assert found.stdout.splitlines()[-1] == "1 launch, 1 with a finding"
    first, place, *_, last = found.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert place.endswith("in test_twice")
    assert last == "AssertionError"


def test_a_script_has_its_own_folder_arguments_and_exit_status(ran, tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").write_text("STATUS = 5\n", "utf-8")
    script = "import sys, beside; print(sys.argv); sys.exit(beside.STATUS)"
    (tmp_path / "scripts" / "script.py").write_text(script, "utf-8")
    found = ran("", "convref_ptx.cli", "scripts/script.py")
    assert found.returncode == 5, found.stderr
    assert found.stdout.splitlines() == ["['scripts/script.py']", "0 launches, 0 with a finding"]


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        ((":main",), "program is ':main', needs MODULE:FUNCTION, FILE.py or FILE.json"),
        (("kernel.ptx",), "program is 'kernel.ptx', needs MODULE:FUNCTION, FILE.py or FILE.json"),
        (("a.json", "--writable", "x"), "--writable is for programs"),
    ],
)
def test_wrong_use_is_named(words, needs):
    with pytest.raises(ConvrefError, match=needs):
        main(list(words))


@pytest.mark.parametrize("jobs", ["0", "-2", "many"])
def test_jobs_are_a_positive_number(jobs, capsys):
    with pytest.raises(SystemExit):
        main(["a:b", f"--jobs={jobs}"])
    assert f"--jobs: is {jobs!r}, needs a positive integer" in capsys.readouterr().err


TMA = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd9]"
WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0"


def test_a_cause_is_a_kernel_an_instruction_and_a_kind_of_fault():
    """Opcodes with "::", one instruction with two faults, and launches of other sizes."""
    texts = (
        f"{TMA}: no tensor map of 2 axes there",
        f"{TMA.replace('2d', '3d')}: no tensor map of 3 axes there",
        f"{TMA}: race, asynchronous work still reads there",
        f"{WAIT}: outside of shared memory",
        *(f"ld.x [%r1]: outside of every allocation: 4 bytes past {n} bytes" for n in (40, 80)),
        "kernel: deadlock, all threads wait; bar.sync 0: warps [0]",
        "kernel: a warp waits at different barriers",
    )
    causes = by_cause(LaunchFinding("kernel", (1, 1, 1), ("4",), text) for text in texts)
    assert [cause.text for cause in causes] == [*texts[:5], *texts[6:]]
    assert [cause.launches for cause in causes] == [1, 1, 1, 1, 2, 1, 1]
    assert causes[0].call == "kernel[(1, 1, 1)](4)"


def test_pytest_option(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_right.py").write_text(PROGRAM.replace("PAST", ""), "utf-8")
    words = ("pytest", "-q", "-p", "convref_ptx.pytest_plugin", "-p", "no:cacheprovider")
    found = ran("+ 1", *words, "--ptx", "sm_90").stdout
    assert "past the last of 400 bytes of out" in found
    assert "FAILED test_program.py::test_twice" in found
    assert "1 failed, 1 passed" in found
