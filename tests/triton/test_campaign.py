"""The campaign over one kernel: what it runs a compiled kernel on, and what it judges."""

import random
from itertools import islice

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from campaign import failure_reasons, interpreted_all, on_a_tile, same_kernel_cases, served_cases
from forced import nightly

from convref.case import parse
from convref_triton import emulated
from convref_triton.hopper import gluon
from convref_triton.plan.kernels import BY_NAME

KERNELS = 4  # of each campaign


@pytest.mark.parametrize("name", ["blocks", "columns", "integer"])
def test_compiled_kernels_run_on_several_sizes(name):
    spec, rng, counts = BY_NAME[name], random.Random(0), []
    for case, made, pick in islice(served_cases(spec, rng), KERNELS):
        found = [other.call.problem for other, _ in same_kernel_cases(spec, case, made, pick, rng)]
        assert len(set(found)) == len(found)
        counts.append(len(found))
    assert sum(counts) >= 2 * KERNELS


@pytest.mark.parametrize("name", ["bgrad", "unfold"])
def test_kernels_that_are_neither_a_convolution_nor_a_whole_call_are_run(name):
    made = [one[:2] for one in islice(served_cases(BY_NAME[name], random.Random(0)), KERNELS)]
    assert all(plan.launches for _, plan in made)
    assert failure_reasons(*zip(*made), emulated.backend.interpret_all) == [""] * KERNELS


@pytest.mark.parametrize("name", ["im2col", *(nightly(spec.name) for spec in gluon.KERNELS)])
def test_kernels_that_the_interpreter_of_triton_lacks_are_run_as_ptx(name):
    case, plan, _ = next(served_cases(BY_NAME[name], random.Random(0)))
    assert failure_reasons([case], [plan], emulated.backend.interpret_all) == [""]


def test_results_that_replace_operands_are_judged():
    case = parse("batch_norm.fprop:n2c2_i3x3:fill=normal")
    made = on_a_tile(BY_NAME["norm"], case, 0)
    assert failure_reasons([case], [made], interpreted_all) == [""]


def test_undefined_bytes_leave_the_others_of_a_word_defined():
    """LLVM packs bytes by bfi into a register that nothing wrote, and takes them out by prmt."""
    case = parse("conv.dgrad:n1c4k72_i5x1_f1x1_s3_p2,2x2,1:dt=f16:mem=nhwc:seed=51647")
    made = on_a_tile(BY_NAME["classes"], case, 2300)
    assert failure_reasons([case], [made], emulated.backend.interpret_all) == [""]


def test_halves_of_a_sum_of_pairs_are_defined_apart():
    """LLVM adds two 16-bit numbers by add.s16x2, with an upper half that nothing wrote."""
    case = parse("conv.fprop:n2c2k1_i2x15_f1x3_s5x7_p0,1x-2,5_d1x2:t=1:op=1x3:dt=f16:seed=53678")
    made = on_a_tile(BY_NAME["direct"], case, 54172)
    assert failure_reasons([case], [made], emulated.backend.interpret_all) == [""]
