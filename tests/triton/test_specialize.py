"""The specialization of a launch is the one that Triton's own launcher would make."""

from __future__ import annotations

import pickle
from dataclasses import replace

import aot_kernels
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from convref.errors import ConvrefError
from convref_triton.compile import aot
from convref_triton.compile.specialize import specialize
from convref_triton.plan.launch import Descriptor, Launch, Slot, map_arguments

TYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
}
EDGES = [n + step for n in (0, 1, 16, 2**31, 2**63) for step in (-1, 0)]
EDGES += [n + step for n in (-16, -(2**31), -(2**63)) for step in (1, 0)]
INTEGERS = st.one_of(
    st.sampled_from([2**31 - 16, 2**64 - 1, *EDGES]),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-9, 9).map(lambda n: 16 * n),
)
SLOTS = st.builds(Slot, st.just("x"), st.sampled_from(sorted(TYPES)), st.booleans())
SCALARS = st.one_of(INTEGERS, st.booleans(), st.floats(), st.none())
CONSTANTS = st.sampled_from([1, True, 1.0, None, "tf32", (2, 1)])


@st.composite
def descriptors(draw):
    rank = draw(st.integers(1, 5))
    block = tuple(draw(st.lists(st.sampled_from([1, 4, 16]), min_size=rank, max_size=rank)))
    slot = Slot("x", draw(st.sampled_from(["bf16", "f16", "f32"])))
    shape = tuple(64 for _ in range(rank))
    return Descriptor(slot, shape, tuple(64**axis for axis in reversed(range(rank))), block)


# Items of tuples, which may be named or nested, and may be empty.
ITEMS = st.one_of(
    SLOTS,
    SCALARS,
    descriptors(),
    st.sampled_from([tl.constexpr(4), aot_kernels.twice]),
)
GROUPS = st.recursive(
    st.lists(ITEMS, max_size=3).map(tuple),
    lambda inner: st.builds(aot_kernels.Rows, ITEMS | inner, ITEMS, inner),
    max_leaves=3,
)


@st.composite
def launches(draw):
    kernel = draw(st.sampled_from([aot_kernels.product, aot_kernels.every_kind]))
    arguments, constants = {}, {}
    for parameter in kernel.params:
        if parameter.is_constexpr:
            if not parameter.has_default or draw(st.booleans()):
                constants[parameter.name] = draw(CONSTANTS)
        else:
            single = st.one_of(SLOTS, SCALARS, descriptors())
            value = draw(single if parameter.annotation_type else st.one_of(single, GROUPS))
            (constants if value is None else arguments)[parameter.name] = value
    grid, warps = (1, 1, 1), draw(st.sampled_from([1, 4, 8]))
    return Launch(kernel, grid, arguments, constants, warps, draw(st.integers(1, 5)))


def tensor(slot):
    """Return a tensor that matches the slot."""
    size = TYPES[slot.dtype].itemsize
    storage = torch.zeros(64, dtype=torch.uint8)
    first = -storage.data_ptr() % 16 + (0 if slot.aligned else size)
    view = storage[first : first + size].view(TYPES[slot.dtype])
    assert (view.data_ptr() % 16 == 0) is slot.aligned
    return view


def argument(value):
    if isinstance(value, Descriptor):
        base = tensor(value.slot)
        return TensorDescriptor(base, list(value.shape), list(value.strides), list(value.block))
    return tensor(value) if isinstance(value, Slot) else value


def tritons(launch):
    """Return (options, signature, constants, attributes) of Triton's own launcher."""
    backend = make_backend(GPUTarget("cuda", 90, 32))
    kernel = launch.kernel
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    arguments = {k: map_arguments(argument, v) for k, v in launch.arguments.items()}
    given = {**launch.constants, **arguments}
    options = aot.OPTIONS | {"num_warps": launch.warps, "num_stages": launch.stages}
    bound, specialization, rest = bind(**given, **options)
    return kernel._pack_args(backend, {**rest}, bound, specialization, rest)


@pytest.mark.parametrize("value", [*EDGES, None, True, 1.0, Slot("x", "f32", aligned=False)])
def test_one_value_for_every_parameter(value):
    kernel = aot_kernels.every_kind
    names = [parameter.name for parameter in kernel.params if not parameter.is_constexpr]
    same_as_triton(Launch(kernel, (1, 1, 1), dict.fromkeys(names, value), {}))


@given(launch=launches())
def test_a_launch_is_specialized_as_triton_does_it(launch):
    same_as_triton(launch)


def same_as_triton(launch):
    ours = specialize(launch)
    options, signature, constants, attributes = tritons(launch)
    assert repr(ours.signature) == repr(signature)  # names of tuples and their fields included
    assert repr(ours.constants) == repr(constants)
    marked = {p: marks for p, marks in attributes.items() if marks and p not in constants}
    assert ours.attributes == marked
    assert {name: getattr(options, name) for name in ours.options} == ours.options


@given(launch=launches())
def test_a_specialization_travels_to_another_process(launch):
    ours = specialize(launch)
    sent = pickle.loads(pickle.dumps(ours))
    assert sent.key == ours.key
    assert sent.kernel is ours.kernel


PRODUCT = Launch(
    aot_kernels.product,
    (1, 1, 1),
    {
        **{name: Slot(name, "bf16") for name in "abc"},
        **dict.fromkeys(("M", "N", "K", "a_row", "b_row", "c_row"), 64),
        "factor": 0.5,
    },
    {"TM": 64, "TN": 64, "TK": 32},
)


def test_misaligned_view_gets_its_own_specialization():
    view = replace(PRODUCT, arguments={**PRODUCT.arguments, "b": Slot("b", "bf16", aligned=False)})
    assert specialize(PRODUCT).attributes[1,] == [["tt.divisibility", 16]]
    assert (1,) not in specialize(view).attributes
    assert specialize(view).key != specialize(PRODUCT).key


@pytest.mark.parametrize("values", [(1, True), (1, 1.0), (0, False), (None, 0)])
def test_constants_that_compare_equal_are_kept_apart(values):
    one, other = (replace(PRODUCT, constants={**PRODUCT.constants, "PRECISION": v}) for v in values)
    assert specialize(one).key != specialize(other).key


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"M": 2**64}, "product: M is 18446744073709551616, needs an integer of at most 64 bits"),
        ({"M": "64"}, "product: M is a str, needs a Slot, a number, None or a tuple"),
        ({"a": Slot("a", "c64")}, "product: a has dtype c64, needs bf16, f16"),
        ({"MM": 1}, "product: has no parameter MM"),
    ],
)
def test_arguments_that_no_kernel_takes(change, text):
    with pytest.raises(ConvrefError) as raised:
        specialize(replace(PRODUCT, arguments={**PRODUCT.arguments, **change}))
    assert str(raised.value).startswith(text)


def test_a_missing_argument():
    with pytest.raises(ConvrefError, match="product: TM is missing"):
        specialize(replace(PRODUCT, constants={}))


def test_an_interpreted_kernel_is_refused():
    from triton.runtime.interpreter import InterpretedFunction

    interpreted = InterpretedFunction(aot_kernels.product.fn)
    with pytest.raises(ConvrefError, match="product: is an InterpretedFunction, needs a kernel"):
        specialize(replace(PRODUCT, kernel=interpreted))
