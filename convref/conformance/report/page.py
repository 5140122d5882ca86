"""The HTML page of a campaign or of merged logs: one file that loads nothing and runs nothing.

A backend runs, in a process of its own, only if the caller names one.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from ... import __version__
from ...case import parse
from ...errors import missing_extra
from ..causes import KINDS, Failure
from ..examine import HARMLESS, RANK, VERDICTS, Finding
from .issue import program
from .picture import error_picture
from .summary import Summary, count

try:
    import jinja2
except ImportError as error:
    raise missing_extra("report", error) from None

MAX_FAILURES = 200  # shown; the log has all
MAX_FINDINGS = 10  # shown of a verdict in a cell
PHRASES = {  # of verdicts that are not adjectives
    "pass": "passed",
    "unsupported": "not supported",
    "known": "not run because of known bugs",
    "changed-input": "changed an input",
    "wrote-outside": "wrote outside of their output",
    "rejects-valid": "rejected though valid",
    "accepts-invalid": "accepted though invalid",
    "hang": "hung",
    "crash": "crashed",
}
MAX_SNIPPET = 1 << 20  # bytes of memory of a case that is written out as a program


def html(found: Summary, *, pictures: str = "") -> str:
    """Return the page: one HTML text that loads nothing and runs nothing.

    `pictures` is the backend to run each failure on again, in a process of its own, for a picture
    of its errors; none by default, since a log may name anything.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = count
    shown = found.failures[:MAX_FAILURES]
    return environment.get_template("report.html").render(
        found=found,
        grid=_grid(found),
        cards=[_card(failure, found.backend, pictures) for failure in shown],
        hidden=len(found.failures) - len(shown),
        version=__version__,
        rate=found.examples / found.elapsed if found.elapsed else 0.0,
        counts=", ".join(f"{n:,} {PHRASES.get(v, v)}" for v, n in found.by_verdict().items()),
        meanings=VERDICTS,
    )


def write(found: Summary, path: Path, *, pictures: str = "") -> None:
    """Write the page to `path`; arguments as in `html`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(found, pictures=pictures), encoding="utf-8")


def _grid(found: Summary) -> dict[str, Any]:
    """Return rows of ops and passes by columns of dtypes; each cell has its verdicts, worst first.

    `groups` has the findings of a cell with one verdict, which the count in the cell links to.
    """
    cells: dict[tuple[str, str], Counter[str]] = {}
    for (op, pass_, dtype, verdict, _), n in found.counts.items():
        cells.setdefault((f"{op}.{pass_}", dtype), Counter())[verdict] += n
    groups = _groups(found.findings)
    dtypes = sorted({dtype for _, dtype in cells})
    rows = []
    for name in sorted({row for row, _ in cells}):
        row = []
        for dtype in dtypes:
            counts = cells.get((name, dtype), Counter())
            seen = [v for v in reversed(VERDICTS) if counts[v]]
            row.append([(v, counts[v], groups.get((name, dtype, v))) for v in seen])
        rows.append((name, row))
    return {"dtypes": dtypes, "rows": rows, "groups": list(groups.values())}


def _groups(findings: list[Finding]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the failing cases by op and pass, dtype and verdict, with the id of each group."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for finding in sorted(findings, key=lambda f: -RANK[f.verdict]):
        if finding.verdict not in HARMLESS:
            call = parse(finding.line).call
            key = (call.where, call.dtype, finding.verdict)
            group = groups.setdefault(key, {"id": f"findings-{len(groups)}", "key": key, "all": []})
            group["all"].append(finding)
    for group in groups.values():
        group["shown"] = group["all"][:MAX_FINDINGS]
    return groups


def _card(failure: Failure, backend: str, pictures: str) -> dict[str, Any]:
    picture, element, line = "", "", ""
    if pictures and failure.verdict in ("wrong", "suspect"):
        for line in filter(None, (failure.first, failure.line)):  # the larger case shows a shape
            picture, element = error_picture(line, pictures)
            if picture:
                break
    return {
        "failure": failure,
        "pictured": line,
        "snippet": _snippet(failure, backend),
        "hint": KINDS.get(failure.kind, ""),
        "picture": picture,
        "element": element,
    }


def _snippet(failure: Failure, backend: str) -> str:
    """Return the case as a program of the framework at fault, or why there is none."""
    if parse(failure.line).call.memory() > MAX_SNIPPET:
        return "# too large to print; use convref run LINE --snippet"
    return program(failure, backend)
