"""`convref grade`: right solutions pass, wrong and hostile ones do not, and the grader survives."""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("psutil", reason="psutil is not installed")

import hostile_solutions as hostile  # noqa: E402

from convref import ConvrefError, UnsupportedError  # noqa: E402
from convref.grade import Limits, certify, grade, load  # noqa: E402
from convref.grade.certify import to_html, to_json  # noqa: E402
from convref.grade.sizes import BUDGET, Source, grading_sizes  # noqa: E402
from convref.grade.wire import WireError, pack, unpack  # noqa: E402

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "grade"
LIMITS = Limits(start=60.0, seconds=20.0, memory=2 << 30, files=64 << 20)  # CUDA libraries: 1.2 GiB
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="isolation is Linux's")


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(hostile.PROBLEM, "utf-8")
    return path


def graded(problem, source, **options):
    path = problem.with_name("solution.py")
    path.write_text(source, "utf-8")
    return grade("kernelbench", problem, path, seed=1, limits=LIMITS, **options)


def right():
    """Return the reference with its parameters in another order."""
    layer = "nn.Linear(n, n)\n        self.linear._parameters = dict("
    text = hostile.PROBLEM.replace("Model(", "ModelNew(")
    return text.replace("nn.Linear(n, n)", f"{layer}reversed(self.linear._parameters.items()))")


def test_a_right_solution_passes_forward_and_backward(problem):
    found = graded(problem, right(), backward=True)
    assert found.verdict == "pass", found
    assert found.power.missed == ()
    assert found.score == 1
    assert any(draw.data.endswith("backward") for draw in found.draws)
    assert json.loads(json.dumps(found.facts()))["verdict"] == "pass"


SOME = ("caches by pointer", "patches the judge", "kills the grader", "fills the disk")


@linux
@pytest.mark.parametrize("name", hostile.NAMES if NIGHTLY else SOME)
def test_no_hostile_solution_passes(problem, name):
    hangs = "sleeps" in name or "without end" in name
    limits = Limits(20.0, 2.0 if hangs else 20.0, LIMITS.memory, LIMITS.files)
    path = problem.with_name("solution.py")
    path.write_text(hostile.source(name), "utf-8")
    if name == "sleeps while loading":
        limits = Limits(8.0, 2.0)
    found = grade("kernelbench", problem, path, seed=1, limits=limits)
    assert found.verdict not in ("pass", "vacuous"), found
    assert found.score == 0
    assert found.reason
    assert "\n" not in found.reason


@linux
def test_the_process_of_a_solution_has_no_network_and_writes_in_its_folder_only(problem):
    outside = problem.with_name("outside")
    server = socket.create_server(("127.0.0.1", 0))
    body = f"""
tried = []
for attempt in (
    lambda: open({str(outside)!r}, "w"),
    lambda: os.unlink({str(problem)!r}),
    lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 2),
    lambda: open("/proc/{os.getpid()}/mem", "r+b"),
    lambda: os.kill({os.getpid()}, 0),
):
    try: attempt(); tried.append("done")
    except OSError as error: tried.append(type(error).__name__)
open("inside", "w").write("x")
raise RuntimeError("tried " + " ".join(tried))
"""
    with server:
        found = graded(problem, hostile.source("zeros").replace("import torch\n", body, 1))
    if any(text.startswith("no Landlock") or "can be" in text for text in found.isolation):
        pytest.skip(f"not on this kernel: {found.isolation}")
    assert "tried" in found.reason
    assert "done" not in found.reason, found.reason
    assert problem.exists()
    assert not outside.exists()


def test_bytes_are_read_without_executing_anything():
    tree = {"a": [torch.arange(6.0).reshape(2, 3), (None, True, 3, "x", float("inf"))]}
    tree["b"] = torch.zeros(0, 3, dtype=torch.bfloat16)
    again = unpack(pack(tree))
    assert torch.equal(again["a"][0], tree["a"][0])
    assert again["a"][1] == tree["a"][1]
    assert again["b"].shape == (0, 3)
    good = pack(tree)
    for bad in (b"", good[:-1], good + b"x", good[8:], b"\x02" + bytes(7) + b"{}", bytes(100)):
        with pytest.raises(WireError):
            unpack(bad)
    head = good[8:].replace(b"[0, 3]", b"[0, " + 30 * b"9" + b"]")
    with pytest.raises(WireError):
        unpack((head.rindex(b"}") + 1).to_bytes(8, "little") + head)
    with pytest.raises(WireError, match="needs tensors"):
        pack({"a": object()})


def test_sizes_are_reduced_as_far_as_the_reference_runs():
    text = "n = 4096\nm = n * 2\ndef make():\n    return [64 * 4, n, m]\nother = [7, 3.5]\n"
    source = Source(text, "p", ("make",))
    assert source.numbers == {4096, 256}
    assert source.run({4096: 30, 256: 9})["make"]() == [9, 30, 60]

    def build(names):
        columns, n, m = names["make"]()
        return (lambda x, w: x.reshape(-1, columns) @ w), (torch.ones(n, m), torch.ones(columns, 3))

    small, *others = grading_sizes(source, build)
    assert small[4096] ** 2 * 2 <= BUDGET
    assert small[4096] ** 2 * 2 % small[256] == 0
    assert others


def test_the_certificate_counts_what_the_own_rule_accepts(tmp_path):
    (tmp_path / "1_linear.py").write_text(hostile.PROBLEM, "utf-8")
    constant = hostile.PROBLEM.replace("torch.relu(self.linear(x))", "self.linear(x) * 0")
    (tmp_path / "2_constant.py").write_text(constant, "utf-8")
    random = hostile.PROBLEM.replace("torch.relu(", "nn.functional.dropout(")
    (tmp_path / "3_random.py").write_text(random, "utf-8")
    linear, constant, random = certify("kernelbench", tmp_path, arithmetic="mma32")
    assert len(linear.mutations) >= 4
    assert linear.judge == ()
    assert constant.vacuous
    assert "random" in random.refused
    assert json.loads(to_json([linear]))[0]["problem"] == "1_linear"
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    assert "2_constant <b>vacuous" in to_html([linear, constant, random], "t")


def test_bad_input_is_refused(tmp_path, problem, monkeypatch):
    with pytest.raises(ConvrefError, match="format is x, needs kernelbench, gpumode, "):
        load("x", problem)
    with pytest.raises(ConvrefError, match="is no file"):
        load("kernelbench", tmp_path / "missing.py")
    with pytest.raises(ConvrefError, match="device is 'gpu', needs cpu, cuda or like"):
        grade("kernelbench", problem, problem, device="gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="device is cuda:0, and torch finds no CUDA device"):
        grade("kernelbench", problem, problem, device="cuda:0")
    problem.write_text("x = 1", "utf-8")
    with pytest.raises(ConvrefError, match="has no Model, get_inputs"):
        load("kernelbench", problem)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("right", "pass"), ("wrong", "wrong"), ("cheating", "wrong")),
        *(("triton_right", "pass"), ("triton_wrong", "wrong")),
    ],
)
def test_the_example_is_graded(name, kind):
    if "triton" in name:
        pytest.importorskip("triton", reason="triton is not installed")
        if "convref.triton_devices" not in entry_points().groups:
            pytest.skip("the installed convref has no entry point of convref_ptx")
    found = grade("kernelbench", EXAMPLE / "problem.py", EXAMPLE / f"{name}.py")
    assert found.verdict == kind, found
