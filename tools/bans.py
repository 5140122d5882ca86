"""Bans that no linter checks, each a row of a table. Prints path:line: reason."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("convref", "kernels", "bench", "tests", "docs", "tools", ".ci")
ENDINGS = {".py", ".md", ".toml", ".txt", ".yaml", ".mojo", ".json", ".cfg", ""}
BUILT = {"_build", "__pycache__"}
POINTER = ".git"  # in a worktree a file, which names where the repository is

# (pattern of a line, which files, why not)
BANS = (
    (r"\ballclose\(", r"\.py$", "a tolerance without a derivation; use convref.judge"),
    (r"^\s*(np|numpy|torch)\.(array_)?equal\(", r"\.py$", "a comparison whose result is lost"),
    (r"\b[ar]tol\s*=\s*(?!0\b(?!\.))[0-9.]", r"^tests/.*\.py$", "a typed tolerance; compute it"),
    (r"(?<![\w.}])/(?:home|root|work|Users)/\w", "", "a path of one machine"),
    (r"files[.]pythonhosted|pypi[.]org/simple|--(?:extra-)?index-url", "", "a registry's address"),
)


def files(root: Path) -> Iterator[Path]:
    """Yield the text files that the bans hold for."""
    top = (p for p in root.iterdir() if p.is_file() and p.name != POINTER)
    yield from (p for p in top if p.suffix in ENDINGS)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in ENDINGS and not BUILT & set(path.parts):
                yield path


def violations(root: Path) -> Iterator[str]:
    """Yield one line of text for each thing that is banned."""
    if (root / "kernels" / "__init__.py").exists():
        yield "kernels/__init__.py: kernels is a folder; as a package it would hide another's"
    for path in files(root):
        name = path.relative_to(root).as_posix()
        bans = [(re.compile(ban), why) for ban, where, why in BANS if re.search(where, name)]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            yield from (f"{name}:{number}: {why}" for ban, why in bans if ban.search(line))


if __name__ == "__main__":
    found = list(violations(ROOT))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
