"""The convolution kernels: every pass against the oracle, any memory, any number of threads."""

import numpy as np
import pytest
from hypothesis import given

from convref import ConvrefError, UnsupportedError, parse
from convref.conformance.examine import examine
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref_mojo import backend as module
from convref_mojo import library

DTYPES = ("f32", "f64", "bf16")
backend = module.backend


def check(line, **options):
    found = examine(parse(line), backend, **options)
    assert (found.verdict, found.reason) == ("pass", ""), found.line


@given(cases(dtypes=DTYPES))
def test_any_case_is_right(case):
    """Results have the layout of the operands here; two or three threads."""
    found = examine(case, backend, repeat=True)
    assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


@given(cases(dtypes=DTYPES))
def test_only_the_results_are_written(case):
    found = examine(case, module.into, repeat=True)
    assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


# Sizes around block boundaries: depth at 1536 and 64, rows at 16 tiles, columns
# at 8 panels, windows at 8, 128 and 1024, and the vectors and tiles of either instruction set. Of
# strips: 128 KiB, which cut lines too, runs of all taps and of one, 128 KiB of sums, 256 windows.
# Where there are few results, lines of 32 windows are vectors. Lines of 56 are read in place.
BLOCKS = (
    "conv.fprop:n1c171k33_i12_f9:mem=nwc",
    "conv.fprop:n1c64k257_i2x3_f5x5_p2:mem=nhwc",
    "conv.fprop:n2c5k48_i15x16_f3_p1:mem=nhwc",
    "conv.fprop:n1c70k260_i13x17_f1:mem=nhwc:bias=0",
    "conv.dgrad:n2c130k65_i11x9_f3_s2_p1:mem=nhwc",
    "conv.dgrad:n1c20k200_i9x9_f3_p1_d2:mem=nhwc",
    "conv.wgrad:n1c31k229_i16x17_f3_p1:mem=nhwc",
    "conv.wgrad:n1c260k30_i16x16_f1:mem=nhwc",
    "conv.wgrad:n3c17k16_i9x9_f4_p2:mem=nhwc",
    "conv.wgrad:n1c3k15_i33x9_f7x7_s2_p3:mem=nhwc",
    "conv.wgrad:n1c3k16_i32x32_f3x3_p1:mem=nhwc",
    "conv.wgrad:n3c5k33_i40x41_f3_p1",
    "conv.wgrad:n2c6k3g3_i700_f3_p2:t=1",
    "conv.backward:n2c33k32g1_i5x4x6_f2x3x1_p1",
    "conv.backward:n2c48k48g48_i9x14_f3_s2_p1:mem=nhwc",
    "conv.jvp:n1c80k80g80_i5x23_f3x5_p1x2:mem=nhwc",
    "conv.jvp:n1c40k34_i7x6_f3_p1:mem=nhwc",
    "conv.double_backward:n1c36k20g4_i7x6_f3_p1:mem=nhwc",
    "conv.fprop:n1c24k40_i5x6_f3_s2_p1:t=1:op=1:mem=nhwc",
    "conv.backward:n1c24k40g2_i5x6_f3_s2_p1:t=1:op=1",
    "conv.backward:n2c70k33_i600_f3_p1:mem=nwc",
    "conv.backward:n1c40k34_i19x61_f3x2_p1:mem=nhwc",
    "conv.backward:n2c6k40g2_i20x29_f3x5_s2x1_p3,1x0,2_d1x3",
    "conv.backward:n1c33k129_i17x18_f3_p1:mem=nhwc",
    "conv.jvp:n2c20k17_i3x9x15_f2x3x2_p1:mem=nhwc",
    "conv.wgrad:n1c65k70_i16x16_f1:mem=nhwc",
    "conv.dgrad:n2c3k17_i20x69_f3x3_s2_p1:mem=nhwc",
    "conv.dgrad:n1c6k34g2_i9x65_f2x3_s1x2_p1",
    "conv.fprop:n1c20k4g2_i9x35_f3x5_s2x1_p1,1x3,1_d1x2",
    "conv.jvp:n1c33k2_i2000_f2:mem=nwc",
    "conv.fprop:n2c3k17_i9x131_f3x5_s2_p1x2:mem=nhwc",
    "conv.fprop:n1c5k20_i3x5x70_f3x2x3_p1,0x1,1x1,1:mem=ndhwc",
    "conv.fprop:n1c4k9_i9x140_f3_p2_d2:mem=nhwc",
    "conv.dgrad:n1c20k5_i5x140_f3_s1x2_p1:mem=nhwc",
    "conv.wgrad:n1c4k4_i6x6_f3x3_p1",
    "conv.fprop:n1c4k4_i6x6_f3x3_p1",
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", BLOCKS)
def test_sizes_around_block_boundaries(line, dtype):
    check(f"{line}:dt={dtype}", repeat=True)
    check(f"{line}:dt={dtype}:fill=normal")


@pytest.mark.parametrize("line", ["conv.fprop:n1c1k1_i3_f1", "conv.wgrad:n2c3k4_i5_f3:mem=nwc"])
def test_subnormal_numbers_are_not_flushed(line):
    check(f"{line}:fill=subnormal")


def test_a_tile_fits_into_registers():
    rows, vectors, width = library.tile()
    assert rows % 2 == 0
    assert (rows, vectors, width) in {(14, 2, 16), (6, 2, 8), (6, 2, 4)}


def test_a_result_has_the_memory_layout_of_its_operand():
    for order, memory in (("", "C"), ("nhwc", "K")):
        case = parse(f"conv.backward:n2c3k4_i5x6_f3{f':mem={order}' if order else ''}")
        dy, x, w = operands(case)
        dx, dw, _ = backend.run(case.call, dy, x, w)
        assert dx.strides == x.strides
        assert dw.strides == w.strides
        assert dx.flags.c_contiguous == (memory == "C")


def odd(array):
    """Return the same numbers in the other byte order, backwards, and at an odd address."""
    swapped = array.astype(array.dtype.newbyteorder())
    backwards = array[..., ::-1].copy()[..., ::-1]
    bytes_ = np.empty(array.nbytes + 1, np.uint8)[1:]
    unaligned = bytes_.view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    return swapped, backwards, unaligned


def test_operands_of_any_kind_of_memory():
    case = parse("conv.fprop:n2c3k4_i5x6_f3_p1")
    x, w, b = operands(case)
    (want,) = backend.run(case.call, x, w, b)
    for strange in odd(x):
        (got,) = backend.run(case.call, strange, w, b)
        assert got.tobytes() == want.tobytes()
        assert got.dtype.isnative


@pytest.mark.parametrize(
    "change",
    [lambda w: None, lambda w: w[..., None], lambda w: w[:1], lambda w: w.astype(np.float64)],
)
def test_operands_that_do_not_fit_are_refused(change):
    case = parse("conv.fprop:n1c2k2_i3_f2")
    x, w, b = operands(case)
    with pytest.raises(ConvrefError, match=r"weight (is|has) .*, needs"):
        backend.run(case.call, x, change(w), b)


REFUSED = {
    "unfold.fprop:n1c1_i3_f2": "no unfold kernel",
    "conv.fprop:n1c1k1_i3_f2:dt=i32": "no kernel for i32",
    "conv.fprop:n1c1k1_i3_f2:dt=c64": "no kernel for c64",
    "conv.fprop:n1c1k1_i3_f2:math=tf32": "no math=tf32",
    "conv.fprop:n1c1k1_i3_f2:dev=cuda": "only the device cpu",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_unsupported_calls_have_a_reason(line, reason):
    call = parse(line).call
    assert reason in backend.supports(call)
    with pytest.raises(UnsupportedError, match=reason):
        backend.run(call, *(None,) * len(call.roles))


def test_the_backend_is_found_by_name():
    assert load("mojo") is backend
    assert set(backend.fingerprint()) == {"isa", "sources", "compiler", "threads"}


def test_no_shape_compiles_anything(monkeypatch):
    library.loaded()
    monkeypatch.setattr(module.build, "compile_to", lambda *_: pytest.fail("compiled"))
    for rank in (1, 2, 3):
        for size in range(3, 9):
            sizes = "x".join([str(size)] * rank)
            check(f"conv.backward:n{size}c{size}k{2 * size}_i{sizes}_f3_p1")


torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_keep_type_and_memory_format(dtype):
    case = parse(f"conv.fprop:n2c3k4_i5x6_f3_p1:dt={dtype}")
    given_ = operands(case)
    tensors = [load("numpy") and module.like(a, torch.empty(0)) for a in given_]
    tensors[0] = tensors[0].contiguous(memory_format=torch.channels_last)
    (y,) = backend.run(case.call, *tensors)
    (want,) = backend.run(case.call, *given_)
    assert isinstance(y, torch.Tensor)
    assert y.dtype == tensors[0].dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert module.to_numpy(y).tolist() == want.tolist()


def test_a_tensor_that_requires_grad_is_read():
    case = parse("conv.fprop:n1c2k2_i3_f2:bias=0")
    x, w, _ = (a if a is None else torch.from_numpy(a) for a in operands(case))
    (y,) = backend.run(case.call, x.requires_grad_(), w, None)
    assert not y.requires_grad
