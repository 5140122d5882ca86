"""Faults seeded into kernels of other packages: `PYTHONPATH=tests/ptx python -m corpora.faults`.

Each fault replaces one text of a kernel's source, or one instruction of its PTX, and nothing else.
It is found if the launch reports what is expected, at a line of the package with the given text; a
fault that does nothing undefined ("wrong") is found by the result of its case.
"""

import contextlib
import importlib
import linecache
import os
import pickle
import re
import sys
import tempfile
from functools import partial
from typing import NamedTuple
from unittest import mock

from triton.runtime.jit import JITCallable

from convref_ptx import device
from convref_ptx.triton.device import Utilities
from corpora import NAMES, available, outcome

OUTSIDE, RACE, WRONG = "outside of every allocation", "race", "wrong"
EARLY = "race|not been waited for|unwritten memory|undefined bits"  # used before it is there
PARITY = f"{EARLY}|deadlock"


class Row(NamedTuple):
    """A fault of a kernel, what is reported, and text of the line."""

    kernel: str
    old: str  # text of the source, or a pattern of the PTX
    new: str
    reported: str
    line: str
    which: int | None = None  # of the matches in the PTX; None for the source


UNCHANGED = Row("", "", "", "", "")


SOURCES = {
    "tutorials:01-vector-add": (
        Row("add_kernel", "offsets < n_elements", "offsets <= n_elements", OUTSIDE, "tl.load(x_p"),
        Row("add_kernel", "output, mask=mask", "output", OUTSIDE, "tl.store(output_ptr"),
        Row("add_kernel", "tl.load(x_ptr + offsets, mask=mask)", "tl.load(x_ptr + offsets)",
            OUTSIDE, "tl.load(x_ptr"),
    ),
    "tutorials:02-fused-softmax": (
        Row("softmax_kernel", "row_start, n_rows", "row_start, n_rows + 1", OUTSIDE, "tl.load(inp"),
        Row("softmax_kernel", "row_idx * output_row_stride", "row_idx * n_rows", RACE, "tl.store("),
        Row("softmax_kernel", "row_idx * input_row_stride", "row_idx * n_rows", WRONG, ""),
        Row("softmax_kernel", "other=-float('inf')", "other=9.", WRONG, ""),
    ),
    "tutorials:03-matmul": (
        Row("matmul_kernel", "b_ptrs += BLOCK_SIZE_K * stride_bk", "b_ptrs += BLOCK_SIZE_K", WRONG,
            ""),
        Row("matmul_kernel", "a_ptrs += BLOCK_SIZE_K * stride_ak", "a_ptrs += 2 * BLOCK_SIZE_K",
            OUTSIDE, "tl.load(a_ptrs"),
        Row("matmul_kernel", "offs_k[None, :] < K - k * BLOCK_SIZE_K", "offs_k[None, :] < K",
            OUTSIDE, "tl.load(a_ptrs"),
        Row("matmul_kernel", "(offs_cm[:, None] < M) & (offs", "(offs", OUTSIDE, "tl.store(c_ptrs"),
        Row("matmul_kernel", "stride_cm * offs_cm", "stride_cn * offs_cm", RACE, "tl.store(c_ptrs"),
    ),
    "tutorials:04-dropout": (
        Row("_seeded_dropout", "x_ptr + offsets, mask=mask", "x_ptr + offsets", OUTSIDE,
            "tl.load(x_ptr"),
    ),
    "tutorials:05-layer-norm": (
        Row("_layer_norm_bwd_dx_fused", "tl.atomic_cas(Lock, 0, 1) == 1",
            "tl.atomic_cas(Lock, 0, 1) == 2", RACE, "tl."),
        Row("_layer_norm_bwd_dx_fused", "tl.atomic_cas(Lock, 0, 1)",
            'tl.atomic_cas(Lock, 0, 1, sem="relaxed")', RACE, "tl."),
        Row("_layer_norm_bwd_dx_fused", "tl.atomic_xchg(Lock, 0)",
            'tl.atomic_xchg(Lock, 0, sem="relaxed")', RACE, "tl."),
        Row("_layer_norm_bwd_dx_fused", "tl.atomic_xchg(Lock, 0)", "tl.store(Lock, 0)", RACE,
            "tl."),
        Row("_layer_norm_bwd_dx_fused", "tl.store(DB,", "tl.atomic_xchg(Lock, 0); tl.store(DB,",
            RACE, "tl."),
        Row("_layer_norm_bwd_dwdb", "sum_dw, mask=cols < N", "sum_dw", OUTSIDE, "tl.store(FINAL_D"),
    ),
    "liger:rms_norm": (
        Row("_rms_norm_forward_kernel", "col_offsets < n_cols", "col_offsets < n_cols + 1", OUTSIDE,
            "tl.load("),
        Row("_rms_norm_forward_kernel", "RSTD_ptr + row_idx * RSTD_row_stride",
            "RSTD_ptr + row_idx * X_row_stride", OUTSIDE, "tl.store(rstd_base"),
        Row("_rms_norm_forward_kernel", "Y_ptr + row_idx * Y_row_stride",
            "Y_ptr + (row_idx * Y_row_stride).to(tl.int8)", "race|outside", "tl.store(y_base"),
        Row("_rms_norm_backward_kernel", "range(row_start, row_end)",
            "range(row_start, row_start + rows_per_program + 1)", "race|outside", "tl."),
        Row("_rms_norm_backward_kernel", "row_block_id * dW_row_stride", "0", RACE, "tl.store(dW"),
    ),
    "liger:layer_norm": (
        Row("_layer_norm_backward_kernel", "row_Mean_ptr = Mean_ptr + row_idx",
            "row_Mean_ptr = Mean_ptr + n_rows + row_idx", OUTSIDE, "tl.load(row_Mean_ptr"),
        Row("_layer_norm_forward_kernel", "row_idx * RSTD_row_stride", "row_idx * n_cols", OUTSIDE,
            "tl.store(row_RSTD_ptr"),
    ),
    "liger:softmax": (
        Row("_softmax_single_block_backward_kernel", "row_id * dx_stride + offs, dx, mask=mask",
            "row_id * dx_stride + offs, dx", "race|outside|undefined", "tl.store(dx_ptr"),
        Row("_softmax_single_block_forward_kernel", "row_id * Y_row_stride", "row_id", RACE,
            "tl.store(Y_ptr"),
    ),
    "liger:cross_entropy": (
        Row("liger_cross_entropy_kernel", "tl.load(X_ptr + y)", "tl.load(X_ptr + 700 + y)", OUTSIDE,
            "tl.load(X_ptr + y)"),
        Row("liger_cross_entropy_kernel", "X_ptr += program_id * X_stride",
            "X_ptr += (program_id * X_stride).to(tl.int8)", "race|outside", "X_ptr + X_off"),
    ),
    "fla:linear_attn.chunk_linear_attn": (
        Row("chunk_fwd_kernel_o", "mask=m_k[:, None] & m_t[None, :]", "mask=m_k[:, None]", OUTSIDE,
            "tl.load(p_k"),
        Row("chunk_fwd_kernel_o", "o_t[:, None] >= o_t[None, :]", "o_t[:, None] > o_t[None, :]",
            WRONG, ""),
        Row("chunk_fwd_kernel_h", "m_t = o_t < T", "m_t = o_t <= T", OUTSIDE, "tl.load(p_"),
    ),
    "fla:retention.fused_recurrent_retention": (
        Row("fused_recurrent_fwd_kernel", "p_k += (-1 if REVERSE else 1) * H*K",
            "p_k += (-1 if REVERSE else 1) * K", WRONG, ""),
        Row("fused_recurrent_fwd_kernel", "p_o += (-1 if REVERSE else 1) * H*V",
            "p_o += (-1 if REVERSE else 1) * V", RACE, "tl.store(p_o"),
        Row("fused_recurrent_fwd_kernel", "p_q += (-1 if REVERSE else 1) * H*K",
            "p_q += (-1 if REVERSE else 1) * (H*K + 1)", OUTSIDE, "tl.load(p_q"),
    ),
    "gems:addmv": (
        Row("addmv_kernel", "m_mask = m + offset_m < M", "m_mask = m + offset_m < M + 1",
            OUTSIDE, "tl.load("),
        Row("addmv_kernel", "out_block, mask=n_mask", "out_block", OUTSIDE, "tl.store(Out_ptrs"),
    ),
    "gems:dot": (
        Row("dot_kernel", "x_ptr + offsets, mask=mask, other=0.0", "x_ptr + offsets", OUTSIDE,
            "tl.load(x_ptr"),
        Row("dot_kernel", "tl.store(out_ptr, sum)", "tl.store(out_ptr + 1, sum)", OUTSIDE,
            "tl.store(out_ptr"),
    ),
    "gems:cumsum": (
        Row("scan_part_sum_abc_kernel", "mask = b_idx < B", "mask = b_idx <= B", "outside|race",
            "tl."),
    ),
    "attorch:Softmax": (
        Row("softmax_forward_kernel", "output, mask=batch_mask[:, None] &",
            "output, mask=batch_mask[:, None] |", "race|outside", "tl.store(output_pointer"),
    ),
    "attorch:MSELoss": (
        Row("p_loss_forward_kernel", "output_pointer + pid, tl.sum(error) / size",
            "output_pointer, tl.sum(error) / size", "race|undefined", "tl.store(output_pointer"),
    ),
    "gluon:03.elementwise_add_pipelined": (
        Row("elementwise_add_pipelined_kernel", "cp.wait_group(num_buffers - 1)",
            "cp.wait_group(num_buffers)", EARLY, ".load(layout)"),
        Row("elementwise_add_pipelined_kernel", "cp.wait_group(num_buffers - 2 - i)", "pass", EARLY,
            ".load(layout)"),
        Row("issue_loads", "cp.commit_group()", "pass", EARLY, ".load(layout)"),
        Row("perform_add", "yoffs < ynumel", "yoffs <= ynumel", "outside|race|undefined",
            "gl.store("),
    ),
    "gluon:04.memcpy_1d_tma": (
        Row("memcpy_1d_tma_kernel", "mbarrier.wait(bar, phase=0)", "pass", EARLY, "smem"),
        Row("memcpy_1d_tma_kernel", "mbarrier.wait(bar, phase=0)", "mbarrier.wait(bar, phase=1)",
            PARITY, "mbarrier.wait("),
        Row("memcpy_1d_tma_kernel", "bar, count=1", "bar, count=2", "deadlock", "mbarrier.wait("),
        Row("memcpy_1d_tma_kernel", "nbytes)", "nbytes + 16)", "deadlock", "mbarrier.wait("),
        Row("memcpy_1d_tma_kernel", "tma.store_wait(pendings=0)", "pass", "exits without waiting",
            "tma.async_copy_shared"),
    ),
    "gluon:04.elementwise_add_tma": (
        Row("perform_add", "fence_async_shared()", "pass", "fence.proxy.async",
            "tma.async_copy_sh"),
        Row("perform_add", "tma.store_wait(pendings=0)", "pass", RACE, "c_smem.store"),
        Row("perform_add", "num_buffers & 1", "num_buffers & 1 ^ 1", PARITY, "mbarrier.wait("),
        Row("perform_add", "read_index // num_buffers & 1", "read_index & 1", PARITY,
            "mbarrier.wait("),
        Row("issue_loads", "(b_desc, [xoff, yoff]", "(b_desc, [yoff, xoff]", WRONG, ""),
        Row("issue_loads", "yoff = copy_index * YBLOCK", "yoff = 0", WRONG, ""),
        Row("issue_loads", "nbytes + b_desc.block_type.nbytes", "nbytes", EARLY, "smem.index("),
    ),
    "gluon:08.elementwise_add_warp_specialized": (
        Row("load_partition", "mbarrier.wait(load_empty_bar, phase ^ 1)", "pass", EARLY,
            "tma.async_copy_global"),
        Row("load_partition", "phase ^ 1", "phase", "deadlock", "mbarrier.wait("),
        Row("compute_partition", "a_val = a_buf",
            "mbarrier.arrive(load_empty_bar, count=1); a_val = a_buf", "race|more arrivals",
            "tma.async_copy_global"),
        Row("compute_partition", "mbarrier.wait(c_empty_bar, store_phase ^ 1)", "pass", RACE,
            "c_buf.store"),
        Row("compute_partition", "mbarrier.arrive(c_ready_bar, count=1)", "pass", "deadlock",
            "mbarrier.wait("),
        Row("store_partition", "tma.store_wait(outstanding_stores)", "pass", RACE, "c_buf.store"),
        Row("store_partition", "mbarrier.wait(c_ready_bar, phase)", "pass", EARLY,
            "tma.async_copy_shared"),
    ),
    "gluon:05.blocked_matmul": (
        Row("blocked_matmul_kernel", "fence_async_shared()", "pass", "fence.proxy.async",
            "tma.async_copy_sh"),
        Row("blocked_matmul_kernel", "warpgroup_mma_wait(num_outstanding=0",
            "warpgroup_mma_wait(num_outstanding=1", EARLY, "tma.async_copy_global"),
        Row("blocked_matmul_kernel", "phase ^= 1", "phase ^= 0", PARITY, "mbarrier.wait("),
        Row("blocked_matmul_kernel", "(b_desc, [k, off_n]", "(b_desc, [off_n, k]", WRONG, ""),
    ),
    "gluon:05.blocked_matmul_pipelined": (
        Row("blocked_matmul_pipelined_kernel", "index ^= 1", "index ^= 0", EARLY,
            "tma.async_copy_global"),
    ),
    "gluon:05.small_mma": (
        Row("small_mma_kernel", "nbytes + c_desc.block_type.nbytes", "nbytes", EARLY,
            "c_smem.load"),
    ),
}  # fmt: skip

EDITS = {
    "tutorials:02-fused-softmax": (
        Row("softmax_kernel", r"cp\.async\.wait_group\s+(\w+)", "cp.async.wait_group 9", EARLY,
            "tl.load(", 0),
        Row("softmax_kernel", r"bar\.sync\s+0;", "", "race|undefined", "tl.", 3),
    ),
    "tutorials:03-matmul": (
        Row("matmul_kernel", r"wgmma\.fence\.sync\.aligned;", "", "wgmma.fence", "tl.dot", 0),
        Row("matmul_kernel", r"wgmma\.wait_group\.sync\.aligned 0;", "", EARLY, "tl.load(", 0),
        Row("matmul_kernel", r"mov\.b32\s+%r\d+, 0f00000000;", "", "undefined bits", "tl.", 0),
    ),
    "tutorials:09-matmul_tma": (
        Row("matmul_kernel_tma", r"fence\.proxy\.async[^;]*;", "", "fence.proxy.async", "store(",
            -1),
        Row("matmul_kernel_tma", r"wgmma\.wait_group\.sync\.aligned 0;", "", EARLY,
            "accumulator", 0),
    ),
    "liger:layer_norm": (
        Row("_layer_norm_forward_kernel", r"bar\.sync\s+0;", "", "race|undefined", "tl.sum", 0),
    ),
    "gluon:04.elementwise_add_tma": (
        Row("elementwise_add_tma_kernel", r"cp\.async\.bulk\.commit_group;", "", "race|exits",
            "c_smem.store", 0),
    ),
    "gluon:05.small_mma": (
        Row("small_mma_kernel", r"wgmma\.commit_group\.sync\.aligned;", "", EARLY,
            "d_smem.store", 0),
    ),
}  # fmt: skip


@contextlib.contextmanager
def seeded(row):
    """Compile a kernel with a fault; exactly one text is replaced, and lines keep their numbers."""
    seen = []

    def source(self):
        text = vars(self)["_src"]
        if row.which is not None or self.__name__ != row.kernel:
            return text
        assert text.count(row.old) == 1, f"{row.old}: {text.count(row.old)} matches"
        assert row.old.count("\n") == row.new.count("\n")
        seen.append(row)
        return text.replace(row.old, row.new)

    def loaded(self, name, ptx, *more):
        if row.which is not None and name == row.kernel:
            match = list(re.finditer(row.old, text := ptx.decode()))[row.which]
            ptx = (text[: match.start()] + row.new + text[match.end() :]).encode()
            seen.append(row)
        return load(self, name, ptx, *more)

    load, kept = Utilities.load_binary, lambda self, text: vars(self).update(_src=text)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, TRITON_CACHE_DIR=folder),
        mock.patch.object(JITCallable, "_src", property(source, kept), create=True),
        mock.patch.object(Utilities, "load_binary", loaded),
        mock.patch("convref_ptx.state.machine.MAX_STEPS", 20_000),
    ):
        yield seen


def forked(call):
    """Return the result of a call in a process of its own, so that nothing compiled is kept."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        with open(write, "wb") as pipe:
            pickle.dump(call(), pipe)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        found = pickle.loads(pipe.read() or pickle.dumps(("raises", "the process ended")))
    os.waitpid(child, 0)
    return found


def run(case, row):
    """Return the state and text of a case with a fault."""
    with seeded(row) as seen:
        _, found = outcome(case, "sm_90")
    return found if seen or row is UNCHANGED else ("raises", "the kernel was not compiled")


def as_expected(row, state, text):
    """Return whether a fault was found as its row says; an unchanged kernel is to be right."""
    if row is UNCHANGED or row.reported == WRONG:
        return state == ("right" if row is UNCHANGED else "differs")
    if state != "finding" or not re.search(row.reported, text):
        return False
    places = re.findall(r"([\w/.-]+\.py):(\d+)", text)
    return any(row.line in linecache.getline(path, int(n)) for path, n in places)


def campaign(name, chosen="", show=print):
    """Seed the faults of a corpus; return their number and those that were not found."""
    available(name)
    with device("sm_90"):
        cases = dict(importlib.import_module(f"corpora.{name}").cases())
    count, wrong = 0, []
    for place in dict.fromkeys((*SOURCES, *EDITS)):
        corpus, _, case = place.partition(":")
        if corpus != name or chosen not in case:
            continue
        for row in (UNCHANGED, *SOURCES.get(place, ()), *EDITS.get(place, ())):
            state, text = forked(partial(run, cases[case], row))
            line = f"{place} {row.kernel}: {row.old!r} to {row.new!r}: {state} {text}"
            if not as_expected(row, state, text):
                wrong.append(line := f"MISSED {line}")
            count += row is not UNCHANGED
            show(line)
    return count, wrong


def main(words):
    """Seed the faults of corpora, given as NAME or NAME:CASE; return 1 if one was missed."""
    total, missing = 0, []
    for word in words or NAMES:
        name, _, chosen = word.partition(":")
        try:
            count, wrong = campaign(name, chosen, show=lambda line: print(line[:600], flush=True))
        except ImportError as error:
            print(f"{name}: skipped, {error}")
            continue
        total, missing = total + count, missing + wrong
    print(f"{total} faults, {len(missing)} not found as expected")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
