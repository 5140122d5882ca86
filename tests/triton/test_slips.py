"""Wrong lines in a copy of a kernel's file, each of which the judge must find.

Every slip is run in the strict interpreter, and under the nightly profile as PTX too.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from forced import facts, judged

from convref.case import parse
from convref.conformance.operands import operands

pytest.importorskip("triton", reason="triton is not installed")

from convref_ptx import Fault
from convref_triton import emulated
from convref_triton.activation import activation
from convref_triton.conv import (
    blocks,
    blocks_wgrad,
    classes,
    columns,
    gather,
    integer,
    planes,
    planes_wgrad,
    scaled,
)
from convref_triton.depthwise import depthwise_strided, depthwise_taps, depthwise_wgrad
from convref_triton.interpreter import StrictError
from convref_triton.norm import norm, rows
from convref_triton.plan.builder import NEW, Builder
from convref_triton.plan.choose import tasks
from convref_triton.pool import backward, forward, pool, powers, unpool
from convref_triton.resize import resize, table
from convref_triton.run import interpreted

# fmt: off
# By file: a line, what is replaced, the wrong text.
POWERS = (
    ("lp_pool.fprop:n2c5_i9_f3:norm=1.5:fill=normal", "tl.sqrt_rn(v) if", "v if"),
    ("lp_pool.fprop:n2c5_i9_f3:norm=3.0:fill=normal", "tl.log2(s) * (2.0", "tl.log2(s) * (1.0"),
    ("lp_pool.jvp:n2c5_i9_f3:norm=3.0:fill=normal", "v < 0.0, -1.0", "v < 0.0, 1.0"),
    ("lp_pool.backward:n2c5_i9_f3:norm=3.0:fill=normal", "(y, TWICE - 2)", "(y, TWICE)"),
)
INTEGER = (
    ("conv_integer.fprop:n1c5k7_i9_f3_p1:dt=u8:xz=3", "in_c, x_zero, SHIFT", "in_c, 0, SHIFT"),
    ("conv_integer.fprop:n1c5k7_i9_f3:dt=i8:xz=3", "first - of_w", "first + of_w"),
    ("conv_integer.fprop:n1c5k7_i9_f3:dt=i8", "acc -= of_x", "acc += of_x"),
    ("quantized_conv.fprop:n2c16k7_i9_f3:dt=i8", "(v + 12582912.0) - 12582912.0", "v"),
    ("quantized_conv.fprop:n1c5k7_i9_f3:dt=i8:yz=3", "v += y_zero", "v -= y_zero"),
    ("conv_integer.fprop:n1c5k7_i9_f3:dt=u8:fill=wide", "(values ^ SHIFT)", "values"),
)
ONCE = (
    ("batch_norm.fprop:n3c5_i9x8:fill=normal", "0, total, VEC, BM, BN)", "0, 1, VEC, BM, BN)"),
    ("batch_norm.fprop:n3c5_i9x8:fill=normal", "(value.to(tl.float32) - m) * r", "value * r"),
)
SCALED = (
    ("scaled_conv.fprop:n1c40k7_i9_f3_p1:dt=e4m3", "acc += tl.dot(a, b,", "acc = tl.dot(a, b,"),
    ("scaled_conv.fprop:n1c4k6g2_i9_f3:dt=e5m2", "where = group * K + outs,", "where = outs,"),
    ("scaled_conv.fprop:n1c4k6_i9_f3:out=bf16:dt=e5m2", "on_x &= (c + cols < C)[None, :]", ""),
)
SCALES = (
    ("scaled_conv.fprop:n1c4k6_i9_f3:dt=e4m3", "shift=task.added", "bias=task.added"),
    ("scaled_conv.fprop:n1c4k6_i9_f3:dt=e4m3:mem=b.step2o", "shift=task.added", "shift=None"),
)
NORMS = (
    ("lp_pool.backward:n2c5_i9x8_f2x2_s3:fill=normal", "value, seen | on", "value, seen"),
    ("lp_pool.backward:n2c5_i9_f3:fill=normal", "total * slope(at,", "total * at * slope(at,"),
)
UNPOOL = (
    ("max_unpool.fprop:n2c3_i4x5_o9x8", "real & (found >= 0)", "real & (found > 0)"),
    ("max_unpool.fprop:n1c2_i150_o301", "range(first, L, BL)", "range(first, L - BL, BL)"),
    ("max_unpool.fprop:n1c2_i150_o301", "start + BM - 1, 0", "start, 0"),
    ("max_unpool.backward:n2c5_i4x5_o4x5", "(want >= 0), want", "(want > 0), want"),
    ("max_unpool.backward:n2c5_i4x5_o9x8:mem=nhwc", "i * C + c if LAST", "i * C + c if not LAST"),
)
TABLE = (
    ("resize.fprop:n2c3_i9x6_o4x13:mode=cubic:fill=normal", "begin + w * results", "begin + w"),
    ("resize.fprop:n2c3_i9x6_o4x13:aa=1:xo=1:fill=normal", "share = weight * tl", "share = tl"),
    ("resize.backward:n2c3_i9x6_o4x9:mode=cubic:fill=normal", "(columns if b", "(columns if not b"),
    ("resize.fprop:n2c3_i9_o4:mode=cubic:fill=normal", "value * share", "value + share"),
)
ROWS = (
    ("layer_norm.fprop:n3c5_i1", "tl.where(on, value - m[:, None], 0.0)", "value - m[:, None]"),
    ("layer_norm.fprop:n3c5_i1:fill=ones", "square / C + eps", "square / C"),
    ("layer_norm.fprop:n3c5_i1", "m /= C", "m /= BN"),
    ("rms_norm.fprop:n3c5_i4", "z *= tl.load(w + c,", "z += tl.load(w + c,"),
    ("layer_norm.backward:n3c5_i4:mask=100", "g - level[:, None] - z", "g - z"),
    ("rms_norm.backward:n3c5_i4:mask=10", "- z * along[:, None]", ""),
    ("layer_norm.backward:n3c5_i4:mask=100", "level / C, along / C", "level / C, along / BN"),
    ("layer_norm.backward:n9c5_i4:mask=011", "with_z += g * z", "with_z += g"),
    ("layer_norm.backward:n9c5_i4:mask=001", "to + C, tl.sum(plain", "to + C, tl.max(plain"),
    ("softmax.fprop:n3c5_i1:fill=normal:seed=1", 'C, float("-inf"))', "C, 0.0)"),
    ("softmax.fprop:n4c4000_i1:fill=normal", "new, 1.0, tl.exp(top - base)", "new, 1.0, 1.0"),
    ("log_softmax.fprop:n3c5_i1:fill=normal", "off - tl.log(total)", "off - tl.log2(total)"),
    ("softmax.backward:n3c5_i1:fill=normal", "y * (g - summed[:, None])", "y * g"),
    ("log_softmax.backward:n3c5_i1:fill=normal", "g - y * summed[:, None]", "g - y"),
)
ACTIVATION = (
    ("leaky_relu.fprop:n2c24_i9:slope=0.25", "v, v * slope", "v, v * 0.01"),
    ("leaky_relu.backward:n2c24_i9:slope=0.25", "1.0, slope)", "slope, slope)"),
    ("silu.backward:n2c24_i9:fill=normal", "v * sigmoid(-v))", "v * sigmoid(v))"),
    ("sigmoid.fprop:n2c24_i9:fill=normal", "1.0 / (1.0 + exp(-v))", "1.0 / (1.0 + exp(v))"),
    ("sigmoid.fprop:n2c24_i9:fill=wide", " - n * 1.4286068203094173e-06", ""),
    ("sigmoid.backward:n2c24_i9:fill=normal", "sigmoid(v) * sigmoid(-v)", "sigmoid(v)"),
    ("relu.backward:n2c24_i9:fill=ties", "v <= 0.0, 0.0, g", "v < 0.0, 0.0, g"),
    ("hardswish.backward:n2c24_i9:fill=normal", "v >= 3.0, 1.0", "v >= 1.0, 1.0"),
    ("relu.fprop:n2c24_i9", "element_ty), at < N * VEC)", "element_ty), at < N)"),
)
BLOCKS = (
    ("conv.fprop:n1c48k96g8_i5_f3:dt=bf16:fill=inf", ">= 0x7F800000", "< 0"),
    ("conv.fprop:n1c48k96g8_i5_f3:dt=bf16:fill=nan", "low = group * each_c", "low = 0"),
    ("conv.fprop:n1c16k16g8_i20_f1:dt=f16:fill=inf", "low + each_c,", "low + each_c + 1,"),
    ("conv.fprop:n1c48k96g8_i5_f3:dt=bf16:fill=inf", "each_k + each_k)", "each_k + 1)"),
    ("conv.dgrad:n1c48k96g8_i5_f3:dt=f16:fill=inf", "range(groups)", "range(groups - 1)"),
    ("conv.fprop:n1c96k192g24_i5_f1:dt=f16", "from_w = block * group_w", "from_w = 0 * group_w"),
)
BLOCKS_WGRAD = (
    ("conv.wgrad:n1c48k96g8_i5_f3:dt=bf16", "(group[:, None] == group_c[None, :])", "True"),
    ("conv.wgrad:n1c27k36g9_i5_f3:dt=bf16", "c % each_c * w_c", "c * w_c"),
    ("conv.wgrad:n1c70k70g14_i5_f3:dt=bf16", "first_group + together, groups)", "16, 16)"),
    ("conv.wgrad:n1c70k70g14_i5_f3:dt=bf16", "(k * w_k)", "(k % BM * w_k)"),
    ("conv.wgrad:n1c27k36g9_i5_f3:dt=bf16", "column % (wide_c * RUN)", "column % (each_c * RUN)"),
    ("conv.wgrad:n1c104k104g13_i5_f3:dt=bf16", "from_k + wide_k, K) * RUN", "K, wide_k) * RUN"),
    ("conv.wgrad:n1c104k104g13_i5_f3:dt=bf16", "from_c * RUN + column", "column"),
)
CLASSES = (
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16:fill=inf", ">= 0x7F800000", "< 0"),
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16", "- before[1]", ""),
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16", ", s + column[1], FILTER", ", 0, FILTER"),
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16", "below(at[1] - u_w, sizes[1])", "real"),
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16:fill=inf", ", s + e[1], FILTER", ", 0, FILTER"),
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16:fill=inf", "(outs // C == e)", "(outs // C == 0)"),
    ("conv.dgrad:n1c3k16_i9_f3_s2_p1:dt=bf16", "& (v < W)", ""),
    ("conv.dgrad:n1c3k24_i9x6_f3x3_s2_p1:dt=bf16", "turn = first >= K", "turn = first >= 0"),
)
COLUMNS = (
    ("conv.fprop:n1c16k104_i5_f3:dt=bf16", "+ 2 * LESS + tl", "+ LESS + tl"),
    ("conv.fprop:n1c16k200_i150_f1:dt=bf16", "tl.cdiv(M, BM), tl", "1, tl"),
    ("conv.fprop:n1c72k96_i5_f3:dt=bf16", "on_more &= inside[:, None]", "pass"),
    ("conv.dgrad:n1c104k16_i9_f3_s2_p1:dt=bf16", " + first[2] * w_s", ""),
    ("conv.fprop:n1c16k104_i5_f3:dt=bf16", "more < K, C", "more < 0, C"),
)
PLANES = (
    ("conv.fprop:n2c16k24_i9_f3:dt=bf16", "image, within = tile_m", "image, within = 0 * tile_m"),
    ("conv.fprop:n2c16k24_i9_f3:dt=bf16", "(top + image) * image_x", "top * image_x"),
    ("conv.fprop:n1c16k24_i150_f1:dt=bf16", "real = rows < M", "real = rows < M - 1"),
    ("conv.fprop:n1c16k48g2_i9_f3:dt=bf16", "channel, inside = group * K", "channel, inside = 0"),
    ("conv.fprop:n2c16k24_i9x7_f1x1:dt=f16", "prod(y.shape[1:]) // plane", "pixels // plane"),
    ("conv.fprop:n1c16k24_i9_f3:flip=1:dt=bf16", "group * group_w + w_0", "group * group_w"),
    ("conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16", "x_c = image * image_x", "x_c = 0 * image_x"),
    ("conv.fprop:n2c16k24_i4x8_f1x1:dt=bf16", "group_x, x_c * VEC[0]", "group_x, x_c"),
    ("conv.dgrad:n1c16k48g2_i20_f1:dt=f16", "x_c * task.channels[0], x_c", "x_c, x_c"),
    ("conv.fprop:n2c16k24_i4x8_f1x1:dt=f16:mem=x.step2w", "merged[3][1] != 1 or", ""),
    ("conv.fprop:n2c16k24_i4x8_f3x3_p1:dt=bf16", "if geometry.pointwise else ()", ""),
    ("conv.fprop:n2c72k24_i4x8_f1x1:math=tf32", "acc += tl.dot", "acc = tl.dot"),
    ("conv.fprop:n2c72k24_i7x7_f1x1:fill=normal", "precision=PRECISION", 'precision="tf32"'),
    ("conv.dgrad:n2c72k20_i7x7_f1x1:math=tf32", "on_x &= (c + cols < C)[None, :]", "pass"),
)
DEPTHWISE_STRIDED = (
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2_p1:mem=nhwc", "left - j * x_w", "left + j * x_w"),
    ("conv.dgrad:n2c9k9g9_i9x7_f5x5_s2_p1:mem=nhwc", "(A + r // DOWN)", "(A - r // DOWN)"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2_p1:mem=nhwc", "row[pair * MET_W + s // SIDE]", "row[0]"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s3x2_p1:mem=nhwc", "SIDE + s % SIDE]", "SIDE]"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2_p1:mem=nhwc", "i = begin - (MET_H - 1)", "i = begin"),
    ("conv.dgrad:n1c9k9g9_i61x3_f3x3_s2_p1:mem=nhwc", "(up < height)", "(up < height - 1)"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2_p1:mem=nhwc", "below(q + s, W)[:, None]", "(on_p == on_p)"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2_p1:mem=nhwc", "v * SIDE - lo_w", "v * SIDE"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2_p3:mem=nhwc", "first_u + u * height", "u * height"),
    ("conv.dgrad:n2c9k9g9_i9x7_f3x3_s2:mem=nhwc", "tl.zeros((BM, BK), tl.float32), (", "total, ("),
)
PLANES_WGRAD = (
    ("conv.wgrad:n3c15k70_i14x14_f1x1:dt=f16", "n * b_n + (index", "n * a_n + (index"),
    ("conv.wgrad:n3c15k70_i14x14_f1x1:dt=bf16", "index - n * P", "index"),
    ("conv.wgrad:n1c16k24_i4x5_f1x1:dt=bf16:fill=inf", "(index < end)", "(index < end + 1)"),
    ("conv.wgrad:n4c40k24_i40x40_f1x1:dt=bf16", "begin = first - top * P", "begin = first"),
    ("conv.wgrad:n4c40k24_i40x40_f1x1:dt=bf16", "steps * (BK // RUN)", "steps * BK"),
    ("conv.wgrad:n4c40k24_i40x40_f1x1:dt=bf16", "split.to(tl.int64) * w_z", "0 * w_z"),
    ("conv.wgrad:n2c32k48g2_i4x4_f1x1:dt=f16", "+ group * w_g", ""),
    ("conv.wgrad:n2c32k48g2_i4x4_f1x1:dt=f16", "c * channels // run", "c // run"),
    ("conv.wgrad:n2c15k70_i4x4_f1x1:dt=bf16", "if a is sides", "if a is not sides"),
    ("conv.wgrad:n2c15k70_i4x4_f1x1:dt=bf16", "on_b &= (j < columns)[None, :]", "pass"),
    ("conv.wgrad:n3c15k70_i7x7_f1x1:fill=normal", "precision=PRECISION", 'precision="tf32"'),
    ("conv.wgrad:n3c15k70_i7x7_f1x1:math=tf32", "n * a_n + (index", "n * b_n + (index"),
)
PIXELS = (("conv.wgrad:n2c8k9_i28_f1:dt=f16:mem=x.step2c,dy.step2c", "pixels, *steps", "*steps"),)
DEPTHWISE_TAPS = (
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "c + k, d + l", "c, d + l"),
    ("conv.wgrad:n2c9k9g9_i5x31_f5x5_p1:mem=nhwc", "sums[8 * i : 8 * i + 8]", "sums[:8]"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "values[i + 2 **", "values[i + 0 * 2 **"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "known & (p + i < P)", "known"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "x = -1 - m", "x = -m"),
    ("conv.wgrad:n2c9k9g9_i6x30_f3x3_s2_p1:mem=nhwc", "also = below(i_w + far, W)", "also = known"),
    ("conv.wgrad:n2c9k9g9_i5x31_f13x9_p6x4:mem=nhwc", "& (r_0 + j // S < TAPS[1])", ""),
)
DEPTHWISE_WGRAD = (
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "known & (p + i < P)", "known"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "x = -1 - m", "x = -m"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "below(q + x, Q)", "known"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "kept = small[:", "kept = kept[:"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "big[i * DOWN + r]", "big[r]"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_s2_p1:mem=nhwc", "s % EVERY == FIRST", "True"),
    ("conv.wgrad:n2c9k9g9_i6x30_f3x3_s2_p1:mem=nhwc", "also = below(i_w + far, W)", "also = known"),
    ("conv.wgrad:n2c9k9g9_i5x31_f3x3_p1:mem=nhwc", "values[i + 2 **", "values[i + 0 * 2 **"),
    ("conv.wgrad:n2c9k9g9_i5x31_f13x9_p6x4:mem=nhwc", "& (r_0 + j // S < TAPS[1])", ""),
)
# fmt: on
SLIPS = [
    (files, *slip)
    for *files, slips in (
        (rows, ROWS),
        (activation, ACTIVATION),
        (blocks, BLOCKS),
        (blocks_wgrad, BLOCKS_WGRAD),
        (classes, CLASSES),
        (columns, COLUMNS),
        (planes, PLANES),
        (depthwise_strided, DEPTHWISE_STRIDED),
        (planes_wgrad, PLANES_WGRAD),
        (planes, planes_wgrad, PIXELS),
        (depthwise_taps, DEPTHWISE_TAPS),
        (depthwise_wgrad, DEPTHWISE_WGRAD),
        (powers, forward, backward, pool, POWERS),
        (backward, pool, NORMS),
        (norm, ONCE),
        (integer, INTEGER),
        (gather, scaled, SCALED),
        (scaled, SCALES),
        (unpool, UNPOOL),
        (table, resize, TABLE),
    )
    for slip in slips
]
IDS = [f"{files[0].__name__.rpartition('.')[2]}-{wrong}" for files, _, _, wrong in SLIPS]


def copied(files, folder, monkeypatch, old="", new=""):
    """Return the last of several files; in the first `old` is replaced by `new`.

    The others import the first, so they are copied too.
    """
    text = Path(files[0].__file__).read_text("utf-8")
    assert old in text, "the slip names text that no longer exists"
    texts = [text.replace(old, new), *(Path(f.__file__).read_text("utf-8") for f in files[1:])]
    names = [file.__name__.rpartition(".")[2] for file in files]
    for file, name, text in zip(files, names, texts):
        for other in names:
            text = text.replace(f"from .{other} import", f"from .slipped_{other} import")
        path = folder / f"slipped_{name}.py"
        path.write_text(text, "utf-8")
        spec = spec_from_file_location(f"{file.__package__}.slipped_{name}", path)
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    return module


def found(file, line, run):
    """Return the verdict on a line, or the fault that the interpreter reports."""
    case = parse(line)
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    builder = Builder(case.call, known)
    (task,) = tasks(builder)
    assert file.SPEC.refusal(task) is None
    file.SPEC.add(task, file.SPEC.tiles(task)[0])
    try:
        results = run(builder.plan(), tensors).items()
        return judged(case, arrays, {n.removesuffix(NEW): t for n, t in results}).kind
    except (StrictError, Fault) as error:
        return str(error)


@pytest.mark.parametrize("slip", SLIPS, ids=IDS)
def test_a_wrong_line_is_found(slip, tmp_path, monkeypatch):
    files, line, old, new = slip
    assert found(files[-1], line, interpreted.run) == "pass"
    assert found(copied(files, tmp_path, monkeypatch, old, new), line, interpreted.run) != "pass"


@pytest.mark.nightly(reason="a compilation for each")
@pytest.mark.parametrize("slip", SLIPS, ids=IDS)
def test_a_wrong_line_is_found_in_its_ptx(slip, tmp_path, monkeypatch):
    files, line, old, new = slip
    assert found(copied(files, tmp_path, monkeypatch, old, new), line, emulated.run) != "pass"
