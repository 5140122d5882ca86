"""The report: shards that add up, a page that is safe whatever the logs hold, a real browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="needs convref[report]")
pytest.importorskip("psutil", reason="needs convref[check]")

from convref.conformance import campaign, report
from convref.conformance import log as logfile
from convref.conformance.campaign import Outcome, Settings
from convref.conformance.causes import Failure
from convref.conformance.generate import Axes
from convref.conformance.report import page as pages
from convref.conformance.report.picture import error_picture
from convref.conformance.workers.engine import Tally
from convref.errors import ConvrefError

LINE = "conv.fprop:n1c1k1_i4x4_f2x2:fill=ones"
AXES = {"seed": 3, "ops": [], "dtypes": ["f32"], "size": 10}
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
FAILURE = {
    "event": "failure",
    "line": LINE,
    "verdict": "wrong",
    "reason": f"y[0] is {EVIL}",
    "needs": [EVIL],
    "independent": ["c"],
    "seen": 2,
    "first": LINE,
}


def start(backend="numpy", axes=AXES):
    return {"event": "start", "backend": backend, "axes": axes, "shard": [0, 1]}


def chunk(number, n, verdict="pass", done=True):
    key = ["conv", "fprop", "f32", verdict, "exact"]
    return {"event": "report", "chunk": number, "counts": [[key, n]], "findings": [], "done": done}


def end(**fingerprint):
    return {"event": "end", "elapsed": 2.0, "fingerprint": fingerprint}


@pytest.fixture
def log(tmp_path):
    def write(name, *events):
        path = tmp_path / name
        lines = (e if isinstance(e, str) else json.dumps(e) for e in events)
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def test_shards_add_up_and_a_chunk_counts_once(log):
    first = log("a", start(), chunk(0, 10), chunk(2, 9), chunk(2, 1, "wrong"), FAILURE, end(v="1"))
    second = log("b", start(), chunk(1, 10), chunk(2, 10), FAILURE, end(v="1"))
    total = report.merge([first, second])
    assert total.chunks == {0, 1, 2}
    assert total.by_verdict() == {"pass": 29}  # the rest of chunk 2 was another run of it
    assert (total.elapsed, total.sources, total.dropped) == (4.0, 2, 0)
    assert [f.line for f in total.failures] == [LINE]


def test_a_chunk_in_parts_is_whole_and_one_that_was_cut_off_runs_again(log):
    parts = [chunk(0, 4, done=False), chunk(0, 6)]
    cut = log("a", start(), chunk(5, 3, done=False), start(), *parts, chunk(1, 2, done=False))
    total = report.merge([cut])
    assert total.examples == 12  # 3 were run again; the last 2 were all there was time for
    assert total.chunks == {0}


FINDING = {
    "line": LINE,
    "verdict": "wrong",
    "tier": "exact",
    "reason": EVIL,
    "role": "y",
    "index": [0, 0, 1, 1],
    "worst": 2.0,
    "arm": "quick",
}


def test_a_merged_log_is_a_log(log, tmp_path):
    """It merges to itself, keeps what was found, and holds whole and cut-off chunks once."""
    found = {**chunk(0, 1, "wrong"), "findings": [FINDING]}
    first = log("a", start(), found, chunk(2, 4, done=False), FAILURE, end(v="1"))
    second = log("b", start(), chunk(1, 10), chunk(2, 5, done=False), end(v="1"))
    total = report.merge([first, second])
    merged = tmp_path / "new" / "merged.jsonl"
    report.save(total, merged)
    again = report.merge([merged])
    assert (again.counts, again.parts, again.failures) == (
        total.counts,
        total.parts,
        total.failures,
    )
    assert total.by_verdict() == {"pass": 15, "wrong": 1}
    assert again.parts[0].findings[0].index == (0, 0, 1, 1)
    assert (again.chunks, again.elapsed, again.fingerprint) == ({0, 1}, 4.0, {"v": "1"})
    assert again.lines() == (LINE,)
    other = report.merge([merged, second, first])
    assert (other.counts, other.parts) == (total.counts, total.parts)
    assert EVIL not in pages.html(again)


def test_a_merged_log_is_resumed_and_replayed(tmp_path):
    axes = Axes(seed=3, passes=("fprop",), dtypes=("f32",), size=5)
    whole = campaign.run(Settings("numpy", axes, examples=20, jobs=1))
    logs = [tmp_path / name for name in "ab"]
    for i, path in enumerate(logs):
        campaign.run(Settings("numpy", axes, examples=10, jobs=1, shard=(i, 2), log=path))
    merged = tmp_path / "merged"
    report.save(report.merge(logs), merged)
    resumed = campaign.run(Settings("numpy", axes, examples=20, jobs=1, log=merged))
    assert resumed.tally.counts == whole.tally.counts
    assert resumed.tally.chunks == {0, 1, 2, 3}
    assert [e["event"] for e in logfile.read_log(merged)][-2:] == ["start", "end"]


@pytest.mark.parametrize("other", [start("loops"), start(axes={"seed": 4})])
def test_logs_of_different_campaigns_are_not_added(log, other):
    with pytest.raises(ConvrefError, match="another campaign"):
        report.merge([log("a", start()), log("b", other)])


@pytest.mark.parametrize("text", ["", "no json", "[1, 2]", '{"event": 3}'])
def test_files_that_are_not_logs_are_refused(log, text):
    with pytest.raises(ConvrefError, match="not a log"):
        report.merge([log("a", text)])


def test_a_missing_or_giant_log_is_refused(log, tmp_path, monkeypatch):
    with pytest.raises(ConvrefError, match="No such file"):
        report.merge([tmp_path / "nothing"])
    monkeypatch.setattr(logfile, "MAX_LOG", 10)
    for endless in (log("a", start()), Path("/dev/zero")):
        with pytest.raises(ConvrefError, match="more than"):
            report.merge([endless])


FOREIGN = [
    '{"torn": ',
    "[" * 100_000,
    {**chunk(0, 1), "counts": [[["conv", "fprop", "f32", EVIL, "exact"], 1]]},
    {**chunk(0, 1), "counts": [[["conv", "fprop", "f32", "pass", "exact"], -5]]},
    {**chunk(0, 1), "counts": [[["conv", "fprop", "f32", "pass", "exact"], 10**30]]},
    {**chunk(0, 1), "counts": [["conv", 1]]},
    {**chunk(0, 1), "findings": [{**FINDING, "line": "../../etc/passwd"}]},
    {**chunk(0, 1), "findings": [{**FINDING, "verdict": "guilty"}]},
    {**chunk(0, 1), "findings": [{**FINDING, "index": ["a"]}]},
    {**chunk(0, 1), "findings": "abc"},
    {**FAILURE, "line": "../../etc/passwd"},
    {**FAILURE, "line": "conv.fprop:" + "n" * 100_000},
    {**FAILURE, "first": "__import__('os')"},
    {**FAILURE, "verdict": "guilty"},
    {**FAILURE, "needs": {"a": 1}},
    {**FAILURE, "reason": ["a"]},
    {"event": "end", "elapsed": "soon", "fingerprint": {}},
    {"event": "end", "elapsed": 1.0, "fingerprint": {"a": ["b"]}},
    {"event": "exec", "code": "1"},
]


@pytest.mark.parametrize("event", FOREIGN)
def test_foreign_events_are_left_out_and_counted(log, event):
    total = report.merge([log("a", start(), event, chunk(1, 7))])
    assert (total.dropped, total.by_verdict(), total.failures) == (1, {"pass": 7}, [])


class Elements(HTMLParser):
    """Every element and attribute of a page."""

    def __init__(self, text):
        super().__init__()
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def evil_page(log):
    events = (start(EVIL), chunk(0, 5, "wrong"), FAILURE, end(**{EVIL: EVIL}))
    key = [EVIL[:30], EVIL[:30], EVIL[:30], "wrong", EVIL[:30]]
    return pages.html(report.merge([log("a", *events, {**chunk(1, 1), "counts": [[key, 1]]})]))


def test_names_and_reasons_cannot_inject_anything(log):
    page = evil_page(log)
    seen = Elements(page).seen
    assert not {"script", "iframe", "object", "link"} & {tag for tag, _ in seen}
    assert not [name for _, attrs in seen for name in attrs if name.startswith("on")]
    assert not [attrs for tag, attrs in seen if tag == "img"]
    assert page.count("&lt;script&gt;") >= 5
    policy = next(a["content"] for tag, a in seen if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_the_page_needs_no_other_file(log):
    page = evil_page(log)
    links = re.findall(r'(?:src|href)\s*=\s*"([^"]*)', page)
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "url(" not in page


def test_counts_link_to_their_findings(log):
    finding = {"line": LINE, "verdict": "crash", "reason": "SIGABRT"}
    report_of = chunk(0, 1, "crash") | {"findings": [finding] * 11}
    page = pages.html(report.merge([log("a", start(), report_of, end())]))
    (target,) = re.findall(r'<a href="#([^"]+)">1 crash</a>', page)
    _, _, section = page.partition(f'<h3 id="{target}">conv.fprop f32')
    assert section.count(f"<code>{LINE}</code> SIGABRT") == 10
    assert "1 more finding in the log" in section
    assert "merged from 1 log<" in page
    assert "1 example in 2 s (0.5 a second): 1 crashed." in page


def test_a_case_of_any_size_is_not_written_out(log):
    giant = "conv.fprop:n1000000c1000k1000_i1000x1000_f3x3"
    page = pages.html(report.merge([log("a", start(), {**FAILURE, "line": giant})]))
    assert giant in page
    assert "too large to print" in page


def outcome(verdict="wrong", line=LINE, backend="numpy"):
    tally = Tally(Counter({("conv", "fprop", "f32", verdict, "exact"): 1}))
    failure = Failure(line, verdict, "y is off", ("stride >= 2",), ("c",), 1, line)
    return Outcome(Settings(backend), tally, [failure], 2.0)


def test_an_outcome_gives_the_same_page_as_its_log():
    found = report.summary(outcome())
    page = pages.html(found)
    assert not found.good
    for text in (LINE, "stride &gt;= 2", "import torch", "1 wrong", "y is off"):
        assert text in page


@pytest.mark.parametrize(
    ("verdict", "word"),
    [("pass", "all right"), ("unsupported", "nothing judged"), ("crash", "failures")],
)
def test_a_page_reports_right_only_if_judged(verdict, word):
    found = report.summary(outcome(verdict))
    assert f">{word}</span>" in pages.html(replace(found, failures=[]))


def test_the_program_of_a_failure_asks_for_the_threads_that_it_had():
    found = report.summary(outcome("crash", backend="torch"))
    assert "torch.set_num_threads(1)" in pages.html(found)
    found.failures[0] = replace(found.failures[0], reason="SIGSEGV, with 3 threads")
    assert "torch.set_num_threads(3)" in pages.html(found)


WRONG = """
from convref.backends.numpy import NumpyBackend
class Wrong(NumpyBackend):
    def run(self, call, *operands):
        (y,) = super().run(call, *operands)
        y[0, 0, 2, 1] += 8
        return (y,)
class Dies(NumpyBackend):
    def run(self, call, *operands):
        import os
        os._exit(3)
backend, dies = Wrong(), Dies()
"""


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    (tmp_path / "wrongback.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("wrong")
def test_the_picture_shows_the_first_wrong_element():
    pytest.importorskip("matplotlib", reason="needs convref[report]")
    picture, element = error_picture(LINE, "wrongback:backend")
    assert element == "y[0, 0, 2, 1] is 13.0, the reference is 5.0"
    head, _, data = picture.partition(",")
    assert head == "data:image/svg+xml;base64"
    assert b"<svg" in base64.b64decode(data)


@pytest.mark.usefixtures("wrong")
def test_a_crashing_backend_has_no_picture_and_does_not_end_the_report():
    assert error_picture(LINE, "wrongback:dies") == ("", "")


def test_a_log_cannot_make_a_backend_run(log, monkeypatch):
    """Only the caller names what is imported, never the file."""
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("something ran"))
    pages.html(report.merge([log("a", start("os:system"), FAILURE)]))


@pytest.mark.usefixtures("wrong")
def test_a_browser_renders_it(tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium is installed")
    page, shot = tmp_path / "report.html", tmp_path / "shot.png"
    pages.write(report.summary(outcome()), page, pictures="wrongback:backend")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}"]
    window = [*flags, "--window-size=1000,1200"]
    subprocess.run(
        [chromium, *window, f"--screenshot={shot}", page.as_uri()],
        check=True, capture_output=True, timeout=600,
    )  # fmt: skip
    dom = subprocess.run(
        [chromium, *flags, "--dump-dom", page.as_uri()],
        check=True, capture_output=True, timeout=600, text=True,
    ).stdout  # fmt: skip
    assert "largest error" in dom
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert _colours(shot) > 50  # headings, cells, and the picture, not an empty page


def _colours(path):
    image = pytest.importorskip("matplotlib.image", reason="needs convref[report]").imread(path)
    return len({tuple(pixel) for row in image[::3, ::3] for pixel in row.tolist()})


def test_a_bug_report_has_versions_program_expected_and_actual(log, capsys):
    from convref.cli.files import report_issue

    line = "relu.fprop:n1c1_i2:fill=ones"
    failure = {**FAILURE, "line": line, "first": "", "reason": "y[0] is 3, needs 1", "also": ()}
    report_issue(str(log("a", start(), failure, end())), 1)
    text = capsys.readouterr().out
    for part in ("# relu forward", "y[0] is 3, needs 1", "import torch", "y = forward(x)"):
        assert part in text
    assert 'print("expected y =", [[[1.0, 1.0]]])' in text
    assert "convref run" not in text
    with pytest.raises(ConvrefError, match="--number is 2, needs at most 1"):
        report_issue(str(log("b", start(), failure, end())), 2)
