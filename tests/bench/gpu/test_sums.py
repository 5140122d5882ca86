"""The three sums in torch against the oracle: plain, transposed, flipped, grouped, cropped."""

import numpy as np
import pytest
from hypothesis import given

from convref import oracle
from convref.arrays import to_torch
from convref.conformance.operands import operands
from convref.conformance.strategies import cases

pytest.importorskip("torch", reason="torch is not installed")

import torch

from convref_bench.gpu import sums


@given(
    cases(
        passes=["fprop", "dgrad", "wgrad"], dtypes=["f64"], fills=["int"], empty=False, memory=False
    )
)
def test_the_sums_equal_the_oracle(case):
    call, given_ = case.call, operands(case)
    tensors = tuple(to_torch(array) for array in given_ if array is not None)
    want = oracle.evaluate(call, *given_)[call.signature.results.index(call.wanted[0])]
    got = sums.evaluate(call, *tensors)
    np.testing.assert_array_equal(got.numpy(), want)
    sums.check_slice(call, tensors, got, sums.evaluate(call, *map(torch.abs, tensors)))


@given(cases(passes=["fprop", "dgrad", "wgrad"], dtypes=["f64"], fills=["ones"], empty=False))
def test_a_slice_of_a_wrong_reference_is_caught(case):
    call = case.call
    tensors = tuple(to_torch(array) for array in operands(case) if array is not None)
    value = sums.evaluate(call, *tensors)
    with pytest.raises(sums.JudgedWrong, match="disagrees with the oracle"):
        sums.check_slice(call, tensors, value + 1, sums.evaluate(call, *tensors))
