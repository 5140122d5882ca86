"""The rows of the table on architectures with less room."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convref.case import parse
from convref.errors import UnsupportedError

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.compile import aot, classes
from convref_triton.compile.inspection import resources, shared
from convref_triton.plan import archs, table
from convref_triton.plan.choose import refusal

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942")
AGAIN = pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly",
    reason="sm_89 has the room and the instructions of sm_86: HYPOTHESIS_PROFILE=nightly",
)
PRODUCTS = sorted(key for key in table.TILES if key[0] in archs.PRODUCTS)


@given(st.sampled_from(PRODUCTS), st.sampled_from(ARCHS), st.sampled_from((2, 4, 8, 16)))
def test_the_stages_of_every_row_fit(key, arch, width):
    kernel, kind = key
    for tile in archs.fitted(table.TILES[key], kernel, kind, arch, width):
        step = (tile.bm + tile.bn) * tile.bk * (2 if kind in ("f16", "bf16") else 4)
        in_registers = arch.startswith(archs.IN_REGISTERS)
        assert (tile.stages - in_registers) * step * archs.PRODUCTS[kernel] <= archs.shared(arch)
        assert tile.stages >= 1 + in_registers


@given(st.sampled_from(ARCHS), st.sampled_from((2, 4, 8, 16)))
def test_what_takes_every_call_has_a_row_everywhere(arch, width):
    for kernel in ("gather", "wgrad"):
        for kind in ("f16", "bf16", "ieee", "tf32", "tf32x3"):
            rows = table.TILES[kernel, kind]
            rows = table.SHORT.get((kernel, kind), rows) if width < 8 else rows
            assert archs.fitted(rows, kernel, kind, arch, width)


def test_a_change_is_of_a_row_that_there_is_and_keeps_its_tile():
    for change in archs.CHANGES:
        for kind in change.kinds:
            assert change.row in table.TILES[change.kernel, kind], change
        if change.instead is not None:
            same = change.row._replace(warps=change.instead.warps)
            assert same == change.instead
            assert change.instead.warps > change.row.warps


def compiled(specimens, arch):
    """Return each specimen with its binary, of which only what it says of itself is looked at."""
    return zip(specimens, aot.compile_all([s.specialisation for s in specimens], arch))


def test_rows_with_more_warps_hold_their_registers():
    """Compiled for sm_80, no row that stands in for another spills on the vectors it is for."""
    wanted = {(change.kernel, change.instead) for change in archs.CHANGES if change.instead}
    lines = classes.lines(("ones",), ("bf16", "tf32x3"))
    found = [
        specimen
        for specimen in classes.specimens(lines, every=True, arch="sm_80")
        if (specimen.choice.kernel, specimen.choice.tile) in wanted
    ]
    assert len(found) > 10
    for specimen, made in compiled(found, "sm_80"):
        assert resources(made)["STACK"] == 0, f"{specimen.name} {specimen.choice}"


@pytest.mark.parametrize("arch", ["sm_86", pytest.param("sm_89", marks=AGAIN)])
def test_a_block_has_less_shared_memory_on_a_desktop(arch):
    lines = [line for line in classes.lines(("by_16",), ("bf16",)) if line[0].startswith("fprop ")]
    specimens = list(classes.specimens(lines, every=True, arch=arch))
    assert any(specimen.choice.tile[:3] == (128, 128, 64) for specimen in specimens)
    for specimen, made in compiled(specimens, arch):
        assert shared(made) <= 99 * 1024, specimen.choice


def test_what_a_compiler_does_not_have_is_refused():
    call = parse("conv.fprop:n1c8k8_i4x4_f3x3:math=tf32x3").call
    with pytest.raises(UnsupportedError, match="tf32x3: Triton does not make"):
        backend.inspect(call, "gfx942")
    assert refusal(call, "sm_80") is None
