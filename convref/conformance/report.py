"""The report: one HTML file of a campaign or of the logs of its shards, and their sum.

A log may come from anybody. Nothing in it names a file or is executed: what is no count, verdict
or case line is left out and counted, sizes are limited, text is escaped, and the page forbids
scripts. A backend runs, in a process of its own, only if the caller names one.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, exports
from ..case import parse
from ..dispatch import load
from ..errors import ConvrefError, UnsupportedError, message, missing_extra, shorten
from ..judge import reference
from .campaign import Failure, Outcome
from .examine import HARMLESS, PASSED_OVER, THREADS, VERDICTS, WITH_THREADS, Finding
from .operands import operands

try:
    import jinja2
except ImportError as error:
    raise missing_extra("report", error) from None

MAX_LOG = 1 << 30  # bytes of one log
MAX_EVENT = 4 << 20  # bytes of one of its lines
MAX_FAILURES = 200  # shown; the log has all
MAX_FINDINGS = 100_000  # kept of all logs together
MAX_TEXT = 2_000  # characters of one text on the page
MAX_SNIPPET = 1 << 20  # bytes of memory of a case that is written out as a program
MAX_SIDE = 48  # elements of a picture
MAP_SECONDS = 60.0

Key = tuple[str, str, str, str, str]


@dataclass
class Part:
    """What one chunk gave: counts as in `Summary`, findings, and whether it was run to its end."""

    counts: Counter[Key] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    done: bool = False


@dataclass
class Summary:
    """What campaigns found, as the page shows it.

    Parameters
    ----------
    backend : str
    axes : dict
        What was drawn from, with the seed.
    counts : Counter
        Keyed (op, pass, dtype, verdict, tier).
    failures : list of Failure
        Shrunk, each cause once.
    fingerprint : dict
    elapsed : float
        Seconds of all campaigns together.
    chunks : set of int
        Chunks that are complete.
    sources : int
        Logs that were read; 0 is a campaign of this process.
    dropped : int
        Events of the logs that were torn or foreign.
    parts : dict
        The chunks of the logs by number, `counts` in pieces.
    """

    backend: str = ""
    axes: dict[str, Any] = field(default_factory=dict)
    counts: Counter[Key] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    fingerprint: dict[str, str] = field(default_factory=dict)
    elapsed: float = 0.0
    chunks: set[int] = field(default_factory=set)
    sources: int = 0
    dropped: int = 0
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def examples(self) -> int:
        """Return how many examples were judged or refused."""
        return sum(self.counts.values())

    @property
    def good(self) -> bool:
        """Return whether nothing worse than a refusal was seen."""
        return all(key[3] in HARMLESS for key in self.counts)

    @property
    def word(self) -> tuple[str, str]:
        """Return what to call the campaign, and the verdict whose colour it has."""
        if not self.good:
            return "failures", "wrong"
        judged = any(n and key[3] not in PASSED_OVER for key, n in self.counts.items())
        return ("all right", "pass") if judged else ("nothing judged", "vacuous")

    def lines(self) -> tuple[str, ...]:
        """Return the line of each failure, then of each finding that was no pass."""
        found = [failure.line for failure in self.failures]
        found += [f.line for part in self.parts.values() for f in part.findings]
        return tuple(dict.fromkeys(found))

    def by_verdict(self) -> dict[str, int]:
        """Return the count of each verdict that was seen, worst last."""
        sums = Counter(dict.fromkeys(VERDICTS, 0))
        for key, n in self.counts.items():
            sums[key[3]] += n
        return {v: sums[v] for v in VERDICTS if sums[v]}


def summary(outcome: Outcome) -> Summary:
    """Return the Summary of a campaign that ran in this process."""
    tally, settings = outcome.tally, outcome.settings
    counts: Counter[Key] = Counter()
    for key, n in tally.counts.items():
        op, pass_, dtype, verdict, tier = key
        counts[op, pass_, dtype, verdict, tier] += n
    axes = dict(vars(settings.axes))
    return Summary(
        settings.backend,
        axes,
        counts,
        list(outcome.failures),
        dict(tally.fingerprint),
        outcome.elapsed,
        set(tally.chunks),
    )


def merge(paths: Sequence[Path]) -> Summary:
    """Return the sum of the logs of one campaign's shards; a chunk counts once.

    Parameters
    ----------
    paths : sequence of Path
        Logs that ``convref check --log`` wrote, of the same backend, seed and axes.

    Raises
    ------
    ConvrefError
        If a file is no log, is too large, or belongs to another campaign.
    """
    total = Summary()
    for path in paths:
        _add_log(total, path)
    for number, part in total.parts.items():
        total.counts.update(part.counts)
        if part.done:
            total.chunks.add(number)
    unique = {(f.verdict, f.line): f for f in total.failures}
    total.failures = sorted(unique.values(), key=lambda f: -VERDICTS.index(f.verdict))
    return total


def save(found: Summary, path: Path) -> None:
    """Write merged logs as one log, which can be merged, shown, replayed and resumed again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    events: list[dict[str, Any]] = [
        {"event": "start", "backend": found.backend, "axes": found.axes, "shard": [0, 1]}
    ]
    for number, part in sorted(found.parts.items()):
        counts = [[list(key), n] for key, n in sorted(part.counts.items())]
        findings = [finding.as_dict() for finding in part.findings]
        chunk = {"chunk": number, "counts": counts, "findings": findings, "done": part.done}
        events.append({"event": "report", **chunk})
    events += [{"event": "failure", **asdict(failure)} for failure in found.failures]
    events.append({"event": "end", "elapsed": found.elapsed, "fingerprint": found.fingerprint})
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")


def _add_log(total: Summary, path: Path) -> None:
    parts: dict[int, Part] = {}
    started = False
    for event in _events(path):
        kind = event.get("event")
        try:
            if kind == "start":
                started = True  # a chunk that was cut off is run again, whole
                parts = {number: part for number, part in parts.items() if part.done}
                _same_campaign(total, event, path)
            elif kind == "report":
                _add_report(total, parts, event)
            elif kind == "failure":
                total.failures.append(_failure(event))
            elif kind == "end":
                total.elapsed += max(0.0, float(event["elapsed"]))
                found = {_text(k, 60): _text(v, 200) for k, v in event["fingerprint"].items()}
                total.fingerprint |= dict(list(found.items())[:50])
            else:
                total.dropped += 1
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, ConvrefError) and kind == "start":
                raise
            total.dropped += 1
    if not started:
        raise ConvrefError(message("report", f"{path} is no log of convref check"))
    for number, part in parts.items():  # two shards never share a chunk; the same log twice does
        held = total.parts.setdefault(number, part)
        if not held.done and (part.done or part.counts.total() > held.counts.total()):
            total.parts[number] = part
    total.sources += 1


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log; torn, foreign and giant lines come as an empty event."""
    try:
        if path.stat().st_size > MAX_LOG:
            raise ConvrefError(message("report", f"{path} has more than {MAX_LOG >> 20} MiB"))
        with path.open("rb") as file:
            while text := file.readline(MAX_EVENT):
                if not text.strip():
                    continue
                try:
                    event = json.loads(text)
                except (ValueError, RecursionError):
                    event = None
                yield event if isinstance(event, dict) else {}
    except OSError as error:
        raise ConvrefError(message("report", f"{path}: {error.strerror}")) from None


def _same_campaign(total: Summary, event: dict[str, Any], path: Path) -> None:
    backend, axes = _text(event["backend"], 200), event["axes"]
    if not isinstance(axes, dict) or len(json.dumps(axes)) > MAX_TEXT:
        raise ConvrefError(message("report", f"{path} is no log of convref check"))
    if total.sources and (backend, axes) != (total.backend, total.axes):
        raise ConvrefError(message("report", f"{path} belongs to another campaign"))
    total.backend, total.axes = backend, axes


def _add_report(total: Summary, parts: dict[int, Part], event: dict[str, Any]) -> None:
    new = Part(done=bool(event["done"]))
    for key, n in event["counts"]:
        op, pass_, dtype, verdict, tier = (_text(part, 40) for part in key)
        if verdict not in VERDICTS or not 0 <= int(n) <= 10**9:
            raise ValueError
        new.counts[op, pass_, dtype, verdict, tier] += int(n)
    room = MAX_FINDINGS - sum(len(part.findings) for part in parts.values())
    new.findings = [_finding(found) for found in event["findings"][:room]]
    held = parts.setdefault(int(event["chunk"]), Part())
    if held.done:
        return
    held.counts.update(new.counts)
    held.findings += new.findings
    held.done = new.done


def _finding(event: dict[str, Any]) -> Finding:
    if event["verdict"] not in VERDICTS:
        raise ValueError
    parse(_text(event["line"], 4096))
    return Finding(
        event["line"],
        event["verdict"],
        _text(event["tier"], 40),
        _text(event["reason"], MAX_TEXT),
        _text(event["role"], 40),
        tuple(int(i) for i in event["index"][:8]),
        float(event["worst"]),
        _text(event.get("arm", "plain"), 40),
    )


def _failure(event: dict[str, Any]) -> Failure:
    if event["verdict"] not in VERDICTS:
        raise ValueError
    for name in ("line", "first"):
        if name == "line" or event[name]:
            parse(_text(event[name], 4096))
    return Failure(
        event["line"],
        event["verdict"],
        _text(event["reason"], MAX_TEXT),
        tuple(_text(need, 80) for need in event["needs"][:40]),
        tuple(_text(name, 80) for name in event["independent"][:40]),
        int(event["seen"]),
        event["first"],
        _text(event.get("arm", "plain"), 40),  # its command is not taken over: it is for a shell
    )


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise TypeError
    return shorten(value, limit)


def html(found: Summary, *, pictures: str = "") -> str:
    """Return the page: one HTML text that loads nothing and runs nothing.

    Parameters
    ----------
    found : Summary
    pictures : str
        Backend to run each failure on again, in a process of its own, for a picture of its
        errors; none by default, since a log may name anything.
    """
    folder = Path(__file__).with_name("templates")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = found.failures[:MAX_FAILURES]
    return environment.get_template("report.html").render(
        found=found,
        grid=_grid(found),
        cards=[_card(failure, found.backend, pictures) for failure in shown],
        hidden=len(found.failures) - len(shown),
        version=__version__,
        rate=found.examples / found.elapsed if found.elapsed else 0.0,
    )


def write(found: Summary, path: Path, *, pictures: str = "") -> None:
    """Write the page to `path`; arguments as in `html`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(found, pictures=pictures), encoding="utf-8")


def _grid(found: Summary) -> dict[str, Any]:
    """Return rows of ops and passes by columns of dtypes; each cell counts by verdict."""
    cells: dict[tuple[str, str], Counter[str]] = {}
    for (op, pass_, dtype, verdict, _), n in found.counts.items():
        cells.setdefault((f"{op}.{pass_}", dtype), Counter())[verdict] += n
    dtypes = sorted({dtype for _, dtype in cells})
    rows = []
    for name in sorted({row for row, _ in cells}):
        row = []
        for dtype in dtypes:
            counts = cells.get((name, dtype), Counter())
            seen = [v for v in VERDICTS if counts[v]]
            row.append({"worst": seen[-1] if seen else "none", "counts": [*counts.items()]})
        rows.append((name, row))
    return {"dtypes": dtypes, "rows": rows}


def _card(failure: Failure, backend: str, pictures: str) -> dict[str, Any]:
    picture, element = "", ""
    if pictures and failure.verdict in ("wrong", "suspect"):
        picture, element = error_picture(failure.line, pictures)
    return {
        "failure": failure,
        "snippet": _snippet(failure, backend),
        "picture": picture,
        "element": element,
    }


def _snippet(failure: Failure, backend: str) -> str:
    """Return the case as a program of the framework at fault, or why there is none."""
    case = parse(failure.line)
    threads = THREADS if WITH_THREADS in failure.reason else 1  # as a worker has
    if case.call.memory() > MAX_SNIPPET:
        return "# too large to be written out; convref run has --snippet"
    try:
        if backend.startswith("jax"):
            return exports.to_jax(case)
        return exports.to_torch(case, threads=threads)
    except (UnsupportedError, ConvrefError) as error:
        return f"# {' '.join(str(error).split())}"


_MAP = "import sys; from convref.conformance.report import main; main(*sys.argv[1:])"


def error_picture(line: str, backend: str) -> tuple[str, str]:
    """Return a picture of the errors of a case, as a data URI, and its first wrong element.

    The backend runs in a process of its own; where it crashes or hangs, both are empty.

    Parameters
    ----------
    line : str
    backend : str
        As `convref.dispatch.load` takes it.
    """
    if parse(line).call.memory() > MAX_SNIPPET:
        return "", ""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _MAP, line, backend],
            capture_output=True,
            timeout=MAP_SECONDS,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return "", ""
    return (_picture(found) if found["plane"] else ""), found["element"]


def main(line: str, backend: str) -> None:
    """Print, as JSON, the plane of errors around the first wrong element of a case."""
    case = parse(line)
    found = load(backend)
    given = operands(case)
    results = getattr(found, "raw", found).run(case.call, *given)
    values = reference(case.call, given).values
    print(json.dumps(_plane(case.call.signature.results, results, values)))


def _plane(roles: Sequence[str], results: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return the last two axes of |got - want| at its largest element, and that element."""
    from ..arrays import to_numpy

    for role, result, want in zip(roles, results, values):
        if result is None or want is None:
            continue
        got = to_numpy(result).astype(want.dtype)
        if got.shape != want.shape or not got.size:
            continue
        with np.errstate(all="ignore"):
            error = np.abs((got - want).astype(np.complex128)).astype(float)
        odd = np.isnan(got) != np.isnan(want)
        error = np.where(odd, np.inf, np.nan_to_num(error, posinf=0.0))
        if not error.any():
            continue
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
        where = ", ".join(map(str, at))
        plane = error[at[:-2]] if error.ndim > 1 else error[None]
        corner = [max(0, i - MAX_SIDE // 2) for i in (at if len(at) > 1 else (0, *at))[-2:]]
        cut = plane[corner[0] : corner[0] + MAX_SIDE, corner[1] : corner[1] + MAX_SIDE]
        return {
            "element": f"{role}[{where}] is {got[at]}, the reference is {want[at]}",
            "corner": corner,
            "plane": [[min(float(v), 1e300) for v in row] for row in cut],
        }
    return {"element": "", "plane": []}


def _picture(found: dict[str, Any]) -> str:
    """Return the plane as an SVG in a data URI: light where right, dark where far off."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise missing_extra("report", error) from None
    plane = np.asarray(found["plane"], float)
    wrong = np.where(plane > 0, np.log10(np.maximum(plane, 1e-300)), np.nan)
    rows, columns = plane.shape
    figure = Figure(figsize=(2.0 + 0.2 * columns, 1.0 + 0.2 * rows), layout="constrained")
    axes = figure.subplots()
    top, left = found["corner"]
    extent = (left - 0.5, left + columns - 0.5, top + rows - 0.5, top - 0.5)
    axes.set_facecolor("#e8f3e8")
    shown = axes.imshow(wrong, cmap="YlOrRd", extent=extent, interpolation="nearest")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.colorbar(shown, ax=axes, label="log10 |got - reference|")
    text = io.BytesIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(text.getvalue()).decode()
