"""The table of marks: each value with what it needs, and whether it is reached."""

import pytest

from convref.errors import ConvrefError

marks = pytest.importorskip(
    "convref_bench.timing.marks", reason="needs torch and psutil", exc_type=ImportError
)


def yields(**values):
    return lambda seconds: iter(values.items())


def refuses(seconds):
    raise ConvrefError("no compiler")


def test_a_mark_that_is_missed_is_shown_and_sets_the_status(monkeypatch, capsys):
    table = {
        "rate": marks.Mark("a second", yields(slow=59.0, fast=60.0), least=60),
        "cost": marks.Mark("us", yields(call=5.5), most=5),
        "other": marks.Mark("a second", yields(any=1.0)),
        "absent": marks.Mark("of oneDNN", refuses, least=1),
    }
    monkeypatch.setattr(marks, "MARKS", table)
    assert marks.main() == 1
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[:5]]
    assert [(row[0], row[1], row[-2], row[-1]) for row in rows] == [
        ("rate", "slow", ">= 60", "no"),
        ("rate", "fast", ">= 60", "yes"),
        ("cost", "call", "<= 5", "no"),
        ("other", "any", "-", "-"),
        ("absent", "no compiler", ">= 1", "not measured"),
    ]
    assert marks.main("other", "absent") == 0
    with pytest.raises(ConvrefError, match="mark is 'nope', needs one of rate, cost"):
        marks.main("nope")


def test_marks_of_layers_and_calls_yield_rows(monkeypatch):
    once = marks.Stop(samples=2, noise=1.0, timeout_s=0.0)
    monkeypatch.setattr("convref_bench.timing.call_cost.STOP", once)
    monkeypatch.setattr(marks.suite, "load", lambda name: [])
    assert list(marks.resnet("numpy", "dt=f64", True)(0.0)) == []
    assert [what for what, _ in marks.MARKS["call-recorded"].measure(0.0)] == ["conv2d, recorded"]


def test_a_rate_counts_the_examples_after_the_first_report(monkeypatch):
    def run(settings, watch):
        assert (settings.backend, settings.seconds, settings.axes.ops) == ("numpy", 30.0, ("conv",))
        outcome = marks.campaign.Outcome(settings, marks.campaign.Tally())
        for elapsed, examples in ((0.0, 0), (5.0, 100), (7.0, 500)):
            outcome.elapsed, outcome.tally.counts["all",] = elapsed, examples
            watch(outcome, "")
        return outcome

    monkeypatch.setattr(marks.campaign, "run", run)
    assert list(marks.court("numpy")(10.0)) == [("numpy", 200.0)]
