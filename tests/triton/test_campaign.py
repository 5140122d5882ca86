"""The campaign over one kernel: what it runs a compiled kernel on."""

import random

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from campaign import drawn, on_a_tile, relatives

from convref_triton.plan.kernels import BY_NAME

KERNELS = 4  # of each campaign


@pytest.mark.parametrize("name", ["blocks", "columns", "integer"])
def test_compiled_kernels_run_on_several_sizes(name):
    spec, rng, counts = BY_NAME[name], random.Random(0), []
    for case in drawn(spec, rng):
        pick = rng.randrange(2**16)
        if (made := on_a_tile(spec, case, pick)) is not None:
            found = [other.call.problem for other, _ in relatives(spec, case, made, pick, rng)]
            assert len(set(found)) == len(found)
            counts.append(len(found))
        if len(counts) == KERNELS:
            break
    assert min(counts) > 1
