"""Seeded faults: each fails on lines that the unchanged kernels pass."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convref import parse
from convref.conformance.examine import examine
from convref_mojo import backend as module
from convref_mojo import build

TESTS = Path(__file__).parent
LINES = (
    "conv.fprop:n2c20k40_i9x10_f3x2_s2x1_p1,0x1,2:mem=nhwc",
    "conv.fprop:n2c20k40_i9x10_f3x2_s2x1_p1,0x1,2",
    "conv.fprop:n1c70k33_i9x8_f5_p2:mem=nhwc:fill=normal",
    "conv.fprop:n1c70k33_i90x3_f5_p2:mem=nhwc",  # lines too short for padding
    "conv.fprop:n1c70k300_i7x3_f5_p2:mem=nhwc",  # the same in one block
    "conv.fprop:n1c900k20_i3x3_f3x3_p1",  # one block of rows, several of depth
    "conv.backward:n2c33k20_i9x10_f3x2_s2x1_p1,0x1,2_d1x2:mem=nhwc",
    "conv.backward:n1c18k35_i9x40_f3x2_p1:flip=1",
    "conv.backward:n1c20k20g20_i8x9_f3_p1:mem=nhwc",  # four windows end at the edge
    "conv.jvp:n1c9k7_i5x4x6_f3_p1:t=1:dt=bf16",
    "conv.wgrad:n3c17k16_i12x11_f3_p1:mem=nhwc:dt=bf16:fill=normal",
    "conv.wgrad:n2c32k20_i9x10_f3_p1:mem=nhwc",  # more windows than are packed at a time
    "conv.wgrad:n1c32k300_i5x4_f1:mem=nhwc",  # more channels than a block has rows
    "conv.wgrad:n1c6k34g2_i33x40_f3_p1:mem=nhwc",  # few blocks, so slices of the lines
    "conv.wgrad:n1c6k34g2_i33x40_f3_p1",
    "conv.wgrad:n1c33k20_i40x40_f3_p1:mem=nhwc:dt=bf16",  # patches of a few lines
    "conv.jvp:n1c64k20_i600_f3_p1:mem=nwc",  # patches of a part of a line
    "conv.fprop:n1c20k40_i39x120_f3_s2_p1:mem=nhwc",  # patches of a few of many lines
    "conv.fprop:n1c3k16_i9x131_f3_s2_p1:mem=nhwc",  # rows that are read in place
    "conv.jvp:n1c5k20_i9x40_f3_p1_d1x2:mem=nhwc",
    "conv.backward:n2c9k33_i3x4x20_f3_p1",
    "conv.fprop:n2c20k3_i20x41_f3x3_s2x1_p1:mem=nhwc",  # few results
    "conv.jvp:n1c20k2_i5x70_f3x3_p1",
    "conv.fprop:n1c16k3_i6x34_f3:mem=nhwc",  # whose patches end at the edge of the image
    "conv.dgrad:n1c8k257_i3_f1:fill=ones:dt=bf16",  # ties in rounding
    "conv.fprop:n1c80k20g1_i7_f3:fill=nan:dt=bf16",
    "max_pool.fprop:n2c35_i9x10_f3x2_s2x1_p1,0x1,2:mem=nhwc:fill=ties",
    "max_pool.fprop:n1c17_i9x8_f3_p1:mem=nhwc:fill=nan",
    "max_pool.fprop:n1c2_i3_f1_p2",  # windows of padding alone
    "max_pool.backward:n2c35_i9x10_f3_s1_p1_d2x1:mem=nhwc",
    "max_pool.backward:n2c35_i9x10_f5x5_p2:mem=nhwc:fill=normal",  # more positions than compared
    "max_pool.backward:n1c35_i9x10_f2_s4:mem=nhwc:fill=normal",  # the last lines are in no window
    "avg_pool.backward:n1c20_i9x10_f2x4_p1:mem=nhwc:dt=bf16:fill=normal",
    "batch_norm.fprop:n2c35_i3x4:mem=nhwc:fill=normal",
    "batch_norm.backward:n2c3_i2x35:fill=normal",
)


def test_the_right_kernels_pass():
    verdicts = [examine(parse(line), module.backend).verdict for line in LINES]
    assert verdicts == ["pass"] * len(LINES)


# (file, its text, the faulty text)
FAULTS = (
    ("windows.mojo", "x + run.taps <= g.x.size", "x + run.taps <= g.x.size + 1"),
    ("windows.mojo", "g.y.has(window.y + run.y)", "True"),
    ("windows.mojo", "window.place += g.small.x\n", "window.place += 1\n"),
    ("windows.mojo", "tap = Tap(g, begin + done)", "tap = Tap(g, done)"),
    ("tile.mojo", "if fresh else", "if True else"),
    ("tile.mojo", "min(left, runs.length)", "runs.length"),
    ("tile.mojo", "line * p.b_line", "0"),
    ("gather.mojo", "chunk * MR * CHUNK\n    var", "chunk * CHUNK\n    var"),
    ("gather.mojo", "begin * vectors * W", "begin * width"),
    ("gather.mojo", "clear[wide[T]](there.unsafe_offset(columns), line - columns)", "pass"),
    ("gather.mojo", "columns == vectors * W", "True"),
    ("gather.mojo", "Tap(g, begin + done)", "Tap(g, done)"),
    ("windows.mojo", " + tap.c * self.channel", ""),
    ("correlate.mojo", "            fresh = False\n", ""),
    ("correlate.mojo", "last and T == A", "T == A"),
    ("correlate.mojo", " + o.first * g.filter.result\n", "\n"),
    ("padded.mojo", "min(s.pixels, g.x.size - x)", "min(s.pixels, g.x.size - x + 1)"),
    ("padded.mojo", "min(max(0, -x), s.pixels)", "0"),
    ("padded.mojo", "s * g.x.tap_step * g.channels", "s * g.channels"),
    ("padded.mojo", "var left = x * across", "var left = x"),
    ("padded.mojo", "patch.y * g.y.step", "patch.y"),
    ("padded.mojo", "g.z.has(z) and", "True and"),
    ("gather_padded.mojo", "line * g.y.step * s.line", "line * s.line"),
    ("gather_padded.mojo", "patch.y + line, patch.x)", "patch.y + line, 0)"),
    ("gather_padded.mojo", "y * p.lines)", "y)"),
    ("gather_padded.mojo", "runs.starts += g.depth() // s.run * 8", "pass"),
    ("padded.mojo", "g.y.has_all(self.y, self.lines)", "True"),
    ("windows.mojo", "first + self.reach(count) <= self.size", "True"),
    ("gather_planar.mojo", "                fresh = False\n", ""),
    ("gather_planar.mojo", "place + j * g.small.x", "place"),
    ("gather_planar.mojo", "+ line * g.y.step)", "+ line)"),
    ("gather_planar.mojo", "g.channels * W", "W"),
    ("padded.mojo", "clear[wide[T]](row.unsafe_offset(right)", "clear[wide[T]](row"),
    ("padded.mojo", "many <= W and i + W <= s.pixels else 0", "many <= W else 0"),
    ("correlate_padded.mojo", "            fresh = False\n", ""),
    ("correlate_padded.mojo", "min(p.lines, end - line)", "p.lines"),
    ("correlate_padded.mojo", "range(1, p.slices)", "range(2, p.slices)"),
    ("correlate_padded.mojo", "contiguous and count == W", "count == W"),
    ("correlate_padded.mojo", "min(tall, s.run - i)", "tall"),
    ("simd.mojo", "i + c * channel)", "i + c)"),
    ("simd.mojo", " + square * channel)", ")"),
    ("correlate.mojo", "g.filter.offset(tap) != start + j", "False"),
    ("correlate.mojo", "rows - tile * MR >= PITCH", "False"),
    (
        "depthwise.mojo",
        "tap[unsafe_offset=1] = k * g.groups",
        "tap[unsafe_offset=1] = found * g.groups",
    ),
    (
        "depthwise.mojo",
        "g.x.reach(NEIGHBOURS) <= g.x.size",
        "g.x.reach(NEIGHBOURS) <= g.x.size + 1",
    ),
    ("simd.mojo", "+ 0x7FFF + ((bits >> 16) & 1)", "+ 0x8000"),
    ("simd.mojo", "if count % W != 0:", "if count % W > 1:"),
    ("norm.mojo", "first[].reduce_add() + rest_first[][0]", "first[].reduce_add()"),
    ("norm.mojo", "= u.fma(z, second", "= u.fma(u, second"),
    ("norm.mojo", "(1 - share) * of_mean", "share * of_mean"),
    ("passes/norm.mojo", "                merges = False\n", "                pass\n"),
    ("passes/norm.mojo", "(channels + p.block - 1)", "channels"),
    ("passes/conv.mojo", "return last, -period", "return first, period"),
    ("passes/conv.mojo", "taps - 1 - first if flip", "taps - first if flip"),
    ("passes/sizes.mojo", "pixel = channels if", "pixel = 2 if"),
    ("passes/conv.mojo", "axis.shift = -self.low", "axis.shift = 1 - self.low"),
    ("passes/conv.mojo", "axis.count = self.small", "axis.count = max(1, self.small - 1)"),
    ("passes/conv.mojo", "axis.size = self.big", "axis.size = self.big - 1"),
    ("passes/pool.mojo", "self.big + self.high)", "self.big)"),
    ("passes/pool.mojo", "reads.count = count", "reads.count = max(1, count)"),
    ("passes/pool.mojo", "to.dilation = self.dilation", "to.dilation = 1"),
    ("passes/sizes.mojo", "to.y = row[unsafe_offset=3]", "to.y = row[unsafe_offset=2]"),
    ("passes/conv.mojo", "big = row[unsafe_offset=1]", "big = row[]"),
    ("norm.mojo", "constant[unsafe_offset=v] -= scale", "constant[unsafe_offset=v] += scale"),
    ("pool.mojo", "value.gt(found", "value.ge(found"),
    ("pool.mojo", "~value.eq(value)", "value.ne(value)"),
    (
        "pool.mojo",
        "* pitch + j] += value[j]\n            return",
        "* pitch] += value[j]\n            return",
    ),
    ("pool.mojo", "(read | index.eq(-1)).reduce_and()", "True"),
    ("pool.mojo", "index.eq(UInt32(position))", "index.ge(UInt32(position))"),
    ("pool.mojo", "self.y.at(self.y.count - 1) + 1", "self.y.at(self.y.count - 1)"),
    ("pool.mojo", "unsafe_store[width=W](SIMD[A, W](0))", "unsafe_store[width=W](SIMD[A, W](1))"),
    ("passes/pool.mojo", "readers.step = p - readers.first", "readers.step = 1"),
    ("passes/numpy.mojo", "if strides[unsafe_offset=axis] != self", "if False and 0 != self"),
    ("passes/threads.mojo", "piece // work.pieces", "piece // work.threads"),
    ("pool.mojo", "(z * p.y.size + y) * p.x.size + x))", "(z * p.y.size + y) * p.y.size + x))"),
)
HARMLESS = {  # only unused lanes and rows depend on these
    "clear[wide[T]](there.unsafe_offset(columns), line - columns)",
    "rows - tile * MR >= PITCH",
}


# A process of its own, because a wrong kernel may crash. The tests have operands that no line has.
JUDGE = """
import sys
from convref_mojo import library
loaded = library.load(sys.argv[1])
library.loaded = lambda: loaded
sys.path.insert(0, sys.argv[2])
from convref import parse
from convref.conformance.examine import examine
from convref_mojo.backend import backend, stateless
from test_passes import test_other_operands_of_a_call_need_another_plan
from test_pool import test_an_index_of_another_window_is_added_there
with backend.threads(2):
    for line in sys.argv[3:]:
        for each in (backend, stateless):
            if examine(parse(line), each).verdict != "pass":
                sys.exit(f"found by {line}")
test_other_operands_of_a_call_need_another_plan()
test_an_index_of_another_window_is_added_there()
"""


@pytest.mark.nightly(reason="ten seconds each")
@pytest.mark.parametrize(
    ("file", "right", "wrong"), FAULTS, ids=[fault[1][:30] for fault in FAULTS]
)
def test_an_edited_kernel_fails(file, right, wrong, tmp_path, monkeypatch):
    found = build.compiler()
    if found is None:
        pytest.skip("there is no compiler to build an edited library")
    shutil.copytree(build.SOURCES, tmp_path, dirs_exist_ok=True)
    text = (tmp_path / file).read_text("utf-8")
    assert text.count(right) == 1, "the text to replace is not in the file once"
    (tmp_path / file).write_text(text.replace(right, wrong), "utf-8")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    build.compile_to(tmp_path / "wrong.so", build.variant_of())
    words = [sys.executable, "-c", JUDGE, str(tmp_path / "wrong.so"), str(TESTS), *LINES]
    done = subprocess.run(words, capture_output=True, timeout=300, check=False)
    assert (done.returncode == 0) == (right in HARMLESS), done.stderr[-500:]
