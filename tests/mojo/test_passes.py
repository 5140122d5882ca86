"""The stateless C passes: every call that the kernels compute, against the oracle."""

import re

import numpy as np
import pytest
from hypothesis import given

from convref import ConvrefError, parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.ops import SIGNATURE
from convref_mojo import backend as module
from convref_mojo import build, library, passes


@given(cases(ops=tuple(passes.NATIVE), dtypes=library.DTYPES))
def test_any_case_is_right(case):
    expected = "pass" if module.stateless.supports(case.call) is None else "unsupported"
    found = examine(case, module.stateless, repeat=True)
    assert found.verdict == expected, f"{found.verdict}: {found.reason}\n{found.line}"


# Enough products for threads, which are 3 or 1.
LARGE = (
    "conv.fprop:n2c16k40_i50x50_f3x3_p1",
    "conv.backward:n2c16k40_i50x50_f3x3_s2_p1:t=1",
    "conv.jvp:n2c150k150g150_i60x70_f3x3",
    "max_pool.fprop:n1c40_i170x171_f3x3",
    "avg_pool.backward:n1c40_i170x171_f3x3",
)


def test_results_do_not_depend_on_threads():
    for line in LARGE:
        case = parse(f"{line}:fill=normal")
        call = case.call
        given = {r: a for r, a in zip(call.roles, operands(case)) if a is not None}
        shapes = {role: call.problem.shape(role) for role in call.wanted}
        found = []
        for threads in (1, 3):
            types = {role: np.int64 if role == "indices" else np.float32 for role in shapes}
            made = {role: np.full(shapes[role], 7, types[role]) for role in shapes}
            passes.compute(call, given, made, threads)
            found.append([a.tobytes() for a in made.values()])
        assert found[0] == found[1], line


def test_scratch_memory_of_the_caller_is_enough():
    """Bytes after it keep their values; an address that is not aligned is one."""
    (conv,) = passes.native_passes(parse("conv.fprop:n1c70k33_i9x8_f5x5_p2:bias=0").call)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, 70, 9, 8), (33, 70, 5, 5)))
    y, expected = np.empty((2, 1, 33, 9, 8), np.float32)
    words = [np.array(conv.sizes), np.array(conv.attributes)]
    places = [w.ctypes.data for w in words]
    call = library.loaded().convref_pass
    size = call(conv.which, conv.dtype, 0, *places, 0)
    scratch = np.full(size + 100, 171, np.uint8)
    for out, address in ((expected, 0), (y, scratch.ctypes.data + 7)):
        arrays = np.zeros(passes.ARRAYS, np.int64)
        arrays[:4] = x.ctypes.data, w.ctypes.data, 0, out.ctypes.data
        call(conv.which, conv.dtype, arrays.ctypes.data, *places, address)
    assert (scratch[7 + size :] == 171).all()
    assert (y == expected).all()


def test_the_words_are_those_of_the_structs():
    text = (build.SOURCES / "passes" / "sizes.mojo").read_text("utf-8")
    words = {"Int": 1, "Float64": 1, "Extent": 3}
    (found,) = passes.native_passes(parse("max_pool.fprop:n1c1_i4_f2").call)
    for name, values in (("Sizes", found.sizes), ("Attributes", found.attributes)):
        body = re.search(rf"^struct {name}\(.*?(?=^\S)", text, re.M | re.S)[0]
        assert sum(words[kind] for kind in re.findall(r"    var \w+: (\w+)", body)) == len(values)


def test_the_table_has_every_pass_of_the_kernels():
    listed = {(op, pass_) for op, table in passes.NATIVE.items() for pass_ in table}
    computed = {key for key in SIGNATURE if key[0] in passes.NATIVE}
    assert computed - listed == {
        (op, "double_backward") for op in ("batch_norm", "batch_norm_eval")
    }
    names = {row[0] for table in passes.NATIVE.values() for rows in table.values() for row in rows}
    assert names == set(passes.PASSES)


class Subclass(np.ndarray):
    """Its elements are in an array like any other."""


def test_other_operands_of_a_call_need_another_plan():
    """The library compares the operands of a call with those of the last one."""
    case = parse("conv.fprop:n2c2k2_i4x3_f2")
    backend, (x, w, b) = module.MojoBackend(), operands(case)
    (expected,) = module.backend.run(case.call, x, w, b)
    moved = np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)
    big = x.astype(">f4")
    for other in (
        moved,
        x[::-1].copy()[::-1],
        x.view(Subclass),
        big,
        np.flip(np.flip(x, 2).copy(), 2),
    ):
        for operand in (x, other, other, x):
            (y,) = backend.run(case.call, operand, w, b)
            assert (y == expected).all()
    for wrong in ((x[:1], w, b), (x, w, None), (x.astype("f8"), w, b), (x[0], w, b)):
        backend.run(case.call, x, w, b)
        with pytest.raises(ConvrefError):
            backend.run(case.call, *wrong)


def test_an_earlier_call_of_another_size_has_outputs_of_its_own():
    for around in ("batch", "dtype"):
        found = examine(parse(f"avg_pool.fprop:n2c3_i4x5_f2:around={around}"), module.into)
        assert (found.verdict, found.reason) == ("pass", "")
