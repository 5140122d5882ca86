"""The same commands for `convref bench ...`; needs typer, the rest of the package does not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .__main__ import RESULTS, main

app = typer.Typer(no_args_is_help=True)


@app.command()
def cpu(out: Path = RESULTS / "cpu.jsonl", threads: int = 2) -> None:
    """Time the oracle against torch in float64 on ResNet-50, and what calling costs."""
    raise typer.Exit(main(["cpu", "--out", str(out), "--threads", str(threads)]))


@app.command()
def gpu(out: Path = RESULTS / "gpu", seconds: float = 540.0) -> None:
    """Go through the steps of `make gpu`, or on with those that are missing."""
    raise typer.Exit(main(["gpu", "--out", str(out), "--seconds", str(seconds)]))


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
    backend: str = "numpy,torch",
    passes: Annotated[str, typer.Option("--pass")] = "fprop,dgrad,wgrad",
    dtype: str = "f32",
    batch: int = 1,
    out: Path = RESULTS / "network.jsonl",
) -> None:
    """Time backends of this CPU on a suite, judged first; the last one is the reference."""
    options = ["--backend", backend, "--pass", passes, "--dtype", dtype, "--batch", str(batch)]
    raise typer.Exit(main(["run", suite, *options, "--out", str(out)]))


@app.command()
def suites() -> None:
    """List the suites."""
    raise typer.Exit(main(["suites"]))
