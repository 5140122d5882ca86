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
from .engine import Engine
from .examine import HARMLESS, RANK, Finding
from .shrink import Shrunk, shrink, weight
from .worker import Report, Task

SHRINK_SECONDS = 30.0  # for one failure, and at most a third of the time that is left
HANG_SECONDS = 1.0  # of a smaller case, or four times the slowest example
TOTAL_SECONDS = 150.0  # for all: later ones are reported as they were found
PER_KIND = 3  # failures of one verdict, pass and result that are shrunk
RETRIED = 50  # findings of an arm that are run again without it


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


def root_causes(
    engine: Engine,
    findings: Sequence[Finding],
    known: tuple[Region, ...] = (),
    watch: Callable[[str], None] = lambda note: None,
    laws: bool = False,
    seconds: float = math.inf,
) -> list[Failure]:
    """Return the bugs behind some findings, the worst first.

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
    for turn, kind, finding, seen in _turns(kinds):
        late = time.monotonic() > ends
        if late and turn:
            break
        watch(f"shrinking {shorten(finding.line, 70)}")
        if late or _has_invalid_input(finding):
            key, failure = kind, _failure(engine, finding)
        else:
            found, last = _shrunk(engine, finding, known, laws, ends)
            key = (*root_cause(finding.verdict, found), last.arm)
            failure = _failure(engine, last, found.needs, found.independent, finding.line)
        if laws:
            failure = replace(failure, command=f"{failure.command} --laws")
        merged.setdefault(key, failure)
        merged[key] = replace(merged[key], seen=max(1, merged[key].seen + seen))
    return sorted(merged.values(), key=lambda f: (-RANK[f.verdict], -f.seen, f.line))


Kinds = dict[tuple[str, ...], list[Finding]]


def _turns(kinds: Kinds) -> Iterator[tuple[int, tuple[str, ...], Finding, int]]:
    """Yield (turn, kind, finding, findings it represents): one of each kind, the worst first."""
    for alike in kinds.values():
        alike.sort(key=lambda f: (f.arm != "plain", weight(parse(f.line))))
    order = sorted(kinds, key=lambda kind: -RANK[kind[0]])
    for turn in range(PER_KIND):
        for kind in order:
            alike = kinds[kind]
            chosen = alike[:: max(1, len(alike) // PER_KIND)]
            if turn < len(chosen):
                yield turn, kind, chosen[turn], 0 if turn else len(alike)


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
    return Failure(
        finding.line,
        finding.verdict,
        finding.reason,
        needs,
        independent,
        first=first,
        arm=arm.name,
        command=" ".join(words),
    )


def _has_invalid_input(finding: Finding) -> bool:
    """Return whether its operands were invalid; its line is a valid call."""
    killed = finding.verdict in ("crash", "hang") and finding.tier == "form"
    return finding.verdict == "accepts-invalid" or killed


def _kind(finding: Finding) -> tuple[str, ...]:
    case = parse(finding.line)
    how = finding.role
    if _has_invalid_input(finding):
        role, *_, what = finding.reason.partition(":")[0].split()
        return finding.verdict, case.call.op, role, "space" if what in "dhw" else what
    if finding.verdict in ("rejects-valid", "crash"):
        how = "".join(c for c in finding.reason.split(";")[0] if not c.isdigit())[:60]
    if finding.verdict == "wrong":
        narrow = case.call.dtype if case.call.dtype in SIXTEEN else ""
        special = case.fill if case.fill in ("nan", "inf", "subnormal") else ""
        how += f" {finding.tier} {narrow} {special}"
    return finding.verdict, case.call.op, case.call.pass_, how, finding.arm


def root_cause(verdict: str, shrunk: Shrunk) -> tuple[str, ...]:
    """Return the key that merges shrunk failures into one bug: the verdict and the needed features.

    Sizes are left out, and so are the axis and the operand of a feature.
    """
    call, problem = shrunk.case.call, shrunk.case.call.problem
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
    if "fill" in features and shrunk.case.fill in ("nan", "inf"):
        return (verdict, call.dtype, "non-finite")
    where = (call.pass_, call.dtype) if verdict == "wrong" else ()
    special: tuple[str, ...] = (shrunk.case.fill,) if "fill" in features else ()
    special += shrunk.case.around if "around" in features else ()
    return (verdict, *where, *special, *sorted(features))


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
    fresh = bool(parse(finding.line).around)

    def fails(cases: list[Case]) -> list[bool | None]:
        if time.monotonic() > ends:
            return [None] * len(cases)
        new = [not any(region.contains(c, facts) for region in known) for c in cases]
        lines = [str(case) for case in cases]
        tried = run_lines(engine, [*compress(lines, new)], arm, laws, fresh=fresh)
        found = {f.line: f for f in tried}
        shown.update(found)
        same = [at in found and found[at].verdict == finding.verdict for at in lines]
        late = time.monotonic() > ends  # some may not have run
        return [bad if run and (bad or not late) else None for bad, run in zip(same, new)]

    with engine.until(ends, hang):
        shrunk = shrink(parse(finding.line), fails)
    last = shown.get(str(shrunk.case), finding)
    return shrunk, next(_without_arm(engine, [last], laws))


def run_line(engine: Engine, line: str, laws: bool = False) -> Finding:
    """Return the finding of one line; that of a pass or a refusal has the verdict alone."""
    found = Finding(line, "pass")

    def receive(task: Task, report: Report) -> None:
        nonlocal found
        for *_, verdict, tier in report.counts:
            found = Finding(line, verdict, tier)
        for finding in report.findings:
            found = finding

    engine.run(iter([Task(lines=(line,), laws=laws)]), receive)
    return found


def run_lines(
    engine: Engine, lines: list[str], arm: Arm = PLAIN, laws: bool = False, fresh: bool = False
) -> list[Finding]:
    """Return the findings of some lines, passes left out, through crashes and hangs.

    If `fresh`, each runs in a new process.
    """
    lines = [str(parse(line)) for line in lines]  # a malformed one raises here, not in a worker
    findings: list[Finding] = []
    share = 1 if fresh or not lines else -(-len(lines) // len(engine.workers))
    parts = [tuple(lines[i : i + share]) for i in range(0, len(lines), share)]
    engine.run(
        (Task(lines=part, arm=arm, laws=laws, fresh=fresh) for part in parts),
        lambda task, report: findings.extend(report.findings),
    )
    return findings
