"""The pools: every pass against the oracle, any memory, any number of threads."""

import numpy as np
import pytest
from hypothesis import given

from convref import ConvrefError, parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref_mojo import backend as module
from convref_mojo.backend import MojoBackend
from convref_mojo.passes import NATIVE

DTYPES = ("f32", "f64", "bf16")
OPS = tuple(op for op in NATIVE if op.endswith("pool"))


@given(cases(ops=OPS, dtypes=DTYPES))
def test_any_case_is_right(case):
    found = examine(case, module.backend, repeat=True)
    assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


@given(cases(ops=OPS, dtypes=DTYPES))
def test_only_the_results_are_written(case):
    found = examine(case, module.into, repeat=True)
    assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


# Channels around the vectors of either instruction set and the four of a unit.
LINES = (
    "max_pool.fprop:n2c35_i9x10_f3x2_s2x1_p1,0x1,2:mem=nhwc:fill=ties",
    "max_pool.fprop:n1c17_i5x7x6_f2x3x2_p1_d2x1x1:ceil=1:fill=nan",
    "max_pool.backward:n2c35_i9x10_f3_s1_p1:mem=nhwc",
    "max_pool.backward:n1c100_i9x10_f5_p2:mem=nhwc",
    "max_pool.backward:n2c85_i14x13_f3x4_s2x1_p1_d3x2:mem=nhwc:fill=normal",
    "max_pool.backward:n1c35_i3x8x7_f2x3x2_s1x2x1_p1:mem=ndhwc:fill=ties",
    "avg_pool.fprop:n1c100_i9x10_f3_p1:mem=nhwc",
    "max_pool.fprop:n1c100_i9x10_f3_p1:mem=nhwc:fill=nan",
    "max_pool.jvp:n1c24_i9x10_f3_s2_p1:fill=normal",
    "max_pool.double_backward:n1c24_i9x10_f3_s2_p1:mem=nhwc:fill=normal",
    "avg_pool.fprop:n2c35_i9x10_f2x4_s2_p1:ceil=1:cip=0:mem=nhwc:fill=normal",
    "avg_pool.backward:n2c35_i9x10_f2x4_s2_p1:ceil=1:mem=nhwc:fill=normal",
    "avg_pool.backward:n1c3_i4x9x10_f2x2x4_s1x2x2_p1:div=-2:fill=normal",
    "avg_pool.fprop:n1c20_i9x10_f2x4_p-1,2x0,0:mem=nhwc",
    "adaptive_avg_pool.backward:n2c33_i7x5_o3x8:mem=nhwc:fill=normal",
    "adaptive_max_pool.fprop:n2c33_i7x5_o3x8:mem=nhwc:fill=ties",
    "adaptive_max_pool.backward:n1c5_i7_o16",
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", LINES)
def test_sizes_around_block_boundaries(line, dtype):
    found = examine(parse(f"{line}:dt={dtype}"), module.backend, repeat=True)
    assert (found.verdict, found.reason) == ("pass", ""), found.line


@pytest.mark.parametrize("line", LINES)
def test_results_do_not_depend_on_the_number_of_threads(line):
    case, backend = parse(line), MojoBackend()
    given_, found = operands(case), set()
    for count in (1, 2, 5):
        with backend.threads(count):
            found.add(tuple(r.tobytes() for r in backend.run(case.call, *given_)))
    assert len(found) == 1


@pytest.mark.parametrize("wrong", [-2, 20])
@pytest.mark.parametrize("pass_", ["backward", "double_backward"])
def test_an_index_outside_of_the_image_is_refused(pass_, wrong):
    case = parse(f"max_pool.{pass_}:n1c2_i4x5_f2")
    dy, x, indices = operands(case)
    indices[0, 1, 0, 0] = wrong
    with pytest.raises(ConvrefError, match=rf"holds {wrong}, needs a position from 0 to 19"):
        module.backend.run(case.call, dy, x, indices)


def test_an_index_of_another_window_is_added_there():
    """The sums of lines that no window has read yet are cleared first."""
    for memory in ("", ":mem=nhwc"):
        case = parse(f"max_pool.backward:n1c40_i9x8_f2{memory}")
        dy, x, indices = operands(case)
        rng = np.random.default_rng(0)
        indices[...] = rng.integers(-1, 72, indices.shape)
        (dx,) = module.backend.run(case.call, dy, x, indices)
        expected = np.zeros((40, 73), dy.dtype)  # the last is that of -1
        channels = np.arange(40)[:, None]
        np.add.at(expected, (channels, indices.reshape(40, -1)), dy.reshape(40, -1))
        assert (dx.reshape(40, 72) == expected[:, :72]).all()
