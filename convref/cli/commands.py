"""The command line: its commands, and those that come from entry points."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Annotated, Any

import typer

from .. import __version__, dispatch
from ..backends.protocol import refusal, versions
from ..case import Case, format_problem, parse
from ..errors import (
    ExitStatus,
    UnsupportedError,
    invalid,
    message,
    needs_one,
)
from . import check, files, grading
from .check import LOAD, Load, above_zero, why_not
from .files import require_memory

ABOUT = "Check the kernels of convolutional networks against a reference in NumPy."
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the help needs no rich
    help=ABOUT,
)


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


app.command("check")(check.check)


@app.command()
def run(
    line: Annotated[str, typer.Argument(help="A case line.")],
    backend: Annotated[str, typer.Option(help="Name or package.module:object.")] = "torch",
    snippet: Annotated[
        str, typer.Option(help="Print a program of torch, jax, tensorflow or numpy instead.")
    ] = "",
    threads: Annotated[
        int, typer.Option(min=0, help="Threads of the torch program; 0: torch's default.")
    ] = 1,
    limit: Annotated[float, typer.Option(help="Seconds the case may take.")] = 60.0,
    load: Load = LOAD,
    laws: Annotated[
        bool, typer.Option("--laws", help="Check laws of convolution, without the oracle.")
    ] = False,
    change: Annotated[
        str, typer.Option("--invalid", help="Make an operand invalid, as in 'dy has smaller n'.")
    ] = "",
) -> None:
    """Run one case line in a worker process and judge its results."""
    case = require_memory(parse(line))
    above_zero("run", limit=limit, load=load)
    if laws and case.call.op != "conv":
        raise invalid("run", f"op is {case.call.op}, --laws needs conv", case)
    if snippet:
        print(_program(case, snippet, threads))
        return
    from ..conformance.causes import run_line
    from ..conformance.workers.device import MEMORY
    from ..conformance.workers.engine import Engine, Limits

    limits = Limits(limit, MEMORY[case.call.specs[0].device], load)
    with Engine(backend, limits=limits) as engine:
        found = run_line(engine, str(case), laws, change)
        made_by = ", ".join(f"{k} {v}" for k, v in engine.fingerprint.items())
    print(f"{case}  on {backend} ({made_by})")
    if found.verdict == "unsupported":
        reason = refusal(dispatch.load(backend), case.call) or "no law applies to this case"
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
    kind: Annotated[str, typer.Option(help="Kind of array: numpy, torch or jax.")] = "numpy",
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Allow kernels that no device has run.")
    ] = False,
) -> None:
    """Print which backend computes a line, and why; its cost."""
    kinds = sorted({known for known, _ in dispatch.AUTO})
    if kind not in kinds:
        raise invalid("explain", f"--kind is {kind!r}, {needs_one(kind, kinds)}")
    call = parse(line).call
    chosen = dispatch.explain(call, backend, kind, unproven=unproven)
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
    print(chosen)


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
    """Print registers, spills and load widths of compiled kernels.

    No GPU is needed.
    """
    from .output import print_table

    found = getattr(dispatch.load(backend), "inspect", None)
    call = parse(line).call
    reason = refusal(dispatch.load(backend), call) if found else "it has no code to show"
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
    if reason := why_not(name):
        return reason
    return ", ".join(f"{k} {v}" for k, v in versions(dispatch.load(name)).items())


def _version_of(name: str) -> str:
    """Return the version of the installed package that has the name of a backend."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return "-"


app.add_typer(files.app, name="report")
app.command("grade")(grading.grade)


# The help of commands that are known: to ask a package for it would import it.
PLUGINS = {
    "bench": "Time backends on the layers of networks.",
    "export": "Write the Triton kernels of a line: cubin, PTX, C header.",
    "sanitize": "Run Triton kernels as PTX on the CPU and report errors.",
}


def _add_plugins() -> None:
    """Add a command for each entry point; its package is imported when the command runs.

    The object is a function that takes the words of the command line and returns an exit status.
    """
    words = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    for point in entry_points(group="convref.commands"):
        what = PLUGINS.get(point.name, f"Run {point.module.partition('.')[0]}.")
        text = f"{what} Options: convref {point.name} --help."
        app.command(point.name, context_settings=words, help=text)(_plugin(point))


def _plugin(point: EntryPoint) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        raise typer.Exit(point.load()(context.args))

    return run


_add_plugins()
