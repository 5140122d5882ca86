"""Arrays of other libraries: facts, and the way to NumPy and back without a copy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import ConvrefError, arrays
from convref.dtypes import numpy_dtype

CODES = (
    "f16",
    "bf16",
    "f32",
    "f64",
    "c64",
    "c128",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "e4m3",
    "e5m2",
)


def tensor(code: str) -> Any:
    return torch.arange(24).reshape(2, 3, 4).to(arrays.torch_dtype(code))


@pytest.mark.parametrize("code", CODES)
def test_types_are_known_by_every_name(code: str) -> None:
    kind, there = numpy_dtype(code), arrays.torch_dtype(code)
    assert {arrays.short_name(d) for d in (kind, kind.name, kind.type, there, code)} == {code}


@pytest.mark.parametrize("code", CODES)
def test_facts_are_the_same_for_both_kinds(code: str) -> None:
    there = tensor(code).transpose(0, 2)
    here = arrays.to_numpy(there)
    found = arrays.facts("here", "a", there)
    assert found == ("torch", (4, 3, 2), (1, 4, 12), code, "cpu")
    assert arrays.facts("here", "a", here) == ("numpy", *found[1:])


@pytest.mark.parametrize("code", CODES)
def test_round_trip_to_numpy_and_torch_shares_memory(code: str) -> None:
    there = tensor(code)[:, 1:, ::2]
    here = arrays.to_numpy(there)
    back = arrays.to_torch(here)
    assert torch.equal(back, there)
    assert (back.dtype, back.stride()) == (there.dtype, there.stride())
    assert here.__array_interface__["data"][0] == there.data_ptr() == back.data_ptr()


@pytest.mark.parametrize("code", ["f32", "bf16"])
def test_read_only_memory_is_shared_too(code: str) -> None:
    here = arrays.to_numpy(tensor(code))
    here.flags.writeable = False
    there = arrays.to_torch(here)
    assert there.data_ptr() == here.__array_interface__["data"][0]
    assert torch.equal(there, tensor(code))
    assert not here.flags.writeable


def test_a_shared_alias_keeps_its_memory_alive() -> None:
    here = np.arange(10**6)
    here.flags.writeable = False
    there = arrays.to_torch(here)
    del here
    churn = [np.full(10**6, 7) for _ in range(5)]
    assert len(churn) == 5
    assert torch.equal(there, torch.arange(10**6))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::-1],
        lambda a: a[:1][::-1],
        lambda a: a.astype(">f8"),
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a[:0],
    ],
    ids=["reversed", "one reversed", "big endian", "expanded", "empty"],
)
def test_views_that_torch_lacks_are_copied(view: Any) -> None:
    here = view(np.arange(12.0).reshape(4, 3))
    assert (arrays.to_torch(here).numpy() == here).all()
    assert arrays.to_torch(here).shape == here.shape


def test_lazy_bits_are_resolved() -> None:
    values = torch.complex(torch.ones(3), torch.arange(3.0))
    assert (arrays.to_numpy(values.conj()) == values.numpy().conj()).all()
    assert (arrays.to_numpy(values.conj().imag) == -values.imag.numpy()).all()


def test_a_tensor_with_a_gradient_is_read() -> None:
    values = torch.ones(3, requires_grad=True)
    assert (arrays.to_numpy(values) == np.ones(3)).all()


@pytest.mark.parametrize("template", [np.ones(1), torch.ones(1)])
def test_like_returns_the_kind_of_the_template(template: Any) -> None:
    for given in (np.arange(3.0), torch.arange(3.0)):
        assert type(arrays.like(given, template)) is type(template)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        ([1], "a is a list, needs a NumPy array, torch tensor or JAX array"),
        (np.ones(1, bool), "a has dtype bool, needs a float, complex or integer type"),
        (np.ones(1, ml_dtypes.float8_e3m4), "a has dtype float8_e3m4, needs a float"),
        (torch.ones(1).bool(), "a has dtype bool, needs one of float16"),
        (torch.ones(1).to_sparse(), "a has layout sparse_coo, needs strided"),
        (np.array([1, None]), "a holds None, needs numbers"),
    ],
    ids=str,
)
def test_unsupported_arrays_are_refused(array: Any, text: str) -> None:
    with pytest.raises(ConvrefError) as caught:
        arrays.facts("here", "a", array)
    assert str(caught.value).startswith(f"here: {text}")


def test_kind_of_imports_nothing() -> None:
    assert arrays.kind_of(np.ones(1)) == "numpy"
    assert arrays.kind_of(torch.ones(1)) == "torch"
    assert arrays.kind_of([1.0]) == ""


@pytest.mark.parametrize("made", [np.ma.masked_array, np.matrix])
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_masked_arrays_and_matrices_are_refused(made: Any) -> None:
    plain = np.ones((2, 3))
    convref.relu(plain)  # a plan that is kept is no way around
    with pytest.raises(ConvrefError, match=r"input is a (MaskedArray|matrix), needs a NumPy array"):
        convref.relu(made(plain))
    assert (convref.relu(plain.view(np.memmap)) == plain).all()
