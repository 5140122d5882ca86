"""Kernels of the CuTe DSL and of TileLang, whose wheels compile without a GPU."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from convref_driver import Manifest
from convref_ptx import Fault, launches

dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
HERE = Path(__file__).parent
# Module, script, grid, bytes of shared memory, M, N, K, and whether b has a row for each column.
CUTE = ("cutlass", "cute_product.py", (1, 1, 1), 32 << 10, 64, 32, 64, True)
TILELANG = ("tilelang", "tilelang_product.py", (2, 2, 1), 16 << 10, 128, 128, 64, False)


def compiled(example, folder):
    module, script, *_ = example
    pytest.importorskip(module, reason=f"{module} is not installed")
    if module == "tilelang" and not shutil.which("nvcc"):
        pytest.skip("TileLang's kernels need nvcc")
    subprocess.run([sys.executable, str(HERE / script), str(folder)], check=True, cwd=folder)
    (path,) = folder.glob("*.ptx")
    return path.read_text("utf-8")


def run(text, example, late):
    """Return the product by the kernel, and as it has to be."""
    _, _, grid, shared, m, n, k, transposed = example
    draw = np.random.default_rng(0)
    a, b = (
        draw.integers(-4, 5, sizes).astype(dtypes.bfloat16)
        for sizes in ((m, k), (n, k) if transposed else (k, n))
    )
    c = np.full((m, n), np.nan, np.float32)
    manifest = Manifest(re.search(r"\.entry (\w+)\(", text)[1], ("ptr",) * 3, (128, 1, 1), shared)
    given = [a.view(np.uint16), b.view(np.uint16)]
    launches.run(text, manifest, grid, [*given, c], late=late)
    return c, a.astype(np.float32) @ (b.T if transposed else b).astype(np.float32)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("example", [CUTE, TILELANG], ids=["cute", "tilelang"])
def test_a_product_is_right(example, late, tmp_path):
    found, want = run(compiled(example, tmp_path), example, late)
    assert np.array_equal(found, want)


def test_a_copy_that_is_not_waited_for_is_found(tmp_path):
    text = compiled(TILELANG, tmp_path)
    wrong = re.sub(r"(cp\.async\.wait_group\s+)1;", r"\g<1>2;", text)
    assert wrong != text
    with pytest.raises(Fault, match="copy has not been waited for"):
        run(wrong, TILELANG, late=True)


def test_a_barrier_that_is_missing_is_found(tmp_path):
    text = compiled(CUTE, tmp_path)
    wrong = re.sub(r"bar(rier)?\.(cta\.)?sync[^;]*;", "", text, count=1)
    assert wrong != text
    with pytest.raises(Fault, match=r"race|undefined"):
        run(wrong, CUTE, late=False)
