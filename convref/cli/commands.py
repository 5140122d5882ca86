"""The commands: check, run, explain, backends; others come from entry points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__, dispatch, knownbugs
from ..case import Case, format_problem, parse
from ..dtypes import CODES
from ..errors import (
    ConvrefError,
    ExitStatus,
    UnsupportedError,
    invalid,
    message,
    needs_one,
    shorten,
)
from ..ops import FAMILY, GROUPS, ops_of
from . import files, grading
from .files import affordable, lines, text, write

if TYPE_CHECKING:
    from ..conformance.campaign import Outcome, Settings
    from ..conformance.generate import Axes
    from ..knownbugs import Region

ABOUT = "Check the kernels of convolutional networks against a reference in NumPy."
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the help needs no rich
    help=ABOUT,
)


def _words(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(word for text in texts or () for word in text.split(",") if word)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise invalid("check", f"--shard is {text!r}, needs i/n with 0 <= i < n")
    return int(index), int(count)


def _above_zero(where: str, **options: float) -> None:
    for name, value in options.items():
        if not 0 < value < inf:
            raise invalid(where, f"--{name} is {value:g}, needs a number above 0")


def _version(on: bool) -> None:
    if on:
        print(f"convref {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


OTHERS = (*GROUPS, *sorted({*FAMILY} - {"conv", *ops_of(GROUPS)}, key=list(FAMILY).index))
Words = list[str] | None  # of an option that is given again, or takes commas


@app.command()
def check(
    backends: Annotated[
        Words,
        typer.Argument(help="Names or package.module:object; by default all that can be imported."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Seconds per backend; shrinking takes at most half more.")
    ] = 60.0,
    examples: Annotated[int | None, typer.Option(min=1, help="Stop after this many cases.")] = None,
    op: Annotated[
        Words, typer.Option(help="Ops or families, such as relu,pool; by default conv.")
    ] = None,
    pass_: Annotated[Words, typer.Option("--pass", help="Only these passes.")] = None,
    dtype: Annotated[Words, typer.Option(help=f"Only these of {' '.join(CODES)}.")] = None,
    fill: Annotated[Words, typer.Option(help="Only these fills.")] = None,
    arm: Annotated[Words, typer.Option(help="Only these arms (variants) of the backend.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 0,
    device: Annotated[
        str, typer.Option(help="Where operands are: cpu, or cuda as torch tensors.")
    ] = "cpu",
    jobs: Annotated[
        int, typer.Option(min=0, help="Worker processes; 0: one per processor, one on cuda.")
    ] = 0,
    shard: Annotated[str, typer.Option(help="I/N: run only part I of N, from 0.")] = "0/1",
    ray: Annotated[
        str, typer.Option(help="Address of a Ray cluster that runs the chunks, or auto.")
    ] = "",
    gpus: Annotated[float, typer.Option(min=0.0, help="GPUs that a chunk needs with --ray.")] = 0.0,
    log: Annotated[Path | None, typer.Option(help="Write or continue a log of JSON lines.")] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Run the case lines of a text file or a log.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds one case may take.")] = 30.0,
    memory: Annotated[
        float | None, typer.Option(help="GiB of memory a worker may use: 4, on cuda 32.")
    ] = None,
    shrink: Annotated[bool, typer.Option(help="Shrink failures.")] = True,
    laws: Annotated[
        bool, typer.Option("--laws", help="Check laws of convolution, without the oracle.")
    ] = False,
    known: Annotated[bool, typer.Option(help="Skip known bugs.")] = True,
    retest_known: Annotated[
        bool, typer.Option(help="Run known bugs too, and report which are fixed.")
    ] = False,
    known_bugs: Annotated[Path | None, typer.Option(help="A file of further known bugs.")] = None,
    html: Annotated[Path | None, typer.Option(help="Folder for an HTML page per backend.")] = None,
    fail: Annotated[bool, typer.Option(help="Exit with status 1 if a case fails.")] = True,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Print lines for knownbugs.refusals.")
    ] = False,
) -> None:
    """Compare backends with the reference on generated cases."""
    from ..conformance import campaign
    from ..conformance.workers.engine import Limits

    _above_zero("check", seconds=seconds, limit=limit)
    if gpus and not ray:
        raise invalid("check", f"--gpus is {gpus:g}, needs --ray")
    axes = _axes(seed, laws, device, *map(_words, (op, pass_, dtype, fill, arm)))
    replayed = lines(replay, device) if replay else ()
    memory = _memory(device, *replayed) if memory is None else memory
    _above_zero("check", memory=memory)
    more = knownbugs.parse_regions(text(known_bugs), str(known_bugs)) if known_bugs else ()
    settings = campaign.Settings(
        "",
        axes,
        None if replay else seconds,
        examples,
        jobs,
        _shard(shard),
        log,
        replayed,
        Limits(min(limit, max(1.0, seconds / 4)), int(memory * 2**30)),
        shrink,
        retest=retest_known,
        ray=ray,
        gpus=gpus,
    )
    names = _chosen(backends, device)
    if not (op or replay or laws):
        print(f"checking conv alone; for the other ops: --op {','.join(OTHERS)}")
    good = _campaigns(settings, names, more if known or retest_known else None, html, suggest)
    raise typer.Exit(ExitStatus.FAILED if fail and not good else ExitStatus.DONE)


def _chosen(backends: list[str] | None, device: str) -> list[str]:
    """Return the backends to check; a wrong name is refused before anything starts."""
    names = backends or _installed()
    if not backends and device != "cpu":
        names = [name for name in names if name in dispatch.AUTO["torch", device]]
    for name in names:
        dispatch.load(name)
    return names


def _memory(device: str, *replayed: str) -> float:
    """Return the GiB that a worker may use for calls on a device."""
    from ..conformance.workers.device import MEMORY

    used = {device, *(parse(line).call.specs[0].device for line in replayed)}
    return max(MEMORY[each] for each in used) / 2**30


def _axes(seed: int, laws: bool, device: str, *chosen: tuple[str, ...]) -> Axes:
    """Return the axes to draw from; what is wrong is refused before anything starts."""
    from ..conformance import generate
    from ..conformance.workers.device import DEVICES, missing

    if device not in DEVICES:
        raise invalid("check", f"--device is {shorten(device)}, {needs_one(device, DEVICES)}")
    if reason := missing(device):
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
        regions = () if more is None else knownbugs.of(name, more)
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
    found = [name for name in dispatch.names() if name != "numpy" and not _why_not(name)]
    return sorted(found, key=lambda name: name == "loops")


def _why_not(name: str) -> str:
    try:
        dispatch.load(name)
    except (ConvrefError, ImportError) as error:
        return str(error)
    return ""


@app.command()
def run(
    line: Annotated[str, typer.Argument(help="A case line.")],
    backend: Annotated[str, typer.Option(help="Name or package.module:object.")] = "torch",
    snippet: Annotated[
        str, typer.Option(help="Print a program of torch, jax, numpy, tensorflow instead.")
    ] = "",
    threads: Annotated[
        int, typer.Option(min=0, help="Threads of the torch program; 0: torch's default.")
    ] = 1,
    limit: Annotated[float, typer.Option(help="Seconds the case may take.")] = 60.0,
    laws: Annotated[
        bool, typer.Option("--laws", help="Check laws of convolution, without the oracle.")
    ] = False,
    change: Annotated[
        str, typer.Option("--invalid", help="Make an operand invalid, as in 'dy has smaller n'.")
    ] = "",
) -> None:
    """Run one case line in a worker process and judge its results."""
    case = affordable(parse(line))
    _above_zero("run", limit=limit)
    if laws and case.call.op != "conv":
        raise invalid("run", f"op is {case.call.op}, --laws needs conv", case)
    if snippet:
        print(_program(case, snippet, threads))
        return
    from ..conformance.causes import run_line
    from ..conformance.workers.device import MEMORY
    from ..conformance.workers.engine import Engine, Limits

    limits = Limits(limit, MEMORY[case.call.specs[0].device])
    with Engine(backend, limits=limits) as engine:
        found = run_line(engine, str(case), laws, change)
        made_by = ", ".join(f"{k} {v}" for k, v in engine.fingerprint.items())
    print(f"{case}  on {backend} ({made_by})")
    if found.verdict == "unsupported":
        reason = dispatch.load(backend).supports(case.call) or "no law applies to this case"
        typer.secho("unsupported", fg="yellow", nl=False)
        print(f": {reason}")
        raise typer.Exit(ExitStatus.REFUSED)
    if found.verdict == "pass":
        typer.secho("pass", fg="green")
        return
    typer.secho(found.verdict, fg="red", nl=False)
    print(f" {found.tier}: {found.reason}")
    raise typer.Exit(ExitStatus.FAILED)


def _program(case: Case, library: str, threads: int) -> str:
    """Return a program of a library that computes a case without convref."""
    from .. import exports

    writers: dict[str, Callable[[Case], str]] = {
        "torch": lambda case: exports.to_torch(case, threads=threads),
        "jax": exports.to_jax,
        "numpy": exports.to_numpy,
        "tensorflow": exports.to_tensorflow,
    }
    if library not in writers:
        raise invalid("run", f"--snippet is {library!r}, needs one of {', '.join(writers)}")
    return writers[library](case)


@app.command()
def explain(
    line: Annotated[str, typer.Argument(help="A case line.")],
    backend: Annotated[str, typer.Option(help="Backend by name, module:object or auto.")] = "auto",
    kind: Annotated[str, typer.Option(help="Kind of array: numpy or torch.")] = "numpy",
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Allow kernels that no device has run.")
    ] = False,
) -> None:
    """Print the sizes and cost of a line, and which backend computes it and why."""
    call = parse(line).call
    problem = call.problem
    rows: list[tuple[str, Any]] = [
        ("problem", format_problem(call.op, problem)),
        ("operands", "  ".join(f"{r}{_shape(call, r)}" for r in call.roles if call.is_present(r))),
        ("results", "  ".join(f"{r}{_shape(call, r)}" for r in call.wanted)),
        ("sums", "  ".join(f"{r} of {call.products(r)}" for r in call.wanted)),
        ("flop", f"{call.flop():,}"),
        ("bytes", f"{call.bytes_moved():,} compulsory, {call.memory():,} for the oracle"),
    ]
    for name, value in rows:
        print(f"{name:<10}{value}")
    print(dispatch.explain(call, backend, kind, unproven=unproven))


def _shape(call: Any, role: str) -> str:
    return "(" + ", ".join(map(str, call.problem.shape(role))) + ")"


@app.command()
def inspect(
    line: Annotated[str, typer.Argument(help="A case line.")],
    arch: Annotated[str, typer.Option(help="An architecture: sm_90, sm_80, gfx942.")] = "sm_90",
    asm: Annotated[str, typer.Option(help="Print the code instead: ptx, sass, ttgir.")] = "",
    backend: Annotated[str, typer.Option(help="Backend by name or module:object.")] = "triton",
    kernel: Annotated[
        str, typer.Option(help="Another kernel and tile, by the beginning of its name.")
    ] = "",
) -> None:
    """Print registers, spills and load widths of the compiled kernels of a line.

    No GPU is needed.
    """
    from .output import print_table

    found = getattr(dispatch.load(backend), "inspect", None)
    call = parse(line).call
    reason = dispatch.load(backend).supports(call) if found else "it has no code to show"
    if found is None or reason is not None:
        raise UnsupportedError(message("inspect", f"{backend}: {reason}", call))
    for title, facts, texts in found(call, arch, kernel) if kernel else found(call, arch):
        if asm:
            if asm not in texts:
                has = ", ".join(sorted(texts))
                raise invalid("inspect", f"--asm is {asm!r}, needs one of {has}")
            print(texts[asm])
            continue
        print_table(["", arch], list(facts.items()), title)


@app.command()
def backends(
    load: Annotated[
        bool, typer.Option("--load", help="Import each; print versions and devices, or the error.")
    ] = False,
) -> None:
    """List the registered backends."""
    from .output import print_table

    state = _loaded if load else _version_of
    rows = [(name, target, state(name)) for name, target in dispatch.names().items()]
    print_table(["backend", "object", "loaded" if load else "library"], rows)
    if not load:
        print("convref backends --load imports them and prints devices and import errors")


def _loaded(name: str) -> str:
    if reason := _why_not(name):
        return reason
    return ", ".join(f"{k} {v}" for k, v in dispatch.load(name).fingerprint().items())


def _version_of(name: str) -> str:
    """Return the version of the installed package that has the name of a backend."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return "-"


app.add_typer(files.app, name="report")
app.command("grade")(grading.grade)


def _add_plugins() -> None:
    """Add a command for each entry point; its package is imported when the command runs.

    The object is a function that takes the words of the command line and returns an exit status.
    """
    words = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    for point in entry_points(group="convref.commands"):
        package = point.module.partition(".")[0]
        text = f"Of {package}; `convref {point.name} --help` lists what it takes."
        app.command(point.name, context_settings=words, help=text)(_plugin(point))


def _plugin(point: EntryPoint) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        raise typer.Exit(point.load()(context.args))

    return run


_add_plugins()
