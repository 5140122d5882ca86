"""Render docs/bugs-found.md from docs/bugs/*.toml, or run the programs of the page.

Usage: python tools/bugs.py [--check | --run [ID or LIBRARY ...]]. Each program is run by this
interpreter, in a process that cannot import convref; a bug that does not show itself is an exit
status of 1. Both ways of use end with the number of root causes and how many of them have no
upstream report.
"""

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "bugs"
PAGE = FOLDER.with_name("bugs-found.md")
SEVERITIES = {  # worst first: heading and one sentence
    "crash": ("Crashes and hangs", "The process ends, or the call never returns."),
    "silent": (
        "Silently wrong results",
        "Finite data, no error, and numbers or shapes that are not the result.",
    ),
    "precision": (
        "Few correct digits",
        "The formula loses digits, underflows or overflows where the result does not.",
    ),
    "error": (
        "Errors on valid calls",
        "The call is valid, and the same library computes it in another form.",
    ),
    "convention": (
        "Conventions and limits",
        "Not bugs: results for NaN and infinity, definitions that differ from the court's, empty "
        "cases. They are listed since the court reports them until their regions are known.",
    ),
}
ATTEMPTS = 5  # of a program whose result depends on the contents of memory
SECONDS = 300  # an import of a framework on a busy machine
WITHOUT_CONVREF = "import sys; sys.modules['convref'] = None\n"

Bug = dict[str, Any]


def load() -> list[Bug]:
    """Return every bug, each with the name, module and versions of its library."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        library = tomllib.loads(path.read_text("utf-8"))
        common = {key: library[key] for key in ("name", "module", "version")}
        common["packages"] = library.get("packages", [])
        common["again"] = library.get("again", common["version"])  # a later release, run again
        for bug in library["bug"]:
            start = library.get("start", "") if bug.get("starts", True) else ""
            program = start.lstrip("\n") + bug["program"].lstrip("\n")
            bug = {"regions": [bug["id"]], "lines": [], "link": "", "text": "", **common, **bug}
            found.append({**bug, "program": program, "file": path.stem})
    return found


def outcome(bug: Bug) -> str:
    """Return the last line that a program prints, its exception, its signal, or "hang"."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if bug["module"] == "tinygrad" and not shutil.which("clang"):
        env["DEV"] = "PYTHON"  # its CPU device compiles with clang
    program, seconds = bug["program"], bug.get("seconds", SECONDS)
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_CONVREF + program]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "hang"
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode:  # a message may have several lines, of which the first has the type
        lines = [line for line in lines if line[:1].isalpha() and "Error" in line] or lines
    return lines[-1] if lines else ""


def root_causes(bugs: list[Bug]) -> dict[str, Bug]:
    """Return one bug for each root cause: libraries that share one name the same report first."""
    real = [bug for bug in bugs if bug["severity"] != "convention"]
    return {cause(bug): bug for bug in reversed(real)}


def cause(bug: Bug) -> str:
    """Return what stands for the root cause of a bug: its first report, or itself."""
    return bug["link"].partition(" ")[0] or str(bug["id"])


def tally(bugs: list[Bug]) -> str:
    """Return the number of root causes, and of those without an upstream report."""
    causes = root_causes(bugs)
    new = sum(not bug["link"] for bug in causes.values())
    return f"{len(causes)} root causes, {new} of them without an upstream report"


def state(bug: Bug) -> str:
    """Return "confirmed", "fixed", why it was not run, what it needs, or what it gives."""
    if find_spec(bug["module"]) is None:
        return "not installed"
    installed = {_version(name) for name in (bug["module"], *bug["packages"])}
    if not installed & {bug["version"], bug["again"]}:
        return "another version"
    fixed, got = bug.get("fixed") in installed, ""
    for _ in range(ATTEMPTS):
        got = outcome(bug)
        if got != bug["expected"] and (bug.get("varies") or got.startswith(bug["actual"])):
            return f"gives {got!r}" if fixed else "confirmed"
        if got != bug["expected"]:
            break
    if fixed and got == bug["expected"]:
        return "fixed"
    return f"needs {bug['isa']}" if "isa" in bug else f"gives {got!r}"


def _version(package: str) -> str:
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return ""


def page(bugs: list[Bug]) -> str:
    """Return the page."""
    real = [bug for bug in bugs if bug["severity"] != "convention"]
    libraries: dict[str, list[Bug]] = {}
    for bug in sorted(bugs, key=lambda bug: bug["name"].casefold()):
        libraries.setdefault(bug["file"], []).append(bug)
    names = " | ".join(heading.lower() for heading, _ in SEVERITIES.values())
    columns = f"| library | version | {names} |\n| --- | --- |{' --- |' * len(SEVERITIES)}\n"
    parts = [
        HEAD.format(real=len(real), tally=tally(bugs)).strip(),
        columns + "\n".join(_row(file, found) for file, found in libraries.items()),
        ELSEWHERE.strip(),
        "## By library",
        *(_contents(file, found) for file, found in libraries.items()),
    ]
    for severity, (heading, meaning) in SEVERITIES.items():
        parts += [f"## {heading}", meaning]
        parts += [_entry(bug) for bug in bugs if bug["severity"] == severity]
    return "<!-- made by tools/bugs.py from docs/bugs -->\n" + "\n\n".join(parts) + "\n"


HEAD = """
# Bugs found

The court found {real} bugs in released libraries: {tally}. The table links to the bugs of a
library. Each has a program without convref, which prints the *actual* result in place of the
*expected* one: `python tools/bugs.py --run torch` runs those of a library. Where no report is
linked, the library's issues and pull requests were searched in November 2026. Those of Keras were
found by comparing its backends with one another.

Of a library with two versions, all programs were run with both; a bug that the later one has not is
marked as fixed.

The lines are [cases of the court](line.md): `convref run LINE --backend NAME` repeats one; for
libraries without a backend in convref, in the folder `docs/examples`, with
[an adapter](examples.md#a-library-of-your-own) such as `tinygrad_backend:backend`. Identifiers are
those of `convref/known_bugs.txt`; `convref check NAME --retest-known` reports which are fixed.

All were seen on an x86-64 CPU with AVX-512 and AVX-512 BF16, without AMX, and those of PyTorch,
OpenVINO, TensorFlow and JAX again with the libraries capped to AVX2 (`ATEN_CPU_CAPABILITY=avx2
ONEDNN_MAX_CPU_ISA=AVX2 XLA_FLAGS=--xla_cpu_max_isa=AVX2`), but for those that name AVX-512.
"""


ELSEWHERE = """
Not in these numbers: Triton's [compiler](sanitize.md#seeded-faults) and
[interpreter](triton/compiler.md#the-strict-interpreter), Triton kernels of Liger-Kernel, FlagGems,
fla-core and [other packages](sanitize.md#kernels-of-other-packages), and wrong results that
[the rules of benchmarks](grading.md#certificate-of-a-benchmark) accept.
"""


def _versions(bug: Bug) -> str:
    return ", ".join(dict.fromkeys((bug["version"], bug["again"])))


def _fixed(bug: Bug) -> str:
    return f"fixed in {bug['fixed']}" if "fixed" in bug else ""


def _row(file: str, bugs: list[Bug]) -> str:
    """Return the counts of a library, linked to its part of the contents."""
    counts = Counter(bug["severity"] for bug in bugs)
    cells = [f"[{bugs[0]['name']}](#bugs-of-{file})", _versions(bugs[0])]
    return f"| {' | '.join([*cells, *(str(counts[one] or '') for one in SEVERITIES)])} |"


def _contents(file: str, bugs: list[Bug]) -> str:
    """Return a heading of a library and links to its bugs, worst first."""
    lines = [f"(bugs-of-{file})=", f"### {bugs[0]['name']} {_versions(bugs[0])}"]
    for severity, (heading, _) in SEVERITIES.items():
        found = [bug for bug in bugs if bug["severity"] == severity]
        lines += ["", f"{heading}:", ""] if found else []
        for bug in found:
            marks = ", ".join(filter(None, (bug.get("flags"), _fixed(bug))))
            told = f"{bug['title']} ({marks})" if marks else bug["title"]
            lines.append(f"- [{bug['id']}](#bug-{bug['id']}): {told}")
    return "\n".join(lines)


def _entry(bug: Bug) -> str:
    links = ", ".join(
        f"[{link.split('/')[-3]}#{link.split('/')[-1]}]({link})" for link in bug["link"].split()
    )
    told_of = (f"{bug['name']} {bug['version']}", bug.get("isa"), bug.get("flags"), _fixed(bug))
    where = ", ".join(filter(None, told_of))
    upstream = f"Upstream: {links}." if links else "No upstream report was found."
    if bug["severity"] == "convention" and not links:
        upstream = ""
    text = bug["text"].strip()
    lines = ", ".join(f"`{line}`" for line in bug["lines"])
    ids = "" if bug["regions"] in ([bug["id"]], []) else f" ({', '.join(bug['regions'])})"
    told = " ".join(filter(None, (f"{where}{ids}.", upstream, text)))
    program = bug["program"].strip()
    results = f"Expected `{bug['expected']}`; actual `{bug['actual']}`."
    title = f"(bug-{bug['id']})=\n### {bug['id']}: {bug['title']}"
    body = [title, told, *([lines] if lines else [])]
    return "\n\n".join([*body, f"```text\n{program}\n```", results])


def main(words: list[str]) -> int:
    """Write or check the page, or run programs."""
    bugs = load()
    if "--run" in words:
        wanted = [word for word in words if word != "--run"]
        chosen = [b for b in bugs if not wanted or b["id"] in wanted or b["file"] in wanted]
        states = {}
        for bug in chosen:
            states[bug["id"]] = state(bug)
            print(f"{bug['severity']:<11}{bug['id']}: {states[bug['id']]}", flush=True)
        confirmed = [bug for bug in chosen if states[bug["id"]] == "confirmed"]
        print(f"{dict(Counter(s.partition(' ')[0] for s in states.values()))}: {tally(confirmed)}")
        return int(any(s.startswith("gives") for s in states.values()))
    if "--check" in words:
        return int(PAGE.read_text("utf-8") != page(bugs))
    PAGE.write_text(page(bugs), "utf-8")
    print(tally(bugs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
