"""Hypothesis profiles, and the stand-in for libcuda that the tests of launches share.

The profile `default` repeats the same few examples, `nightly` is the long campaign.
"""

import contextlib
import gc
import json
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import driver_stub as stub
import hypothesis.core
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from convref.errors import UnsupportedError

_COMMON = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
# No test draws from a generator that is global: to set their states takes 0.1 ms an example.
hypothesis.core.deterministic_PRNG = contextlib.nullcontext
settings.register_profile("default", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=2_500, print_blob=True, **_COMMON)
with contextlib.suppress(ImportError):  # psutil, which the court needs
    from convref.conformance import causes
    from convref.conformance.workers import engine

    # The fork server starts once: without torch, each worker of a backend that uses it imports it.
    _preload = engine.preload
    engine.preload = lambda _: _preload(("torch",))
    # On a slow machine too, shrinking ends where no smaller case fails.
    causes.SHRINK_SECONDS = causes.TOTAL_SECONDS = math.inf
# Workers keep there what Hypothesis reads in all modules, 0.4 s for each process otherwise, and
# what XLA compiles, 0.04 s for each operator of JAX.
_KEPT = Path(__file__).parents[1] / ".hypothesis"
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(_KEPT))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_KEPT / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
gc.disable()


def pytest_ignore_collect(collection_path):
    """Doctests are collected from modules of tests only: scripts beside them import much more."""
    script = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if script else None


def pytest_collection_modifyitems(items):
    """Skip long campaigns, which have the mark `nightly`, unless that is the profile."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":
        return
    for item in items:
        if mark := item.get_closest_marker("nightly"):
            why = mark.kwargs.get("reason", "long")
            item.add_marker(pytest.mark.skip(reason=f"{why}: HYPOTHESIS_PROFILE=nightly"))


def pytest_collection_finish():
    """What was imported and collected stays: each full collection would visit all of it again."""
    gc.set_threshold(20_000, 20, 20)  # what tests import is as large, and stays too
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_data_in_any_order(request):
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)
    if rng := getattr(getattr(request.node, "module", None), "RNG", None):
        rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


FORKS = """
import gc, importlib, json, os, runpy, signal, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()
for line in sys.stdin:
    words, folder, environment, path = json.loads(line)
    if not (child := os.fork()):
        signal.alarm(600)
        os.chdir(folder)
        sys.stdin = open(os.devnull)
        for number, name in enumerate(("out", "err"), 1):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:0] = path
        sys.argv = words
        try:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        except SystemExit as end:  # without taking apart what was imported
            sys.stdout.flush()
            os._exit(end.code or 0)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def forked():
    """Return a function that runs a module as `python -m` does, in a fork of a process.

    That process has imported packages, once for all tests that name the same ones.
    """
    with contextlib.ExitStack() as stack:

        @cache
        def server(packages):
            command = [sys.executable, "-P", "-c", FORKS, *packages]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            return stack.enter_context(subprocess.Popen(command, **pipes))

        def run(packages, words, folder, environment, path=()):
            made = server(packages)
            made.stdin.write(json.dumps([words, str(folder), environment, path]) + "\n")
            made.stdin.flush()
            status = int(made.stdout.readline())
            out, err = ((folder / name).read_text("utf-8") for name in ("out", "err"))
            return subprocess.CompletedProcess(words, status, out, err)

        yield run


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Return the path of a stand-in for libcuda."""
    try:
        return stub.build(tmp_path_factory.mktemp("stub"))
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def _loaded(library):
    return stub.Stub(library)


@pytest.fixture
def driver(_loaded):
    """Return the stand-in with an empty log."""
    _loaded.layout([])
    _loaded.static_shared(0)
    _loaded.set_version(12080)
    _loaded.log()
    return _loaded


@pytest.fixture
def device(driver):
    """Return a device for Triton's plans whose driver is the stand-in."""
    gpu = pytest.importorskip("convref_triton.run.gpu", reason="triton is not installed")
    import torch

    here = contextlib.nullcontext
    place = torch.device("cpu")
    return gpu.Device(
        place, "sm_90", driver, lambda: 0x77, lambda: True, here, capturing=lambda: False
    )
