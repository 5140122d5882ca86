"""The tuner on a cluster of Ray: each call is a task, on a node with a free card.

A lost node costs the calls that it had begun; they run again on another. The records of a call are
appended once, when all its configurations are timed.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from convref.conformance.workers import fleet
from convref.errors import invalid

from .. import records
from ..records import Record

Piece = tuple[tuple[Any, ...], list[Record]]  # arguments of `add`, and the records of that call


class NodeSearch(Protocol):
    def add(self, *call: Any) -> list[Record]: ...


def add(
    address: str,
    gpus: float,
    search: Callable[[Path], NodeSearch],
    pieces: Iterator[Piece],
    out: Path,
    first: Record | None,
) -> Generator[list[Record]]:
    """Append to `out` what a search adds for each piece; yield it, or nothing after a moment.

    `first` is the record of a machine that `out` has: all nodes have to be like it.
    """
    fleet.connect(address)
    with closing(fleet.as_completed(partial(_added, search), pieces, gpus)) as found:
        for one in found:
            if one is None:
                yield []
                continue
            machine, *new = one[1]
            if first is None:
                records.append(out, first := machine)
            _check_same(machine, first)
            for row in new:
                records.append(out, row)
            yield new


def _check_same(machine: Record, first: Record) -> None:
    for name in machine:
        if machine[name] != first.get(name):
            what = f"a node has {name} {machine[name]}, the first one {first.get(name)}"
            raise invalid("tune", f"{what}, needs the same card and versions on every node")


def _added(search: Callable[[Path], NodeSearch], piece: Piece) -> list[Record]:
    """Return the record of a node's machine and those of a call; a lost device is one of them."""
    call, known = piece
    with TemporaryDirectory() as folder:
        out = Path(folder, "call.jsonl")
        for row in known:
            records.append(out, row)
        with suppress(RuntimeError):
            search(out).add(*call)
        return records.read(out)[0][len(known) :]
