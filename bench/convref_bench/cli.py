"""The same commands for `convref bench ...`; needs typer, the rest of the package does not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .__main__ import PASSES, main, with_default
from .records import RESULTS


class SuiteGroup(TyperGroup):
    """A group whose first word may be a suite: `convref bench resnet50 --backend triton,torch`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command that times a suite in front of a suite's name."""
        return super().parse_args(ctx, with_default(args, tuple(self.commands)))


app = typer.Typer(
    no_args_is_help=True,
    cls=SuiteGroup,
    help="Time backends on the layers of a network: convref bench SUITE, options as of run.",
)

Backend = Annotated[str, typer.Option(help="Arms by name; the torch arms are the reference.")]
Passes = Annotated[
    str, typer.Option("--pass", help="Of conv: fprop, dgrad, wgrad; of others: fprop, backward.")
]
Dtype = Annotated[str, typer.Option(help="Out of bf16, fp16, tf32, tf32x3, fp32, fp64.")]
Device = Annotated[str, typer.Option(help="cpu, cpu-nhwc or cuda.")]
Threads = Annotated[int | None, typer.Option(help="Of each arm on the CPU.")]
Out = Annotated[Path | None, typer.Option(help="JSON lines, appended to.")]


@app.command()
def cpu(out: Path = RESULTS / "cpu.jsonl", threads: int = 2) -> None:
    """Time the oracle against torch in float64 on ResNet-50, and what calling costs."""
    raise typer.Exit(main(["cpu", "--out", str(out), "--threads", str(threads)]))


@app.command()
def gpu(out: Path = RESULTS / "gpu", seconds: float = 540.0, steps: str = "") -> None:
    """Go through the steps of `make gpu`, or some of them, or on with those that are missing."""
    words = ["--out", str(out), "--seconds", str(seconds), "--steps", steps]
    raise typer.Exit(main(["gpu", *words]))


@app.command()
def compare(a: Path, b: Path) -> None:
    """Compare two files of records, line by line; exit status 1 if b is slower somewhere."""
    raise typer.Exit(main(["compare", str(a), str(b)]))


@app.command()
def report(records: Path, folder: Path) -> None:
    """Write the plots and a self-contained page of a file of records."""
    raise typer.Exit(main(["report", str(records), str(folder)]))


@app.command()
def run(
    suite: str,
    backend: Backend = "numpy,torch",
    passes: Passes = PASSES,
    dtype: Dtype = "fp32",
    device: Device = "cpu",
    batch: int = 1,
    op: Annotated[str, typer.Option(help="Ops or families of ops: conv,pool.")] = "conv",
    threads: Threads = None,
    out: Out = None,
) -> None:
    """Time backends on a suite, judged first: what `convref bench SUITE` means."""
    options = ["--backend", backend, "--pass", passes, "--dtype", dtype, "--device", device]
    more = ["--out", str(out)] if out else []
    more += ["--threads", str(threads)] if threads else []
    raise typer.Exit(main(["run", suite, *options, "--batch", str(batch), "--op", op, *more]))


@app.command()
def suites() -> None:
    """List the suites."""
    raise typer.Exit(main(["suites"]))


@app.command()
def tune(
    suite: str,
    backend: Annotated[str, typer.Option(help="The backend whose table is searched.")] = "triton",
    passes: Passes = PASSES,
    dtype: Dtype = "bf16",
    device: Device = "cuda",
    batch: int = 1,
    seconds: Annotated[float, typer.Option(help="Wall time for the search.")] = 3600.0,
    out: Out = None,
) -> None:
    """Time every configuration of a backend on a suite and keep the whole matrix."""
    options = ["--backend", backend, "--pass", passes, "--dtype", dtype, "--device", device]
    more = ["--out", str(out)] if out else []
    sizes = ["--batch", str(batch), "--seconds", str(seconds)]
    raise typer.Exit(main(["tune", suite, *options, *sizes, *more]))


@app.command()
def keep(records: Path = RESULTS / "gpu" / "gpu.jsonl", folder: Path = RESULTS / "cards") -> None:
    """Distil a GPU run into the small files that are committed, one a card."""
    raise typer.Exit(main(["keep", str(records), "--folder", str(folder)]))


@app.command()
def page(folder: Path = RESULTS / "cards", page: Path | None = None) -> None:
    """Write what was kept of cards into docs/performance.md, with its plots."""
    more = ["--page", str(page)] if page else []
    raise typer.Exit(main(["page", str(folder), *more]))


@app.command()
def fit(matrix: Path) -> None:
    """Find the figures of the estimate of time in a time matrix, and say what its order loses."""
    raise typer.Exit(main(["fit", str(matrix)]))


@app.command()
def regret(matrix: Path) -> None:
    """Say what heuristics fitted to a time matrix lose on a network they have not seen."""
    raise typer.Exit(main(["regret", str(matrix)]))
