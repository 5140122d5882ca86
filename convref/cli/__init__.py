"""The console script: one sentence when an extra is missing, else the commands."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

from ..errors import ConvrefError, ExitStatus, MissingExtraError, UnsupportedError, missing_extra


def main() -> None:
    """Run the command line; `convref.errors.ExitStatus` lists the exit statuses."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal has no lines and spinners
    sys.path.append(os.getcwd())  # mykernels:backend may be a file of the current folder
    try:
        try:
            from .commands import app
        except ImportError as error:
            if isinstance(error, MissingExtraError):
                raise
            raise missing_extra("check", error) from None
        app()
    except UnsupportedError as error:
        _end(str(error), ExitStatus.REFUSED)
    except (ConvrefError, MissingExtraError) as error:
        _end(str(error), ExitStatus.WRONG_USE)
    except OSError as error:  # no space behind standard output, or no right to a file
        _end(f"{error.filename or 'output'}: {error.strerror}", ExitStatus.WRONG_USE)


def _end(sentence: str, status: int) -> NoReturn:
    print(f"convref: {sentence}", file=sys.stderr)
    sys.exit(status)
