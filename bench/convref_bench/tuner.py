"""The tuner: every configuration of a backend on every line, judged first, losers kept too.

A backend offers ``configurations(call)``, and ``run(call, *operands, configuration=one)``; one that
might hang, because no card has run it, is ``unproven``. What is written is the whole matrix, so
that heuristics can be refitted where there is no such card.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from convref import dispatch
from convref.case import Call
from convref.errors import ConvrefError, message

from . import options, records, suite
from .points import Place, configured, layout_of, point

SOURCES = (".py", ".mojo", ".json", ".toml")


def is_tunable(name: str) -> bool:
    """Return whether a backend offers configurations."""
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
    """Return twelve digits that change with the files of the backend's package."""
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
    """Return the card and the versions that times depend on."""
    found: dict[str, Any] = {"python": platform.python_version(), "card": platform.machine()}
    found |= {name: _version(name) for name in ("torch", "triton", "numpy")}
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        found |= {"card": card.name, "sms": card.multi_processor_count, "cuda": torch.version.cuda}
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


class Search:
    """Times the configurations of one backend line after line, and appends every time.

    Parameters
    ----------
    backend : str
    place : Place
    out : Path
        JSON lines; what it holds of these sources is not timed again.
    key : str
        Written into every record.
    proven : collection of str, optional
        Kernels that are timed though they call themselves unproven; all of them unless given.
    """

    def __init__(
        self,
        backend: str,
        place: Place,
        out: Path,
        key: str = "",
        proven: Collection[str] | None = None,
    ) -> None:
        self.backend, self.place, self.out, self.proven = backend, place, out, proven
        self.sources = source_hash(dispatch.load(backend))
        self.head = {"backend": backend, "sources": self.sources, "key": key}
        self.head |= {} if proven is None else {"proven": sorted(proven)}
        rows = [row for row in records.read(out)[0] if self.head.items() <= row.items()]
        rows = [row for row in rows if row.get("proven") == self.head.get("proven")]
        self.done = {row["line"] for row in rows if row.get("what") == "searched"}
        if not any(row.get("what") == "tuning" for row in rows):
            records.append(out, {"what": "tuning", **self.head, **machine()})

    def has(self, call: Call) -> bool:
        """Return whether a call was searched before."""
        return str(call) in self.done

    def add(self, network: str, layer: suite.Layer, call: Call) -> list[records.Record]:
        """Time every configuration of a call beside the references; return the records."""
        backend, _ = configured(self.backend, call)
        if self.has(call) or backend.supports(call) is not None:
            return []
        every = tuple(backend.configurations(call))
        arms = [
            f"{self.backend}@{index}"
            for index, one in enumerate(every)
            if self.proven is None
            or not getattr(one, "unproven", False)
            or one.kernel in self.proven
        ]
        same = f"torch.{layout_of(call)}"
        references = [arm for arm in self.place.references if arm != same]
        about = {"suite": network, "layer": layer.name, "times": layer.times, **self.head}
        searched, found = {"what": "searched", "line": str(call), **self.head}, []
        try:
            for row in point(self.place, call, [*arms, *references]):
                _, at, index = row["arm"].partition("@")
                row |= {"configuration": describe(every[int(index)])} if at else {}
                row["what"] = {"point": "tuned"}.get(row["what"], row["what"])
                found.append({**about, **row})
                records.append(self.out, found[-1])
        except RuntimeError as error:  # the device is lost; the next run leaves this call out
            records.append(self.out, {**searched, "lost": str(error)[:300]})
            raise
        records.append(self.out, searched)
        self.done.add(str(call))
        return found


def main(
    name: str,
    backend: str,
    passes: str,
    dtype: str,
    device: str,
    batch: int,
    seconds: float,
    out: Path | None,
) -> int:
    """Search a suite, most weighted layers first; exit status 1 if a result was wrong."""
    from .__main__ import RESULTS
    from .network import place_of

    keys = [options.keys(word, device) for word in options.words(dtype)]
    chosen = options.chosen(passes, suite.PASSES, "pass")
    if not is_tunable(backend):
        raise ConvrefError(message("tune", f"{backend} has no configurations(call)"))
    out = out or RESULTS / "tuning" / f"{backend}.jsonl"
    search = Search(backend, place_of(device, beside=False), out)
    end, bad = time.monotonic() + seconds, 0
    for key in keys:
        for layer in suite.by_weight(suite.load(name)):
            for pass_ in layer.passes(chosen):
                if time.monotonic() > end:
                    print(f"time is up; the same command goes on{os.linesep}{out}")
                    return int(bad > 0)
                found = search.add(name, layer, layer.call(pass_, batch, layer.keys(key)))
                bad += sum(row["what"] == "refused" for row in found)
                _say(found)
    print(out)
    return int(bad > 0)


def _say(found: list[records.Record]) -> None:
    timed = sorted((row["median_ms"], row["arm"], row) for row in found if row["what"] == "tuned")
    if timed:
        best, arm, row = timed[0]
        shown = row.get("configuration", "")
        print(f"{row['line']:<60} {len(timed)} arms, {arm} {shown} {best:.4g} ms", flush=True)
