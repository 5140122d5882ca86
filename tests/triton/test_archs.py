"""The rows of the table on architectures with less room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convref.case import parse
from convref.dtypes import EIGHT
from convref.errors import UnsupportedError

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.compile import aot, classes
from convref_triton.compile.inspection import shared_bytes
from convref_triton.compile.sass import resources
from convref_triton.conv import bgrad, dual, flat, gather, split, tma, wgrad
from convref_triton.plan import archs
from convref_triton.plan.choose import refusal
from convref_triton.unfold import unfold

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942")
AGAIN = pytest.mark.nightly(reason="sm_89 has the room and the instructions of sm_86")
NUMBERS = [numbers for numbers in archs.PRODUCTS if numbers not in EIGHT]
TABLES = [  # (numbers, table) of every kernel whose operands are pipelined
    (numbers, module.TILES)
    for module in (gather, split, dual, flat, tma, wgrad)
    for numbers in NUMBERS
]
CHANGED = [
    (change, table)
    for table in (*(module.TILES for module in (gather, dual, flat, wgrad, bgrad)), unfold.UNFOLD)
    for change in table.changes
]


@given(st.sampled_from(TABLES), st.sampled_from(ARCHS), st.sampled_from((2, 4, 8, 16)))
def test_the_stages_of_every_row_fit(row, arch, width):
    numbers, table = row
    for tile in table.fitting(numbers, arch, width):
        step = (tile.bm + tile.bn) * tile.bk * (2 if numbers in ("f16", "bf16") else 4)
        in_registers = arch.startswith(archs.IN_REGISTERS)
        assert (tile.stages - in_registers) * step * table.blocks <= archs.shared(arch)
        assert tile.stages >= 1 + in_registers


@given(st.sampled_from(ARCHS), st.sampled_from((2, 4, 8, 16)))
def test_gather_and_wgrad_have_tiles_for_every_arch_and_dtype(arch, width):
    for module in (gather, wgrad):
        for numbers in NUMBERS:
            assert module.TILES.fitting(numbers, arch, width)


@pytest.mark.parametrize(("change", "table"), CHANGED)
def test_a_change_is_of_a_row_that_there_is_and_keeps_its_tile(change, table):
    for numbers in change.numbers.split():
        assert change.tile in table.fitting(numbers, "sm_90", 16)
    if change.instead is not None:
        assert change.tile._replace(warps=change.instead.warps) == change.instead
        assert change.instead.warps > change.tile.warps


def compiled(specimens, arch):
    """Return each specimen with its binary, of which only the declared resources are read."""
    return [(s, aot.compile(s.specialization, arch)) for s in specimens]


def test_rows_with_more_warps_hold_their_registers():
    """Compiled for sm_80, no replacement row spills; of one shape each, nightly of all."""
    wanted = {change.instead for change, _ in CHANGED}
    examples = classes.examples(("ones",), ("bf16", "tf32x3"))
    found = {
        (specimen.kernel, specimen.choice): specimen
        for specimen in classes.specimens(examples, every=True, arch="sm_80")
        if specimen.choice.tile in wanted
    }
    assert len(found) > 6
    for specimen, made in compiled(found.values(), "sm_80"):
        assert resources(made)["STACK"] == 0, str(specimen)


@pytest.mark.parametrize("arch", ["sm_86", pytest.param("sm_89", marks=AGAIN)])
def test_a_block_has_less_shared_memory_on_a_desktop(arch):
    examples = [
        example
        for example in classes.examples(("by_16",), ("bf16",))
        if (example.groups, example.shape) == ("", "fprop")
    ]
    every = classes.specimens(examples, every=True, arch=arch)
    specimens = [s for s in every if s.choice.tile.bm * s.choice.tile.bn >= 128 * 128]
    assert any(specimen.choice.tile[:3] == (128, 128, 64) for specimen in specimens)
    for specimen, made in compiled(specimens, arch):
        assert shared_bytes(made) <= 99 * 1024, specimen.choice


def test_tf32x3_is_refused_on_amd():
    call = parse("conv.fprop:n1c8k8_i4x4_f3x3:math=tf32x3").call
    with pytest.raises(UnsupportedError, match="tf32x3: Triton does not make"):
        backend.inspect(call, "gfx942")
    assert refusal(call, "sm_80") is None
