"""The table of marks: each value with what it needs, and whether it is reached."""

import signal
import sys
import time

import pytest

from convref.errors import ConvrefError

torch = pytest.importorskip("torch")
marks = pytest.importorskip(
    "convref_bench.timing.marks", reason="needs torch and psutil", exc_type=ImportError
)
from convref_bench.timing import call_cost, converted, marked  # noqa: E402

ONCE = marked.Stop(samples=2, noise=1.0, timeout_s=0.0)


def yields(**values):
    return lambda seconds: iter(values.items())


def refuses(seconds):
    raise ConvrefError("no compiler")


def test_a_mark_that_is_missed_or_not_measured_is_shown_and_sets_the_status(monkeypatch, capsys):
    table = {
        "rate": marks.Mark("a second", yields(slow=59.0, fast=60.0), least=60),
        "cost": marks.Mark("us", yields(call=5.5), most=5),
        "other": marks.Mark("a second", yields(any=1.0)),
        "absent": marks.Mark("of oneDNN", refuses, least=1),
        "empty": marks.Mark("of oneDNN", yields(), least=1),
        "new": marks.Mark("of oneDNN", yields(any=0.5), least=1, instruction="vnone"),
        "unknown": marks.Mark("of oneDNN", yields(any=1.0), least=1, backend="none"),
    }
    monkeypatch.setattr(marks, "MARKS", table)
    assert marks.main() == 1
    shown = [line.split("  ") for line in capsys.readouterr().out.splitlines()[:8]]
    assert [(row[0], row[1][:13], row[-2], row[-1]) for row in shown] == [
        ("rate", "slow", ">= 60", "no"),
        ("rate", "fast", ">= 60", "yes"),
        ("cost", "call", "<= 5", "no"),
        ("other", "any", "-", "-"),
        ("absent", "no compiler", ">= 1", "not measured"),
        ("empty", "it yields no ", ">= 1", "not measured"),
        ("new", "any", "- without vnone", "-"),
        ("unknown", "backend: 'non", ">= 1", "not measured"),
    ]
    assert marks.main("other", "new") == 0
    assert marks.main("absent") == marks.main("empty") == marks.main("cost") == 1
    with pytest.raises(ConvrefError, match="mark is 'nope', needs one of rate, cost"):
        marks.main("nope")


def test_a_mark_runs_on_its_threads_and_so_does_its_backend(monkeypatch):
    seen = []

    class Backend:
        def threads(self, count):
            seen.append(count)
            return marks.ExitStack()

    def measure(seconds):
        seen.append(torch.get_num_threads())
        yield "any", 1.0

    monkeypatch.setattr(marks, "load", lambda name: Backend())
    table = {
        "one": marks.Mark("", measure, threads=1, backend="mojo"),
        "two": marks.Mark("", measure),
    }
    monkeypatch.setattr(marks, "MARKS", table)
    assert len([*marks.rows(("one", "two"), 0.0)]) == 2
    assert seen == [1, 1, 2]


def test_marks_by_processor_time_run_on_one_thread():
    """The clock of a thread does not see what others compute."""
    for name, mark in marks.MARKS.items():
        timed = mark.measure.__qualname__.partition(".")[0]
        if timed in ("converted", "call_cost", "backend_cost", "activations"):
            assert mark.threads == 1, name


def test_mojo_is_timed_on_its_fast_path_at_batch_one(monkeypatch):
    seen = []

    def rows(layers, arms, place, *, keys, batch):
        seen.append((len(layers), arms, keys, batch, place.device.spin_s))
        return iter(())

    monkeypatch.setattr(marked.network, "rows", rows)
    for name in ("mojo", "mojo-bf16", "mojo-stem", "oracle-stem"):
        assert [*marks.MARKS[name].measure(0.0)] == []
    spin = marks.cpu.SPIN_S
    arms = ("mojo", "torch")
    assert seen == [
        (23, arms, ["mem=nhwc"], 1, spin),
        (23, arms, ["dt=bf16:mem=nhwc"], 1, 0.0),
        (1, arms, ["mem=nhwc"], 1, 0.0),
        (1, arms, ["mem=nhwc"], 1, 0.0),
        (1, ("numpy", "torch"), ["dt=f64"], 4, spin),
    ]


def test_a_layer_that_is_not_timed_is_an_error_and_means_are_by_pass():
    def row(line, ratio, times, arm="mojo"):
        return {"what": "point", "line": line, "arm": arm, "ratio": ratio, "times": times}

    fprop, wgrad = "conv.fprop:n1c1k1_i1_f1", "conv.wgrad:n1c1k1_i1_f1"
    rows = [row(fprop, 1.0, 1), row(fprop, 8.0, 2), row(wgrad, 0.5, 3), row(fprop, 9.0, 9, "torch")]
    found = dict(marked.ratios("a", "mojo", rows))
    assert {where: round(value, 6) for where, value in found.items()} == {
        "a, conv.fprop": 4.0,
        "a, conv.wgrad": 0.5,
    }
    absent = {"what": "absent", "line": fprop, "arm": "mojo", "why": "no kernel"}
    with pytest.raises(ConvrefError, match="mojo is absent: no kernel"):
        next(marked.ratios("a", "mojo", [*rows, absent]))


def test_calls_and_networks_yield_rows(monkeypatch):
    monkeypatch.setattr(call_cost, "STOP", ONCE)
    assert [what for what, _ in marks.MARKS["call-recorded"].measure(0.0)] == ["conv2d, recorded"]
    costs = dict(marked.backend_cost("numpy")(0.0))
    assert tuple(costs) == marked.SMALLEST
    assert min(costs.values()) > 0
    seen = []

    def row(name, mode, size, batch, seconds, compiler):
        seen.append(compiler)
        return ["", "", "", "0.99"]

    monkeypatch.setattr(converted, "row", row)
    assert {value for _, value in marks.MARKS["converted-inductor"].measure(0.0)} == {0.99}
    assert seen == ["inductor"] * 8


def outcomes(monkeypatch, reports):
    """Let campaigns report (seconds, examples passed, examples unsupported); return settings."""
    seen = []

    def run(settings, watch):
        seen.append(settings)
        outcome = marked.campaign.Outcome(settings, marked.campaign.Tally())
        for elapsed, passed, unsupported in reports:
            outcome.elapsed = elapsed
            outcome.tally.counts["conv", "fprop", "f32", "pass", ""] = passed
            outcome.tally.counts["conv", "fprop", "f32", "unsupported", ""] = unsupported
            watch(outcome, "")
        return outcome

    monkeypatch.setattr(marked.campaign, "run", run)
    return seen


def test_a_rate_counts_what_was_judged_after_the_first_report(monkeypatch):
    seen = outcomes(monkeypatch, [(0.0, 0, 0), (5.0, 100, 7), (7.0, 500, 9000)])
    assert list(marked.court("numpy")(10.0)) == [("numpy", 200.0)]
    assert (seen[0].backend, seen[0].seconds, seen[0].axes.ops) == ("numpy", 30.0, ("conv",))
    outcomes(monkeypatch, [(0.0, 0, 0), (5.0, 0, 700)])
    with pytest.raises(ConvrefError, match="numpy judged too few examples"):
        next(marked.court("numpy")(10.0))


def test_flatness_is_the_rate_of_the_last_tenth_over_that_of_the_first(monkeypatch):
    slower = [(10.0 * k if k <= 10 else 100.0 + 20.0 * (k - 10), 1000 * k, 0) for k in range(101)]
    seen = outcomes(monkeypatch, slower)
    assert list(marked.flatness(0.0)) == [("100,000 examples", 0.5)]
    assert (seen[0].examples, seen[0].seconds) == (100_000, None)


def test_a_command_is_timed_to_its_end_or_to_a_line_of_its_output():
    """Also in a background job of a shell, which ignores interrupts."""

    def ends(code, until=""):
        began = time.monotonic()
        return marked._end_time([sys.executable, "-c", code], until) - began

    assert ends("import time; time.sleep(0.3)") >= 0.3
    talks = "import time; print('numpy: 0 examples, nothing judged yet', flush=True);"
    talks += "print('numpy: 1,715 examples, 354/s, all right', flush=True); time.sleep(600)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ends(talks, marks.VERDICT) < 600
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ConvrefError, match="status 3"):
        ends("raise SystemExit(3)")
    with pytest.raises(ConvrefError, match="status 0"):
        ends("print('numpy: 0 examples, 0.0/s, nothing judged yet')", marks.VERDICT)
