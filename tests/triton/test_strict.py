"""Strict interpretation rejects each kind of wrong kernel, and passes the corrected one."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="triton is not installed")

import toy_kernels as toys
from toy_kernels import run

from convref_triton.interpreter import StrictError, execute
from convref_triton.interpreter.hint_checks import is_constant, is_contiguous, is_multiple
from convref_triton.plan.launch import Launch, Slot

N = 10
BLOCK = {"BLOCK": 8}


def operand(n=N, dtype=torch.float32):
    return torch.arange(n).to(dtype)


def result(n=N, dtype=torch.float32):
    return torch.full((n,), math.nan).to(dtype)


def tried(kernel, x=None, y=None, grid=(2,), **options):
    """Run a kernel of the form of `toys.copy`, and return y."""
    x = operand() if x is None else x
    y = result() if y is None else y
    options = {"constants": BLOCK, "outputs": ["y"]} | options
    run(kernel, grid, {"x": x, "y": y, "N": N}, **options)
    return y


def refused(kind, says, kernel, *arguments, **options):
    with pytest.raises(StrictError, match=re.escape(says)) as caught:
        tried(kernel, *arguments, **options)
    assert caught.value.kind == kind


def test_right_kernel_passes():
    assert tried(toys.copy).tolist() == list(range(N))


# Addresses


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (toys.unmasked, "unmasked(1, 0, 0): out-of-bounds: load of element 10 of x, which has 10"),
        (toys.off_by_one, "off_by_one(1, 0, 0): out-of-bounds: store of element 10 of y"),
        (toys.before_the_start, "(0, 0, 0): out-of-bounds: load of element -1 of x"),
        (toys.wrapping, "out-of-bounds: load of element 1073741824 of x"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_addresses_outside(kernel, says, strict):
    outputs = {"outputs": None, "partial": ["y"]}
    refused("out-of-bounds", says, kernel, strict=strict, order="grid", **outputs)


def test_wrapped_index_is_not_a_large_one():
    y = result(4, torch.int32)
    run(toys.wrapped, (4,), {"y": y}, outputs=["y"])
    assert y.tolist() == [0, 2**30, -(2**31), -(2**30)]
    refused("out-of-bounds", "load of element -2147483648 of x", toys.wrapped_address, grid=(3,),
            order="reversed")  # fmt: skip


def test_tensors_are_far_apart_even_in_one_storage():
    storage = torch.zeros(2 * N)
    y = storage[N:].fill_(math.nan)
    refused("out-of-bounds", "element 10 of x, which has 10", toys.unmasked, storage[:N], y,
            aligned=False)  # fmt: skip


def test_gaps_of_a_view_are_outside():
    wide = operand(2 * N)
    refused(
        "out-of-bounds", "x[element 1] is reached by a load, but in a gap", toys.copy, wide[::2]
    )
    refused("out-of-bounds", "y[element 1] is reached by a store", toys.copy, y=result(2 * N)[::2])
    refused(
        "out-of-bounds", "x[element 1] is reached", toys.copy, wide[::2], wide.view(torch.int16)
    )


def test_element_between_two_is_misaligned():
    with pytest.raises(StrictError, match="misaligned: load of x between two elements"):
        run(toys.bytewise, (1,), {"x": operand(), "y": result(1)})


def test_empty_tensors_may_be_passed_but_not_touched():
    x, y = operand(0), result(0)
    run(toys.copy, (2,), {"x": x, "y": y, "N": 0}, constants=BLOCK, outputs=["y"])
    refused("out-of-bounds", "element 0 of x, which has 0", toys.copy, x, order="grid")


# Stores


@pytest.mark.parametrize("order", ["grid", "reversed", "shuffled"])
@pytest.mark.parametrize(
    ("kernel", "kind", "says"),
    [
        (toys.twice_in_a_program, "written-twice", "is written again, needs one store"),
        (toys.twice_across_programs, "written-twice", "y[0] is written again"),
        (toys.half, "never-written", "half: never-written: y[5] is never written, like 4 more"),
        (toys.onto_operand, "not-an-output", "store to x, which is not an output"),
        (toys.neighbour, "cross-program-read", "y[0] is"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_stores(kernel, kind, says, order):
    refused(kind, says, kernel, order=order)
    tried(kernel, strict=False, order=order)


def test_outputs_are_inferred_when_not_given():
    refused("never-written", "y[5]", toys.half, outputs=None)
    refused("written-twice", "y[0]", toys.twice_across_programs, outputs=None)
    refused("cross-program-read", "y[0]", toys.neighbour, outputs=None)
    tried(toys.copy, outputs=None)


def test_writable_tensor_is_written_completely_or_not_at_all():
    options = {"outputs": None, "writable": ["y"]}
    tried(toys.copy, **options)
    tried(toys.copy, grid=(0,), **options)
    refused("never-written", "y[5]", toys.half, **options)
    refused("not-an-output", "store to x", toys.onto_operand, **options)


def test_an_output_may_be_declared_partial():
    y = tried(toys.half, outputs=[], partial=["y"])
    assert y[:5].tolist() == [0, 1, 2, 3, 4]
    refused("written-twice", "y[0]", toys.twice_across_programs, outputs=[], partial=["y"])


def test_unwritten_output_of_no_program():
    refused("never-written", "y[0] is never written, like 9 more", toys.copy, grid=(0,))
    refused("never-written", "dw is not an argument of the launch", toys.copy, outputs=["y", "dw"])


def test_a_program_may_overwrite_what_it_read():
    y = operand()
    run(toys.in_place, (2,), {"y": y, "N": N}, constants=BLOCK, outputs=["y"])
    assert y.tolist() == [2 * i for i in range(N)]


@pytest.mark.parametrize("order", ["grid", "reversed"])
def test_write_to_memory_read_by_several_programs_is_an_error(order):
    with pytest.raises(StrictError, match=r"cross-program-read: y\[0\] is"):
        run(toys.all_read_last_writes, (3,), {"y": result(1)}, order=order)
    run(toys.all_read_last_writes, (1,), {"y": result(1)}, order=order)


def test_a_program_may_read_what_it_wrote():
    y = result()
    run(toys.read_back, (2,), {"y": y, "N": N}, constants=BLOCK, partial=["y"])
    assert y.tolist() == list(range(N))


def test_aliases_of_one_storage_are_one_memory():
    storage = operand(2 * N)
    x, y = storage[:N], storage[1 : N + 1]
    refused("cross-program-read", "another", toys.copy, x, y, aligned=False)
    expanded = torch.zeros(1).expand(N)
    refused("written-twice", "y[0] is written again", toys.copy_onto_one, y=expanded)


def test_an_index_names_the_element():
    x, y = operand(12).reshape(3, 4), result(12).reshape(4, 3).T
    with pytest.raises(StrictError, match=re.escape("y[1, 1] is never written, like 7 more")):
        run(toys.half, (2,), {"x": x, "y": y, "N": 9}, constants=BLOCK, outputs=["y"])


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float64, torch.uint64])
def test_every_size_of_element(dtype):
    y = tried(toys.copy, operand(dtype=dtype), result(dtype=torch.float32).nan_to_num().to(dtype))
    assert torch.equal(y, operand(dtype=dtype))
    refused("written-twice", "y[0]", toys.twice_across_programs, operand(dtype=dtype), y)


def test_sizes_of_elements_may_differ_within_a_storage():
    storage = torch.zeros(2 * N)
    x, y = storage[:N].view(torch.int16)[:N], storage[N:]
    tried(toys.copy, x, y, aligned=False)
    storage = torch.zeros(2 * N, dtype=torch.float64)
    x, y = storage.view(torch.int16)[40 : 40 + N], storage[2 : 2 + N]  # x[4:8] is inside y[9]
    refused("cross-program-read", "another", toys.copy, x, y, aligned=False)


# Masked lanes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masked_lanes_are_poisoned(dtype):
    y = tried(toys.no_other, operand(dtype=dtype), result(2, dtype))
    assert y[0].item() == 28
    assert y[1].isnan()
    lenient = tried(toys.no_other, operand(dtype=dtype), result(2, dtype), strict=False)
    assert lenient.tolist() == [28, 17]


def test_masked_indices_are_poisoned():
    z = torch.arange(N, dtype=torch.int32).flip(0)
    y = result()
    with pytest.raises(StrictError, match="out-of-bounds: load of element 2060566255 of x"):
        run(toys.indirect, (2,), {"x": operand(), "z": z, "y": y, "N": N}, constants=BLOCK)


def test_scalar_loads_take_other_even_if_it_is_zero():
    y = result(2)
    run(toys.scalar_other, (2,), {"x": operand(1), "y": y}, outputs=["y"])
    assert y.tolist() == [0, 0]


# Promises


@pytest.mark.parametrize(
    ("first", "n", "hints", "kind"),
    [
        (0, 64, (16, 16, 4), None),
        (16, 64, (16, 16, 4), None),
        (4, 64, (4, 16, 4), None),
        (4, 64, (16, 16, 4), "not-a-multiple"),
        (48, 56, (8, 8, 4), None),
        (48, 56, (8, 16, 4), "not-contiguous"),
        (48, 60, (16, 16, 4), "not-a-multiple"),
        (0, 64, (16, 16, 8), "not-constant"),
    ],
)
def test_hints(first, n, hints, kind):
    arguments = {"y": result(16, torch.int32), "FIRST": first, "N": n}
    constants = dict(zip("ABC", hints)) | {"BLOCK": 16}
    if kind is None:
        run(toys.hinted, (1,), arguments, constants=constants)
        return
    with pytest.raises(StrictError) as caught:
        run(toys.hinted, (1,), arguments, constants=constants)
    assert caught.value.kind == kind
    run(toys.hinted, (1,), arguments, constants=constants, strict=False)


@pytest.mark.parametrize(("n", "factor", "right"), [(24, 8, True), (24, 16, False), (0, 16, True)])
def test_hints_on_scalars(n, factor, right):
    arguments, constants = {"y": result(1, torch.int32), "N": n}, {"A": factor}
    if right:
        run(toys.hinted_scalar, (1,), arguments, constants=constants)
    else:
        with pytest.raises(StrictError, match="need to be multiples of 16"):
            run(toys.hinted_scalar, (1,), arguments, constants=constants)


def test_hints_on_pointers_count_bytes():
    x, constants = operand(20), {"A": 16, "BLOCK": 8}
    run(toys.hinted_pointer, (1,), {"x": x, "y": result(8)}, constants=constants)
    with pytest.raises(StrictError, match="not-a-multiple"):
        run(
            toys.hinted_pointer, (1,), {"x": x[1:], "y": result(8)}, constants=constants,
            aligned=False,
        )  # fmt: skip


@given(st.lists(st.integers(0, 3), min_size=8, max_size=8), st.sampled_from([1, 2, 4, 8]))
def test_hints_against_their_definition(steps, size):
    values = np.cumsum(steps)
    groups = [values[i : i + size] for i in range(0, 8, size)]
    assert is_contiguous(values, 0, size, 1) == all((np.diff(g) == 1).all() for g in groups)
    assert is_constant(values, 0, size, 1) == all((g == g[0]).all() for g in groups)
    run_length = next(s for s in (8, 4, 2, 1) if is_contiguous(values, 0, s, 1))
    heads = values[::run_length]
    assert is_multiple(values, 0, size, 1) == (not (heads % size).any())


def test_assumptions():
    y = result(1, torch.int32)
    run(toys.assuming, (1,), {"y": y, "N": 5})
    with pytest.raises(StrictError, match=r"assumption: tl\.assume does not hold"):
        run(toys.assuming, (1,), {"y": y, "N": 4})


def test_alignment_matches_the_slot():
    x = operand(N + 1)[1:]
    refused("unaligned", "x needs an address that is a multiple of 16", toys.copy, x)
    assert tried(toys.copy, x, aligned=False).tolist() == list(range(1, N + 1))


def test_dtype_matches_the_slot():

    launch = Launch(
        toys.copy, (1, 1, 1), {"x": Slot("x", "f32"), "y": Slot("y", "f16"), "N": 8}, BLOCK
    )
    with pytest.raises(TypeError, match=r"y is torch\.float32, needs f16"):
        execute(launch, {"x": operand(), "y": result()})


def test_tensors_are_on_the_cpu():
    with pytest.raises(ValueError, match=r"copy: x is on meta, needs the CPU"):
        tried(toys.copy, operand().to("meta"))


# What a launch refuses


def test_any_error_names_the_program():
    with pytest.raises(AssertionError) as caught:
        tried(toys.failing, order="grid")
    assert caught.value.__notes__ == ["interpreting failing(1, 0, 0)"]


def test_grid_within_limits():
    refused("grid", "(1, 65536, 1) programs, needs at most", toys.copy, grid=(1, 65_536))
    refused("grid", "(1, 1, 65536) programs, needs at most", toys.copy, grid=(1, 1, 65_536))
    refused("grid", "programs, needs at most", toys.copy, grid=(2**31,))


def test_atomics_are_refused():
    refused("atomic", "needs a fixed order", toys.atomic, y=torch.zeros(N))
    refused("atomic", "needs a fixed order", toys.atomic, y=torch.zeros(N), strict=False)


@pytest.mark.parametrize(("block", "says"), [(12, "power of"), (2**21, "maximum tensor numel")])
def test_blocks_are_those_of_the_compiler(block, says):
    with pytest.raises(ValueError, match=says):
        tried(toys.copy, constants={"BLOCK": block})


def test_products_are_those_of_the_compiler():
    x, w, y = torch.zeros(8, 8), torch.zeros(8, 8), torch.zeros(8, 8)
    arguments = {"x": x, "w": w, "y": y, "M": 8, "N": 8, "K": 8}
    constants = {"BM": 8, "BN": 8, "BK": 8, "PRECISION": "ieee"}
    with pytest.raises(AssertionError, match="K >= 16"):
        run(toys.matmul, (1,), arguments, constants=constants)


def test_boxes_stay_within_their_tensor():
    x, y = operand(32).reshape(4, 8), result(32)
    arguments = {"x": x, "y": y, "row": 0, "column": 0}
    options = {"boxes": {"x": (4, 8)}, "constants": {"BM": 4, "BN": 8}}
    run(toys.box, (1,), arguments, **options)
    with pytest.raises(StrictError, match="out-of-bounds: load of element 24 of x, which has 24"):
        run(toys.box, (1,), {**arguments, "x": x[:3]}, shapes={"x": (4, 8)}, **options)
    arguments = {"x": x, "y": torch.zeros(4, 8), "M": 4, "N": 8}
    options = {"boxes": {"x": (4, 8), "y": (4, 8)}, "constants": {"BM": 4, "BN": 4}}
    with pytest.raises(StrictError, match="written-twice"):
        run(toys.box_store, (1, 2), arguments, **options)
