"""Errors begin with the function that was called, and say which word may be meant."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import convref
from convref.conformance import strategies
from convref.dtypes import CODES, short_name
from convref.errors import closest_word

X, W = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 2, 3, 3), np.float32)
LINE = "conv.fprop:n1c1k1_i3_f2"

MEANT = [  # a wrong call, the end of its message
    (lambda: convref.conv2d(X, W, padding="SAME"), "did you mean same_upper?"),
    (lambda: convref.conv2d(X, W, padding="Valid"), "did you mean valid?"),
    (lambda: convref.conv2d(X, W, layout="channels_last"), "did you mean NHWC?"),
    (lambda: convref.conv2d(X, W, layout="nhwc"), "did you mean NHWC?"),
    (lambda: convref.conv2d(X, W, math="float32"), "did you mean ieee?"),
    (lambda: convref.conv2d(X, W, backend="numpi"), "did you mean numpy?"),
    (lambda: convref.conv2d(X, W, data_format="NHWC"), "Did you mean 'layout'?"),
    (lambda: convref.conv2d(X, W, strides=2), "Did you mean 'stride'?"),
    (lambda: convref.softmax(X, axis=1), "Did you mean 'dim'?"),
    (lambda: convref.max_pool2d(X, pool_size=2), "Did you mean 'kernel_size'?"),
    (lambda: convref.unfold(X, window_shape=2), "Did you mean 'kernel_size'?"),
    (lambda: convref.interpolate(X, 8, mode="BILINEAR"), "did you mean bilinear?"),
    (lambda: convref.cross_entropy(X, X, reduction="avg"), "did you mean mean?"),
    (lambda: convref.assert_correct(X, "relu", (X,), accuracy="float32"), "did you mean rn32?"),
    (lambda: convref.assert_correct(X, convref.softmax, (X,), axis=1), "did you mean dim?"),
    (lambda: convref.case_of("conv.forward", X, W), "did you mean fprop?"),
    (lambda: convref.parse(LINE.replace("fprop", "forward")), "did you mean fprop?"),
    (lambda: convref.parse(f"{LINE}:dt=bfp16"), "did you mean bf16?"),
    (lambda: strategies.calls(["convolution"]), "did you mean conv?"),
]


@pytest.mark.parametrize(("call", "text"), MEANT)
def test_a_word_that_is_not_known_is_answered_by_the_one_meant(call, text):
    with pytest.raises((TypeError, convref.ConvrefError)) as caught:
        call()
    assert str(caught.value).partition("\n")[0].endswith(text)


def test_what_resembles_nothing_has_no_suggestion():
    assert closest_word("zzz", ("same", "valid")) == closest_word(3, ("same",)) == ""
    with pytest.raises(TypeError, match=r"argument 'colour'$"):
        convref.relu(X, colour=3)


CALLS = {
    "conv2d": (X, X[0, 0, 0, :1].reshape(1, 1, 1, 1)),
    "conv_transpose2d": (X, W, None, 0),
    "interpolate": (X,),
    "resize": (X,),
    "max_pool2d_backward": (X, X, 2),
    "global_avg_pool": (X[0, 0],),
    "instance_norm": (X[0, 0, 0],),
    "unfold": (X[0], 0),
    "relu_jvp": (X, X),
    "batch_norm": (X, None, W),
}


@pytest.mark.parametrize("name", CALLS)
def test_messages_begin_with_the_function_that_was_called(name):
    function = getattr(convref, name)
    with pytest.raises(convref.ConvrefError, match=rf"^{name}: "):
        function(*CALLS[name])


def test_messages_of_backends_do_too():
    with pytest.raises(convref.ConvrefError, match=r"^conv2d: backend 'none' is unknown, needs "):
        convref.conv2d(X, W, backend="none")
    pytest.importorskip("torch")
    with pytest.raises(convref.UnsupportedError, match=r"^conv2d: torch: .*\(conv.fprop:"):
        convref.conv2d(X.astype(object), W.astype(object), backend="torch")


def test_signatures_show_the_arguments_alone():
    assert [*inspect.signature(convref.relu).parameters] == ["input", "backend"]
    with pytest.raises(TypeError, match=r"^relu\(\) takes 1 positional argument but 3 were given$"):
        convref.relu(X, X, X)
    with pytest.raises(TypeError, match=r"takes from 1 to 2 positional arguments but 3 were"):
        convref.leaky_relu(X, 0.1, 2)


@pytest.mark.parametrize("name", ["f16", "fp16", "float16", "half"])
def test_a_type_has_one_short_name_and_its_usual_ones_are_read(name):
    assert short_name(name) == "f16"
    assert str(convref.parse(f"{LINE}:dt={name}")) == f"{LINE}:dt=f16"
    assert strategies.calls(dtypes=[name]).build(strategies.Tape(bytes(64))).dtype == "f16"


def test_short_names_are_their_own():
    assert [short_name(code) for code in CODES] == [*CODES]


def test_the_judge_takes_a_function():
    convref.assert_correct(convref.relu(X), convref.relu, (X,))
    assert convref.case_of(convref.relu, X) == convref.case_of("relu", X)
    for other in (short_name, np.tanh):
        with pytest.raises(convref.ConvrefError, match=r"^assert_correct: name is <"):
            convref.assert_correct(X, other, (X,))


def test_every_derivative_has_the_name_of_its_function():
    passes = {"backward", "jvp", "double_backward"}
    for stem in (
        "conv2d",
        "conv_transpose2d",
        "batch_norm",
        "instance_norm",
        "max_pool2d",
        "resize",
        "global_max_pool",
        "global_avg_pool",
        "global_lp_pool",
    ):
        assert {f"{stem}_{name}" for name in passes} <= {*dir(convref)}


def test_the_derivatives_of_a_transposed_convolution_are_those_of_conv_transposed():
    x, w = X.astype(int), np.arange(36).reshape(2, 2, 3, 3)
    dy = convref.conv_transpose2d(x, w, stride=2)
    ours = convref.conv_transpose2d_backward(dy, x, w, stride=2)
    theirs = convref.conv2d_backward(dy, x, w, stride=2, transposed=True)
    assert all(map(np.array_equal, ours, theirs))
    twice = convref.conv_transpose2d_double_backward(x, w, None, dy, x, w, stride=2)
    assert np.array_equal(twice[0], dy + convref.conv_transpose2d(x, w, stride=2))
