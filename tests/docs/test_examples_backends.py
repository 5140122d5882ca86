"""docs/examples: third-party libraries in the court, where they are installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs convref[check]")

from convref.knownbugs import parse_regions

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
KNOWN = EXAMPLES / "known_bugs.txt"
REGIONS = parse_regions(KNOWN.read_text("utf-8"), KNOWN.name)
BUGS = EXAMPLES.parent / "bugs"
LINES = {
    "openvino": """
        conv.fprop:n1c4k2g2_i3x2_f2x1_s1x3_p1,1x0,2
        conv.fprop:n1c8k4g2_i7x7_f4x3_s2_p1:t=1:op=1
        conv.fprop:n1c2k2g2_i5x4x3_f2x3x1:dt=f16
        max_pool.fprop:n2c2_i5x5_f3x3_s2_p1:ceil=1
        avg_pool.fprop:n2c3_i8x8_f2x2_s2:cip=0
        adaptive_max_pool.fprop:n2c3_i8x7_o3x5
        resize.fprop:n1c2_i7x9_o3x5:aa=1:xo=1
        batch_norm_eval.fprop:n2c2_i3x2
        group_norm.fprop:n2c4g2_i3x2:fill=normal
        layer_norm.fprop:n2c4_i3x2:weight=0:fill=normal
        gelu.fprop:n2c4_i3x2:approx=tanh:fill=normal
    """,
    "tensorflow": """
        conv.fprop:n1c4k2g2_i3x2_f2x1_s1x3_p1,1x0,2
        conv.double_backward:n1c2k2g2_i5x4_f2x3_p1
        conv.jvp:n1c2k1_i4x3x2_f2_s2_p1:t=1:dt=bf16
        conv.backward:n1c2k1_i7_f3_s2_p0,1:dt=f64
        conv.fprop:n1c2k1_i3x3_f2_d2_p1:dt=i32
        max_pool.fprop:n1c3_i5x5_f3x3_s2
        max_pool.backward:n1c2_i5x5_f3x3_s2_p1
        avg_pool.jvp:n1c2_i4x4_f3x3_p1:cip=0
        unfold.backward:n1c2_i5x4_f2x2_p1
        resize.fprop:n1c2_i7x9_o3x5:aa=1:xo=1
        resize.fprop:n1c2_i4x5_o8x3:coord=tf_crop_and_resize:roi=0.25,0.75
        resize.backward:n1c2_i4x5_o8x3:mode=cubic:a=-0.5:xo=1
        batch_norm.fprop:n2c2_i3:dt=f16:fill=normal
        batch_norm.double_backward:n2c2_i3:fill=normal
        group_norm.backward:n2c4g2_i3:weight=0:fill=normal
        layer_norm.jvp:n2c2_i3:bias=0:dt=f64:fill=normal
        cross_entropy.backward:n2c3_i2:red=none:fill=normal
        gelu.double_backward:n2c3_i2:fill=normal
    """,
    "paddle": """
        conv.fprop:n1c4k2g2_i3x2_f2x1_s1x3_p1,1x0,2
        conv.fprop:n1c2k4g2_i3x4_f2x3_s2_p1:t=1:op=1
        conv.backward:n1c2k1_i5x4x3_f2_s2_p1:dt=f64
        conv.double_backward:n1c2k1_i4x5_f2_p1:tan=xw
        max_pool.fprop:n1c3_i5x5_f3x3_s2_p1
        max_pool.backward:n1c2_i5x5x4_f3_s2
        avg_pool.backward:n1c2_i4x4_f2x2_s2:cip=0
        adaptive_avg_pool.fprop:n1c2_i7x5_o3x2:dt=f64
        unfold.backward:n1c2_i5x4_f2x2_p1
        resize.fprop:n1c2_i7x9_o3x5
        resize.backward:n1c2_i4x5_o8x3:mode=cubic:coord=align_corners
        layer_norm.backward:n2c2_i3:bias=0:fill=normal
        gelu.backward:n2c3_i2:approx=tanh:fill=normal
    """,
    "mlx": """
        conv.fprop:n1c4k2g2_i3x2_f2x1_s1x3_p1,1x0,2
        conv.backward:n1c2k1_i5x4_f2x2_p1
        conv.double_backward:n1c2k1_i4_f2_p1
        max_pool.backward:n1c2_i5x5_f3x3_s2_p1:fill=normal
        avg_pool.backward:n1c2_i4x4_f2x2_s2
        gelu.backward:n2c3_i2:fill=normal
        softmax.double_backward:n2c3_i2:fill=normal
    """,
    "opencv_dnn": """
        conv.fprop:n1c4k2g2_i3x2_f2x1_s1x3_p1,1x0,2
        conv.fprop:n2c8k4_i7x7x5_f3_s2_p1
        conv.fprop:n1c2k4g2_i3x4_f2x3_s2_p1:t=1:op=1
        max_pool.fprop:n1c2_i5x5_f3x3_s2_p1
        avg_pool.fprop:n2c3_i8x8_f2x2_s2:cip=0
        resize.fprop:n1c2_i7x9_o3x5
        batch_norm_eval.fprop:n2c2_i3x2
        softmax.fprop:n2c3_i2:fill=normal
    """,
    "tinygrad": """
        conv.fprop:n1c2k2g2_i3x2_f2x1_s1x3_p1,1x0,2:dt=f64
        conv.double_backward:n1c2k1_i4_f2_s2_p1:t=1:op=1
        conv.fprop:n1c2k1_i3_f2:dt=i8
        max_pool.fprop:n1c1_i5x5_f3x3_s2_p1:ceil=1
        avg_pool.backward:n1c2_i4x4_f2x2_s2:cip=0
        batch_norm.fprop:n2c2_i3
        layer_norm.backward:n2c2_i3:bias=0:fill=normal
        cross_entropy.backward:n2c3_i1:weight=1
    """,
}


@pytest.fixture(params=LINES)
def library(request):
    """Return the name of a library that is installed."""
    pytest.importorskip(
        bugs_of(request.param)["module"],
        reason=f"{request.param} is not installed, and no dependency of convref",
    )
    return request.param


def bugs_of(library):
    """Return a library's file of the page of bugs."""
    return tomllib.loads((BUGS / f"{library}.toml").read_text("utf-8"))


def environment():
    """Return one in which tinygrad interprets where there is no compiler for its CPU device."""
    device = {} if shutil.which(os.environ.get("CC", "clang")) else {"DEV": "PYTHON"}
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **device}


def check(library, lines, folder, *options):
    """Return the output of the court on some lines, run in that folder."""
    path = folder / "lines.txt"
    path.write_text("\n".join(lines))
    command = [sys.executable, "-m", "convref", "check", f"{library}_backend:backend"]
    command += ["--replay", str(path), "--known-bugs", str(KNOWN), "--no-shrink", "--jobs", "1"]
    done = subprocess.run(
        [*command, *options], cwd=EXAMPLES, env=environment(),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    return done.returncode, " ".join(done.stdout.split()) + done.stderr


def lines_of(library):
    """Return the lines of a library on the page of bugs."""
    return [line for bug in bugs_of(library)["bug"] for line in bug.get("lines", ())]


def test_an_adapter_passes_what_the_library_computes(library, tmp_path):
    lines = LINES[library].split()
    status, output = check(library, lines, tmp_path)
    assert status == 0, output
    assert f"{len(lines)} examples" in output
    assert "unsupported" not in output


@pytest.mark.nightly
def test_known_bugs_of_the_page_still_occur(library, tmp_path):
    lines = lines_of(library)
    status, output = check(library, lines, tmp_path, "--retest-known")
    assert status == 0, output
    for region in REGIONS:
        if region.backend == library:
            assert re.search(rf"known bug {region.id}: still there: [1-9]", output), output


@pytest.mark.parametrize("library", LINES)
def test_examples_import_only_their_library_beside_convref(library):
    """It compiles, and its imports exist, except the library itself."""
    source = (EXAMPLES / f"{library}_backend.py").read_text("utf-8")
    compile(source, library, "exec")
    modules = set(re.findall(r"^(?:from|import) ([a-z0-9_.]+)", source, re.MULTILINE))
    others = {m for m in modules if m.partition(".")[0] != bugs_of(library)["module"]}
    assert all(importlib.util.find_spec(module) for module in others)
