"""The GPU programme rehearsed without a GPU: steps are scripts, or real children of this Python."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from convref.errors import ConvrefError
from convref_bench import records
from convref_bench.gpu import runner as gpu
from convref_bench.gpu.runner import PARTIAL, Runner, Step

PAGES = Path(__file__).resolve().parents[3] / "docs"


class Rehearsal:
    """Steps whose outcome is given; each takes ten seconds of a clock that only it moves."""

    def __init__(self, **outcomes):
        self.outcomes, self.wall, self.launched, self.keys = outcomes, 0.0, [], []

    def now(self):
        return self.wall

    def launch(self, step, limit_s, out, log, key):
        self.launched.append((step.name, limit_s))
        self.wall += min(10.0, limit_s)
        records.append(out, {"what": "point", "line": step.name})
        log.touch()
        return self.outcomes[step.name], f"last line of {step.name}"

    def run(self, folder, steps=None, seconds=540.0, key="card", **more):
        steps = steps or tuple(Step(name, 60) for name in self.outcomes)
        runner = Runner(
            folder,
            seconds,
            steps,
            self.launch,
            self.now,
            say=lambda text: None,
            key=lambda step: key,
            **more,
        )
        return runner.run()


def rows(folder, what="step"):
    return [row for row in records.read(folder / "gpu.jsonl")[0] if row["what"] == what]


def test_a_second_run_continues(tmp_path):
    first = Rehearsal(a=0, b=PARTIAL, c=0)
    assert first.run(tmp_path) == {"a": "done", "b": "partial", "c": "done"}
    second = Rehearsal(a=0, b=0, c=0)
    assert second.run(tmp_path) == {"a": "before", "b": "done", "c": "before"}
    assert [name for name, _ in second.launched] == ["b"]


def test_another_key_starts_again(tmp_path):
    Rehearsal(a=0).run(tmp_path)
    assert Rehearsal(a=0).run(tmp_path, key="other") == {"a": "done"}


def test_a_failed_step_does_not_stop_others_and_comes_last_next_time(tmp_path):
    assert Rehearsal(a=1, b=0).run(tmp_path) == {"a": "failed", "b": "done"}
    assert rows(tmp_path)[0]["why"] == "exit 1: last line of a"
    again = Rehearsal(a=None, b=0, c=0)
    again.run(tmp_path)
    assert [name for name, _ in again.launched] == ["c", "a"]
    assert Rehearsal(a=0, b=0, c=0).run(tmp_path)["a"] == "given up"


def test_the_budget_ends_the_run_without_failing_the_step(tmp_path):
    run = Rehearsal(a=0, b=None, c=0)
    found = run.run(tmp_path, seconds=10 + 5 + gpu.RESERVE_S)
    assert found == {"a": "done", "b": "partial", "c": "no time left"}
    assert run.launched == [("a", 15.0), ("b", 5.0)]


def test_a_step_that_hangs_within_the_budget_timed_out(tmp_path):
    assert Rehearsal(a=None).run(tmp_path) == {"a": "timeout"}


def test_steps_without_a_turn_come_before_partial_ones_and_after_first_ones(tmp_path):
    steps = (Step("first", 60, first=True), *(Step(name, 60) for name in "abc"))
    cut = Rehearsal(first=PARTIAL, a=PARTIAL, b=PARTIAL, c=0)
    seconds = 25 + gpu.RESERVE_S
    assert cut.run(tmp_path, steps, seconds)["c"] == "no time left"
    cut.run(tmp_path, steps, seconds)
    names = [name for name, _ in cut.launched]
    assert names == ["first", "a", "b", "first", "c", "a"]
    cut.launched.clear()
    cut.run(tmp_path, steps, seconds)
    assert [name for name, _ in cut.launched] == ["first", "b", "a"]


def test_a_step_that_lost_the_device_is_launched_again_while_there_is_time(tmp_path):
    outcomes = iter([gpu.LOST, gpu.LOST, 0])

    class Losing(Rehearsal):
        def launch(self, step, *given):
            self.outcomes[step.name] = next(outcomes, gpu.LOST)
            return super().launch(step, *given)

    run = Losing(a=None)
    assert run.run(tmp_path) == {"a": "done"}
    assert run.launched == [("a", 60.0), ("a", 50.0), ("a", 40.0)]
    assert rows(tmp_path)[0]["took_s"] == 30
    assert run.run(tmp_path, key="other") == {"a": "failed"}  # nothing else comes any more
    assert run.launched[-1] == ("a", 60.0 - 50)


def test_absent_steps_have_a_reason_and_are_tried_again(tmp_path):
    steps = (Step("a", 60, lambda: "no kernel"), Step("b", 60))
    assert Rehearsal(a=0, b=0).run(tmp_path, steps) == {"a": "absent: no kernel", "b": "done"}
    assert rows(tmp_path)[0] == {
        "what": "step",
        "step": "a",
        "status": "absent",
        "why": "no kernel",
        "key": "card",
    }
    assert Rehearsal(a=0, b=0).run(tmp_path)["a"] == "done"


def test_corrupted_lines_are_reported_and_the_others_kept(tmp_path):
    Rehearsal(a=0, b=0).run(tmp_path)
    file = tmp_path / "gpu.jsonl"
    file.write_bytes(b'{"what": "poi\n[1]\n\xff\xfe\n' + file.read_bytes() + b'{"what":"step","st')
    said = []
    run = Rehearsal(a=0, b=0, c=0)
    steps = tuple(Step(name, 60) for name in "abc")
    key = {"key": lambda step: "card"}
    found = Runner(tmp_path, 540, steps, run.launch, run.now, say=said.append, **key).run()
    assert found == {"a": "before", "b": "before", "c": "done"}
    assert "lines [1, 2, 3, 8] are not JSON" in said[0]
    assert [row["line"] for row in rows(tmp_path, "point")] == ["a", "b", "c"]


def test_everything_is_copied_to_out_after_each_step(tmp_path):
    Rehearsal(a=0).run(tmp_path / "here", copy_to=tmp_path / "out")
    for name in ("gpu.jsonl", "gpu.log"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_child_is_killed_with_its_children_at_the_limit(tmp_path):
    pid = tmp_path / "pid"
    grandchild = f"echo $$ >{pid}; exec sleep 60"  # a shell starts in milliseconds
    start = time.monotonic()
    child = f"sh -c {shlex.quote(grandchild)}; true"
    found = gpu.launch_command(["sh", "-c", child], 2.0, tmp_path / "log")
    assert found == (None, "")
    assert time.monotonic() - start < 50
    for _ in range(1000):
        status = subprocess.run(["ps", "-o", "stat=", "-p", pid.read_text()], capture_output=True)
        if not status.stdout.strip() or status.stdout.strip().startswith(b"Z"):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the grandchild outlived its step")


def test_the_output_of_a_child_is_logged_and_its_last_line_returned(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    script = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(4)"
    assert gpu.launch_command([sys.executable, "-c", script], 600, log)[0] == 4
    assert gpu.launch_command([sys.executable, "-c", "pass"], 600, log) == (0, "")
    assert set(log.read_text().split()) == {"before", "one", "two"}


WRITER = """
import sys
from pathlib import Path
from convref_bench import records
for i in range(10**6):
    records.append(Path(sys.argv[1]), {"what": "point", "i": i, "pad": "x" * 2000})
    print(i, flush=True)
"""


def test_records_of_a_killed_process_are_kept(tmp_path):
    out = tmp_path / "gpu.jsonl"
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(out)], stdout=subprocess.PIPE)
    said = [int(child.stdout.readline()) for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()
    with out.open("ab") as file:
        file.write(b'{"what": "point", "i": ')  # what a machine that dies leaves behind
    records.append(out, {"what": "after"})
    found, broken = records.read(out)
    assert [row["i"] for row in found[:-1]][: len(said)] == said
    assert found[-1] == {"what": "after"}
    assert len(broken) == 1


def test_a_record_that_is_not_json_is_refused_before_it_is_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        records.append(tmp_path / "x", {"value": float("nan")})
    assert not (tmp_path / "x").exists()
    records.append(tmp_path / "x", {"value": 1})
    assert json.loads((tmp_path / "x").read_text()) == {"value": 1}


def test_a_step_with_nothing_to_do_is_absent_with_the_reason(tmp_path):
    assert Rehearsal(a=gpu.ABSENT).run(tmp_path) == {"a": "absent: last line of a"}
    assert rows(tmp_path)[0]["why"] == "last line of a"
    assert Rehearsal(a=0).run(tmp_path) == {"a": "done"}


def test_a_failed_vital_step_ends_the_run_and_is_never_given_up(tmp_path):
    steps = (Step("a", 60, vital=True), Step("b", 60))
    for _ in range(gpu.ATTEMPTS + 1):
        assert Rehearsal(a=1, b=0).run(tmp_path, steps) == {"a": "failed"}
    assert Rehearsal(a=0, b=0).run(tmp_path, steps) == {"a": "done", "b": "done"}
    assert [step.name for step in gpu.STEPS if step.vital] == ["versions"]


def test_the_page_has_every_step_once():
    *_, text = (PAGES / "triton" / "speed.md").read_text("utf-8").partition("## `make gpu`")
    cells = re.findall(r"^\| (`.*?`) \|", text.partition("\n## ")[0], re.MULTILINE)
    listed = re.findall(r"`([\w-]+)`", " ".join(cells))
    assert sorted(listed) == sorted(step.name for step in gpu.STEPS)


def test_every_step_has_a_function_and_its_place():
    from convref_bench.gpu import steps

    assert all(s.name in steps.TIMED or callable(getattr(steps, s.name)) for s in gpu.STEPS)
    assert [step.name for step in gpu.STEPS] == [
        *("versions", "canary", "properties", "marked", "peaks", "anchors", "tuner", "suites"),
        *("fused", "truncation", "cudnn", "others", "training", "cudnn-rest", "names"),
    ]
    assert [s.name for s in gpu.select_steps("tuner,peaks")] == ["versions", "peaks", "tuner"]
    assert gpu.select_steps("") == gpu.STEPS
    with pytest.raises(ConvrefError, match="--step is 'tunr', needs one of versions, canary"):
        gpu.select_steps("tunr")


PYTEST = """import os, time
import pytest

@{mark}
def test_it():
    {body}

def test_elsewhere():
    1 / 0
"""


def test_marked_files_fail_separately_and_passed_ones_are_not_run_again(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from convref_bench.gpu import steps

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of what a process takes
    tests, out = tmp_path / "tests", tmp_path / "gpu.jsonl"
    bodies = {"good": "pass", "bad": "assert 0", "late": "time.sleep(60)", "dead": "os._exit(7)"}
    (tests / "both").mkdir(parents=True)
    for name, body in bodies.items():
        (tests / f"test_{name}.py").write_text(PYTEST.format(mark=steps.MARK, body=body))
    (tests / "test_none.py").write_text("def test_it(): 1 / 0\n")
    bodies["absent"], skip = "pass", "pytest.skip('no PTX', allow_module_level=True)"
    (tests / "test_absent.py").write_text(f"import pytest\n{skip}\n# {steps.MARK}\n")
    (tests / "both" / "conftest.py").write_text(f"import pytest\nITS = {steps.MARK}\n")
    names = [path.relative_to(tests).as_posix() for path in steps.marked_files(tests)]
    assert names == ["both", *(f"test_{name}.py" for name in sorted(bodies))]
    (tests / "both" / "conftest.py").unlink()
    monkeypatch.setattr(steps, "FILE_S", 300.0)

    def launch(command, limit_s, *rest, **more):
        """Wait two seconds for the file that sleeps, the given time for the others."""
        limit_s = 2.0 if "test_late" in " ".join(command) else limit_s
        return gpu.launch_command(command, limit_s, *rest, **more)

    monkeypatch.setattr(steps, "launch_command", launch)
    with pytest.raises(SystemExit, match=r"3 tests failed, the first: ERROR \S+dead.py: exit 7"):
        steps.marked(steps.StepRun(out, 3600.0), tests)
    files = {row["file"]: row["status"] for row in records.read(out)[0] if "file" in row}
    assert files == {f"tests/test_{n}.py": s for n, s in zip(bodies, (0, 1, None, 7, 5))}
    last = records.read(out)[0][-1]
    assert (last["what"], last["status"]) == ("marked", 1)
    told = [line.rpartition("/test_")[2].partition(".py")[0] for line in last["failed"]]
    assert told == ["dead", "late", "bad"]
    with pytest.raises(steps.OutOfTime):  # no fault of the file's: it goes on in the next run
        steps.marked(steps.StepRun(out, 6.0), tests)
    assert [row["what"] for row in records.read(out)[0]].count("marked") == 1
    monkeypatch.setattr(steps, "launch_command", gpu.launch_command)
    for name in bodies:
        (tests / f"test_{name}.py").write_text(
            PYTEST.format(mark=steps.MARK, body="assert 0" if name == "good" else "pass")
        )
    steps.marked(steps.StepRun(out, 3600.0), tests)
    assert records.read(out)[0][-1]["failed"] == []


def test_marked_files_are_found():
    pytest.importorskip("torch")
    from convref_bench.gpu import steps

    found = {
        path.relative_to(steps.TESTS.parent).as_posix() for path in steps.marked_files(steps.TESTS)
    }
    assert found >= {"tests/ptx", "tests/mojo/test_cuda.py", *steps.PROOF}
    assert not any("tests/bench" in path for path in found)  # pytest fails where it selects nothing


def test_baselines_do_not_depend_on_our_kernels():
    by_name = {step.name: step for step in gpu.STEPS}
    assert by_name["cudnn"].sources == ("bench",)
    assert "kernels" in by_name["anchors"].sources
    keys = {name: gpu.identity(by_name[name]) for name in ("cudnn", "anchors")}
    assert keys["cudnn"] != keys["anchors"]
    assert gpu.card_of(keys["cudnn"]) == gpu.card_of(keys["anchors"]) == gpu.card()
    assert len(keys["cudnn"].rsplit(" | ", 1)[1]) == 12


def test_the_roof_is_the_last_one_measured_on_this_card(tmp_path):
    pytest.importorskip("torch")
    from convref_bench.gpu.steps import StepRun as Child

    out = tmp_path / "gpu.jsonl"
    for card, peak in (("A", 1.0), ("A", 2.0), ("B", 3.0)):
        row = {"what": "peaks", "flops": {"bf16": peak}, "bytes_s": 1.0, "key": f"{card} | old"}
        records.append(out, row)
    assert Child(out, 1, "A | new").roof().flops == {"bf16": 2.0}
    assert Child(out, 1, "C | new").roof() is None
