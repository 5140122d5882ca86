"""The pytest plug-in, as an adopter runs it: in a folder of their own, in another process."""

from __future__ import annotations

import json
import os
import re

import pytest

pytest.importorskip("psutil", reason="needs convref[check]")

BACKEND = """
import os, time
from convref.backends.numpy import NumpyBackend

class Mine(NumpyBackend):
    name = "mine"
    def supports(self, call):
        return "no bf16" if call.dtype == "bf16" else super().supports(call)

class Wrong(Mine):
    def run(self, call, *operands):
        results = super().run(call, *operands)
        if call.pass_ == "fprop" and max(call.problem.stride) > 1 and results[0].size:
            results[0].flat[-1] += 8
        return results

class Dies(Mine):
    def run(self, call, *operands):
        if call.pass_ == "fprop" and call.problem.n > 1:
            os._exit(7)
        return super().run(call, *operands)

mine, wrong, dies = Mine(), Wrong(), Dies()
"""


# of what the plug-in imports; itself it is imported by pytest, which rewrites its assertions
IMPORTED = ("pytest", "hypothesis", "convref.conformance.campaign", "convref.conformance.causes")


@pytest.fixture
def adopter(tmp_path, forked):
    """Return a function that runs the suite in a folder with a backend and some files."""
    (tmp_path / "theirs.py").write_text(BACKEND)
    kept = ("HYPOTHESIS_STORAGE_DIRECTORY", "PYTHONPATH")  # convref need not be installed
    environment = {"PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {name: os.environ[name] for name in kept if name in os.environ}

    def run(backend, *options, **files):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        named = [f"--convref-{name}={name}" for name in files]
        # the folder is on no path, as it is not when the program pytest is called
        command = ["pytest", "-p", "no:cacheprovider", "-W", "error"]
        command += ["-p", "convref.conformance.plugin", "--convref-examples=40"]
        command += [*named, "--convref-json=out.json", *options]
        if backend:
            command.append(f"--convref-backend=theirs:{backend}")
        command += ["--pyargs", "convref.conformance.suite"]
        return forked(IMPORTED, command, tmp_path, environment)

    return run


def counts(done):
    found = re.findall(r"(\d+) (passed|failed|skipped|xfailed|warning)", done.stdout)
    return {name: int(n) for n, name in found[-6:]}


F32 = "--convref-dtypes=f32"


def test_a_correct_backend_passes_and_unsupported_cells_are_skipped(adopter, tmp_path):
    done = adopter("mine", "--convref-dtypes=f32,bf16")
    assert done.returncode == 0, done.stdout
    assert counts(done) == {"passed": 4, "skipped": 4}
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["backend"] == "theirs:mine"
    assert "numpy" in found["fingerprint"]
    assert sum(found["cells"]["conv.jvp-f32"]["verdicts"].values()) == 40
    assert found["cells"]["conv.fprop-bf16"]["unsupported"]


def test_a_wrong_backend_fails_with_a_shrunk_line(adopter, tmp_path):
    done = adopter("wrong", F32)
    assert done.returncode == 1
    assert counts(done) == {"passed": 3, "failed": 1}
    assert "conv.fprop:n1c1k1_i1_f1_s2:fill=ones" in done.stdout
    cell = json.loads((tmp_path / "out.json").read_text())["cells"]["conv.fprop-f32"]
    assert len(cell["failures"]) == cell["verdicts"]["wrong"] > 1


def test_a_crash_fails_one_case_only(adopter, tmp_path):
    done = adopter("dies", F32, "--convref-seed=1", "--convref-examples=16")
    assert done.returncode == 1, done.stdout
    assert "exit status 7" in done.stdout
    cells = json.loads((tmp_path / "out.json").read_text())["cells"]
    assert len(cells) == 4
    assert all(sum(cell["verdicts"].values()) == 16 for cell in cells.values())
    assert {name for name, cell in cells.items() if "crash" in cell["verdicts"]} == {
        "conv.fprop-f32"
    }
    assert 0 < cells["conv.fprop-f32"]["verdicts"]["crash"] < 16


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"skips": "conv.fprop-f32  # known"}, {"passed": 3, "skipped": 1}),
        ({"xfails": "# ours\n\nconv.fprop-f32"}, {"passed": 3, "xfailed": 1}),
        ({"skips": "pass = fprop, any.s >= 3", "xfails": "any.s = 2"}, {"passed": 3, "xfailed": 1}),
        ({"xfails": "pass = fprop, any.s >= 3"}, {"passed": 3, "failed": 1}),
    ],
)
def test_listed_entries_alone_are_skipped_or_expected_to_fail(adopter, files, expected):
    assert counts(adopter("wrong", F32, **files)) == expected


@pytest.mark.parametrize("name", ["theirs:wrong", "mine"])
def test_known_bugs_are_passed_over(adopter, tmp_path, name):
    bugs = {"known-bugs": f"strided | {name} | pass = fprop, any.s >= 2 | - | the last is off"}
    assert counts(adopter("wrong", F32, **bugs)) == {"passed": 4}
    cell = json.loads((tmp_path / "out.json").read_text())["cells"]["conv.fprop-f32"]
    assert cell["verdicts"]["known"] > 1


def test_unused_entries_are_listed_at_the_end(adopter):
    fixed = "conv.fprop-f32"
    entries = f"conv.grop-f32\n{fixed}\npass = fprop, any.d >= 900\nconv.fprop:n1c1k1_i900_f1"
    done = adopter("mine", F32, xfails=entries, skips="conv.jvp-f32")
    for entry in entries.splitlines():
        assert f"xfails: unused entry '{entry}'" in done.stdout
    assert "skips: unused entry" not in done.stdout


@pytest.mark.parametrize(
    ("backend", "files", "said"),
    [
        ("", {}, "needs --convref-backend"),
        ("mine", {"skips": "\nbreadth = 3"}, "skips, line 2"),
        ("mine", {"xfails": "conv.fprop:nonsense"}, "xfails, line 1"),
        ("mine", {"known-bugs": "strided | mine | any.s >= 2"}, "known-bugs, line 1"),
        ("absent", {}, "does not load"),
    ],
)
def test_wrong_use_ends_the_session_with_one_sentence(adopter, backend, files, said):
    done = adopter(backend, F32, **files)
    assert done.returncode not in (0, 1)
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--convref-ops=pools", "op is 'pools', needs one of lp_pool"),
        ("--convref-dtypes=float31", "dtype is 'float31', needs one of bf16"),
    ],
)
def test_a_misspelt_name_is_an_error(adopter, option, said):
    done = adopter("mine", option)
    assert done.returncode not in (0, 1)
    assert said in done.stdout + done.stderr


def test_it_runs_under_xdist(adopter, tmp_path):
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    done = adopter("wrong", F32, "-n", "2", "-p", "xdist")
    assert counts(done) == {"passed": 3, "failed": 1}
    assert set(json.loads((tmp_path / "out.json").read_text())["cells"]) == {
        f"conv.{name}-f32" for name in ("fprop", "backward", "jvp", "double_backward")
    }
