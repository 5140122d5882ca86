"""The adjoint of a stride in Gluon: one launch, whose tiles are those of all classes of pixels."""

from __future__ import annotations

from math import gcd
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convref.case import parse

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

import triton
from forced import nightly
from test_gluon_numbers import check_case

from convref_triton.common import index
from convref_triton.common.geometry import operands
from convref_triton.hopper import gluon, gluon_fprop
from convref_triton.plan import archs
from convref_triton.plan.choose import offered, plan

pytestmark = pytest.mark.skipif(
    not gluon.KERNELS, reason=f"the kernels are not for the Gluon of Triton {triton.__version__}"
)


class Word(int):
    """An integer whose division is a kernel's, towards 0."""

    def __floordiv__(self, other):
        return Word(int(abs(self) // abs(other)) * (1 if (self < 0) == (other < 0) else -1))

    def __mod__(self, other):
        return Word(int(self) - int(self // other) * other)

    def __add__(self, other):
        return Word(int(self) + other)

    def __sub__(self, other):
        return Word(int(self) - other)

    def __mul__(self, other):
        return Word(int(self) * other)


MATHS = SimpleNamespace(
    where=lambda which, a, b: Word(a if which else b),
    cdiv=lambda a, b: (a + (b - 1)) // b,
    maximum=lambda a, b: Word(max(a, b)),
)


@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.integers(-9, 9)
)
def test_each_pixel_and_tap_has_one_parity_class(size, taps, stride, dilation, lo):
    common = gcd(stride, dilation)
    step, move = stride // common, -dilation // common
    counts, seen = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "tl", MATHS)
        for e in range(stride):
            corner, pixels, first, count, read = index.class_along.fn(
                Word(e), Word(lo), Word(taps), Word(size), move, stride, step
            )
            counts.append(count)
            for j in range(pixels):
                at = corner + stride * j
                met = {first + step * m: read + j + move * m for m in range(count)}
                reach = {r: divmod(at + lo - r * dilation, stride) for r in range(taps)}
                assert met == {r: p for r, (p, rest) in reach.items() if rest == 0}
                seen.append(at)
    assert sorted(seen) == list(range(size))
    assert counts == sorted(counts, reverse=True)


def launches(call, choice):
    """Return the launches of a choice for a call that are of its kernel."""
    made = plan(call, operands(call), choice)
    return [s for s in made.launches if s.kernel.__name__ == choice.kernel]


def test_all_parity_classes_are_in_one_launch():
    call = parse("conv.dgrad:n8c256k128_i28x27_f3x3_s2x3_p1:dt=bf16:mem=nhwc:dev=cuda").call
    found = [c for c in offered(call, operands(call), "sm_90") if c.kernel == "gluon_fprop"]
    assert len(found) == len(gluon_fprop.TILES.fitting("bf16", "sm_90"))
    for choice in found:
        (launch,) = launches(call, choice)
        columns = -(-256 // choice.tile.bn)
        assert launch.grid == (min(6 * launch.arguments["boxes"] * columns, archs.SMS), 1, 1)


LINES = (  # all taps in one class, few, none; a class without pixels; pixels that are too few
    "conv.dgrad:n3c72k80_i11x9_f3x3_s2_p1:dt=bf16:mem=nhwc:fill=int",
    "conv.dgrad:n2c64k64_i11x7_f2x5_s3_p1,-1x3,2_d1x2:dt=f16:mem=nhwc:fill=int",
    "conv.dgrad:n2c70k128_i9x9_f1x1_s2:dt=bf16:mem=nhwc:fill=int",
    "conv.dgrad:n1c64k64_i1x9_f1x4_s4x2_p0x1_d1x2:dt=bf16:mem=nhwc:fill=int",
    "conv.fprop:n3c128k160g2_i9x5_f4x3_s2_p1_d2x1:t=1:dt=bf16:mem=nhwc:fill=int",
    "conv.jvp:n2c64k72_i4x3x4_f3x1x2_s2_p1x0x0:t=1:dt=bf16:fill=int",
    "conv.dgrad:n9c64k64_i33_f7_s4_p3:dt=bf16:mem=nhwc:fill=int",
)


JVP = 5  # two launches, as in test_gluon_numbers.py


@pytest.mark.parametrize("number", [nightly(i) if i == JVP else i for i in range(len(LINES))])
def test_several_tiles_per_program(monkeypatch, number):
    monkeypatch.setattr(archs, "SMS", 1 + number % 3)
    check_case(parse(LINES[number]), number, late=number % 2 > 0)
