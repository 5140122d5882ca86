"""Faults seeded into `classics.py` and its PTX are found, at the line; without them nothing is.

A fault that does nothing undefined is found by its result.
"""

import importlib.util
import os
import re
from pathlib import Path
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from convref_ptx import Fault, device  # noqa: E402
from convref_ptx.triton.device import Utilities  # noqa: E402

SOURCE = Path(__file__).with_name("classics.py").read_text("utf-8")
OUTSIDE, RACE, WRONG = "outside of every allocation", "race", "wrong result"

# Kernel, text of the source, its replacement, what is found, text of the line that it is found at.
SOURCES = (
    # masks
    ("scaled", "mask = i < n", "mask = i < n + 1", OUTSIDE, "tl.load(x + i"),
    ("scaled", "mask = i < n", "mask = i <= n", OUTSIDE, "tl.load(x + i"),
    ("scaled", "a = tl.load(x + i, mask)", "a = tl.load(x + i)", OUTSIDE, "tl.load(x + i)"),
    ("scaled", "tl.store(out + i, a + b, mask)", "tl.store(out + i, a + b)", "undefined|outside",
     "tl.store(out"),
    ("scaled", "mask = i < n", "mask = i < n - 1", WRONG, ""),
    ("row_sums", "j < columns, other", "j <= columns, other", "outside|wrong", "tl.load"),
    ("row_sums", "j < columns, other=0.0", "j < columns, other=1.0", WRONG, ""),
    ("transpose", "(n[:, None] < N) & (m[None] < M)", "m[None] < M", OUTSIDE, "tl.store"),
    ("transpose", "(m[:, None] < M) & (n[None] < N)", "m[:, None] < M", "outside|undefined", "tl."),
    ("matmul", "a_at, mask=first + k[None] < K", "a_at, mask=first + k[None] < K - 1", WRONG, ""),
    ("running_sums", "mask = j < columns", "mask = j < columns + 56", "outside|race", "tl."),
    # addresses
    ("scaled", "i.to(tl.int64) * wide", "i * wide.to(tl.int32)", "outside|wrong", "tl.load(y"),
    ("row_sums", "row * stride + j", "row * (stride + 1) + j", "outside|wrong", "tl.load"),
    ("row_sums", "row * stride + j", "row * (stride - 1) + j", WRONG, ""),
    ("transpose", "n[:, None] * M + m[None]", "n[:, None] * N + m[None]", "race|outside",
     "tl.store"),
    ("transpose", "m[:, None] * N + n[None]", "m[:, None] * M + n[None]", OUTSIDE, "tl.load"),
    ("matmul", "        a_at += BK\n", "", WRONG, ""),
    ("matmul", "a_at += BK\n", "a_at += 2 * BK\n", OUTSIDE, "tl.load(a_at"),
    ("matmul", "b_at += BK * stride_b", "b_at += BK", WRONG, ""),
    ("matmul", "b_at += BK * stride_b", "b_at += (BK + 1) * stride_b", OUTSIDE, "tl.load(b_at"),
    ("matmul", "m[:, None] * N + n[None], sums", "m[:, None] * (N + 1) + n[None], sums",
     "outside|race", "tl.store(c"),
    ("histogram", "out + key, 1", "out + key + 1, 1", OUTSIDE, "tl.atomic_add"),
    ("running_sums", "out + row * columns + j", "out + j", RACE, "tl.store"),
    # order
    ("histogram", "tl.atomic_add(out + key, 1, mask)",
     "tl.store(out + key, tl.load(out + key, mask) + 1, mask)", RACE, "tl."),
    ("locked", "    while tl.atomic_cas(lock, 0, 1) == 1:\n        pass\n", "", RACE, "tl."),
    ("locked", "    tl.debug_barrier()\n    tl.atomic_xchg(lock, 0)", "    tl.atomic_xchg(lock, 0)",
     RACE, "tl."),
    ("locked", "tl.atomic_cas(lock, 0, 1)", 'tl.atomic_cas(lock, 0, 1, sem="relaxed")', RACE,
     "tl."),
    ("locked", "tl.atomic_xchg(lock, 0)", 'tl.atomic_xchg(lock, 0, sem="relaxed")', RACE, "tl."),
    ("locked", "tl.atomic_xchg(lock, 0)", "tl.store(lock, 0)", RACE, "tl."),
    ("locked", "    tl.atomic_xchg(lock, 0)", "    pass", "does not end|deadlock", ""),
    ("last_sums", 'sem="acq_rel"', 'sem="relaxed"', RACE, "tl."),
    ("last_sums", 'sem="acq_rel"', 'sem="release"', RACE, "tl."),
    ("last_sums", 'sem="acq_rel"', 'sem="acquire"', RACE, "tl."),
    ("last_sums", "before == P - 1", "before == P - 2", "race|wrong", "tl."),
    # asynchronous copies and products
    ("ring", "mbarrier.wait(full.index(n % STAGES), n // STAGES & 1)",
     "mbarrier.wait(full.index(n % STAGES), n // STAGES & 1 ^ 1)", "race|not been waited|deadlock",
     ""),
    ("ring", "        mbarrier.wait(full.index(n % STAGES), n // STAGES & 1)\n", "",
     "race|not been waited|unwritten|undefined", "tiles.index"),
    ("ring", "n // STAGES & 1)", "n & 1)", "race|not been waited|deadlock", ""),
    ("ring", "        tma.store_wait(pendings=0)\n        gl.thread_barrier()\n",
     "        gl.thread_barrier()\n", RACE, "made.store"),
    ("ring", "        fence_async_shared()\n", "", "fence.proxy.async", "tma.async_copy_shared"),
    ("ring", "made)\n    tma.store_wait(pendings=0)", "made)", "exits without waiting",
     "tma.async_copy_shared"),
    ("ring", "            mbarrier.expect(full.index(n % STAGES), x.block_type.nbytes)\n", "",
     "deadlock|more arrivals|race|not been waited|wrong", ""),
    ("ring", "nbytes)\n        tma", "nbytes + 16)\n        tma", "deadlock", ""),
    ("ring", "mbarrier.init(full.index(n), count=1)", "mbarrier.init(full.index(n), count=2)",
     "deadlock", ""),
    ("ring", "[(n + STAGES) * 16, 0]", "[(n + 1) * 16, 0]", WRONG, ""),
    ("product", "acc = warpgroup_mma_wait(0, deps=(acc,))",
     "acc = warpgroup_mma_wait(1, deps=(acc,))",
     "has not been waited for|exits without", "gl.store"),
    ("product", "    mbarrier.wait(bar, 0)\n", "", "race|not been waited for|unwritten",
     "warpgroup_mma"),
    ("product", "a.block_type.nbytes + b.block_type.nbytes", "a.block_type.nbytes",
     "race|not been waited|more|deadlock|unwritten", ""),
    ("product", "m[:, None] * 32", "m[:, None] * 16", RACE, "gl.store"),
)  # fmt: skip

# Kernel, architecture, pattern in the PTX, replacement, which match, what is found, text of a line.
EDITS = (
    ("row_sums", "sm_90", r"bar\.sync\s+0;", "", 0, "race|undefined", "tl.sum"),
    ("running_sums", "sm_90", r"bar\.sync\s+0;", "", 0, "race|undefined", "tl.cumsum"),
    ("transpose", "sm_90", r"bar\.sync\s+0;", "", 0, "race|undefined", "tl."),
    ("matmul", "sm_80", r"bar\.sync\s+0;", "", 1, "race|not been waited", "tl."),
    ("matmul", "sm_80", r"bar\.sync\s+0;", "", 2, "race|not been waited", "tl."),
    # Some barriers are not needed: these are.
    ("ring", "sm_90", r"bar\.sync\s+0;", "", 9, RACE, "tma.async_copy_shared"),
    ("ring", "sm_90", r"bar\.sync\s+0;", "", 13, RACE, "made.store"),
    ("matmul", "sm_80", r"cp\.async\.wait_group\s+(\w+)", "cp.async.wait_group 0x9", 0,
     "not been waited", "tl."),
    ("matmul", "sm_80", r"cp\.async\.commit_group\s*;", "", 1, "not been waited|race|exits", ""),
    ("product", "sm_90", r"wgmma\.fence\.sync\.aligned;", "", 0, "wgmma.fence", "warpgroup_mma("),
    ("product", "sm_90", r"wgmma\.commit_group\.sync\.aligned;", "", 0, "has not been waited|exits",
     ""),
    ("product", "sm_90", r"wgmma\.wait_group\.sync\.aligned 0;", "", 0, "not been waited", ""),
    ("ring", "sm_90", r"fence\.proxy\.async[^;]*;", "", -1, "fence.proxy.async", "tma.async_copy"),
    ("ring", "sm_90", r"cp\.async\.bulk\.commit_group;", "", 0, "race|exits without", ""),
    ("locked", "sm_90", r"bar\.sync\s+0;", "", -1, RACE, "tl."),
    ("last_sums", "sm_90", r"bar\.sync\s+0;", "", 0, "race|undefined", "tl."),
)  # fmt: skip


def module(text, path):
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def found(path, text, kernel, arch="sm_90", edit=lambda ptx: ptx):
    """Return what a kernel of an edited source, and with edited PTX, does wrong."""
    load = Utilities.load_binary

    def loaded(self, name, ptx, *more):
        return load(self, name, edit(ptx.decode()).encode(), *more)

    torch.manual_seed(0)
    run = module(text, path).RUNS[kernel]
    few = mock.patch("convref_ptx.state.machine.MAX_STEPS", 3000)
    with few, mock.patch.object(Utilities, "load_binary", loaded), device(arch):
        try:
            got, want = run()
        except Fault as fault:
            return str(fault)
    return "" if torch.equal(got, want) else WRONG


def check(said, wanted, snippet, text):
    assert re.search(wanted, said)
    assert said
    lines = text.splitlines()
    if snippet and said != WRONG:
        at = [lines[int(n) - 1] for n in re.findall(r"(?:source|ptx|classics)\d*\.py:(\d+)", said)]
        assert any(snippet in line for line in at), (said, at)


def chosen(rows):
    """Return all rows nightly, else a few."""
    return rows if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else rows[::12]


def test_classics_are_right(tmp_path):
    """Nothing is found without a fault, with asynchronous work done early and late."""
    made = module(SOURCE, tmp_path / "classics0.py")
    for kernel, run in made.RUNS.items():
        for late in (False, True):
            with device("sm_90", late=late):
                got, want = run()
            assert torch.equal(got, want), kernel


@pytest.mark.parametrize("row", chosen(SOURCES), ids=lambda row: f"{row[0]}-{row[1][:30]}")
def test_fault_in_the_source(row, tmp_path):
    kernel, old, new, wanted, snippet = row
    assert SOURCE.count(old) >= 1
    start = SOURCE.index(f"def {kernel}(")
    text = SOURCE[:start] + SOURCE[start:].replace(old, new, 1)
    number = SOURCES.index(row)
    check(found(tmp_path / f"source{number}.py", text, kernel), wanted, snippet, text)


@pytest.mark.parametrize("row", chosen(EDITS), ids=lambda row: f"{row[0]}-{row[2][:30]}")
def test_fault_in_the_ptx(row, tmp_path):
    kernel, arch, pattern, new, which, wanted, snippet = row

    def edit(ptx):
        match = list(re.finditer(pattern, ptx))[which]
        return ptx[: match.start()] + new + ptx[match.end() :]

    said = found(tmp_path / f"ptx{EDITS.index(row)}.py", SOURCE, kernel, arch, edit)
    check(said, wanted, snippet, SOURCE)
