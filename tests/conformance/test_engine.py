"""The engine outlives every backend, and loses no finding."""

import contextlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from convref import ConvrefError, conformance
from convref.backends.numpy import NumpyBackend
from convref.case import AROUND, parse
from convref.conformance import campaign, causes
from convref.conformance.campaign import Settings
from convref.conformance.causes import root_causes, run_lines
from convref.conformance.examine import Finding, examine
from convref.conformance.generate import Axes
from convref.conformance.log import Log, read_log
from convref.conformance.surroundings import with_surroundings
from convref.conformance.workers.engine import Engine, Limits, preload
from convref.conformance.workers.worker import WriteAhead
from convref.errors import ExitStatus

GOOD = "conv.fprop:n1c2k3_i8x8_f3x3_p1"
BAD = "conv.fprop:n1c2k3_i8x8_f3x3_s3_p1"
LINES = (
    [f"{GOOD}:seed={i}" for i in range(1, 4)] + [BAD] + [f"{GOOD}:seed={i}" for i in range(4, 7)]
)

VERDICTS = [  # object, limits, verdict of BAD, text in its reason
    ("crash", Limits(), "crash", "SIGSEGV"),
    ("hang", Limits(seconds=1.0), "hang", "no answer in 1 s"),
    ("spin", Limits(seconds=1.0), "hang", "no answer in 1 s"),
    ("leaver", Limits(), "crash", "SystemExit: 7"),
    ("leak", Limits(memory=600 << 20), "crash", "resident memory"),
]


@pytest.mark.parametrize(("name", "limits", "verdict", "text"), VERDICTS)
def test_a_backend_that_dies_costs_one_example(hostile, name, limits, verdict, text):
    with Engine(f"{hostile}:{name}", limits=limits) as engine:
        findings = run_lines(engine, LINES)
        again = run_lines(engine, [GOOD])
    assert [(f.line, f.verdict) for f in findings] == [(BAD, verdict)]
    assert text in findings[0].reason
    assert again == []


def test_a_backend_may_take_as_long_to_load_as_the_limit_says(tmp_path, monkeypatch):
    (tmp_path / "sleepy.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = Limits(load=0.5)
    text = "sleepy:slow does not start: it did not load in 0.5 s"
    with pytest.raises(ConvrefError, match=text), Engine("sleepy:slow", limits=limits) as engine:
        engine.start()


def test_binary_on_standard_output_harms_nothing(hostile):
    with Engine(f"{hostile}:noise") as engine:
        assert run_lines(engine, LINES) == []


@pytest.mark.parametrize("method", ["supports", "numerics"])
def test_an_error_of_an_adapter_costs_one_example(monkeypatch, method):
    backend = NumpyBackend()

    def broken(call):
        if 3 in call.problem.stride:
            raise KeyError("stride")
        return getattr(NumpyBackend, method)(backend, call)

    monkeypatch.setattr(backend, method, broken)
    findings = [examine(parse(line), backend) for line in LINES[:4]]
    assert [f.verdict for f in findings] == ["pass"] * 3 + ["rejects-valid"]
    assert findings[-1].reason == "KeyError: 'stride'"


@pytest.mark.parametrize("line", ["conv.fprop:n1c1k1_i3_f1", GOOD])
def test_wrong_types_are_wrong_in_form(hostile, line):
    with Engine(f"{hostile}:types") as engine:
        (found,) = run_lines(engine, [line])
    assert (found.verdict, found.tier) == ("wrong", "form")
    assert "needs" in found.reason


def test_a_changed_operand_is_reported(hostile):
    with Engine(f"{hostile}:scribble") as engine:
        (found,) = run_lines(engine, [GOOD])
    assert found.verdict == "changed-input"
    assert "x" in found.reason


def test_an_operand_restored_by_a_second_run_counts_as_changed(hostile):
    with Engine(f"{hostile}:undo") as engine:
        (found,) = run_lines(engine, [f"{GOOD}:fill=ramp"])
    assert (found.verdict, found.reason) == ("changed-input", "x or memory around it changed")


@pytest.mark.parametrize(
    ("members", "left_out"),
    [({}, set()), ({"stateless": True}, {*AROUND[:4]}), ({"serial": True}, {"threads"})],
)
def test_a_backend_may_leave_out_what_it_can_not_be_disturbed_by(members, left_out):
    cases = (with_surroundings(parse(GOOD), i, SimpleNamespace(**members)) for i in range(100))
    assert {name for case in cases for name in case.around} == {*AROUND} - left_out


def test_results_in_memory_that_a_second_run_overwrites_are_reported(hostile):
    with Engine(f"{hostile}:keeper") as engine:
        (found,) = run_lines(engine, [GOOD])
    assert found.verdict == "wrote-outside"
    assert found.reason == "y of a second run shares memory with the result of the first"


def test_a_hang_at_the_end_of_the_time_is_found(hostile):
    settings = Settings(f"{hostile}:stuck", Axes(size=5), 0.5, 5, 1, limits=Limits(1.0))
    outcome = campaign.run(replace(settings, shrinks=False))
    assert [f.verdict for f in outcome.tally.findings] == ["hang"]
    assert not outcome.good


def test_two_runs_that_differ_are_nondeterministic(hostile):
    """The first example of a task is run twice."""
    with Engine(f"{hostile}:dice") as engine:
        (found,) = run_lines(engine, [f"{GOOD}:fill=normal"])
    assert found.verdict == "nondeterministic"


def test_an_error_without_a_text_or_with_colours_costs_one_example(hostile):
    lines = [BAD, BAD.replace("n1", "n2")]
    with Engine(f"{hostile}:raises") as engine:
        found = run_lines(engine, lines)
    assert [(f.line, f.verdict) for f in found] == [(line, "rejects-valid") for line in lines]
    assert found[0].reason.startswith("ValueError: [31mred")
    assert found[1].reason == "Nameless: a Nameless whose str() raises a RuntimeError"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("bools", "supports returned True, needs None for yes, else the reason"),
        ("unsaid", "numerics returned None, needs a Numerics"),
        ("unversioned", "fingerprint returned None, needs a dict"),
    ],
)
def test_a_method_that_breaks_the_protocol_ends_the_check_with_a_sentence(hostile, name, what):
    with Engine(f"{hostile}:{name}") as engine, pytest.raises(ConvrefError) as error:
        run_lines(engine, [GOOD])
    assert str(error.value) == f"backend: right.{what}"


def test_many_crashes_on_two_workers_lose_nothing(hostile):
    lines = [f"{BAD if i % 3 == 0 else GOOD}:seed={i + 1}" for i in range(30)]
    with Engine(f"{hostile}:crash", jobs=2) as engine:
        findings = run_lines(engine, lines)
    assert sorted(f.line for f in findings) == sorted(line for line in lines if "_s3_" in line)


def test_a_backend_that_does_not_load_raises_one_sentence():
    with (
        Engine("no_such_module:thing") as engine,
        pytest.raises(ConvrefError, match="no_such_module"),
    ):
        run_lines(engine, [GOOD])


def test_the_write_ahead_record_survives(tmp_path):
    path = str(tmp_path / "ahead")
    WriteAhead(path).write(7, GOOD)
    assert WriteAhead(path).read() == (7, GOOD, "")
    WriteAhead(path).clear()
    assert WriteAhead(path).read() == (-1, "", "")


def _settings(hostile, name, tmp_path, **fields):
    axes = Axes(seed=3, passes=("fprop",), dtypes=("f32",), size=60)
    chosen = {"examples": 120, "jobs": 2, "log": tmp_path / "log.jsonl", "axes": axes} | fields
    return Settings(f"{hostile}:{name}", **chosen)


def test_a_campaign_shrinks_to_the_cause(hostile, tmp_path):
    outcome = campaign.run(_settings(hostile, "strided", tmp_path))
    assert not outcome.good
    assert outcome.tally.examples == 120
    lines = [failure.line for failure in outcome.failures]
    assert lines == ["conv.fprop:n1c1k1_i1_f1_s3:bias=0:fill=ones"] or lines == [
        "conv.fprop:n1c1k1_i1_f1_s3:fill=ones"
    ]
    assert any(need.startswith("stride = 3") for need in outcome.failures[0].needs)


def test_shards_are_parts_of_the_whole(hostile, tmp_path):
    whole = campaign.run(_settings(hostile, "right", tmp_path, log=None))
    parts = [
        campaign.run(_settings(hostile, "right", tmp_path, log=None, examples=60, shard=(i, 2)))
        for i in range(2)
    ]
    assert whole.good
    total = parts[0].tally.counts + parts[1].tally.counts
    assert total == whole.tally.counts


def test_a_log_is_resumed_and_incomplete_lines_are_skipped(hostile, tmp_path):
    settings = _settings(hostile, "strided", tmp_path, shrinks=False)
    first = campaign.run(settings)
    log = settings.log.read_text()
    settings.log.write_text(log[: len(log) * 2 // 3] + '\n{"event": "rep\n[1, 2]\n\x00\n')
    second = campaign.run(settings)
    assert second.tally.counts == first.tally.counts
    assert {f.line for f in second.tally.findings} == {f.line for f in first.tally.findings}
    third = campaign.run(settings)  # everything is in the log: nothing is left to run
    assert third.tally.counts == first.tally.counts


def test_a_foreign_log_is_refused(hostile, tmp_path):
    settings = _settings(hostile, "right", tmp_path)
    settings.log.write_text(json.dumps({"event": "start", "backend": "another"}) + "\n")
    with pytest.raises(ConvrefError, match="belongs to another campaign"):
        campaign.run(settings)


def test_findings_of_a_chunk_that_was_cut_off_are_kept(hostile, tmp_path):
    """The chunk runs again, but a random failure may not occur a second time."""
    settings = _settings(hostile, "right", tmp_path)
    start = {"event": "start", **campaign._identity(settings)}
    finding = {"line": BAD, "verdict": "crash", "tier": "", "reason": "SIGSEGV", "role": ""}
    key = ["conv", "fprop", "f32", "crash", ""]
    cut = {"event": "report", "chunk": 0, "counts": [[key, 1]], "findings": [finding]}
    events = (start, {**cut, "done": False}, start)
    settings.log.write_text("".join(json.dumps(event) + "\n" for event in events))
    outcome = campaign.run(replace(settings, shrinks=False))
    assert outcome.tally.examples == 120
    assert [(f.line, f.verdict) for f in outcome.tally.findings if f.verdict == "crash"] == [
        (BAD, "crash")
    ]


REPORT = {"event": "report", "chunk": 0, "counts": [], "findings": [], "done": True}


@pytest.mark.parametrize(
    "change",
    [
        {"chunk": "../.."},
        {"counts": [["conv", 1]]},
        {"counts": [[["conv"] * 5, "many"]]},
        {"findings": [{"line": "../../etc/passwd"}]},
        {"findings": [{"line": BAD, "index": ["a"]}]},
        {"findings": {"line": BAD}},
    ],
)
def test_a_log_of_malformed_reports_is_refused(hostile, tmp_path, change):
    settings = _settings(hostile, "right", tmp_path)
    events = ({"event": "start", **campaign._identity(settings)}, {**REPORT, **change})
    settings.log.write_text("".join(json.dumps(event) + "\n" for event in events))
    with pytest.raises(ConvrefError, match="malformed report"):
        campaign.run(settings)


@pytest.mark.parametrize("text", ["notes\n", '{"a": 1}\n', "\n"])
def test_a_file_that_is_no_log_is_left_as_it_is(hostile, tmp_path, text):
    settings = _settings(hostile, "right", tmp_path)
    settings.log.write_text(text)
    with pytest.raises(ConvrefError, match=r"log\.jsonl is not a log of convref check"):
        campaign.run(settings)
    assert settings.log.read_text() == text


def test_two_campaigns_do_not_write_one_log(hostile, tmp_path):
    settings = _settings(hostile, "right", tmp_path)
    campaign.run(settings)
    kept = settings.log.read_text()
    with (
        contextlib.closing(Log(settings.log)),
        pytest.raises(ConvrefError, match="is in use by another check"),
    ):
        campaign.run(settings)
    assert settings.log.read_text() == kept
    assert campaign.run(settings).good


def test_a_full_disk_costs_the_log_only(hostile, tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    outcome = campaign.run(_settings(hostile, "strided", tmp_path, log=full, shrinks=False))
    assert outcome.tally.examples == 120
    assert "No space left" in outcome.log_error


PARENT = """
import signal, sys
from pathlib import Path
from types import SimpleNamespace
from convref.conformance import campaign
from convref.conformance.generate import Axes
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    campaign.run(campaign.Settings(
        "hostile:strided", Axes(seed=3, passes=("fprop",), dtypes=("f32",), size=60),
        seconds=600, jobs=2, log=Path(sys.argv[1])))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killing_the_parent_loses_no_finding_and_leaves_no_worker(hostile, tmp_path, how):
    log, script = tmp_path / "log.jsonl", tmp_path / "parent.py"
    script.write_text(PARENT)
    path = filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path), TMPDIR=str(tmp_path))
    parent = subprocess.Popen(
        [sys.executable, str(script), str(log)], env=environment, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 300
    while time.monotonic() < until and '"verdict": "wrong"' not in _text(log):
        time.sleep(0.1)
    parent.send_signal(how)
    parent.wait(300)
    found = [f for e in read_log(log) if e.get("event") == "report" for f in e["findings"]]
    assert found
    assert all(f["verdict"] == "wrong" for f in found)
    assert not _left(tmp_path)


@contextlib.contextmanager
def _started(hostile, tmp_path, name, how=signal.SIGTERM):
    """Start `convref check` of a backend that computes for ever; go on once it does."""
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "convref", "check", f"{hostile}:{name}", "--jobs", "1"]
    before = signal.signal(how, signal.SIG_DFL)  # under nohup, processes inherit that it is ignored
    try:
        parent = subprocess.Popen(
            [*command, "--seconds", "600", "--limit", "600"],
            env=dict(os.environ, PYTHONPATH=path, TMPDIR=str(tmp_path)),
            stdout=subprocess.DEVNULL,
        )
    finally:
        signal.signal(how, before)
    try:
        until = time.monotonic() + 300
        while parent.poll() is None and time.monotonic() < until and not any(_records(tmp_path)):
            time.sleep(0.1)
        assert any(_records(tmp_path))
        yield parent
    finally:
        parent.kill()
        parent.wait()


def _records(tmp_path):
    return [path.read_text().strip(" \0") for path in tmp_path.glob("convref-*/ahead-*")]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_check_that_is_ended_leaves_neither_process_nor_file(hostile, tmp_path, how):
    with _started(hostile, tmp_path, "starter", how) as parent:
        parent.send_signal(how)
        parent.send_signal(signal.SIGTERM)  # as `timeout` sends one to the process and its group
        assert parent.wait(300) == ExitStatus.INTERRUPTED
    assert not _left(tmp_path)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("convref-")]


@pytest.mark.parametrize("name", ["stuck", "starter"])
def test_a_worker_that_hangs_ends_with_its_parent(hostile, tmp_path, name):
    with _started(hostile, tmp_path, name) as parent:
        parent.kill()
    assert not _left(tmp_path)


def test_processes_that_a_backend_starts_end_with_its_worker(hostile, tmp_path):
    with Engine(f"{hostile}:starter", limits=Limits(seconds=1.0)) as engine:
        (found,) = run_lines(engine, [GOOD])
    assert found.verdict == "hang"
    (number,) = tmp_path.glob("*.pid")
    until = time.monotonic() + 60
    while (runs := _runs(int(number.read_text()))) and time.monotonic() < until:
        time.sleep(0.2)
    assert not runs


def _runs(number):
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    return False


def _text(path):
    return path.read_text() if path.exists() else ""


def _left(folder):
    """Return the processes that stay, once they have had time to end."""
    until = time.monotonic() + 60
    while (found := _workers(folder)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def _workers(folder):
    """Return processes whose environment names this test's folder."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in process.environ().get("PYTHONPATH", ""):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def _armed(hostile, tmp_path, shrinks=True, **fields):
    axes = Axes(seed=1, passes=("fprop",), dtypes=("f32",), size=25, **fields)
    log = tmp_path / "log.jsonl"
    return Settings(f"{hostile}:armed", axes, examples=300, jobs=1, log=log, shrinks=shrinks)


def test_a_bug_of_one_arm_names_it_and_how_to_repeat_it(hostile, tmp_path):
    outcome = campaign.run(_armed(hostile, tmp_path))
    assert set(outcome.tally.arms) == {"plain", "variable", "object"}
    assert outcome.tally.arms.total() == 300
    found = {failure.arm: failure for failure in outcome.failures}
    assert set(found) == {"variable", "object"}
    assert "arm = variable" in found["variable"].needs
    line = "conv.fprop:n1c1k1_i1_f1_s3:fill=ones"
    assert found["variable"].command == (
        f"CONVREF_TEST_ARM='a b' convref run '{line}' --backend {hostile}:armed"
    )
    assert found["object"].command == f"convref run '{line}' --backend {hostile}:strided"
    environment = dict(os.environ, PYTHONPATH=str(tmp_path), CONVREF_TEST_ARM="a b")
    command = [sys.executable, "-m", "convref", "run", line, "--backend", f"{hostile}:armed"]
    assert subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 1
    del environment["CONVREF_TEST_ARM"]
    assert subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0


def test_a_bug_of_every_arm_is_reported_without_one(hostile, tmp_path):
    with Engine(f"{hostile}:strided_arms") as engine:
        engine.start()
        findings = run_lines(engine, [BAD], engine.arm("again"))
        (failure,) = root_causes(engine, findings)
    assert [f.arm for f in findings] == ["again"]
    assert failure.arm == "plain"
    assert failure.command.endswith("--backend hostile:strided_arms")


def test_a_wrong_form_of_every_arm_is_reported_without_one(hostile):
    with Engine(f"{hostile}:shapeless") as engine:
        engine.start()
        found = [f for arm in ("again", "plain") for f in run_lines(engine, [BAD], engine.arm(arm))]
        (failure,) = root_causes(engine, found)
    assert {f.tier for f in found} == {"form"}
    assert (failure.arm, failure.seen) == ("plain", 2)


def test_findings_without_time_to_shrink_are_reported_unshrunk(hostile, monkeypatch):
    monkeypatch.setattr("convref.conformance.causes.TOTAL_SECONDS", -1.0)
    with Engine(f"{hostile}:strided") as engine:
        engine.start()
        found = run_lines(engine, [BAD, f"{BAD}:seed=2", f"{BAD}:seed=3:dt=f64"])
        (failure,) = root_causes(engine, found)
    assert (failure.line, failure.needs, failure.seen) == (BAD, (), 3)


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("name", ["hostile:strided", "numpy"])
def test_cases_are_drawn_for_all_seconds(monkeypatch, name):
    """By a clock that goes on a second for each example."""
    outcomes, rest = [], []
    clock = SimpleNamespace(monotonic=lambda: sum(o.tally.examples for o in outcomes[:1]))
    monkeypatch.setattr(campaign, "time", clock)
    monkeypatch.setattr(campaign, "root_causes", lambda *a: rest.append(a[-1]) or ())
    axes = Axes(seed=3, passes=("fprop",), dtypes=("f32",), size=10)
    settings = Settings(name, axes, seconds=30.0, jobs=1, limits=Limits(5.0))
    examples = campaign.run(settings, lambda o, note: outcomes.append(o)).tally.examples
    assert 30 < examples <= 40
    assert rest == [45.0 - examples]


@pytest.mark.parametrize("name", ["stuck", "hang", "strided"])
def test_shrinking_takes_at_most_half_of_the_seconds_more(hostile, monkeypatch, name):
    """By a clock that goes on each time it is read, and is 0 when the workers are ready."""
    clock = SimpleNamespace(now=0.0)

    def monotonic():
        clock.now += 0.02
        return clock.now

    def start(engine):
        started(engine)
        clock.now = 0.0

    clock.monotonic, started = monotonic, Engine.start
    for module in (campaign, causes, conformance.workers.engine):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(conformance.workers.engine, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(Engine, "start", start)
    lines = tuple(LINES * 3)
    limits = Limits(2.5, load=math.inf)
    settings = Settings(f"{hostile}:{name}", seconds=10.0, jobs=2, lines=lines, limits=limits)
    outcome = campaign.run(settings)
    assert clock.now < 10.0 * 1.5 + 1.0
    assert outcome.failures


def test_a_hang_is_shrunk_with_a_shorter_limit(monkeypatch):
    seen = []

    def run_lines(engine, lines, *_, **__):
        seen.extend([engine.limits.seconds] * bool(lines))
        return [Finding(line, "hang") for line in lines if 3 in parse(line).call.conv.stride]

    monkeypatch.setattr(causes, "run_lines", run_lines)
    with Engine("numpy") as engine:
        (failure,) = root_causes(engine, [Finding(BAD, "hang")])
        assert engine.limits == Limits()
    assert failure.line == "conv.fprop:n1c1k1_i1_f1_s3:fill=ones"
    assert set(seen) == {causes.HANG_SECONDS}


def test_arms_can_be_chosen(hostile, tmp_path):
    outcome = campaign.run(_armed(hostile, tmp_path, shrinks=False, arms=("variable",)))
    assert set(outcome.tally.arms) == {"variable"}
    reports = [e for e in read_log(tmp_path / "log.jsonl") if e.get("event") == "report"]
    assert {event["arm"] for event in reports} == {"variable"}
    with pytest.raises(ConvrefError, match="has no arm nothing, needs plain, variable, object"):
        campaign.run(_armed(hostile, tmp_path / "other", arms=("nothing",)))


@pytest.mark.parametrize("name", ["many", "many_raise", "many_die"])
def test_examples_that_run_together_are_judged_alone(hostile, tmp_path, name):
    """A batch that crashes or raises is run again one by one, and a failed case is run alone."""
    axes = Axes(seed=3, passes=("fprop",), dtypes=("f32",), size=60)
    settings = Settings(f"{hostile}:{name}", axes, examples=60, jobs=1, shrinks=False)
    outcome = campaign.run(settings)
    alone = campaign.run(replace(settings, backend=f"{hostile}:strided"))
    assert outcome.tally.counts == alone.tally.counts
    assert {f.line for f in outcome.tally.findings} == {f.line for f in alone.tally.findings}


def test_threads_that_change_a_result_are_nondeterministic(hostile):
    with Engine(f"{hostile}:threaded") as engine:
        (found,) = run_lines(engine, [GOOD])
    assert found.verdict == "nondeterministic"
    assert "with 3 threads" in found.reason


def test_a_crash_with_several_threads_names_them(hostile):
    with Engine(f"{hostile}:threaded_crash") as engine:
        (found,) = run_lines(engine, [GOOD])
        (failure,) = root_causes(engine, [found])
    assert (found.verdict, found.tier) == ("crash", "")
    assert found.reason == failure.reason == "SIGSEGV, with 3 threads"
    assert failure.line == "conv.fprop:n1c1k1_i1_f1:fill=ones"


OUTSIDE = {"before": "before its start", "after": "after its end", "unwritten": "is nan"}


@pytest.mark.parametrize(("name", "reason"), OUTSIDE.items())
def test_outputs_are_guarded_and_poisoned(hostile, name, reason):
    with Engine(f"{hostile}:{name}") as engine:
        (found,) = run_lines(engine, [GOOD])
        masked = run_lines(engine, ["conv.wgrad:n1c2k3_i8x8_f3x3"])
    assert found.verdict == ("wrong" if name == "unwritten" else "wrote-outside")
    assert reason in found.reason
    assert [f.verdict for f in masked] == [found.verdict]


FORWARD_MODE = """
import sys
from convref.case import parse
from convref.conformance.examine import examine
from convref.conformance.workers.worker import raw
from convref.dispatch import load
before = len(sys.modules)
case = parse("conv.jvp:n1c12k12g4_i8x1x4_f1x2x1_s5x2x4_p26,5x0,0x0,2_d5x2x18:t=1:tan=xw")
found = examine(case, raw(load("torch")))
pipe.send((found.verdict, len(sys.modules) - before))
"""


def test_a_worker_of_torch_imports_little_of_its_own():
    """Forward mode may import the compiler, hundreds of modules, again after each crash."""
    pytest.importorskip("torch")
    preload(("torch",))
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=exec, args=(FORWARD_MODE, {"pipe": theirs}))
    process.start()
    theirs.close()
    verdict, count = ours.recv()
    process.join()
    assert verdict == "pass"
    assert count < 100
