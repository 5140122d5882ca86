"""The console script: one sentence when an extra is missing, else the commands."""

from __future__ import annotations

import sys

from .errors import ConvrefError, MissingExtraError, UnsupportedError, missing_extra


def main() -> None:
    """Run the command line; exit status 0 good, 1 failures found, 2 wrong use."""
    try:
        try:
            from .commands import app
        except ImportError as error:
            if isinstance(error, MissingExtraError):
                raise
            raise missing_extra("check", error) from None
        app()
    except (ConvrefError, MissingExtraError, UnsupportedError) as error:
        print(f"convref: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
