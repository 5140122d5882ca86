"""How much memory this machine gives to a process."""

import os
import sys
from functools import cache

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


def group_limits(listing: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> list[int]:
    """Return the limits of the control groups that this process is in, and of those above."""
    found = []
    for row in _text(listing).splitlines():
        controllers, _, path = row.partition(":")[2].partition(":")
        version = "memory" if "memory" in controllers.split(",") else controllers
        if version in _LIMITS:
            name, folder = _LIMITS[version]
            groups = [part for part in path.split("/") if part]
            for depth in range(len(groups) + 1):
                text = _text(os.path.join(root, folder, *groups[:depth], name))
                found += [int(text)] if text.strip().isdecimal() else []
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
