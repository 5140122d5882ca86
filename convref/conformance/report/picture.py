"""A picture of the errors of a failure: its backend runs once more, in a process of its own."""

import base64
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import to_numpy
from ...case import parse
from ...dispatch import load
from ...errors import missing_extra
from ...judge import reference
from ..operands import operands
from ..workers.worker import raw

MAX_MEMORY = 1 << 20  # bytes of a case that is run again
MAX_SIDE = 48  # elements of a picture
SECONDS = 60.0

_RUN = "import sys; from convref.conformance.report.picture import main; main(*sys.argv[1:])"


def error_picture(line: str, backend: str) -> tuple[str, str]:
    """Return a picture of the errors of a case, as a data URI, and its first wrong element.

    The backend runs in a process of its own; where it crashes or hangs, both are empty.
    """
    if parse(line).call.memory() > MAX_MEMORY:
        return "", ""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, line, backend],
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return "", ""
    return (_picture(found) if found["plane"] else ""), found["element"]


def main(line: str, backend: str) -> None:
    """Print, as JSON, the plane of errors around the first wrong element of a case."""
    case = parse(line)
    given = operands(case)
    results = raw(load(backend)).run(case.call, *given)
    values = reference(case.call, given).values
    print(json.dumps(_plane(case.call.signature.results, results, values)))


def _plane(roles: Sequence[str], results: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return the last two axes of |got - want| at its largest element, and that element."""
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
