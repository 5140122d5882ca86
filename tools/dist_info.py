"""Write a dist-info folder from pyproject.toml: the entry points of convref without installing it.

Usage: python tools/dist_info.py FOLDER, then put FOLDER on PYTHONPATH beside the sources.
"""

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def entry_points(project: dict) -> str:
    """Return the text of entry_points.txt for the [project] table of a pyproject.toml."""
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    )


def write(folder: Path, root: Path = ROOT) -> Path:
    """Write NAME-VERSION.dist-info below `folder` in place of older ones, and return its path."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    for stale in folder.glob(f"{name}-*.dist-info"):
        shutil.rmtree(stale)
    target = folder / f"{name}-{version}.dist-info"
    target.mkdir(parents=True)
    (target / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8"
    )
    (target / "entry_points.txt").write_text(entry_points(project), "utf-8")
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/dist_info.py FOLDER")
    print(write(Path(sys.argv[1])))
