"""The court on another device: operands are copied there, a lost device ends the worker."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref import dispatch  # noqa: E402
from convref.case import parse  # noqa: E402
from convref.cli.commands import app  # noqa: E402
from convref.conformance import campaign  # noqa: E402
from convref.conformance.campaign import Settings  # noqa: E402
from convref.conformance.causes import run_lines  # noqa: E402
from convref.conformance.examine import examine  # noqa: E402
from convref.conformance.generate import Axes, chunk_cases  # noqa: E402
from convref.conformance.reject import examine_rejection  # noqa: E402
from convref.conformance.workers import device  # noqa: E402
from convref.conformance.workers.device import OnDevice  # noqa: E402
from convref.conformance.workers.engine import Engine  # noqa: E402

GOOD = "conv.fprop:n1c2k3_i8x8_f3x3_p1:dev=cuda"
BAD = "conv.fprop:n1c2k3_i8x8_f3x3_s3_p1:dev=cuda"
LINES = [GOOD, BAD, f"{GOOD}:seed=1"]

# Backends of CUDA tensors, and a device that is the CPU under another name.
CARD = """
import multiprocessing
import torch
from convref.arrays import to_numpy
from convref.backends import Arm
from convref.backends.numpy import NumpyBackend

if multiprocessing.parent_process():
    full = torch.full
    torch.full = lambda *given, device, **named: full(*given, **named)
    torch.cuda.is_available = lambda: True
    torch.cuda.mem_get_info = lambda: (1 << 40, 1 << 40)
    torch.cuda.synchronize = lambda: None

class Right(NumpyBackend):
    arms = (Arm(), Arm("threads", (("OMP_NUM_THREADS", "3"),)))
    def supports(self, call):
        return None if call.specs[0].device == "cuda" else "needs a CUDA device"
    def run(self, call, *operands):
        given = (None if one is None else to_numpy(one) for one in operands)
        found = super().run(call.on("cpu"), *given)
        return tuple(None if one is None else torch.tensor(one) for one in found)

class Off(Right):
    def run(self, call, *operands):
        y, = super().run(call, *operands)
        return y + (3 in call.problem.stride),

class Lost(Right):
    def run(self, call, *operands):
        if 3 in call.problem.stride:
            def synchronize():
                raise RuntimeError("an illegal memory access was encountered")
            torch.cuda.synchronize = synchronize
        return super().run(call, *operands)

right, off, lost = Right(), Off(), Lost()
"""


@pytest.fixture
def card(tmp_path, monkeypatch):
    (tmp_path / "kernels_of_a_card.py").write_text(CARD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return "kernels_of_a_card"


def check(*arguments):
    result = CliRunner().invoke(app, ["check", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    text = str(result.exception) if result.exception else ""
    return result.exit_code, re.sub(r"\x1b\[[0-9;]*m", "", result.output) + text


def test_operands_keep_their_strides_with_nan_around():
    seen = []
    inner = dispatch.load("torch")

    class Looks:
        name, supports, numerics = "looks", inner.supports, inner.numerics

        def run(self, call, *operands):
            seen.extend(one for one in operands if one is not None)
            return inner.run(call, *operands)

    case = parse("conv.fprop:n2c3k4_i5x5_f3x3:bias=0:mem=x.nhwc.step2w:seed=3:dev=cuda")
    assert examine(case, OnDevice(Looks(), "cpu")).verdict == "pass"
    x = seen[0]
    assert x.stride() == (5 * 2 * 5 * 3, 1, 2 * 5 * 3, 2 * 3)
    around = x.as_strided((x.storage_offset() + 4,), (1,), 0)
    assert around[: x.storage_offset()].isnan().all()
    assert around[x.storage_offset() + 3].isnan()


@pytest.mark.parametrize(
    "line",
    ["conv.backward:n2c3k4_i5x5_f3x3:mem=dy.expandn,w.step-2h", "max_pool.backward:n1c2_i4_f2_s2"],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_a_backend_computes_there_what_it_does_here(line, dtype):
    case = parse(f"{line}:dt={dtype}:dev=cuda")
    assert examine(case, OnDevice(dispatch.load("torch"), "cpu"), repeat=True).verdict == "pass"


def test_a_changed_operand_is_found_on_the_device():
    inner = dispatch.load("torch")

    class Writes:
        name, supports, numerics = "writes", inner.supports, inner.numerics

        def run(self, call, *operands):
            found = inner.run(call, *operands)
            operands[1].zero_()
            return found

    case = parse("conv.fprop:n1c2k2_i4_f3:mem=x.step2w")
    found = examine(case, OnDevice(Writes(), "cpu"))
    assert (found.verdict, found.reason) == ("changed-input", "w or memory around it changed")


def test_a_backend_that_dispatch_checks_gets_no_invalid_operands():
    class Checked:
        name, checked_by_dispatch, serial = "checked", True, True

        def run(self, call, *operands):
            return operands  # of any size

    backend = OnDevice(Checked(), "cpu")
    assert examine_rejection(parse("conv.fprop:n1c2k1_i1_f1"), backend) is None
    assert backend.serial


def test_operands_that_the_device_cannot_hold_are_unsupported(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    call = parse("conv.fprop:n1c1k1_i3_f2:mem=x.step1000000000w:dev=cuda").call
    found = []
    for memory in (1 << 30, 80 << 30):
        monkeypatch.setattr(device, "memory_of_device", lambda memory=memory: memory)
        found.append(OnDevice(dispatch.load("torch")).supports(call))
    assert found == ["operands span 7.5 GiB, the device has 1.0 GiB", None]


@pytest.mark.parametrize("lost", [False, True])
def test_a_lost_device_ends_the_process(monkeypatch, capsys, lost):
    class Fails:
        name = "fails"

        def run(self, call, *operands):
            raise RuntimeError("cuLaunchKernelEx: an illegal memory access was encountered")

    def exits(status):
        raise SystemExit(status)

    monkeypatch.setattr(device.os, "_exit", exits)
    monkeypatch.setattr(device, "is_lost", lambda settle: lost)
    call = parse("conv.fprop:n1c1k1_i3_f2:bias=0").call
    with pytest.raises(SystemExit if lost else RuntimeError):
        OnDevice(Fails(), "cpu").run(call, *np.ones((2, 1, 1, 3), "f"))
    assert ("illegal memory access" in capsys.readouterr().err) == lost


def test_results_that_are_not_tensors_are_left_to_the_court():
    class Texts:
        name = "texts"

        def run(self, call, *operands):
            return "y"

    call = parse("conv.fprop:n1c1k1_i3_f2:bias=0").call
    assert OnDevice(Texts(), "cpu").run(call, *np.ones((2, 1, 1, 3), "f")) == "y"


def test_a_campaign_is_drawn_on_its_device():
    here, there = (chunk_cases(Axes(size=5, device=where), 0) for where in ("cpu", "cuda"))
    assert [case.on("cuda") for case in here] == there
    assert all(":dev=cuda" in str(case) for case in there)


def test_a_lost_device_costs_one_example(card):
    with Engine(f"{card}:lost") as engine:
        findings = run_lines(engine, LINES)
    assert [(found.line, found.verdict) for found in findings] == [(BAD, "crash")]
    reason = "exit status 70; it wrote: RuntimeError: an illegal memory access was encountered"
    assert findings[0].reason == reason


def test_calls_on_the_cpu_are_not_copied():
    class Returns:
        name = "returns"

        def run(self, call, *operands):
            return operands

    x = np.ones((1, 1, 3), "f")
    assert OnDevice(Returns()).run(parse("conv.fprop:n1c1k1_i3_f2").call, x)[0] is x


def test_check_on_a_device_prints_lines_that_repeat(card):
    arguments = "--device", "cuda", "--examples", "40", "--pass", "fprop", "--dtype", "f32"
    status, output = check(f"{card}:right", *arguments)
    assert status == 0, output
    status, output = check(f"{card}:off", *arguments)
    assert status == 1
    assert re.search(rf"convref run 'conv.fprop:.*:dev=cuda.*' --backend {card}:off", output)


def test_a_file_is_replayed_on_a_device(card, tmp_path):
    (tmp_path / "lines").write_text(2 * f"{BAD.removesuffix(':dev=cuda')}\n")
    status, output = check(
        f"{card}:off", "--device", "cuda", "--replay", str(tmp_path / "lines"), "--no-shrink"
    )
    assert (status, output.count(BAD)) == (1, 1)


@pytest.mark.parametrize("named", [(), ("threads",)])
def test_arms_are_for_the_cpu_unless_one_is_named(card, named):
    axes = Axes(passes=("fprop",), size=5, arms=named, device="cuda")
    settings = Settings(f"{card}:right", axes, examples=50, shrinks=False)
    assert set(campaign.run(settings).tally.arms) == set(named or ("plain",))


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda", "check: --device is cuda, but torch finds no CUDA device"),
        ("gpu", "check: --device is gpu, needs one of cpu, cuda"),
    ],
)
def test_a_device_that_is_not_there_is_one_sentence(monkeypatch, device, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check("torch", "--device", device)[1] == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("name", ["torch", "triton"])
def test_a_gpu_is_checked_from_the_command_line(name):
    pytest.importorskip(name)
    arguments = "--device", "cuda", "--examples", "200", "--seconds", "60", "--pass", "fprop"
    status, output = check(name, *arguments, "--no-fail", "--no-shrink")
    assert status == 0, output
    assert "conv.fprop" in output
