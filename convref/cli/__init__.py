"""The console script: its errors are one sentence, on standard error."""

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import ConvrefError, ExitStatus, MissingExtraError, UnsupportedError, missing_extra

# What ends a process; Windows has no SIGHUP.
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main() -> NoReturn:
    """Run the command line; `convref.errors.ExitStatus` lists the exit statuses."""
    sys.path.append(os.getcwd())  # mykernels:backend may be a file of the current folder
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupted)
    run(_commands)


def _interrupted(number: int, frame: object) -> NoReturn:
    """End as Ctrl-C does, so that no process and no file stays; the next signal has no effect."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def run(command: Callable[[], object]) -> NoReturn:
    """End the process with the status that `command` returns; print an error as one sentence."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal has no lines and spinners
    try:
        sys.exit(command())  # type: ignore[arg-type]
    except UnsupportedError as error:
        _exit(str(error), ExitStatus.REFUSED)
    except (ConvrefError, MissingExtraError) as error:
        _exit(str(error), ExitStatus.WRONG_USE)
    except OSError as error:  # standard output has no space left, or a file no permission
        _exit(f"{error.filename or 'output'}: {error.strerror}", ExitStatus.WRONG_USE)


def _commands() -> object:
    try:
        import typer

        from .commands import app
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        raise missing_extra("check", error) from None
    wrong_use: Any = typer.BadParameter.__base__  # UsageError of click, or of typer's copy of it
    try:
        return app(standalone_mode=False)
    except wrong_use as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
            error.show()
            return ExitStatus.WRONG_USE
        context = error.ctx
        where = f"{context.info_name}: " if context and context.parent else ""
        raise ConvrefError(f"{where}{error.format_message().rstrip('.')}") from None


def _exit(sentence: str, status: int) -> NoReturn:
    print(f"convref: {sentence}", file=sys.stderr)
    sys.exit(status)
