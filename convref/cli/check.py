"""The command that checks backends on generated cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import dispatch, knownbugs
from ..arrays import why_no_device
from ..case import FILLS, parse
from ..case.files import read_text
from ..dtypes import CODES
from ..errors import ConvrefError, ExitStatus, invalid, needs_one, shorten
from ..ops import FAMILY, GROUPS, ops_of
from .files import MAX_REPLAY, lines, write

if TYPE_CHECKING:
    from ..conformance.campaign import Outcome, Settings
    from ..conformance.generate import Axes
    from ..conformance.workers.engine import Limits
    from ..knownbugs import Region

LOAD = 120.0  # seconds
PASSES = "fprop backward jvp double_backward dgrad wgrad bgrad"
OTHERS = (*GROUPS, *sorted({*FAMILY} - {"conv", *ops_of(GROUPS)}, key=list(FAMILY).index))

Option = typer.Option
Words = list[str] | None  # of an option that is given again, or takes commas
Backends = Annotated[
    Words,
    typer.Argument(help="Names or package.module:object; by default all that can be imported."),
]
Seconds = Annotated[float, Option(help="Seconds per backend; shrinking adds at most half.")]
Examples = Annotated[int | None, Option(min=1, help="Stop after this many cases.")]
Op = Annotated[Words, Option(help="Ops or families, such as relu,pool; by default conv.")]
Pass = Annotated[Words, Option("--pass", help=f"Only these of {PASSES}.")]
Dtype = Annotated[Words, Option(help=f"Only these of {' '.join(CODES)}.")]
Fill = Annotated[Words, Option(help=f"Only these of {' '.join(FILLS)}.")]
Arm = Annotated[Words, Option(help="Only these arms (variants) of the backend.")]
Seed = Annotated[int, Option(help="Seed of the generator.")]
Device = Annotated[str, Option(help="Where operands are: cpu, or cuda as torch tensors.")]
Jobs = Annotated[int, Option(min=0, help="Worker processes; 0: one per processor, one on cuda.")]
Shard = Annotated[str, Option(help="I/N: run only part I of N, from 0.")]
Ray = Annotated[str, Option(help="Address of a Ray cluster that runs the chunks, or auto.")]
Gpus = Annotated[float, Option(min=0.0, help="GPUs that a chunk needs with --ray.")]
Log = Annotated[Path | None, Option(help="Write or continue a log of JSON lines.")]
Replay = Annotated[Path | None, Option(help="Run the case lines of a text file or a log.")]
Limit = Annotated[float, Option(help="Seconds per case, at most a quarter of --seconds.")]
Load = Annotated[float, Option(help="Seconds a backend may take to load.")]
Memory = Annotated[float | None, Option(help="GiB of memory per worker; default 4, on cuda 32.")]
Shrink = Annotated[bool, Option(help="Shrink failures.")]
Laws = Annotated[bool, Option("--laws", help="Check laws of convolution, without the oracle.")]
Known = Annotated[bool, Option(help="Skip known bugs.")]
Retest = Annotated[bool, Option(help="Run known bugs too, and report which are fixed.")]
KnownBugs = Annotated[Path | None, Option(help="A file of further known bugs.")]
Html = Annotated[Path | None, Option(help="Folder for an HTML page per backend.")]
Fail = Annotated[bool, Option(help="Exit with status 1 if a case fails.")]
Suggest = Annotated[bool, Option("--suggest", help="Print refusals for valid calls that raise.")]


def check(
    backends: Backends = None,
    seconds: Seconds = 60.0,
    examples: Examples = None,
    op: Op = None,
    pass_: Pass = None,
    dtype: Dtype = None,
    fill: Fill = None,
    arm: Arm = None,
    seed: Seed = 0,
    device: Device = "cpu",
    jobs: Jobs = 0,
    shard: Shard = "0/1",
    ray: Ray = "",
    gpus: Gpus = 0.0,
    log: Log = None,
    replay: Replay = None,
    limit: Limit = 30.0,
    load: Load = LOAD,
    memory: Memory = None,
    shrink: Shrink = True,
    laws: Laws = False,
    known: Known = True,
    retest_known: Retest = False,
    known_bugs: KnownBugs = None,
    html: Html = None,
    fail: Fail = True,
    suggest: Suggest = False,
) -> None:
    """Compare backends with the reference on generated cases."""
    from ..conformance import campaign

    above_zero("check", seconds=seconds, limit=limit, load=load)
    if gpus and not ray:
        raise invalid("check", f"--gpus is {gpus:g}, needs --ray")
    axes = _axes(seed, laws, device, *map(_words, (op, pass_, dtype, fill, arm)))
    replayed = lines(replay, device) if replay else ()
    more = _regions(known_bugs) if known_bugs else ()
    settings = campaign.Settings(
        "",
        axes,
        None if replay else seconds,
        examples,
        jobs,
        _shard(shard),
        log,
        replayed,
        _limits(min(limit, max(1.0, seconds / 4)), load, memory, device, replayed),
        shrink,
        retest=retest_known,
        ray=ray,
        gpus=gpus,
    )
    names = _selected_backends(backends, device)
    if not (op or replay or laws):
        print(f"checking conv alone; for the other ops: --op {','.join(OTHERS)}")
    good = _campaigns(settings, names, more if known or retest_known else None, html, suggest)
    raise typer.Exit(ExitStatus.FAILED if fail and not good else ExitStatus.DONE)


def above_zero(where: str, **options: float) -> None:
    """Raise unless each option is a finite number above 0."""
    for name, value in options.items():
        if not 0 < value < inf:
            raise invalid(where, f"--{name} is {value:g}, needs a number above 0")


def _regions(path: Path) -> tuple[Region, ...]:
    return knownbugs.parse_regions(read_text("check", path, MAX_REPLAY), str(path))


def _words(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(word for text in texts or () for word in text.split(",") if word)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise invalid("check", f"--shard is {text!r}, needs i/n with 0 <= i < n")
    return int(index), int(count)


def _limits(
    seconds: float, load: float, gib: float | None, device: str, replayed: Sequence[str]
) -> Limits:
    """Return the limits of workers; by default, their memory is that for calls on their devices."""
    from ..conformance.workers.device import MEMORY
    from ..conformance.workers.engine import Limits

    used = {device, *(parse(line).call.specs[0].device for line in replayed)}
    most = max(MEMORY[each] for each in used)
    gib = most / 2**30 if gib is None else gib
    above_zero("check", memory=gib)
    return Limits(seconds, int(gib * 2**30), load)


def _selected_backends(backends: list[str] | None, device: str) -> list[str]:
    """Return the backends to check; a wrong name is refused before anything starts."""
    names = backends or _installed()
    if not backends and device != "cpu":
        names = [name for name in names if name in dispatch.AUTO["torch", device]]
    for name in names:
        dispatch.load(name)
    return names


def _axes(seed: int, laws: bool, device: str, *chosen: tuple[str, ...]) -> Axes:
    """Return the axes to draw from; what is wrong is refused before anything starts."""
    from ..conformance import generate
    from ..conformance.workers.device import DEVICES

    if device not in DEVICES:
        raise invalid("check", f"--device is {shorten(device)}, {needs_one(device, DEVICES)}")
    if reason := why_no_device(device):
        raise invalid("check", f"--device is {device}, but {reason}")

    ops, passes, dtypes, fills, arms = chosen
    if laws and set(ops_of(ops)) - {"conv"}:
        raise invalid("check", f"--op is {','.join(ops)}, --laws needs conv alone")
    passes = passes or (("fprop",) if laws else ())  # a law runs the passes that it compares
    given = seed, ops_of(ops), passes, dtypes, fills
    axes = generate.Axes(*given, arms=arms, laws=laws, device=device)
    try:
        generate.strategy(axes)
    except ConvrefError as error:
        raise invalid("check", str(error).removeprefix("strategies: ")) from None
    return axes


def _campaigns(
    settings: Settings,
    names: list[str],
    more: tuple[Region, ...] | None,
    html: Path | None,
    suggest: bool,
) -> bool:
    """Run a campaign of each backend in the terminal; return whether none found a failure."""
    from ..conformance.report import terminal
    from ..conformance.report.suggest import suggestions
    from ..conformance.workers.engine import preload
    from .output import console

    if html is not None:
        write(lambda: html.mkdir(parents=True, exist_ok=True), html)
    preload(names)
    good = True
    for name in names:
        regions = () if more is None else knownbugs.regions_of(name, more)
        large = getattr(dispatch.load(name), "large", True) and not settings.axes.laws
        data = 1 if settings.axes.laws else getattr(dispatch.load(name), "data", 1)
        size = _chunk(name, settings.examples)
        axes = replace(settings.axes, size=size, large=large, data=data)
        own = replace(settings, backend=name, axes=axes, known=regions)
        outcome = terminal.run(own, console())
        good = good and outcome.good
        if suggest:
            print("\n".join(suggestions(outcome.failures)) or "no valid call was rejected twice")
        if html is not None:
            _write_page(outcome, html)
        if outcome.stopped:
            raise typer.Exit(ExitStatus.INTERRUPTED)
    return good


def _write_page(outcome: Outcome, folder: Path) -> None:
    from ..conformance import report
    from ..conformance.report import page

    name = outcome.settings.backend
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    path = folder / f"{safe}.html"
    write(lambda: page.write(report.summary(outcome), path, pictures=name), path)
    print(f"page: {path}")


def _chunk(name: str, examples: int | None) -> int:
    """Return the examples of a chunk: a backend may wish for fewer."""
    from ..conformance.generate import CHUNK

    wish = getattr(dispatch.load(name), "chunk", CHUNK)
    return min(wish, examples or wish)


def _installed() -> list[str]:
    """Return the registered backends that load: the oracle left out, its slow loops last."""
    found = [name for name in dispatch.names() if name != "numpy" and not why_not(name)]
    return sorted(found, key=lambda name: name == "loops")


def why_not(name: str) -> str:
    """Return why a backend does not load, or an empty text."""
    try:
        dispatch.load(name)
    except (ConvrefError, ImportError) as error:
        return str(error)
    return ""
