"""Kernels of other packages run right, but for those whose findings `docs/sanitize.md` explains."""

import importlib
import os

import pytest

pytest.importorskip("triton")
corpora = pytest.importorskip("corpora")

# Kernels that are not right, by the start of what is found.
KNOWN = {
    "gems": {
        "_gather_flaggems_jit_function": "finding @%p",  # past the view, within its storage
        "_scatter_jit_function": "finding atom",
        "group_norm_kernel": "finding @%p",
        "mm_kernel_general": "refused",
        "sweep": "finding ld.volatile",
    },
    "fla": {
        "parallel_parallax_bwd_kernel_dkv": "finding wgmma",
    },
    "tutorials": {
        "_layer_norm_bwd_dx_fused": "finding @%p",  # with several warps
        "grouped_matmul_kernel": "finding cp.async",  # pointers in a tensor
        "matmul_kernel_descriptor_persistent": "refused",
    },
}
SOME = {"gems": "sigmoid", "liger": "softmax", "attorch": "Softmax", "fla": "rotary",
        "gluon": "memcpy_1d_tma"}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # those of the packages
@pytest.mark.parametrize("name", corpora.NAMES)
def test_corpus(name):
    """Run all kernels nightly, else one case of a corpus that is installed."""
    chosen = "" if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else SOME.get(name, "01")
    try:
        kernels, cases = corpora.sweep(name, chosen, show=lambda line: None)
    except ImportError as error:
        pytest.skip(str(error))
    wrong = {
        kernel: " ".join(k) for kernel, k in kernels.items() if k[0] not in ("right", "raises")
    }
    known = KNOWN.get(name, {})
    assert not {k: text for k, text in wrong.items() if not text.startswith(known.get(k, "\n"))}
    assert kernels
    assert cases


@pytest.mark.nightly(reason="a process for each fault")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", corpora.NAMES)
def test_seeded_faults_are_found(name):
    """Each fault that is seeded into a kernel of a package is found, at its line."""
    faults = importlib.import_module("corpora.faults")
    try:
        count, missed = faults.campaign(name, show=lambda line: None)
    except ImportError as error:
        pytest.skip(str(error))
    assert not missed
    assert count
