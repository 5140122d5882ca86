"""A campaign in the terminal: a progress line while it runs, a table and the failures after."""

import os
import time
from collections.abc import Mapping
from typing import Any

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ...errors import shorten
from ..campaign import Outcome, Settings
from ..campaign import run as run_campaign
from ..causes import KINDS, Failure
from ..examine import HARMLESS, VERDICTS
from .summary import count

STYLE = {
    "pass": "green",
    "unsupported": "dim",
    "known": "dim",
    "vacuous": "yellow",
    "suspect": "yellow",
}
REFRESH_SECONDS = 0.2
SHOWN = 20  # failures on the screen; the log has all
UNSHRUNK = 10  # findings, where there is no failure
QUIET_SECONDS = 10.0  # between lines where there is no terminal


def run(settings: Settings, console: Console) -> Outcome:
    """Run a campaign, show its progress and print its findings."""
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    shown = 0.0
    on = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not on) as progress:
        total = settings.seconds if settings.examples is None else float(settings.examples)
        bar = progress.add_task(escape(settings.backend), total=total, note="starting workers")

        def watch(outcome: Outcome, note: str) -> None:
            nonlocal shown
            pause = REFRESH_SECONDS if console.is_terminal else QUIET_SECONDS
            now = time.monotonic()
            if now - shown < pause:
                return
            shown = now
            done = outcome.elapsed if settings.examples is None else outcome.tally.examples
            text = escape(note) or _rate(outcome)
            progress.update(bar, completed=done, note=text)
            if not console.is_terminal:
                console.print(f"{escape(settings.backend)}: {text}")

        outcome = run_campaign(settings, watch)
    show(outcome, console)
    return outcome


def _rate(outcome: Outcome) -> str:
    tally = outcome.tally
    speed = tally.examples / outcome.elapsed if outcome.elapsed else 0.0
    bad = {v: tally.count(v) for v in VERDICTS if v not in HARMLESS}
    judged = tally.judged
    good = "[green]all right[/]" if judged else "nothing judged yet"
    words = ", ".join(f"[red]{n} {v}[/]" for v, n in bad.items() if n) or good
    words = f"{judged:,} of them judged, {words}" if 0 < judged < tally.examples else words
    return f"{count(tally.examples, 'example')}, {speed:,.{int(speed < 10)}f}/s, {words}"


def show(outcome: Outcome, console: Console) -> None:
    """Print the table of a campaign and each failure."""
    made_of = ", ".join(f"{k} {v}" for k, v in outcome.tally.fingerprint.items())
    versions = f" ({made_of})" if made_of else ""  # none if it was interrupted while it started
    console.print(
        f"\n[bold]{escape(outcome.settings.backend)}[/]{escape(versions)}, "
        f"seed {outcome.settings.axes.seed}: {_rate(outcome)}"
    )
    if len(outcome.tally.arms) > 1:
        shares = ", ".join(f"{name} {n:,}" for name, n in outcome.tally.arms.most_common() if n)
        console.print(f"arms: {escape(shares)}", highlight=False)
    console.print(table(outcome.tally.counts))
    for bug, (failed, passed) in sorted(outcome.retested().items()):
        if not outcome.settings.retest:
            text = f"{failed:,} cases not run"
        elif failed:
            text = f"still there: {failed:,} fail, {passed:,} pass"
        else:
            text = f"[green]fixed?[/] {passed:,} pass, none fails"
        console.print(f"known bug {escape(bug)}: {text}", highlight=False)
    if len(outcome.failures) > SHOWN:
        console.print(f"the first {SHOWN} of {len(outcome.failures)} failures:")
    for number, failure in enumerate(outcome.failures[:SHOWN], 1):
        _show_failure(number, failure, console)
    findings = [f for f in outcome.tally.findings if f.verdict not in HARMLESS]
    if findings and not outcome.failures:
        unshrunk = list(dict.fromkeys(f"{f.line}  {f.verdict} {f.reason}" for f in findings))
        first = f", the first {UNSHRUNK} of {len(unshrunk)}" if len(unshrunk) > UNSHRUNK else ""
        console.print(f"not shrunk{first}:")
        for text in unshrunk[:UNSHRUNK]:
            console.print(f"  {escape(text)}")
    nothing = "" if outcome.tally.examples else "nothing was judged; give more --seconds"
    for note in (outcome.stopped or nothing, outcome.log_error):
        if note:
            console.print(f"[yellow]{escape(note)}[/]")


def table(counts: Mapping[Any, int]) -> Table:
    """Return the grid: a row per op, pass and dtype, a column per verdict."""
    found = {key[3] for key, n in counts.items() if n}
    seen = [v for v in VERDICTS if v in found]
    grid = Table(box=rich.box.SIMPLE_HEAD)
    styles = {"op.pass": "", "dtype": "", **{v: STYLE.get(v, "red") for v in seen}, "exact": "dim"}
    for name, style in styles.items():  # a narrow terminal folds words and cuts none off
        right = name not in ("op.pass", "dtype")
        grid.add_column(name, justify="right" if right else "left", style=style, overflow="fold")
    rows = sorted({key[:3] for key in counts})
    for op, pass_, dtype in rows:
        cells = [
            sum(n for key, n in counts.items() if key[:3] == (op, pass_, dtype) and key[3] == v)
            for v in seen
        ]
        exact = sum(
            n
            for key, n in counts.items()
            if key[:3] == (op, pass_, dtype) and key[3:] == ("pass", "exact")
        )
        grid.add_row(f"{op}.{pass_}", dtype, *(f"{n:,}" if n else "" for n in cells), f"{exact:,}")
    return grid


def _show_failure(number: int, failure: Failure, console: Console) -> None:
    console.print(
        f"[red]{number}. {failure.verdict}[/]  {escape(shorten(failure.reason, 240))}",
        highlight=False,
    )
    console.print(f"   [bold]{escape(failure.line)}[/]", soft_wrap=True, highlight=False)
    if failure.needs:
        console.print(f"   needs {escape(', '.join(failure.needs))}", highlight=False)
    if failure.independent:
        console.print(
            f"   independent of {escape(', '.join(failure.independent))}", highlight=False
        )
    for where in failure.also[:SHOWN]:
        console.print(f"   also {escape(where)}", soft_wrap=True, highlight=False)
    console.print(f"   try: {escape(KINDS.get(failure.kind, ''))}", soft_wrap=True, highlight=False)
    console.print(
        f"   {count(failure.seen, 'finding')} of this kind; {escape(failure.command)}{os.linesep}",
        soft_wrap=True,
        highlight=False,
    )
