"""Print pip's constraints for one end of what pyproject.toml accepts.

Usage: python tools/ends.py low|high [NAME==VERSION ...]; NAME is held at that version.
"""

import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements() -> list[str]:
    """Return every direct requirement, of the library and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *chain(*project["optional-dependencies"].values())]


def lowest(wanted: list[str]) -> dict[str, str]:
    """Return the lower bound of each requirement by its name.

    >>> lowest(["numpy>=2.0", "triton>=3.6,<3.10; sys_platform == 'linux'", "convref[bf16]"])
    {'numpy': '2.0', 'triton': '3.6'}
    """
    found = (re.match(r"([\w.-]+)>=([\w.]+)", text) for text in wanted)
    return {match[1]: match[2] for match in found if match}


def highest(wanted: list[str]) -> dict[str, str]:
    """Return no bound: pip takes the newest version of its own accord."""
    return {}


ENDS = {"low": lowest, "high": highest}


def constraints(end: str, held: list[str]) -> list[str]:
    """Return the lines of a constraints file."""
    bounds = ENDS[end](requirements()) | dict(text.split("==") for text in held)
    return [f"{name}=={version}" for name, version in sorted(bounds.items())]


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ENDS:
        sys.exit(f"usage: python tools/ends.py {'|'.join(ENDS)} [NAME==VERSION ...]")
    print("\n".join(constraints(sys.argv[1], sys.argv[2:])))
