"""How much memory this machine gives to a process."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path, PurePosixPath

# Per version of Linux control groups: the file of a group's limit, and where the groups are.
_LIMITS = {"": ("memory.max", ""), "memory": ("memory.limit_in_bytes", "memory")}


@cache
def available() -> int:
    """Return the bytes of physical memory, or the limit of the control group if that is less."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not POSIX, or not reported
        physical = 0
    return min([physical if physical > 0 else sys.maxsize, *group_limits()])


def group_limits(
    listing: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[int]:
    """Return the limits of the control groups that this process is in, and of those above."""
    found = []
    for row in _text(listing).splitlines():
        controllers, _, path = row.partition(":")[2].partition(":")
        version = "memory" if "memory" in controllers.split(",") else controllers
        if version in _LIMITS:
            name, folder = _LIMITS[version]
            group = PurePosixPath(path.lstrip("/"))
            texts = (_text(root / folder / above / name) for above in (group, *group.parents))
            found += [int(text) for text in texts if text.strip().isdecimal()]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
