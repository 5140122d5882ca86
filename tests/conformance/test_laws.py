"""The laws hold for correct backends, and each of them convicts a seeded fault."""

from functools import cache

import pytest
from hypothesis import Phase, given, settings

from convref.backends.numpy import NumpyBackend
from convref.case import parse
from convref.conformance.laws import LAWS, check_laws
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.errors import UnsupportedError
from convref_faults import CONV as FAULTS


@cache
def small(count, dtypes=("f32", "f64"), largest=300):
    """Return small cases, always the same."""
    drawn = []
    limits = {"max_elements": largest, "max_macs": 2 * largest}

    @settings(max_examples=count, phases=[Phase.generate], derandomize=True)
    @given(cases(dtypes=dtypes, **limits))
    def collect(case):
        drawn.append(case)

    collect()
    return drawn


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "count"), [("numpy", 120), ("convref.backends.torch:without_onednn", 120)]
)
def test_correct_backends_obey(law, name, count):
    if "torch" in name:
        pytest.importorskip("torch", reason="torch is not installed")
    seen = check_laws(load(name), small(count), [law])
    refused = "contiguous"  # the known bug torch-wgrad-order-native
    assert [broken for broken in seen.broken if refused not in broken.reason] == []
    assert seen.held[law] >= 10


def test_nearly_every_problem_has_a_transposed_twin():
    seen = check_laws(load("numpy"), small(120), ["transposed"])
    assert seen.held.total() > 3 * seen.unsupported.total()


@pytest.mark.parametrize("law", LAWS)
def test_nested_loops_obey(law):
    seen = check_laws(load("loops"), small(90, largest=40), [law])
    assert seen.broken == []
    assert seen.held[law] >= 3


@pytest.mark.parametrize("dtypes", [("f16", "bf16"), ("c64", "c128"), ("i32", "i8"), ("obj",)])
def test_every_kind_of_number_obeys(dtypes):
    seen = check_laws(load("numpy"), small(40, dtypes, 80))
    assert seen.broken == []
    assert all(seen.held[law] >= 2 for law in LAWS)


# A fault that each law convicts, and the text that says so.
CONVICTED = [
    ("adjoint", "six_channels", "<dgrad, x> and <dy, y>"),
    ("adjoint", "filter_gradient_shuffled", "<wgrad, w> and <dy, y>"),
    ("adjoint", "bias_gradient_axes", "<bgrad, b> and <dy, b>"),
    ("linear", "last_row_unwritten", "fprop(x + x2, w) and its terms"),
    ("groups", "grouped_outputs", "y"),
    ("groups", "six_channels", "y"),
    ("transposed", "transposed_dilation_with_stride", "dgrad and the transposed fprop"),
    ("transposed", "high_padding_for_low", "dgrad and the transposed fprop"),
    ("dilation", "dilation_with_stride", "y"),
    ("memory", "filter_order_ignored", "y of plain and other memory"),
    ("memory", "channels_last_filter_in_dgrad", "dx of plain and other memory"),
    ("batch", "third_image", "y"),
    ("batch", "filter_gradient_of_one_image", "dw"),
    ("jvp", "tangent_dropped", "y_dot and its terms"),
    ("jvp", "bias_twice", "y of jvp and fprop"),
    ("double_backward", "double_backward_term", "ddy and the JVP"),
    ("double_backward", "second_derivative_padding", "dw and wgrad(dy, ddx)"),
]


@pytest.mark.parametrize(("law", "name", "text"), CONVICTED)
def test_the_law_convicts(law, name, text):
    broken = check_laws(FAULTS[name], small(400), [law]).broken
    assert broken
    assert any(item.reason.startswith(f"{text}: ") for item in broken), broken[0]
    again = parse(broken[0].line)
    assert LAWS[law](FAULTS[name], again) == broken[0].reason
    assert LAWS[law](load("numpy"), again) == ""


def test_every_law_convicts_something():
    assert {law for law, _, _ in CONVICTED} == set(LAWS)


@pytest.mark.parametrize(
    ("law", "line", "text"),
    [
        ("groups", "conv.fprop:n1c1k1_i1_f1", "there is one group"),
        ("batch", "conv.fprop:n1c1k1_i1_f1", "there is one image"),
        ("dilation", "conv.fprop:n1c1k1_i1_f1_d2", "the filter is dense"),
        ("transposed", "conv.fprop:n1c1k1_i0_f1_p1", "no transposed problem"),
        ("adjoint", "conv.fprop:n1c64k1_i1_f1:dt=bf16", "may be inexact in bf16"),
        ("adjoint", "conv.fprop:n1c16k1_i1_f1:dt=i8", "may wrap in i8"),
    ],
)
def test_a_law_that_does_not_apply_says_so(law, line, text):
    case = parse(line)
    with pytest.raises(UnsupportedError, match=text):
        LAWS[law](load("numpy"), case)
    seen = check_laws(load("numpy"), [case], [law])
    assert (seen.held.total(), seen.unsupported[law], seen.broken) == (0, 1, [])


def test_a_backend_that_refuses_or_raises():
    class Refuses(NumpyBackend):
        def supports(self, call):
            return "not today"

    class Raises(NumpyBackend):
        def run(self, call, *operands):
            raise RuntimeError("no luck")

    case = parse("conv.fprop:n2c2k2g2_i3_f2_d2")
    assert check_laws(Refuses(), [case]).unsupported.total() == len(LAWS)
    broken = check_laws(Raises(), [case]).broken
    assert [item.law for item in broken] == list(LAWS)
    assert {item.reason for item in broken} == {"raised RuntimeError('no luck')"}
