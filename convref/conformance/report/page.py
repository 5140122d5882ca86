"""The HTML page of a campaign or of merged logs: one file that loads nothing and runs nothing.

A backend runs, in a process of its own, only if the caller names one.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from ... import __version__, exports
from ...case import parse
from ...errors import ConvrefError, UnsupportedError, missing_extra
from ..causes import Failure
from ..examine import THREADS, VERDICTS, WITH_THREADS
from .picture import error_picture
from .summary import Summary

try:
    import jinja2
except ImportError as error:
    raise missing_extra("report", error) from None

MAX_FAILURES = 200  # shown; the log has all
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
        return "# too large to print; use convref run LINE --snippet"
    try:
        if backend.startswith("jax"):
            return exports.to_jax(case)
        return exports.to_torch(case, threads=threads)
    except (UnsupportedError, ConvrefError) as error:
        return f"# {' '.join(str(error).split())}"
