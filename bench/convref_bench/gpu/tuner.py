"""The tuner: times the configurations of a backend on every line, judged first.

A backend offers ``configurations(call)``, the most promising first, and ``run(call, *operands,
configuration=one)``; one that no card has run is ``unproven``, because it might hang. The first
few of a line are timed beside the references. When all lines have had that, the rest are timed
beside the fastest so far. The whole matrix is written, so that rates can be fitted without a card.
"""

import hashlib
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Generator
from contextlib import closing
from copy import copy
from dataclasses import asdict, is_dataclass, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any

from convref import dispatch
from convref.case import Call
from convref.errors import invalid

from .. import options, records
from ..suites import suite
from ..timing.point import Place, configured, layout_of, point
from ..timing.watch import is_fatal

SOURCES = (".py", ".mojo", ".json", ".toml")
FEW = 4  # configurations of a line that are timed before the rest of any line
AT_MOST = 1.5  # of the fastest: a slower configuration is dropped early
FIRST, REST, ALL = "first", "rest", "all"  # parts of a line's configurations


def is_tunable(name: str) -> bool:
    return hasattr(dispatch.load(name), "configurations")


def describe(configuration: Any) -> Any:
    """Return a configuration as JSON takes it.

    >>> describe({"BLOCK_M": 128}), describe(("a", 1))
    ({'BLOCK_M': 128}, "('a', 1)")
    """
    if is_dataclass(configuration) and not isinstance(configuration, type):
        return asdict(configuration)
    return configuration if isinstance(configuration, dict | str | int) else str(configuration)


def source_hash(backend: Any) -> str:
    top = type(backend).__module__.partition(".")[0]
    module, digest = importlib.import_module(top), hashlib.sha256()
    folders = list(getattr(module, "__path__", []))
    files = [path for folder in folders for path in sorted(Path(folder).rglob("*"))]
    files = files or [Path(f) for f in [getattr(module, "__file__", None)] if f]
    for path in files:
        if path.suffix in SOURCES and path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def machine() -> dict[str, Any]:
    found: dict[str, Any] = {"python": platform.python_version(), "card": platform.machine()}
    found |= {name: records.version(name) for name in ("torch", "triton", "numpy")}
    torch = sys.modules.get("torch")
    return found | (card() if torch is not None and torch.cuda.is_available() else {})


def card() -> dict[str, Any]:
    import torch

    found = torch.cuda.get_device_properties(0)
    cuda, cudnn = torch.version.cuda, torch.backends.cudnn.version()
    return {"card": found.name, "sms": found.multi_processor_count, "cuda": cuda, "cudnn": cudnn}


class Search:
    """Times the configurations of one backend line after line, and appends every time to `out`.

    Times that `out` has under the same sources and `key` are not measured again. Unproven
    configurations are timed only for kernels in `proven`, or all of them if that is None.
    """

    def __init__(
        self,
        backend: str,
        place: Place,
        out: Path,
        key: str = "",
        proven: Collection[str] | None = None,
    ) -> None:
        self.backend, self.out, self.proven = backend, out, proven
        self.place = copy(place)
        self.place.stop = replace(place.stop, at_most=AT_MOST)
        self.sources = source_hash(dispatch.load(backend))
        self.head = {"backend": backend, "sources": self.sources, "key": key}
        rows = [row for row in records.read(out)[0] if self._is_mine(row)]
        self.searched = {(row["line"], row["part"]) for row in rows if row["what"] == "searched"}
        self.lost = {row["line"] for row in rows if "lost" in row}
        self.ms: dict[str, dict[str, float]] = {}
        for row in rows:
            self._keep(row)
        if not any(row["what"] == "tuning" for row in rows):
            records.append(out, {"what": "tuning", **self.head, **machine()})

    def _is_mine(self, row: records.Record) -> bool:
        """Return whether a record is of this search, or refuses an arm under the same key."""
        refused = row.get("key") == self.head["key"] and is_fatal(row)
        return self.head.items() <= row.items() or refused

    def _keep(self, row: records.Record) -> None:
        if row["what"] in ("tuned", "absent", "refused"):
            self.ms.setdefault(row["line"], {})[row["arm"]] = row.get("median_ms", inf)

    def is_timed(self, call: Call, part: str = ALL) -> bool:
        begun = part == FIRST and (str(call), part) in self.searched
        return begun or str(call) in self.lost or not self._untimed_arms(call)

    def _untimed_arms(self, call: Call) -> list[str]:
        """Return the arms that have not been timed and may be, the most promising first."""
        known, every = self.ms.get(str(call), {}), self.configurations(call)
        arms = [
            f"{self.backend}@{index}" for index, one in enumerate(every) if self.is_allowed(one)
        ]
        return [arm for arm in arms if arm not in known]

    def configurations(self, call: Call) -> tuple[Any, ...]:
        backend, _ = configured(self.backend, call)
        return tuple(backend.configurations(call)) if backend.supports(call) is None else ()

    def is_allowed(self, one: Any) -> bool:
        unproven = self.proven is not None and getattr(one, "unproven", False)
        return not unproven or one.kernel in (self.proven or ())

    def _best(self, call: Call, ours: bool) -> list[str]:
        known = self.ms.get(str(call), {}).items()
        found = {arm: ms for arm, ms in known if ("@" in arm) == ours and ms < inf}
        return [min(found, key=lambda arm: found[arm])] if found else []

    def arms(self, call: Call, part: str) -> list[str]:
        """Return the arms that are timed together: configurations, then references."""
        left = self._untimed_arms(call)
        if part == REST:
            return [*left, *self._best(call, ours=True), *self._best(call, ours=False)]
        same = f"torch.{layout_of(call)}"
        references = [arm for arm in self.place.references if arm != same]
        return [*(left if part == ALL else left[:FEW]), *references]

    def untimed(self, call: Call, part: str) -> list[Any]:
        """Return the configurations that `add` would time for the first time."""
        if self.is_timed(call, part):
            return []
        every, left = self.configurations(call), self._untimed_arms(call)
        return [every[_index(arm)] for arm in (left[:FEW] if part == FIRST else left)]

    def add(
        self, network: str, layer: suite.Layer, call: Call, part: str = ALL
    ) -> list[records.Record]:
        """Time a part of a call's configurations; return the records."""
        if self.is_timed(call, part):
            return []
        every, arms = self.configurations(call), self.arms(call, part)
        mine = [arm for arm in arms if "@" in arm]
        about = {"suite": network, "layer": layer.name, "times": layer.times, **self.head}
        searched = {"what": "searched", "line": str(call), "part": part, **self.head}
        found = []
        try:
            for row in point(self.place, call, arms, droppable=mine):
                if row["arm"] in mine:
                    row["configuration"] = describe(every[_index(row["arm"])])
                row["what"] = {"point": "tuned"}.get(row["what"], row["what"])
                found.append({**about, **row})
                records.append(self.out, found[-1])
                self._keep(row)
        except RuntimeError as error:
            if not any(map(is_fatal, records.read(self.out)[0][-1:])):
                records.append(self.out, {**searched, "lost": str(error)[:300]})
            raise  # the device is lost; the next run leaves the arm out, or else the call
        records.append(self.out, searched)
        self.searched.add((str(call), part))
        return found


def _index(arm: str) -> int:
    return int(arm.partition("@")[2])


def main(
    suite_: str,
    *,
    backend: str = "triton",
    pass_: str = suite.ALL_PASSES,
    dtype: str = "bf16",
    math: str = "ieee",
    device: str = "cuda",
    batch: int = 1,
    seconds: float = 3600.0,
    ray: str = "",
    gpus: float = 0.0,
    out: Path | None = None,
) -> int:
    """Time every configuration of a backend on a suite, most weighted layers first.

    --seconds limits the wall time. --ray is the address of a Ray cluster that times them, a call on
    one processor and --gpus GPUs (by default one where the device is cuda). Exit status 1 if a
    result was wrong.
    """
    from ..suites.network import place_of

    if gpus and not ray:
        raise invalid("tune", f"--gpus is {gpus:g}, needs --ray")
    if not is_tunable(backend):
        raise invalid("tune", f"{backend} has no configurations(call)")
    keys = options.keys(dtype, math, device)
    calls = _calls(suite_, options.parse_choices(pass_, suite.PASSES, "pass"), keys, batch)
    out = out or records.RESULTS / "tuning" / f"{backend}.jsonl"
    search = partial(_search, backend, partial(place_of, device))
    end, bad = time.monotonic() + seconds, 0
    if ray:
        rows = _on_nodes(ray, gpus or float(device == "cuda"), backend, search, calls, out)
    else:
        here = search(out)
        rows = (here.add(*call) for call in calls)
    with closing(rows):
        for found in rows:
            bad += sum(row["what"] == "refused" for row in found)
            _print_best(found)
            if time.monotonic() > end:
                print(f"time limit reached; run the command again to continue{os.linesep}{out}")
                return int(bad > 0)
    print(out)
    return int(bad > 0)


def _search(backend: str, place: Callable[[], Place], out: Path) -> Search:
    return Search(backend, place(), out)


Given = tuple[str, suite.Layer, Call]


def _on_nodes(
    ray: str,
    gpus: float,
    backend: str,
    search: Callable[[Path], Search],
    calls: list[Given],
    out: Path,
) -> Generator[list[records.Record]]:
    """Search on a cluster the calls that have not been searched and did not lose the device."""
    from . import nodes

    mine = {"backend": backend, "sources": source_hash(dispatch.load(backend)), "key": ""}
    rows = [row for row in records.read(out)[0] if mine.items() <= row.items()]
    machine = next((row for row in rows if row["what"] == "tuning"), None)
    by_line: dict[str, list[records.Record]] = {}
    for row in rows:
        by_line.setdefault(row.get("line", ""), []).append(row)
    pieces = ((call, by_line.get(str(call[2]), [])) for call in calls)
    left = (
        (call, known)
        for call, known in pieces
        if not any(row.get("part") == ALL or "lost" in row for row in known)
    )
    return nodes.add(ray, gpus, search, left, out, machine)


def _calls(name: str, passes: Collection[str], keys: list[str], batch: int) -> list[Given]:
    return [
        (name, layer, layer.call(pass_, batch, layer.keys(key)))
        for key in keys
        for layer in suite.by_weight(suite.load(name))
        for pass_ in layer.passes(passes)
    ]


def _print_best(found: list[records.Record]) -> None:
    timed = sorted((row["median_ms"], row["arm"], row) for row in found if row["what"] == "tuned")
    if timed:
        best, arm, row = timed[0]
        shown = row.get("configuration", "")
        print(f"{row['line']:<60} {len(timed)} arms, {arm} {shown} {best:.4g} ms", flush=True)
