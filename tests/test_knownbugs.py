"""Known bugs: how regions are read, what they contain, and that each is a bug here."""

from __future__ import annotations

import os
from multiprocessing import forkserver

import pytest

from convref import dispatch, knownbugs, parse
from convref.errors import ConvrefError
from convref.knownbugs import known, parse_regions, refusals, regions, shipped

FACTS = {"onednn": "on"}


def contains(terms: str, line: str, facts: dict[str, str] | None = None) -> bool:
    (region,) = parse_regions(f"a | b | {terms} | - | why")
    return region.contains(parse(line), facts)


LINE = (
    "conv.backward:n2c4k6g2_i5x7_f3x2_s1x2_p-1,3x8,8_d1x2:dt=f16"
    ":mem=dy.expandn,x.nhwc.step2w,w.off3"
)


@pytest.mark.parametrize(
    ("terms", "inside"),
    [
        ("op = conv, pass = backward, dt in f16 bf16, math = ieee", True),
        ("dt in f32 bf16", False),
        ("rank = 2, n >= 2, c < 5, k != 7, g <= 2, cg = 2, kg > 2, t = 0, flip = 0", True),
        ("cg = 4", False),
        ("any.s = 2, any.d = 2", True),
        ("any.s = 1, any.d = 2", False),  # on one axis both
        ("h.lo < 0, h.hi = 3, w.lo = 8, w.span = 3", True),
        ("d.lo < 0", False),  # no such axis
        ("all.f >= 2", True),
        ("all.f >= 3", False),
        ("any.lo < 0, any.hi > 0", True),
        ("w.mirror_lo = -6, w.mirror_hi = -6", True),
        ("w.empty_windows >= 1", True),
        ("h.empty_windows >= 1", True),
        ("want.dw = 1, given.dy = 1, given.b = 0", True),
        ("want.y = 1", False),
        ("order.x = nhwc, step.x = 2, expand.dy = n, off.w = 3", True),
        ("order.w != plain", False),
        ("order.any != plain", True),
        ("fill = int", True),
        ("fp.cpu = AVX512", False),
        ("aa = 0, dim = 0, any.rescaled = 0", True),
        ("mode = linear", False),
    ],
)
def test_each_field_is_read(terms, inside):
    assert contains(terms, LINE) is inside


@pytest.mark.parametrize(
    ("terms", "inside"),
    [
        ("mode = nearest, coord = asymmetric, aa = 0", True),
        ("h.ratio = 1, w.ratio = 2", True),
        ("any.rescaled = 1, any.ratio = 1", False),  # the axis that has its own scale doubles
        ("any.rescaled = 1, any.ratio = 2", True),
    ],
)
def test_fields_of_a_resize(terms, inside):
    line = "resize.fprop:n1c1_i4x3_o4x6:mode=nearest:coord=asymmetric:scale=1.0x2.1"
    assert contains(terms, line) is inside
    assert contains("w.ratio = 0", line.replace("x6", "x5"))


def test_switches_of_a_pool():
    line = "avg_pool.fprop:n1c1_i5_f3_s2_p1:ceil=1"
    assert contains("ceil = 1, cip = 1", line)
    assert contains("ceil = 0, cip = 0", line.replace("ceil=1", "cip=0"))
    assert contains("ceil = 0, cip = 0, div = 0, size = 280", LINE)
    assert contains("div = 3, size = 5", line + ":div=3")


def test_terms_with_fields_of_single_families():
    assert contains("near = floor, xo = 0", "resize.fprop:n1c1_i4_o2:mode=nearest:near=floor")
    assert contains("near = float32, xo = 1, red =", "resize.fprop:n1c1_i4_o2:xo=1")
    assert contains("red = sum", "cross_entropy.fprop:n1c2_i1:red=sum")


def test_a_table_of_refusals_says_the_first_reason():
    supports = refusals(
        """
        # what the library has not
        op = conv, any.lo < 0 | crops nothing
        op = conv, g >= 2 | has no groups, or | bars
        """
    )
    reasons = [None, "crops nothing", "has no groups, or | bars", "crops nothing"]
    for tail, reason in zip(("", "_p-1", "g2", "g2_p-1,0"), reasons):
        head, _, padding = tail.partition("_")
        line = f"conv.fprop:n1c2k2{head}_i9_f2" + (f"_{padding}" if padding else "")
        assert supports(parse(line).call) == reason


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("op = conv", "refusals, line 1: has no reason"),
        ("\nop = conv |", "refusals, line 2: has no reason"),
        ("nothing = 3 | why", "nothing is not a field"),
        ("fill = nan | why", "has a term on data or versions"),
        ("n = 1, fp.cpu = x | why", "has a term on data or versions"),
    ],
)
def test_a_malformed_table_of_refusals_names_its_line(text, part):
    with pytest.raises(ConvrefError, match=part):
        refusals(text)


def test_windows_in_padding_are_counted():
    """Windows of two positions: seven end before the image, seven begin behind it."""
    call = "conv.fprop:n1c1k1_i9_f2_p8,8"
    assert contains("w.empty_windows = 14", call)
    assert contains("w.mirror_hi = -7", call)


def test_mirrored_padding_is_that_of_the_gather_that_scatters():
    for line in ("conv.fprop:n1c1k1_i5_f3_s2_p1,0_d2:t=1:op=1", "conv.dgrad:n1c1k1_i9_f3_s2_p1,0"):
        (axis,) = parse(line).call.problem.axes
        lo = next(v for v in range(-9, 9) if contains(f"w.mirror_lo = {v}", line))
        hi = next(v for v in range(-9, 19) if contains(f"w.mirror_hi = {v}", line))
        span = axis.dilation * (axis.taps - 1) + 1
        assert (axis.small - 1) * axis.stride + 1 + lo + hi == axis.big + span - 1


def test_a_call_has_no_data_and_a_backend_without_fingerprint_no_facts():
    case = parse("conv.wgrad:n1c4k4g2_i8x8_f3x3:fill=nan")
    assert known(case, "jax") is not None
    assert known(case.call, "jax") is None
    assert contains("fp.cpu = AVX2", LINE, {"cpu": "AVX2"})
    assert not contains("fp.cpu = AVX2", LINE, {})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a | b | dt = f32 | -", "line 1: known bugs has 4"),
        ("\n# x\na | b | dt ~ f32 | - | n", "line 3: 'dt ~ f32'"),
        ("a | b | weights = 3 | - | n", "weights is not a field"),
        ("a | b | any.n = 3 | - | n", "any.n is not a field"),
        ("a | b | any.__class__ = 3 | - | n", "any.__class__ is not a field"),
        ("a | b | n = many | - | n", "many is not a number for n"),
        ("a | b | n in 1 two | - | n", "is not a number"),
        ("a | b |  | - | n", "is not a term"),
        ("a b | b | n = 1 | - | n", "id is 'a b'"),
        ("../a | b | n = 1 | - | n", "id is '../a'"),
        ("a | b | n = 1 | javascript:alert(1) | n", "link is"),
        ("a | b | n = 1 | - | n\na | b | n = 2 | - | n", "line 2: id a occurs twice"),
        ("a | b | " + ", ".join(["n = 1"] * 33) + " | - | n", "has 33 terms"),
        ("#" * (knownbugs.MAX_BYTES + 1), "MiB"),
        ("\n" * (knownbugs.MAX_LINES + 1), "MiB"),
    ],
)
def test_a_malformed_file_names_its_line(text, part):
    with pytest.raises(ConvrefError) as raised:
        parse_regions(text)
    said = str(raised.value)
    assert part.replace("line 1: known bugs has 4", "line 1: has 4") in said
    assert len(said) < 300


def test_a_term_on_any_axis_is_evaluated_for_every_op():
    lines = ("batch_norm.wgrad:n1c2_i1x2", "relu.fprop:n1c1_i1x1", "resize.fprop:n1c1_i4_o4")
    for name in ("i", "o", "f", "lo", "room", "ratio", "rescaled", "empty_taps"):
        found = [refusals(f"any.{name} = 1 | .")(parse(line).call) for line in lines]
        assert name != "i" or found == [".", ".", None]


def test_raw_bugs_are_known_to_the_court_alone():
    """convref's own rules are applied before torch, so users never meet bugs of raw ATen alone."""
    case = parse("conv.fprop:n1c0k1_i3_f1")
    assert known(case, "torch") is None
    assert known(case, "torch", raw=True).id == "torch-c0-shape"
    assert regions("numpy") == ()


# One or more cases of each region; a segmentation fault depends on the contents of memory.
EXAMPLES = {
    "torch-c0-shape": ("conv.fprop:n1c0k1_i3_f1",),
    "torch-c0-transposed": ("conv.bgrad:n1c0k1_i3_f1:t=1",),
    "torch-k0": ("conv.fprop:n1c1k0_i3_f1",),
    "torch-empty-image": ("conv.fprop:n1c1k1_i0_f1_p1",),
    "torch-jvp-expanded-x": (
        "conv.jvp:n2c1k1_i3_f1:mem=x.expandn:tan=x",
        "silu.jvp:n1c2_i1:mem=x.expandc",
    ),
    "torch-jvp-expanded-w": (
        "conv.jvp:n1c1k2_i3_f1:mem=w.expando:tan=w",
        "layer_norm.jvp:n1c2_i1:mem=w.expandc",
    ),
    "torch-jvp-expanded-b": (
        "conv.jvp:n1c1k2_i3_f1:mem=b.expando:tan=b",
        "layer_norm.jvp:n1c2_i1:mem=b.expandc",
    ),
    "torch-jvp-expanded-k": ("sdpa.jvp:n1c1_i1x2_o1x1:mem=k.expande",),
    "torch-jvp-expanded-v": ("sdpa.jvp:n1c1_i1x1_o1x2:mem=v.expandv",),
    "torch-jvp-expanded-p": ("soft_cross_entropy.jvp:n1c2_i1:mem=p.expandc:fill=ones",),
    "torch-wgrad-order": ("conv.wgrad:n2c2k1_i4x4_f2x1:dt=f16:mem=x.nhwc,w.hwoi",),
    "torch-wgrad-order-native": (
        "conv.backward:n1c12k68g4_i1x1_f7x1_s1x2_p8,8x2,1:mem=x.nhwc.step2w.off3,w.ohwi.expandw.off3",
    ),
    "torch-grouped-order": (
        "conv.fprop:n1c4k2g2_i1x1_f1x2_p0,0x0,1:mem=x.nhwc,w.howi",
        "conv.wgrad:n1c4k2g2_i2x1_f1x1:mem=x.hwnc,w.ohwi",
        "conv.double_backward:n1c4k2g2_i1x1_f2x1_p1,0x0,0:mem=ddw.ohwi.expandw,x.nhwc:tan=w:mask=100",
    ),
    "torch-bf16-conv3d": (
        "conv.fprop:n1c1k1_i1x2x3_f3x2x3_p1x0x0:dt=bf16:mem=x.ndhwc:fill=ones",
        "conv.fprop:n1c1k1_i1x2x3_f3x2x3_p1x0x0:dt=bf16:mem=w.odhwi:fill=ones",
    ),
    "torch-bf16-conv3d-transposed": (
        "conv.dgrad:n1c1k1_i1x1x1_f3x2x3_p1x0x0:t=1:dt=bf16:mem=w.idhwo:fill=ones",
    ),
    "torch-group-norm-mask": ("group_norm.bgrad:n1c1_i2x1:mem=x.nhwc:fill=ones",),
    "torch-batch-norm-order-x": ("batch_norm_eval.dgrad:n1c2_i1x2:mem=x.nwch:seed=2",),
    "torch-batch-norm-order-dy": ("batch_norm.wgrad:n2c2_i1x2:mem=dy.hnwc",),
    "torch-batch-norm-order-xn": ("batch_norm_eval.dgrad:n1c2_i2x2:mem=x.hwnc:seed=2",),
    "torch-batch-norm-order-dyn": ("batch_norm.wgrad:n1c2_i2x2:mem=dy.hwnc",),
    "torch-instance-norm-grad-order": ("instance_norm.bgrad:n1c2_i1x2:mem=dy.nhwc:seed=2",),
    "torch-group-norm-jvp-order": ("group_norm.jvp:n1c2_i1x2:mem=x.nhwc:fill=ones",),
    "torch-batch-norm-f16-second": (
        "batch_norm.double_backward:n1c2_i2:dt=f16:mask=100:fill=impulse",
        "instance_norm.double_backward:n1c2_i2:dt=f16:mask=100:fill=impulse",
    ),
    "torch-group-norm-f16-second": (
        "group_norm.double_backward:n3c6g3_i68:eps=0.5:weight=0:dt=f16:fill=wide:seed=9451",
    ),
    "torch-frozen-norm-mean": ("batch_norm_eval.wgrad:n1c2_i1:mem=rmean.step3c",),
    "torch-frozen-norm-variance": ("batch_norm_eval.dgrad:n1c2_i1:mem=rvar.step3c:fill=ones",),
    "torch-gelu-infinity": (
        "gelu.fprop:n1c1_i32:fill=inf",
        "gelu.jvp:n1c1_i32:dt=bf16:fill=inf",
    ),
    "torch-hardswish-jvp-nan": (
        "hardswish.jvp:n1c1_i1:fill=nan",
        "hardswish.double_backward:n2c3_i22x5:dt=bf16:mem=ddx.nhwc.step3c:fill=nan:seed=19970",
    ),
    "torch-mish-second": (
        "mish.double_backward:n2c6_i7x10:mask=01:fill=wide:seed=60646",
        "mish.double_backward:n1c1_i1:mask=01:fill=shifted",
    ),
    "torch-hardshrink-nan": ("hardshrink.backward:n1c3_i6:fill=nan:seed=6677",),
    "torch-elu-nan": (
        "elu.double_backward:n1c1_i1:mask=10:fill=nan:seed=31412",
        "celu.backward:n1c1_i1:fill=nan:seed=15089",
        "selu.backward:n1c1_i1:fill=nan:seed=9693",
        "hardtanh.jvp:n1c1_i1:fill=nan",
    ),
    "torch-prelu-at-0": (
        "prelu.jvp:n1c1_i1:fill=negzero",
        "prelu.double_backward:n1c1_i1:mask=010:fill=negzero:seed=27332",
    ),
    "torch-f16-second-order": (
        "logsigmoid.double_backward:n1c2_i2x3x36:dt=f16:fill=wide:seed=41019",
        "softplus.double_backward:n1c2_i5:dt=f16:mask=01:fill=wide:seed=52297",
        "celu.double_backward:n1c2_i1:dt=f16:mask=01:fill=wide",
        "selu.double_backward:n1c1_i2:dt=f16:mask=01:fill=wide:seed=3228",
        "silu.double_backward:n1c2_i6:dt=f16:mask=10:fill=wide:seed=19895",
        "softsign.double_backward:n1c3_i2:dt=f16:mask=01:fill=wide:seed=62642",
    ),
    "torch-f16-loss": (
        "nll_loss.double_backward:n1c1_i11:weight=1:dt=f16:fill=wide",
        "cross_entropy.fprop:n1c2_i2:weight=1:dt=f16:fill=wide:seed=38747",
        "soft_cross_entropy.jvp:n1c2_i8:dt=f16:fill=wide:seed=32603",
        "cross_entropy.jvp:n1c2_i4:weight=1:dt=f16:fill=wide:seed=14804",
    ),
    "torch-cross-entropy-ignored": (
        "cross_entropy.double_backward:n1c1_i3x4:weight=1:smooth=1:mask=01:fill=inf:seed=25408",
    ),
    "torch-pool-c0": (
        "adaptive_avg_pool.backward:n1c0_i1_o2:fill=ones",
        "max_unpool.jvp:n2c0_i3x10_o3x11:dt=f16:seed=51105",
    ),
    "torch-max-pool-empty-window": (
        "max_pool.jvp:n1c1_i2x1_f1x2_s2x1_p0x1_d1x2:fill=ones",
        "max_pool.double_backward:n1c1_i1_f2_p1_d2:fill=ones",
    ),
    "torch-unpool-step": (
        "max_unpool.double_backward:n1c2_i2x2_o1x4:mem=indices.step3h:fill=ones",
    ),
    "torch-adaptive-avg-pool3d-sums": (
        "adaptive_avg_pool.jvp:n1c1_i1x1024x1_o2x1x1:dt=f16:fill=shifted",
    ),
    "torch-sdpa-f16": ("sdpa.backward:n1c2_i1x3_o2x3:dt=f16:mask=1000:fill=wide:seed=19430",),
    "torch-unpool-order": ("max_unpool.double_backward:n1c2_i2x2_o2x2:mem=indices.hcwn:fill=ones",),
    "torch-nll-loss-order": ("nll_loss.backward:n1c1_i2x2:mem=x.whcn:fill=ones",),
    "torch-avg-pool3d-padding": (
        "avg_pool.jvp:n1c1_i1x1x1_f1x1x2_p0x0x1:fill=ones",
        "avg_pool.fprop:n1c1_i1x1x1_f1x1x2_p0x0x1:fill=ones",
    ),
    "torch-lp-pool-ceil": ("lp_pool.jvp:n1c1_i1_f2_s2:ceil=1:fill=ones",),
    "torch-lp-pool-at-0": (
        "lp_pool.jvp:n1c1_i2_f1:fill=impulse",
        "lp_pool.double_backward:n1c1_i1_f1:mask=10:fill=negzero",
        "lp_pool.jvp:n1c1_i3_f1:fill=ties",
    ),
    "torch-lp-pool-f16": (
        "lp_pool.fprop:n1c1_i1_f1:dt=f16:fill=wide",
        "lp_pool.backward:n1c1_i1_f1:dt=f16:fill=wide",
    ),
    "torch-lp-pool-f16-second": (
        "lp_pool.double_backward:n1c1_i3x1_f1x1:dt=f16:mask=01:fill=normal",
        "lp_pool.jvp:n1c3_i3_f1:norm=4:dt=f16:fill=normal",
    ),
    "torch-lrn-order": ("local_response_norm.jvp:n1c2_i1x2x2:mem=x.dhcwn:fill=ones",),
    "torch-scaled-f16": (
        "normalize.fprop:n1c1_i2:dt=f16:fill=impulse",
        "local_response_norm.fprop:n1c1_i27:size=3:beta=1:dt=f16:fill=wide:seed=43299",
    ),
    "torch-normalize-at-0": ("normalize.double_backward:n1c5_i2:fill=impulse",),
    "torch-pixel-unshuffle-empty": (
        "pixel_unshuffle.fprop:n1c0_i3x9:r=3",
        "pixel_unshuffle.jvp:n0c1_i2x2",
        "pixel_unshuffle.backward:n1c1_i6x0",
        "pixel_unshuffle.double_backward:n1c0_i2x2",
    ),
    "torch-pixel-shuffle-empty-gradient": (
        "pixel_shuffle.backward:n1c0_i3x9",
        "pixel_shuffle.double_backward:n0c4_i2x2",
    ),
    "torch-resize-uint8-column": ("resize.fprop:n1c5_i3x1_o2x1:dt=u8",),
    "torch-resize-uint8-order": ("resize.fprop:n1c1_i9x1_o5x2:dt=u8:mem=x.cwnh:fill=wide",),
    "torch-resize-scale-uint8": ("resize.fprop:n1c1_i4x1_o4x2:mode=cubic:scale=1.2x4:dt=u8",),
    "torch-resize-antialias-column": ("resize.fprop:n1c1_i3x1_o2x1:aa=1:xo=1",),
    "torch-resize-antialias-corners": (
        "resize.fprop:n1c1_i5x5_o3x3:coord=align_corners:aa=1:xo=1",
    ),
    "torch-resize-scale": (
        "resize.backward:n1c2_i3_o3:scale=1.2:dt=f64:seed=23775",
        "resize.fprop:n1c2_i3_o3:scale=1.2:fill=normal",
    ),
    "torch-resize-scale-antialias": (
        "resize.fprop:n1c1_i3x3_o3x3:aa=1:xo=1:scale=1.2x1.2:fill=normal",
    ),
    "torch-resize-scale-cubic": (
        "resize.backward:n1c1_i3x3_o3x3:mode=cubic:scale=1.2x1.2:fill=normal",
    ),
    "torch-resize-nearest-scale": (
        "resize.backward:n1c1_i4_o8:mode=nearest:coord=asymmetric:scale=2.1",
    ),
    "torch-resize-nearest-scale-2d": (
        "resize.fprop:n1c1_i4x1_o4x1:mode=nearest:coord=asymmetric:scale=1.2x1.2",
        "resize.jvp:n1c1_i4x1_o8x1:mode=nearest:coord=asymmetric:scale=2.1x1.2",
    ),
    "torch-resize-nearest-scale-3d": (
        "resize.fprop:n1c4_i4x2x2_o4x2x2:mode=nearest:coord=asymmetric:scale=1.2x1.2x1.2:mem=ndhwc",
    ),
    "torch-grid-sample-nonfinite": (
        "grid_sample.backward:n1c1_i15x1_o1x2:pad=border:align=1:fill=inf:seed=5666",
    ),
    "torch-bf16-nonfinite": (
        "conv.dgrad:n1c27k3g3_i2_f1_s2_p3,0_d4:flip=1:dt=bf16:fill=inf:seed=44768",
        "conv.backward:n2c4k64g2_i31_f7_d3:dt=bf16:mem=dy.wcn,x.nwc:fill=inf:seed=62007",
    ),
    "onednn-5942": (
        "conv.fprop:n2c1k1_i1x1_f1x1_s1x2_p0x9_d1x2:mem=w.ohwi.step3h:fill=ones",
        "conv.fprop:n1c2k1_i1x1_f1x1_s1x3_p0x2_d1x2:dt=bf16:mem=w.ohwi.step2o:fill=ones",
        "conv.fprop:n2c1k1_i1x1_f2x1_s1x2_p3x9_d1x2:mem=w.ohwi.step2w:fill=ones",
        "conv.fprop:n1c4k2g2_i1_f1_s2_p1_d2:mem=w.owi:fill=ones",
        "conv.fprop:n2c1k1_i3_f1_s4_p41:mem=x.nwc:fill=ones",
        "conv.fprop:n2c1k1_i1_f5_p51_d5:mem=w.owi:fill=ones",
        "conv.double_backward:n1c2k1_i1_f1_s2_p1_d2:dt=bf16:mem=x.nwc:tan=w:mask=100:fill=ones",
    ),
    "onednn-5942-transposed": (
        "conv.double_backward:n1c1k1_i4_f3_s4_p11_d5:t=1:dt=bf16:mem=ddw.iwo:tan=w:mask=100:fill=ones",
    ),
    "xla-48713": ("conv.fprop:n1c8k1_i20_f3_p-5,1:seed=1",),
    "xla-48713-transposed": ("conv.fprop:n1c8k1_i20_f3_p7,1:t=1:seed=1",),
    "xla-48713-gradients": ("conv.wgrad:n8c8k1_i20_f3_p-5,1:seed=1",),
    "xla-48713-padded-gradients": ("conv.dgrad:n1c1k8_i20_f3_p7,1:seed=1",),
    "xla-cropped-image": (
        "conv.fprop:n1c17k1_i1x1_f1x1_p1,-1x0,0",
        "conv.fprop:n1c32k1_i2x25_f1x1_s3x2_p1,-2x0,0_d2",
    ),
    "xla-simplifier": ("conv.fprop:n1c1k1_i6x1_f2x3_s2x1_p1x0_d1x2:t=1",),
    "xla-simplifier-gradients": ("conv.dgrad:n1c1k1_i9x12_f3x2_s2_p1_d4x1",),
    "jax-copy-subnormal": ("relu.jvp:n1c1_i1:fill=subnormal",),
    "jax-relu-nan": ("relu.double_backward:n3c1_i1x6x2:dt=f16:fill=nan:seed=65225",),
    "jax-max-pool-kinds": (
        "max_pool.jvp:n1c2_i5_f1:dt=f16:fill=inf:seed=22746",
        "max_pool.jvp:n1c2_i3_f2:fill=negzero:seed=11282",
    ),
    "jax-resize-nonfinite": ("resize.jvp:n1c1_i4_o1:fill=nan",),
    "jax-f16-overflow": (
        "gelu.backward:n1c16_i15x13:approx=tanh:dt=f16:fill=wide:seed=42136",
        "silu.backward:n1c5_i1x2:dt=f16:fill=wide:seed=13041",
    ),
    "jax-f16-logistic": (
        "sigmoid.fprop:n1c9_i21x18:dt=f16:mem=x.nhwc.off3:fill=wide:seed=28228",
        "silu.fprop:n1c12_i2:dt=f16:fill=wide:seed=49357",
    ),
    "jax-tanh-second": ("tanh.double_backward:n1c1_i1:mask=01:fill=normal:seed=422",),
    "jax-logsigmoid-second": ("logsigmoid.double_backward:n1c1_i1:seed=4",),
    "jax-grouped-nonfinite": ("conv.fprop:n1c2k2g2_i1_f1:dt=f64:fill=nan",),
    "jax-grouped-wgrad-nonfinite": (
        "conv.wgrad:n1c4k4g2_i8x8_f3x3:fill=nan",
        "conv.wgrad:n1c4k2g2_i5_f1_d2:fill=nan:seed=34338",
    ),
    "jax-grouped-second-order-nonfinite": (
        "conv.double_backward:n1c2k4g2_i10x35_f4x1:dt=f64:tan=w:mask=100:fill=inf:seed=63630",
    ),
    "jax-second-order-nonfinite": (
        "conv.double_backward:n1c1k1_i4_f3_s2_p1,2:mask=011:fill=inf:seed=54513",
    ),
    "onnxruntime-qlinear-k0": ("quantized_conv.fprop:n1c1k0_i1_f1:dt=u8:fill=ones",),
    "onnxruntime-c0": ("conv.fprop:n5c0k1_i2_f3_p1,0",),
    "onnxruntime-shrink-f64": ("softshrink.fprop:n2c3_i5:dt=f64:fill=normal",),
    "onnxruntime-shrink-nan": ("softshrink.fprop:n1c1_i1:fill=nan",),
    "onnxruntime-sigmoid": (
        "sigmoid.fprop:n1c1_i1:seed=14671",
        "sigmoid.fprop:n3c1_i4x3:dt=f64:seed=32676",
    ),
    "onnxruntime-log-softmax-nonfinite": ("log_softmax.fprop:n1c1_i2:dim=2:dt=f64:fill=inf",),
    "onnxruntime-hardmax-nan": ("hardmax.fprop:n1c1_i3:dim=2:fill=nan",),
    "onnxruntime-lrn-running-sum": (
        "local_response_norm.fprop:n1c4_i4x3:size=1:fill=wide:seed=18556",
    ),
    "onnxruntime-max-pool-nan": ("max_pool.fprop:n1c1_i2_f2:fill=nan:seed=41948",),
    "onnxruntime-resize-kept-frame": (
        "resize.fprop:n1c1_i4_o4:mode=nearest:coord=tf_crop_and_resize:near=round_prefer_floor:roi=0.25,0.75",
    ),
    "onnxruntime-resize-kept-scale": (
        "resize.fprop:n1c1_i4x2_o4x1:mode=cubic:aa=1:xo=1:scale=1.2x0.5",
        "resize.fprop:n1c1_i4x2_o4x2:scale=1.2x1",
    ),
}
NATIVE = {"torch-wgrad-order-native": "convref.backends.torch:without_onednn"}


def test_every_region_contains_its_examples():
    assert set(EXAMPLES) == {region.id for region in shipped()}
    for region in shipped():
        facts = {"onednn": "off"} if region.id in NATIVE else FACTS
        assert all(region.contains(parse(line), facts) for line in EXAMPLES[region.id])


def sampled(region):
    """Return examples of a region: two of the many, as each crash costs a worker its start."""
    every = EXAMPLES[region]
    nightly = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    return every if nightly else tuple(dict.fromkeys((every[0], every[-1])))


@pytest.fixture(scope="module")
def verdicts():
    """Return the verdict on every example, each backend in worker processes of its own."""
    pytest.importorskip("psutil", reason="needs convref[check]")
    from convref.conformance.causes import run_lines
    from convref.conformance.engine import Engine, Limits

    # The next fork server imports torch once; a crash would cost a worker's own import otherwise.
    forkserver._forkserver._stop()
    found: dict[str, dict[str, str]] = {}
    for name in sorted({region.backend for region in shipped()}, key=lambda name: name != "torch"):
        try:
            dispatch.load(name)
        except ImportError:
            continue
        found[name] = {}
        for target in {NATIVE.get(r.id, name) for r in regions(name)}:
            mine = [r.id for r in regions(name) if NATIVE.get(r.id, name) == target]
            lines = [line for region in mine for line in sampled(region)]
            with Engine(target, limits=Limits(seconds=3.0)) as engine:
                bad = {f.line: f.verdict for f in run_lines(engine, lines)}
            found[name] |= {line: bad.get(line, "pass") for line in lines}
    return found


@pytest.mark.parametrize("region", shipped(), ids=lambda region: region.id)
def test_each_region_is_still_a_bug(region, verdicts):
    if region.backend not in verdicts:
        pytest.skip(f"needs {region.backend}")
    seen = [verdicts[region.backend][line] for line in sampled(region.id)]
    if set(seen) == {"pass"}:
        pytest.skip(f"{region.id} does not show with the installed version on this CPU")
    assert set(seen) <= {"pass", "wrong", "rejects-valid", "crash", "hang", "nondeterministic"}


def test_auto_skips_a_known_bug_with_a_reason():
    pytest.importorskip("torch", reason="needs torch")
    line = "conv.wgrad:n2c2k1_i4x4_f2x1:dt=f16:mem=x.nhwc,w.hwoi"
    plan = dispatch.plan(parse(line).call, "auto", "torch")
    assert plan.backend.name == "numpy"
    assert "known bug torch-wgrad-order" in str(plan)
    beside = parse(line.replace(",w.hwoi", "")).call
    assert dispatch.plan(beside, "auto", "torch").backend.name == "torch"
    assert dispatch.plan(parse(line).call, "torch", "torch").backend.name == "torch"
