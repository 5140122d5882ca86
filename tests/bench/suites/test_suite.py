"""Suites: the parser, and sizes that add up to the published networks."""

from math import prod

import pytest

from convref.errors import ConvrefError
from convref.ops import FAMILY
from convref_bench.suites import suite

# Parameters as published, without the classifier; a norm counts two per channel.
PUBLISHED = {
    "resnet50": 25_557_032 - 2_049_000,
    "mobilenet_v3_large": 5_483_032 - 2_511_080,
    "efficientnet_b0": 5_288_548 - 1_281_000,
    "yolo11n": 2_624_080 - 16,
}


def parameters(layers):
    """Weights and biases of convolutions; one without bias has a norm of two."""
    count = 0
    for layer in layers:
        problem = layer.problem(1)
        count += layer.times * (prod(problem.shape("w")) + problem.k * (1 if problem.bias else 2))
    return count


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name):
    assert parameters(suite.load(name)) == PUBLISHED[name]


def test_convnext_has_the_published_parameters():
    widths, depths = (96, 192, 384, 768), (3, 3, 9, 3)
    norms = 2 * (96 + 96 + 192 + 384 + 768) + sum(3 * w * d for w, d in zip(widths, depths))
    head = 768 * 1000 + 1000
    assert parameters(suite.load("convnext_tiny")) == 28_589_128 - head - norms


# Norms of the published networks, resizing layers, and pools.
COUNTS = {
    "resnet50": {"batch_norm": 53, "max_pool": 1, "adaptive_avg_pool": 1},
    "mobilenet_v3_large": {"batch_norm": 46, "adaptive_avg_pool": 9},
    "efficientnet_b0": {"batch_norm": 49, "adaptive_avg_pool": 17},
    "convnext_tiny": {"layer_norm": 22},
    "sd_unet": {"group_norm": 61, "resize": 3},
    "sd_vae_decoder": {"group_norm": 30, "resize": 3},
    "yolo11n": {"batch_norm": 81, "max_pool": 3, "resize": 2},
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_other_layers(name):
    for op, count in COUNTS[name].items():
        assert sum(layer.times for layer in suite.load(name, (op,))) == count


@pytest.mark.parametrize("name", suite.names())
def test_every_layer_is_a_problem_at_every_batch(name):
    for layer in suite.load(name, tuple(FAMILY)):
        assert layer.problem(3).n == 3 * layer.problem(1).n
        for pass_ in layer.passes():
            call = layer.call(pass_, 2, layer.keys("dt=bf16:mem=nhwc"))
            assert str(call).startswith(f"{layer.op}.{pass_}:n{2 * layer.problem(1).n}c")


def test_shapes_are_unique_and_heavy_layers_come_first():
    layers = suite.by_weight(suite.load("resnet50"))
    assert sum(layer.times for layer in layers) == 53
    assert layers[0].times * layers[0].problem(1).macs("y") >= layers[-1].problem(1).macs("y")
    assert len({layer.template for layer in layers}) == len(layers)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conv:nNc1k1_i3_f1 3 a", r"suite x, line 1: .* needs LINE \*TIMES NAME"),
        ("conv:n4c1k1_i3_f1 *3 a", "needs LINE"),
        ("conv:nNc1k1_i3_f1 *0 a", "needs LINE"),
        ("\n# c\nconv:nNc1k1_i3_f5 *1 a", "line 3: conv: output Q is -1"),
        ("conv:nNc1k1_i3_f1 *1 a\nconv:nNc1k1_i3_f1 *1 b", "line 2: repeats a"),
    ],
)
def test_message_names_the_wrong_line(text, says):
    with pytest.raises(ConvrefError, match=says):
        suite.read(text, "x")


def test_an_unknown_suite_lists_the_known_ones():
    with pytest.raises(ConvrefError, match=r"needs convnext_tiny, .*resnet50"):
        suite.load("alexnet")
