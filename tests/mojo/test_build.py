"""Finding, building and caching the library, with a shell script as compiler."""

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from convref import UnsupportedError, parse
from convref.errors import pip_command
from convref_mojo import build
from convref_mojo.backend import MojoBackend

HERE = Path(__file__).parent
LINE = "conv.fprop:n1c1k1_i3_f2"
V3 = "avx2 bmi1 bmi2 f16c fma movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("flags", "name"),
    [("", "host"), ("sse2 avx", "host"), (V3, "x86-64-v3"), (V4, "x86-64-v4")],
)
def test_the_variant_is_the_best_that_the_cpu_can_run(flags, name):
    assert build.variant_of(frozenset(flags.split())).name == name


@pytest.mark.parametrize("flag", V4.split())
def test_a_missing_flag_rules_a_variant_out(flag):
    assert build.variant_of(frozenset(V4.split()) - {flag}).name != "x86-64-v4"


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Clear the caches, and use an empty folder for libraries."""
    build.why_missing.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "prebuilt", lambda variant, folder=None: tmp_path / "none.so")
    yield tmp_path
    build.why_missing.cache_clear()


def fake(monkeypatch, folder, body):
    """Use the shell script `body` as the compiler; $OUT is the path of the library."""
    driver = folder / "mojo"
    find = 'while [ "$1" != -o ]; do shift; done; OUT="$2"'
    driver.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/calls"\n{find}\n{body}\n', "utf-8")
    driver.chmod(driver.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(build, "compiler", lambda: (driver, "9.9"))
    return driver


def calls(folder):
    return (folder / "calls").read_text("utf-8").splitlines()


def test_a_library_is_built_once_and_then_found(fresh, monkeypatch):
    fake(monkeypatch, fresh, 'echo library > "$OUT"')
    first = build.library()
    assert first == build.library()
    assert first.read_text("utf-8") == "library\n"
    assert len(calls(fresh)) == 1
    assert "9.9" in first.name
    assert build.source_hash() in first.name


def test_concurrent_callers_share_one_build(fresh, monkeypatch):
    fake(monkeypatch, fresh, 'sleep 0.2; echo library > "$OUT"')
    paths = []
    callers = [threading.Thread(target=lambda: paths.append(build.library())) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(set(paths)) == 1
    assert len(paths) == 6
    assert len(calls(fresh)) == 1


def test_without_the_lock_every_caller_builds(fresh, monkeypatch):
    """The test above fails without a lock."""
    fake(monkeypatch, fresh, 'sleep 0.2; echo library > "$OUT"')
    monkeypatch.setattr(build, "lock", lambda path: path.open("w"))
    callers = [threading.Thread(target=build.library) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(calls(fresh)) > 1


@pytest.mark.parametrize(
    "body",
    ['echo half > "$OUT"; echo "error: no such thing" >&2; exit 3', "echo 'error: no such thing'"],
)
def test_a_failed_build_reports_the_error_and_leaves_no_file(fresh, monkeypatch, body):
    fake(monkeypatch, fresh, body)
    with pytest.raises(UnsupportedError, match="the compiler failed: error: no such thing"):
        build.library()
    left = [p.suffix for p in (fresh / "cache").rglob("*") if p.is_file()]
    assert left == [".lock"]


def test_a_compiler_that_does_not_start_is_an_unsupported_error(fresh, monkeypatch):
    driver = fake(monkeypatch, fresh, "")
    driver.chmod(0o644)
    with pytest.raises(UnsupportedError, match="the compiler did not run"):
        build.library()


def test_telemetry_and_crash_reports_are_off(fresh, monkeypatch):
    fake(monkeypatch, fresh, 'env > "$OUT"')
    environment = build.library().read_text("utf-8")
    assert "MODULAR_TELEMETRY_ENABLED=false" in environment
    assert "MODULAR_CRASH_REPORTING_ENABLED=false" in environment


def test_a_changed_source_changes_the_name_of_the_library(fresh, monkeypatch):
    copy = fresh / "sources"
    copy.mkdir()
    for path in build.SOURCES.glob("*.mojo"):
        shutil.copy(path, copy)
    monkeypatch.setattr(build, "SOURCES", copy)
    hashes = []
    for change in ("", "\n", "# more\n"):
        with (copy / build.ENTRY).open("a", encoding="utf-8") as file:
            file.write(change)
        build.source_hash.cache_clear()
        hashes.append(build.source_hash())
    build.source_hash.cache_clear()
    assert len(set(hashes)) == 3


def test_a_prebuilt_library_needs_no_compiler(monkeypatch, tmp_path):
    ready = build.prebuilt(build.variant_of(), tmp_path)
    ready.write_bytes(b"library")
    monkeypatch.setattr(build, "prebuilt", lambda variant, folder=None: ready)
    monkeypatch.setattr(build, "compiler", lambda: None)
    build.why_missing.cache_clear()
    assert build.why_missing() is None
    assert build.library() == ready
    build.why_missing.cache_clear()
    assert sys.platform in ready.name


def test_without_compiler_and_library_the_reason_has_the_install_command(fresh, monkeypatch):
    monkeypatch.setattr(build, "compiler", lambda: None)
    reason = build.why_missing()
    assert pip_command("mojo") in reason
    backend, case = MojoBackend(), parse(LINE)
    assert backend.supports(case.call) == reason
    assert backend.fingerprint() == {"missing": reason}
    with pytest.raises(UnsupportedError, match="no compiler to build"):
        build.library()
    with pytest.raises(UnsupportedError, match="no compiler to build"):
        backend.run(case.call, None, None, None)


def test_the_path_of_the_compiler_is_erased():
    binary = b"\0/usr/x/site-packages/modular/lib\0symbol\0"
    cleaned = build.without_paths(binary)
    assert len(cleaned) == len(binary)
    assert b"/usr" not in cleaned
    assert cleaned.endswith(b"\0symbol\0")


def test_building_for_a_wheel_builds_each_variant(monkeypatch, tmp_path, capsys):
    fake(monkeypatch, tmp_path, 'echo library > "$OUT"')
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    assert build.main([str(tmp_path / "out")], None, build.build_variants) == 0
    names = sorted(os.listdir(tmp_path / "out"))
    assert [name.split("-")[-2] for name in names] == ["v3", "v4"]
    assert all("--target-cpu" in call for call in calls(tmp_path))
    assert [Path(line).name for line in sorted(capsys.readouterr().out.split())] == names


# A plug-in of pytest that hides the compiler and the prebuilt files.
HIDDEN = """
import importlib.metadata as metadata
from pathlib import Path

found = metadata.version

def version(name):
    if name in ("mojo-compiler", "max-core"):
        raise metadata.PackageNotFoundError(name)
    return found(name)

metadata.version = version

from convref_mojo import build, emit

build.prebuilt = emit.prebuilt = lambda *_: Path(__file__).with_name("none")
"""


def test_without_mojo_the_tests_are_skipped_with_a_reason(tmp_path):
    (tmp_path / "hidden.py").write_text(HIDDEN, "utf-8")
    names = ("test_cuda.py", "test_norm.py", "test_structs.py")
    words = ["-q", "-rs", "-p", "hidden", "-p", "no:cacheprovider"]
    path = os.pathsep.join((str(tmp_path), *sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *map(str, map(HERE.joinpath, names))],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    for name, extra in (("norm", "mojo"), ("cuda", "mojo-gpu")):
        command = re.escape(pip_command(extra))
        assert re.search(rf"test_{name}\.py.*{command}", done.stdout)
