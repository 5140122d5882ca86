"""Refuse imports against the order of the packages, and folders with too many entries.

Every import statement counts, those inside functions too: a lazy import is still a dependency.
Only ``if TYPE_CHECKING:`` blocks are left out: they never run, so they cannot close a circle.
Prints one line per violation.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (".", "kernels", "bench")  # the folders that hold top-level packages

# A module imports from its own row and the rows below. The longest matching name decides the row.
ORDER = (
    ("convref_bench",),
    ("convref.cli", "convref.__main__"),
    ("convref.integrations", "convref.conformance", "convref.exports", "convref.grade"),
    ("convref",),  # convref/__init__.py
    ("convref.api",),
    ("convref.dispatch",),
    ("convref.knownbugs",),
    ("convref_triton", "convref_mojo", "convref_ptx", "convref_driver"),
    ("convref.backends",),
    ("convref.judge",),
    ("convref.oracle",),
    ("convref.case",),
    ("convref.ops",),
    ("convref.arrays",),
    ("convref.dtypes",),
    ("convref.errors",),
)
ROW = {name: row for row, names in enumerate(ORDER) for name in names}
PACKAGES = sorted(name for name in ROW if "." not in name)

MAX_ENTRIES = 20
LONG_FOLDERS = {"convref/oracle", "bench/results", "tests", "docs"}  # one file per formula, page

# Violations still to be removed; each entry is a part of a violation's text.
ALLOWED: tuple[str, ...] = ()


@dataclass(frozen=True)
class Import:
    """One imported name: ``from target import name``, or ``import target`` where it is empty."""

    module: str
    place: str
    target: str
    name: str


@dataclass(frozen=True)
class Tree:
    """The modules of all packages by dotted name, and their imports of each other."""

    files: dict[str, Path]
    imports: tuple[Import, ...]

    def edges(self) -> dict[str, set[str]]:
        """Return, by module, the modules that it imports."""
        found: dict[str, set[str]] = {module: set() for module in self.files}
        for each in self.imports:
            found[each.module] |= {self.module_of(each)} - {each.module}
        return found

    def module_of(self, each: Import) -> str:
        """Return the module that an import names: ``from package import module`` names both."""
        inner = f"{each.target}.{each.name}"
        return inner if inner in self.files else each.target


def read(root: Path) -> Tree:
    """Return the modules under `root` and their imports of each other."""
    files = {}
    for base in SOURCES:
        for package in PACKAGES:
            for path in sorted((root / base / package).rglob("*.py")):
                parts = path.relative_to(root / base).with_suffix("").parts
                files[".".join(parts).removesuffix(".__init__")] = path
    found = []
    for module, path in files.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        place = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        names = list(_statements(tree, package))
        modules = {local: f"{target}.{name}" for _, target, name, local in names}
        modules = {local: target for local, target in modules.items() if target in files}
        used = (
            use for use in _private_attributes(tree, modules) if _defines(files[use[1]], use[2])
        )
        for line, target, name, _ in (*names, *used):
            if target.partition(".")[0] in PACKAGES:
                found.append(Import(module, f"{place}:{line}", target, name))
    return Tree(files, tuple(found))


Name = tuple[int, str, str, str]  # line, module, name in it, name here


def _statements(node: ast.AST, package: str) -> Iterator[Name]:
    """Yield the names of each import below a node."""
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            for child in node.orelse:
                yield from _statements(child, package)
            return
        case ast.Import():
            yield from ((node.lineno, alias.name, "", "") for alias in node.names)
        case ast.ImportFrom():
            parts = package.split(".") if node.level else []
            base = parts[: len(parts) - node.level + 1] + ([node.module] if node.module else [])
            for alias in node.names:
                yield node.lineno, ".".join(base), alias.name, alias.asname or alias.name
        case ast.Call(ast.Attribute(attr="import_module"), [ast.Constant(str(target)), *_]):
            yield node.lineno, target, "", ""
    for child in ast.iter_child_nodes(node):
        yield from _statements(child, package)


def _private_attributes(tree: ast.AST, modules: dict[str, str]) -> Iterator[Name]:
    """Yield each ``module._name`` of an imported module, which is as good as importing it."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(name), attr) if name in modules and _is_private(attr):
                yield node.lineno, modules[name], attr, ""


def _defines(path: Path, name: str) -> bool:
    """Return whether a module has this name, and no local variable shadows it."""
    return bool(re.search(rf"^(def |class )?{name}\b", path.read_text("utf-8"), re.MULTILINE))


def row(module: str) -> int:
    """Return the row of ORDER that a module belongs to."""
    while module not in ROW:
        module = module.rpartition(".")[0]
    return ROW[module]


def against_the_order(tree: Tree) -> Iterator[str]:
    """Yield imports of a higher row, and imports of a plug-in by modules that must not need it."""
    for each in tree.imports:
        target = tree.module_of(each)
        importer, imported = each.module.partition(".")[0], target.partition(".")[0]
        if importer == "convref" and imported != "convref":
            yield f"{each.place}: {each.module} imports {target}, which is an optional plug-in"
        elif row(target) < row(each.module):
            yield f"{each.place}: {each.module} imports {target}, which is above it"


def circles(tree: Tree) -> Iterator[str]:
    """Yield a shortest circle through each module that is the first of one by name."""
    edges, seen = tree.edges(), set()
    for start in sorted(edges):
        path = _path_back(start, edges)
        if path and not seen & set(path):
            seen |= set(path)
            yield f"circle: {' -> '.join((*path, start))}"


def _path_back(start: str, edges: dict[str, set[str]]) -> tuple[str, ...]:
    """Return the modules on a shortest way from `start` to itself; empty if there is none."""
    queue, seen = [(start,)], {start}
    for path in queue:
        for target in sorted(edges.get(path[-1], ())):
            if target == start:
                return path
            if target not in seen:
                seen.add(target)
                queue.append((*path, target))
    return ()


def private_names(tree: Tree) -> Iterator[str]:
    """Yield uses of another module's ``_name``, and imports of another package's ``_module``."""
    for each in tree.imports:
        module = tree.module_of(each)
        if _is_private(each.name) and module == each.target:
            yield f"{each.place}: {each.name} is private to {each.target}"
        parts = module.split(".")
        for depth, part in enumerate(parts):
            if _is_private(part) and each.module.split(".")[:depth] != parts[:depth]:
                yield f"{each.place}: {module} is private to {'.'.join(parts[:depth])}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _is_kept(entry: Path) -> bool:
    """Return whether an entry is more than caches, which a folder keeps after its modules moved."""
    files = (entry,) if entry.is_file() else entry.rglob("*")
    return any(path.is_file() and "__pycache__" not in path.parts for path in files)


def long_folders(root: Path) -> Iterator[str]:
    """Yield folders with more than MAX_ENTRIES entries directly under them.

    A stub is part of its module.
    """
    tops = [root / base for base in ("convref", "kernels", "bench", "tools")]
    for folder in (f for top in tops for f in (top, *top.rglob("*")) if f.is_dir()):
        name = folder.relative_to(root).as_posix()
        kept = (entry for entry in folder.iterdir() if _is_kept(entry))
        count = len({entry.with_suffix(entry.suffix.removesuffix("i")) for entry in kept})
        if count > MAX_ENTRIES and name not in LONG_FOLDERS and folder.name != "__pycache__":
            yield f"{name}: {count} entries, at most {MAX_ENTRIES} are allowed"


def violations(root: Path, allowed: Iterable[str] = ALLOWED) -> Iterator[str]:
    """Yield one line of text for each violation that is not allowed, and each idle allowance."""
    tree = read(root)
    found = [*against_the_order(tree), *circles(tree), *private_names(tree), *long_folders(root)]
    yield from (text for text in found if not any(part in text for part in allowed))
    unused = [part for part in allowed if not any(part in text for text in found)]
    yield from (f"tools/imports.py: ALLOWED has {part!r}, which is fixed" for part in unused)


if __name__ == "__main__":
    lines = list(violations(ROOT))
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))
