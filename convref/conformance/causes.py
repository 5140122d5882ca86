"""From findings to bugs: shrink a few of each kind, merge those of one root cause."""

import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from ..backends import PLAIN, Arm
from ..case import Case, parse
from ..dtypes import SIXTEEN
from ..errors import shorten
from ..knownbugs import Region
from .examine import HARMLESS, Finding
from .shrink import Shrunk, reproducible, shrink, weight
from .workers.engine import Engine
from .workers.worker import ChunkReport, Task

SHRINK_SECONDS = 30.0  # for one failure, and at most a third of the time that is left
HANG_SECONDS = 1.0  # of a smaller case, or four times the slowest example
TOTAL_SECONDS = 150.0  # for all: later ones are reported as they were found
PER_KIND = 3  # failures of one verdict, pass and result that are shrunk
MAY_DEPEND = ("wrong", "nondeterministic", "wrote-outside")  # on calls before the one judged
ALONE = "in a new process it passes"
RETRIED = 50  # findings of an arm that are run again without it

# The kinds of failures, the most severe first, and what to try next.
KINDS = {
    "crash": "run the program in a debugger or with AddressSanitizer: an access is out of bounds, "
    "or an assertion fails",
    "wrote-outside": "run the program with AddressSanitizer, and look at the sizes from which the "
    "kernel computes its last tile",
    "wrong": "compute the wrong element by hand from the fields that it needs; those fields are "
    "read in the wrong place, or not at all",
    "hang": "interrupt the program in a debugger: a loop has a step of 0 or a bound that it passes",
    "changed-input": "look for an operand that is packed, padded or reduced in place",
    "nondeterministic": "set one thread, then look for memory that is read before it is written "
    "and for sums whose order varies",
    "rounding": "compare the declared accumulator type with the kernel's: a partial sum is stored "
    "in a narrower type, or numerics() states too much",
    "rejects-valid": "fix it, or refuse the calls in supports(); --suggest prints the line",
    "accepts-invalid": "compare each size and type with the other operands before the kernel runs",
    "non-finite": "decide whether NaN and infinity are supported here; if not, refuse or list them",
}


@dataclass(frozen=True)
class Failure:
    """One bug: a shrunk case, its verdict, the number of its findings, how to repeat it."""

    line: str
    verdict: str
    reason: str
    needs: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()
    seen: int = 0
    first: str = ""
    arm: str = "plain"
    command: str = ""
    kind: str = ""  # one of `KINDS`
    also: tuple[str, ...] = ()  # "PASS DTYPE: LINE" where it was seen too


def root_causes(
    engine: Engine,
    findings: Sequence[Finding],
    known: tuple[Region, ...] = (),
    watch: Callable[[str], None] = lambda note: None,
    laws: bool = False,
    seconds: float = math.inf,
) -> list[Failure]:
    """Return the bugs behind some findings, the most severe first.

    A smaller case in a `known` region does not count, as it fails for another reason. `watch` is
    called with a note on the failure that is being shrunk; `laws`: the findings are of laws.
    After `seconds`, failures are reported as they were found.
    """
    kinds: Kinds = {}
    for finding in _without_arm(engine, list(dict.fromkeys(findings)), laws):
        if finding.verdict not in HARMLESS:
            kinds.setdefault(_kind(finding), []).append(finding)
    ends = time.monotonic() + min(TOTAL_SECONDS, seconds)
    engine.ends = ends
    merged: dict[tuple[str, ...], Failure] = {}
    for turn, kind, finding, seen in _round_robin(kinds):
        late = time.monotonic() > ends
        if late and turn:
            break
        watch(f"shrinking {shorten(finding.line, 70)}")
        if late:
            failure = _failure(engine, finding)
            alike = (key for key, f in merged.items() if _coarse(f) == _coarse(failure))
            key = next(alike, kind)
        else:
            found, last = _shrunk(engine, finding, known, laws, ends)
            key = (*root_cause(last, found), last.arm)
            failure = _failure(engine, last, found.needs, found.independent, finding.line)
        if laws:
            failure = replace(failure, command=f"{failure.command} --laws")
        merged[key] = _merged(merged.get(key), failure, seen)
    whole = [replace(failure, seen=max(1, failure.seen)) for failure in merged.values()]
    return sorted(whole, key=lambda f: (severity(f.kind), -f.seen, f.line))


def severity(kind: str) -> int:
    """Return the place of a kind in `KINDS`; a kind of another version comes last."""
    return [*KINDS, kind].index(kind)


def _merged(held: Failure | None, new: Failure, seen: list[Finding]) -> Failure:
    """Return the smaller of two failures of one cause; its `also` lists where else it was seen."""
    pair = [new] if held is None else sorted((held, new), key=lambda f: weight(parse(f.line)))
    also = dict(where.split(": ", 1) for failure in pair for where in failure.also)
    places = [(_call_site(failure), failure.line) for failure in pair]
    for place, line in (*places, *((_call_site(found), found.line) for found in seen)):
        also.setdefault(place, line)
    also.pop(_call_site(pair[0]))
    count = sum(failure.seen for failure in pair) + len(seen)
    return replace(pair[0], seen=count, also=tuple(f"{at}: {line}" for at, line in also.items()))


def _call_site(found: Failure | Finding) -> str:
    call = parse(found.line).call
    what = found.reason.partition(":")[0] if found.verdict == "accepts-invalid" else ""
    return " ".join(filter(None, (call.where, call.dtype, what)))


Kinds = dict[tuple[str, ...], list[Finding]]


def _round_robin(kinds: Kinds) -> Iterator[tuple[int, tuple[str, ...], Finding, list[Finding]]]:
    """Yield (turn, kind, finding, findings it represents): one of each kind, the worst first."""
    for alike in kinds.values():
        alike.sort(key=lambda f: (f.arm != "plain", weight(parse(f.line))))
    order = sorted(kinds, key=lambda kind: severity(kind_of(kinds[kind][0])))
    for turn in range(PER_KIND):
        for kind in order:
            alike = kinds[kind]
            chosen = alike[:: max(1, len(alike) // PER_KIND)]
            if turn < len(chosen):
                yield turn, kind, chosen[turn], [] if turn else alike


def _without_arm(engine: Engine, findings: Sequence[Finding], laws: bool) -> Iterator[Finding]:
    """Yield the findings; without their arm if the plain library has them too."""
    in_arms = [f for f in findings if f.arm != "plain" and not _has_invalid_input(f)][:RETRIED]
    again = run_lines(engine, [f.line for f in in_arms], laws=laws)
    plain = {(f.line, f.verdict) for f in again}
    for finding in findings:
        bare = (finding.line, finding.verdict) in plain
        yield replace(finding, arm="plain") if bare else finding


def _failure(
    engine: Engine,
    finding: Finding,
    needs: tuple[str, ...] = (),
    independent: tuple[str, ...] = (),
    first: str = "",
) -> Failure:
    arm = engine.arm(finding.arm)
    if arm.name != "plain":
        needs = (*needs, f"arm = {arm.name}")
    words = [f"{name}={shlex.quote(value)}" for name, value in arm.environment]
    words += ["convref", "run", f"'{finding.line}'", "--backend", arm.backend or engine.name]
    if _has_invalid_input(finding):
        words += ["--invalid", f"'{_operand_error(finding)}'"]
    return Failure(
        finding.line,
        finding.verdict,
        finding.reason,
        needs,
        independent,
        first=first,
        arm=arm.name,
        command=" ".join(words),
        kind=kind_of(finding),
    )


def kind_of(finding: Finding) -> str:
    """Return which of `KINDS` a finding is.

    >>> kind_of(Finding("conv.fprop:n1c9k1_i1_f1:fill=normal", "wrong", "proven"))
    'rounding'
    """
    if finding.verdict not in ("wrong", "suspect") or finding.tier == "form":
        return finding.verdict
    if parse(finding.line).fill in ("nan", "inf"):
        return "non-finite"
    return "rounding" if finding.tier in ("proven", "statistical") else "wrong"


def _coarse(failure: Failure) -> tuple[str, ...]:
    return failure.kind, parse(failure.line).call.op, failure.arm


def _operand_error(finding: Finding) -> str:
    """Return the name of the error in the operands: "dy has smaller n"."""
    return finding.reason.partition(":")[0]


def _has_invalid_input(finding: Finding) -> bool:
    """Return whether its operands were invalid; its line is a valid call."""
    killed = finding.verdict in ("crash", "hang") and finding.tier == "form"
    return finding.verdict == "accepts-invalid" or killed


def _kind(finding: Finding) -> tuple[str, ...]:
    case = parse(finding.line)
    how = finding.role
    if _has_invalid_input(finding):
        return finding.verdict, case.call.op, _invalid_form(finding)
    if finding.verdict in ("rejects-valid", "crash"):
        how = _message(finding)
    if finding.verdict == "wrong":
        narrow = case.call.dtype if case.call.dtype in SIXTEEN else ""
        special = case.fill if case.fill in ("nan", "inf", "subnormal") else ""
        how += f" {finding.tier} {narrow} {special}"
    return finding.verdict, case.call.op, case.call.pass_, how, finding.arm


def _message(finding: Finding) -> str:
    """Return an error without its numbers."""
    return "".join(c for c in finding.reason.split(";")[0] if not c.isdigit())[:60]


def _invalid_form(finding: Finding) -> str:
    """Return what is wrong with the operand: its sizes, its dtype, its axes, its absence."""
    words = set(_operand_error(finding).split())
    return (
        "sizes" if words & {"smaller", "larger"} else " ".join(_operand_error(finding).split()[1:])
    )


def root_cause(finding: Finding, shrunk: Shrunk) -> tuple[str, ...]:
    """Return the key that merges shrunk failures into one bug: the kind and the needed features.

    Passes, dtypes and masks are left out, and so are sizes, and the axis and operand of a feature.
    """
    call, problem, kind = shrunk.case.call, shrunk.case.call.problem, kind_of(finding)
    if _has_invalid_input(finding):
        return finding.verdict, call.op, _invalid_form(finding)
    if kind in ("rounding", "non-finite"):
        return kind, call.op
    named = {need.partition(" ")[0].partition("[")[0] for need in shrunk.needs}
    features = named & {"stride", "dilation", "groups", "transposed", "dtype", "fill", "around"}
    features |= {f"{letter}=0" for letter in "nck" if problem.line_value(letter) == 0}
    if any(size == 0 for size in problem.input):
        features.add("input=0")
    edges = [edge for pair in problem.padding for edge in pair]
    if "padding" in named:
        features.add("negative padding" if min(edges) < 0 else "padding")
    for need in named:
        if need.startswith("mem."):
            spec = call.spec(need.removeprefix("mem."))
            views = {"expand": spec.expand, "step": spec.step, "order": spec.order}
            features |= {f"mem.{name}" for name, used in views.items() if used}
    for empty in ("k=0", "c=0", "input=0", "n=0"):
        if empty in features:
            return (empty,)
    special: tuple[str, ...] = (shrunk.case.fill,) if "fill" in features else ()
    special += shrunk.case.around if "around" in features else ()
    where = _message(finding) if kind == "rejects-valid" else call.op
    return (kind, where, *special, *sorted(features))


def _shrunk(
    engine: Engine, finding: Finding, known: tuple[Region, ...], laws: bool, ends: float
) -> tuple[Shrunk, Finding]:
    """Return the shrunk case of a finding, and the finding of the smallest one.

    A smaller case in the region of a known bug fails for that reason, and does not count. A case
    that depends on earlier calls runs in a new process.
    """
    now = time.monotonic()
    ends = now + min(SHRINK_SECONDS, (ends - now) / 3)
    hang = max(HANG_SECONDS, 4 * engine.longest) if finding.verdict == "hang" else math.inf
    arm = engine.arm(finding.arm)
    facts = engine.fingerprints.get(arm.name, engine.fingerprint)
    shown = {finding.line: finding}
    invalid = _operand_error(finding) if _has_invalid_input(finding) else ""
    start = parse(finding.line)
    fresh = bool(start.around) or finding.verdict in MAY_DEPEND

    def fails(cases: list[Case]) -> list[bool | None]:
        if time.monotonic() > ends:
            return [None] * len(cases)
        new = [not any(region.contains(c, facts) for region in known) for c in cases]
        lines = [str(case) for case in cases]
        ran = run_lines(engine, [*compress(lines, new)], arm, laws, fresh=fresh, invalid=invalid)
        found = {f.line: f for f in ran}
        shown.update(found)
        same = [at in found and found[at].verdict == finding.verdict for at in lines]
        late = time.monotonic() > ends  # some may not have run
        return [bad if run and (bad or not late) else None for bad, run in zip(same, new)]

    with engine.until(ends, hang):
        case = reproducible(start, fails) if fresh else start
        if case is None:
            return Shrunk(start, (), (), 0), replace(finding, reason=f"{finding.reason}; {ALONE}")
        fresh = bool(case.around)
        shrunk = shrink(case, fails)
    last = shown.get(str(shrunk.case), finding)
    return shrunk, next(_without_arm(engine, [last], laws))


def run_line(engine: Engine, line: str, laws: bool = False, invalid: str = "") -> Finding:
    """Return the finding of one line; that of a pass or a refusal has the verdict alone.

    `invalid` is the name of an error that is made in the operands: "dy has smaller n".
    """
    found = Finding(line, "pass")

    def receive(task: Task, report: ChunkReport) -> None:
        nonlocal found
        for *_, verdict, tier in report.counts:
            found = Finding(line, verdict, tier)
        for finding in report.findings:
            found = finding

    engine.run(iter([Task(lines=(line,), laws=laws, invalid=invalid)]), receive)
    return found


def run_lines(
    engine: Engine,
    lines: list[str],
    arm: Arm = PLAIN,
    laws: bool = False,
    fresh: bool = False,
    invalid: str = "",
) -> list[Finding]:
    """Return the findings of some lines, passes left out, through crashes and hangs.

    If `fresh`, each runs in a new process; `invalid` as in `run_line`.
    """
    lines = [str(parse(line)) for line in lines]  # a malformed one raises here, not in a worker
    findings: list[Finding] = []
    share = 1 if fresh or not lines else -(-len(lines) // len(engine.workers))
    parts = [tuple(lines[i : i + share]) for i in range(0, len(lines), share)]
    engine.run(
        (Task(lines=part, arm=arm, laws=laws, fresh=fresh, invalid=invalid) for part in parts),
        lambda task, report: findings.extend(report.findings),
    )
    return findings
