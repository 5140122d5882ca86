"""One point: a call on several arms at one place, judged first, then timed in one run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from convref import dispatch
from convref.case import Call
from convref.errors import invalid

from ..records import Record
from .measure import Device, Stop, Timing, Work, measure, verdict
from .roofline import Roof, RoofError

ARMS_PER_LIMIT = 4  # arms that a place's time limit is meant for; more arms get more time
# Arms that others are compared with: "NAME", and "NAME+EPILOGUE" for fused arms.
PLAIN = ("torch", "torch.nchw", "torch.nhwc")
FUSED = ("cudnn", "compile")


@dataclass
class Prepared:
    """Arms that can be timed, and why the others cannot, each by the name of the arm."""

    works: dict[str, Work] = field(default_factory=dict)  # its result was judged
    facts: dict[str, Record] = field(default_factory=dict)  # more fields of its record
    absent: dict[str, str] = field(default_factory=dict)  # why it cannot do the call
    refused: dict[str, str] = field(default_factory=dict)  # why its result is wrong


class Place(Protocol):
    """Where arms are timed: a processor, its operands, and the judge of results."""

    device: Device
    stop: Stop
    cold: bool
    references: tuple[str, ...]  # arms that a tuner times along with its own

    def prepare(self, call: Call, names: Sequence[str]) -> Prepared:
        """Return the arms of `names` ready to be timed on one set of operands."""


def point(
    place: Place,
    call: Call,
    names: Sequence[str],
    roof: Roof | None = None,
    droppable: Collection[str] = (),
) -> Iterator[Record]:
    """Yield a record per arm: "point", "absent" or "refused".

    A time above `roof` is refused; `droppable` arms may be dropped by the place's `stop`.
    """
    ready = place.prepare(call, names)
    for what, reasons in (("absent", ready.absent), ("refused", ready.refused)):
        for name, why in reasons.items():
            yield {"what": what, "line": str(call), "arm": name, "why": why[:300]}
    if not ready.works:
        return
    many = max(1.0, len(ready.works) / ARMS_PER_LIMIT)
    stop = replace(place.stop, timeout_s=many * place.stop.timeout_s)
    found = measure(ready.works, place.device, stop, cold=place.cold, droppable=droppable)
    for name, timing in found.items():
        row = {"line": str(call), "arm": name, **ready.facts.get(name, {})}
        if (other := reference_of(name, found)) is not None:
            ratio = found[other].median_ms / timing.median_ms if timing.median_ms else 0.0
            row |= {"against": other, "ratio": ratio, "verdict": verdict(timing, found[other])}
        try:
            if roof is not None:
                cold = bool(row.get("cold", place.cold))
                row["roof"] = roof.fraction(call, timing.low_ms / 1e3, cold=cold)
        except RoofError as error:
            yield {"what": "refused", "why": str(error), **row}
            continue
        yield {"what": "point", **row, **timing.record()}


def configured(name: str, call: Call) -> tuple[Any, dict[str, Any]]:
    """Return the backend of an arm, and options of its `run`.

    "triton@3" is triton with the fourth configuration that it offers for the call, and "auto" the
    backend that `convref` chooses for torch tensors.
    """
    base, at, index = name.partition("@")
    if name == "auto":
        return dispatch.plan(call, kind="torch").backend, {}
    backend = dispatch.load(base)
    if not at:
        return backend, {}
    offered = tuple(backend.configurations(call))  # type: ignore[attr-defined]
    if not (index.isdecimal() and int(index) < len(offered)):
        raise invalid("bench", f"{name}: {base} offers {len(offered)} configurations")
    return backend, {"configuration": offered[int(index)]}


def layout_of(call: Call) -> str:
    """Return "nhwc" or "nchw": the memory layout of the operands of a call."""
    return "nhwc" if any(spec.order for spec in call.specs) else "nchw"


def reference_of(name: str, found: Mapping[str, Timing]) -> str | None:
    """Return the arm that `name` is compared with: the fastest reference of its own kind.

    If there is none, it is the last arm that fuses nothing. Eager operations are no reference.

    >>> quick, slow = (Timing(t, t, t, 9, 1, 0.0) for t in (1.0, 2.0))
    >>> found = {"triton": quick, "torch": slow, "torch.nchw": quick, "eager+relu": slow}
    >>> reference_of("triton", found), reference_of("torch", found)
    ('torch.nchw', None)
    """
    _, plus, epilogue = name.partition("+")
    references = [f"{one}+{epilogue}" for one in FUSED] if plus else PLAIN
    there = [one for one in found if one in references]
    if not plus and not there:
        there = [one for one in found if "+" not in one][-1:]
    if name in there or not there:
        return None
    return min(there, key=lambda one: found[one].median_ms)
