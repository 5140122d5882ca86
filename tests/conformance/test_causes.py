"""Failures of ops whose problems lack fields that a convolution has."""

from convref import parse
from convref.conformance.causes import root_cause
from convref.conformance.shrink import Shrunk


def test_a_failure_without_padding_has_a_root_cause():
    shrunk = Shrunk(parse("adaptive_max_pool.fprop:n1c1_i3_o2"), ("dtype = f32",), (), 1)
    assert root_cause("wrong", shrunk) == ("wrong", "fprop", "f32", "dtype")
