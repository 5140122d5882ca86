"""Timing on a CUDA device, rehearsed on CPU tensors with a stub for the card."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from card import Card, eager  # noqa: E402

from convref import dispatch  # noqa: E402
from convref.case import parse  # noqa: E402
from convref_bench import options, records  # noqa: E402
from convref_bench.gpu import arms, cuda, properties, sampled, steps, sums  # noqa: E402
from convref_bench.gpu import runner as gpu  # noqa: E402
from convref_bench.gpu.arms import Absent, arm, geometry, is_symmetric  # noqa: E402
from convref_bench.suites import suite  # noqa: E402
from convref_bench.timing.measure import Stop  # noqa: E402
from convref_bench.timing.point import point  # noqa: E402
from convref_bench.timing.roofline import Roof  # noqa: E402

QUICK = Stop(samples=2, noise=9.0, timeout_s=0.2)
LINE = "conv.fprop:n2c8k6_i9x9_f3x3_s2_p1{}:dt=bf16:mem=nhwc"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine two wait for each other
    yield
    torch.set_num_threads(threads)


Place = cuda.CudaPlace


def place(**more):
    return Place(Card(), QUICK, eager, **more)


def call_of(bias, pass_="fprop"):
    call = parse(LINE.format("" if bias else ":bias=0")).call
    return call if pass_ == "fprop" else parse(LINE.format("").replace("fprop", pass_)).call


POOLS = ("max_pool.{}:n5c6_i9x9_f3x3_s2_p1", "adaptive_avg_pool.{}:n5c6_i7x7_o1x1")
OTHERS = (
    *POOLS,
    "batch_norm.{}:n5c6_i7x7",
    "group_norm.{}:n5c6g3_i7x7",
    "layer_norm.{}:n5c6_i1",
    "resize.{}:n5c6_i4x5_o8x10:mode=nearest:coord=asymmetric",
)


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("pass_", ["fprop", "backward"])
def test_other_ops_are_judged_by_the_oracle_and_timed(line, pass_):
    memory = "" if "layer_norm" in line else ":mem=nhwc"
    number = "" if "norm" in line else ":dt=bf16"  # ATen on a CPU keeps statistics in 16 bits
    call = parse(f"{line.format(pass_)}{number}{memory}").call
    arms = ["torch", "torch.nchw"] if memory else ["torch"]
    found = list(point(place(), call, arms))
    assert [row["what"] for row in found] == ["point"] * len(arms), found
    assert all(0 <= row["judged"] <= 1 for row in found)


@pytest.mark.parametrize("line", POOLS)
def test_a_wrong_image_of_another_op_is_refused(monkeypatch, line):
    direct = arms.direct

    def last_image_is_twice_too_large(call):
        run = direct(call)

        def wrong(*given):
            results = run(*given)
            results[0][-1] *= 2
            return results

        return wrong

    monkeypatch.setattr(arms, "direct", last_image_is_twice_too_large)
    (row,) = point(place(), parse(line.format("fprop")).call, ["torch"])
    assert row["what"] == "refused"
    assert "needs" in row["why"] or "bound" in row["why"]


def test_sample_contains_both_ends_and_is_bounded(monkeypatch):
    monkeypatch.setattr(sampled, "SAMPLED", 3 * 2 * 4)
    call = parse("max_pool.fprop:n9c2_i2x2_f2x2").call
    part, kept = sampled._images(call)
    assert (part.problem.n, kept) == (3, {"n": [0, 4, 8]})
    assert sampled._images(parse("max_pool.fprop:n0c2_i2x2_f2x2").call)[1] == {"n": []}
    part, kept = sampled._groups(parse("group_norm.fprop:n1c12g6_i2x2").call)
    assert (part.problem.c, part.problem.groups) == (6, 3)
    assert kept == {"g": [0, 2, 5], "c": [0, 1, 4, 5, 10, 11]}


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
def test_every_plain_baseline_is_judged_and_timed_in_its_layout(pass_):
    call = call_of(False, pass_)
    names = ["torch", "torch.nchw", "torch.deterministic"]
    found = {row["arm"]: row for row in point(place(), call, names)}
    assert [row["what"] for row in found.values()] == ["point"] * 3
    assert found["torch.nchw"]["how"] == "graph"
    assert found["torch.deterministic"]["flags"]["deterministic"] is True
    assert found["torch"]["flags"] == {
        "math": "ieee",
        "deterministic": False,
        "benchmark_limit": 0,
    }
    for row in found.values():
        assert 0 < row["judged"] <= 1
        assert row["mhz"] == 1000.0
        assert row["copies"] == cuda.copies(call, Card.cache_bytes)


def test_operands_have_the_memory_layout_of_the_arm():
    call = call_of(False)
    given = cuda.operands(call, 0, "cpu")
    assert all(one.is_contiguous(memory_format=torch.channels_last) for one in given)
    assert all(one.is_contiguous() for one in arm("torch.nchw", call).place(given))
    with pytest.raises(Absent, match="has this layout already"):
        arm("torch.nhwc", call)


def test_epilogues_are_judged_and_eager_is_no_reference():
    call = call_of(True)
    names = ["eager+relu", "eager+add_relu", "cudnn+relu"]
    found = {row["arm"]: row for row in point(place(), call, names)}
    assert found["eager+relu"]["what"] == found["eager+add_relu"]["what"] == "point"
    assert "against" not in found["eager+relu"]
    assert found["cudnn+relu"]["what"] == "absent"  # this torch has no CUDA


def test_a_wrong_epilogue_is_refused(monkeypatch):
    without = {"eager": lambda epilogue, geometry: lambda x, w, b: torch.conv2d(x, w, b, 2, 1)}
    monkeypatch.setattr(arms, "FUSED", without)
    (row,) = point(place(), call_of(True), ["eager+relu"])
    assert row["what"] == "refused"
    assert "times its bound" in row["why"]


def test_residual_is_added_and_counted_in_the_bound(monkeypatch):
    lost = {"eager": lambda e, g: lambda x, w, b, z: torch.relu(torch.conv2d(x, w, b, 2, 1))}
    monkeypatch.setattr(arms, "FUSED", lost)
    (row,) = point(place(), call_of(True), ["eager+add_relu"])
    assert row["what"] == "refused"


@pytest.mark.parametrize(
    ("name", "call", "says"),
    [
        ("eager+relu", call_of(False), "with bias"),
        ("eager+relu", call_of(True, "dgrad"), "forward"),
        ("torch+relu", call_of(True), "torch fuses no relu here"),
    ],
)
def test_absent_arms_give_the_reason(name, call, says):
    with pytest.raises(Absent, match=says):
        arm(name, call)


def test_a_backend_fuses_through_its_hook(monkeypatch):
    inner = dispatch.load("torch")

    class Fuses:
        name, supports, numerics = "fuses", inner.supports, inner.numerics

        def fused(self, call, epilogue):
            return lambda x, w, b: torch.relu(torch.conv2d(x, w, b, 2, 1))

    monkeypatch.setattr(dispatch, "load", lambda name: Fuses() if name == "fuses" else inner)
    (row,) = point(place(), call_of(True), ["fuses+relu"])
    assert row["what"] == "point"


def test_torch_compile_times_out():
    with pytest.raises(Absent, match=r"not ready after 0\.05 s"), arms.timebox(0.05):
        time.sleep(5)


def test_flags_are_set_for_a_row_and_restored():
    conv = torch.backends.cudnn.conv
    before = conv.fp32_precision
    with arms.flags("tf32", False):
        assert conv.fp32_precision == "tf32"
    with arms.flags("ieee", True):
        assert conv.fp32_precision == "ieee"
    assert conv.fp32_precision == before
    try:
        conv.fp32_precision, torch.backends.cudnn.fp32_precision = "none", "ieee"
        with arms.flags("tf32", False):
            assert conv.fp32_precision == "tf32"
        torch.backends.cudnn.fp32_precision = "tf32"
        assert conv.fp32_precision == "tf32"  # inherited, as before
    finally:
        torch.backends.cudnn.fp32_precision, conv.fp32_precision = "none", before


@pytest.mark.parametrize("math", ["ieee", "tf32"])
@pytest.mark.parametrize("legacy", [False, True])
def test_legacy_tf32_flag_can_be_read_while_an_arm_is_timed(legacy, math):
    """torch.compile reads it, and raises where the flags of convolutions and RNNs differ."""
    cudnn = torch.backends.cudnn
    before, cudnn.allow_tf32 = cudnn.allow_tf32, legacy
    try:
        with arms.flags(math, False):
            assert cudnn.allow_tf32 == (math == "tf32")
        assert cudnn.allow_tf32 == legacy
    finally:
        cudnn.allow_tf32 = before


class Lost(Card):
    """A card that no longer responds."""

    def settle(self):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("said", ["CUDA error: invalid argument", "fprop: cuLaunchKernelEx: (700)"])
def test_a_lost_device_ends_the_step_and_other_errors_do_not(said, tmp_path):
    def failing(run, sets):
        raise RuntimeError(said)

    child, lost = steps.StepRun(tmp_path / "x", 600), cuda.CudaPlace(Lost(), QUICK, failing)
    layer = suite.load("stress")[0]
    calls = [("net", layer, call_of(False)), ("net", layer, call_of(True))]
    with pytest.raises(RuntimeError, match=re.escape(said)):
        steps.time_points(child, calls, ["torch"], lost)
    (row,) = records.read(child.out)[0]
    assert (row["what"], row["line"]) == ("refused", str(calls[0][2]))
    again = steps.StepRun(tmp_path / "x", 600)
    steps.time_points(again, calls, ["torch"], cuda.CudaPlace(Card(), QUICK, failing))
    (other,) = records.read(child.out)[0][1:]  # the arm that ended the process is left out
    assert (other["what"], other["line"]) == ("absent", str(calls[1][2]))
    assert said in other["why"]


def test_an_arm_that_loses_the_device_is_skipped_and_the_step_continues(rehearsal):
    layer, line = TINY[0], "conv.fprop:n1c4k4_i5x5_f3x3_p1:bias=0:dt=bf16:mem=nhwc"
    calls, bad = [("net", layer, parse(line).call)], "torch.nchw"

    class Losable(Card):
        lost = False

        def settle(self):
            if self.lost:
                raise RuntimeError("CUDA error: misaligned address")

    card = Losable()

    def loses(self, name, *given):
        if name == bad:
            card.lost = True
            raise RuntimeError("CUDA error: misaligned address")
        return judged(self, name, *given)

    judged = Place._judged
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Place, "_judged", loses)
        patch.setattr(cuda, "Cuda", lambda: card)
        patch.setattr(cuda, "CudaPlace", lambda device, **more: Place(device, QUICK, eager, **more))
        patch.setitem(steps.TIMED, "canary", lambda: (calls, ["torch", bad]))
        assert steps.main("canary", rehearsal, 600, "k") == gpu.LOST
        (row,) = records.read(rehearsal)[0]
        assert (row["what"], row["arm"], row["line"]) == ("refused", bad, line), row
        assert row["why"] == "lost the device: RuntimeError: CUDA error: misaligned address"
        card.lost = False
        assert steps.main("canary", rehearsal, 600, "k") == 0  # the next process
    assert [(row["what"], row["arm"]) for row in records.read(rehearsal)[0][1:]] == [
        ("point", "torch")
    ]


def test_an_arm_that_hangs_ends_the_process_and_is_skipped(tmp_path):
    """In a child: the exit status tells a hang from a failure."""
    script = f"""
import time
from pathlib import Path
from convref.case import parse
from convref_bench.gpu import steps
from convref_bench.timing import watch
step = steps.StepRun(Path({str(tmp_path / "x")!r}), 600, "k")
seen = watch.Watch(step.refuse, lambda: False, 5, limit_s=0.5)
call = parse("conv.fprop:n1c1k1_i3_f1:bias=0").call
with seen(call, "quick"):
    pass
with seen(call, "hangs"):
    time.sleep(60)  # and would end with status 0
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (gpu.LOST, "")
    (row,) = records.read(tmp_path / "x")[0]
    assert (row["what"], row["arm"], row["why"]) == ("refused", "hangs", "no end in 0.5 s")
    again = steps.StepRun(tmp_path / "x", 600, "k")
    assert again.lost == {("conv.fprop:n1c1k1_i3_f1:bias=0", "hangs")}


class Stand:
    """Stands in for streams, graphs and their contexts; a replay runs `work` again."""

    def __init__(self, work=lambda: None, fails=""):
        self.replay, self.fails = work, fails

    def __call__(self, *given):
        return self

    def __enter__(self):
        if self.fails:
            raise RuntimeError(self.fails)

    def __exit__(self, *given):
        pass

    def wait_stream(self, stream):
        pass


def stand_in(monkeypatch, work, fails=""):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", Stand())
    monkeypatch.setattr(torch.cuda, "stream", Stand())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Stand(work))
    monkeypatch.setattr(torch.cuda, "graph", Stand(fails=fails))


def test_results_of_the_graph_are_judged_and_start_as_nan(monkeypatch):
    out, given = torch.zeros(3), [(torch.ones(3),), (torch.full((3,), 2.0),)]
    stand_in(monkeypatch, lambda: out.copy_(given[0][0]))
    found = cuda.capture(lambda x: out.copy_(x), given)
    assert (found.how, found.copies) == ("graph", 2)
    assert found.result().tolist() == [1.0, 1.0, 1.0]
    stand_in(monkeypatch, lambda: out[:2].copy_(given[0][0][:2]))  # one element is not written
    assert cuda.capture(lambda x: out.copy_(x), given).result().isnan().tolist() == [
        *(False, False, True)
    ]


def test_arms_that_cannot_be_captured_run_eagerly_with_their_flags(monkeypatch):
    stand_in(monkeypatch, None, "operation not permitted when stream is capturing\nmore")
    ieee = parse("conv.fprop:n1c4k4_i5x5_f3x3:bias=0").call
    seen, conv = [], torch.backends.cudnn.conv
    before = conv.fp32_precision

    def spy(call):
        def run(x, w, b):
            seen.append(conv.fp32_precision)
            return (torch.conv2d(x, w, b),)

        return run

    monkeypatch.setattr(arms, "direct", spy)
    here = cuda.CudaPlace(Card(), QUICK)
    (row,) = point(here, ieee, ["torch"])
    assert row["how"] == "eager: operation not permitted when stream is capturing"
    assert set(seen) == {"ieee"} != {before}
    assert conv.fp32_precision == before


def test_baseline_is_a_direct_call_or_the_adapter():
    call = parse("conv.fprop:n1c4k4_i5x5_f3x3_p1,0x0,0:bias=0").call
    x, w = cuda.operands(call, 0, "cpu")
    assert arm("torch", call).run(x, w).shape == call.problem.shape("y")
    assert not is_symmetric(call)
    assert is_symmetric(call_of(False))


def test_a_point_above_the_roof_is_refused():
    slow = Roof({"bf16": 1.0}, 1.0)
    (row,) = point(place(), call_of(False), ["torch"], slow)
    assert row["what"] == "refused"
    assert "of the roof" in row["why"]


def test_without_a_reference_no_arm_is_timed(monkeypatch):
    def disagrees(*given):
        raise sums.JudgedWrong("the reference disagrees")

    monkeypatch.setattr(sums, "check_slice", disagrees)
    found = list(point(place(), call_of(False), ["torch", "torch.nchw"]))
    assert [(row["what"], row["why"]) for row in found] == [
        ("refused", "the reference disagrees")
    ] * 2


def test_copies_fill_the_cache_three_times_and_no_more():
    call = call_of(False)
    assert cuda.copies(call, 10**12) == cuda.MOST_COPIES
    assert cuda.copies(call, 0) == 1
    count = cuda.copies(call, Card.cache_bytes)
    assert (count - 1) * call.bytes_moved() <= 3 * Card.cache_bytes < count * call.bytes_moved()


def test_a_step_records_only_missing_points(tmp_path):
    layers = suite.load("stress")[:1]
    small = replace(layers[0], template="conv:nNc4k4_i5x5_f3x3:bias=0")
    calls = [("stress", small, small.call(p, 1, "dt=bf16:mem=nhwc")) for p in suite.CONV]
    out = tmp_path / "gpu.jsonl"
    child = steps.StepRun(out, 600, "card | 1")
    steps.time_points(child, calls[:2], steps.CUDNN, place())
    first = records.read(out)[0]
    arms = ["torch", "torch.nchw", "torch.deterministic"]
    assert [row["arm"] for row in first] == arms * 2
    steps.time_points(steps.StepRun(out, 600, "card | 1"), calls, steps.CUDNN, place())
    second = records.read(out)[0][len(first) :]
    assert {row["line"].partition(":")[0] for row in second} == {"conv.wgrad"}
    late = steps.StepRun(out, -1, "card | 2")
    with pytest.raises(steps.OutOfTime):
        steps.time_points(late, calls, steps.CUDNN, place())


def test_points_are_bf16_first_heaviest_first_and_each_once():
    found = list(steps.points(("resnet50", "yolo11n"), "bf16,f32"))
    lines = [str(call) for _, _, call in found]
    assert len(lines) == len(set(lines))
    kinds = ["dt=bf16" in line for line in lines]
    assert kinds == sorted(kinds, reverse=True)
    assert {name for name, _, _ in found[:6]} == {"resnet50", "yolo11n"}  # in turns
    assert found[0][0] == "resnet50"
    mine = [layer for name, layer, _ in found if name == "resnet50"]
    layers = list(dict.fromkeys(mine))
    assert layers == suite.by_weight(suite.load("resnet50"), steps.BATCHES["resnet50"])
    biased = list(steps.points(("resnet50",), "bf16", bias=True))
    assert all(call.pass_ == "fprop" and call.conv.bias for _, _, call in biased)


def test_the_steps_that_need_kernels_are_absent_without_them(monkeypatch):
    monkeypatch.setattr(gpu, "our_backends", lambda: ())
    absent = [step.name for step in gpu.STEPS if step.absent and step.absent()]
    assert absent == ["canary", "properties", "marked", "anchors", "tuner", "suites"]


class Kernels:
    """Stands in for kernels of ours: ATen, two configurations, one fused epilogue."""

    name = "stub"

    def __init__(self):
        self.inner, self.compiled = dispatch.load("torch"), []
        self.supports, self.numerics = self.inner.supports, self.inner.numerics
        self.fingerprint = self.inner.fingerprint

    def compile_all(self, arch, jobs, calls):
        return self.compile_some(arch, jobs, [(call, [None]) for call in calls])

    def compile_some(self, arch, jobs, wanted):
        self.compiled += [(str(call), one) for call, some in wanted for one in some]
        return {"kernels": 3}

    def configurations(self, call):
        return [{"tile": 64}, {"tile": 128}]

    def run(self, call, *operands, configuration=None):
        return self.inner.run(call, *operands)

    def fused(self, call, epilogue):
        return arms.FUSED["eager"](epilogue, geometry(call))


TINY = suite.read(
    "conv:nNc4k4_i5x5_f3x3_p1:bias=0 *2 a\nconv:nNc4k4_i7x7_f1x1:bias=0 *1 b\n"
    "max_pool:nNc4_i7x7_f3x3_s2_p1 *1 c",
    "x",
)


def broken(function, dynamic):
    raise LookupError("no compiler here")


@pytest.fixture
def rehearsal(monkeypatch, tmp_path):
    made, real = Kernels(), dispatch.load
    monkeypatch.setattr(dispatch, "load", lambda name: made if name == "stub" else real(name))
    monkeypatch.setattr(steps, "our_backends", lambda: ("stub",))
    monkeypatch.setattr(
        suite, "load", lambda name, ops=("conv",): tuple(one for one in TINY if one.op in ops)
    )
    monkeypatch.setattr(suite, "names", lambda: ("resnet50",))
    monkeypatch.setattr(steps, "BATCHES", {"stress": 1})
    monkeypatch.setattr(steps, "TUNED", ("resnet50",))
    monkeypatch.setitem(options.DEVICES, "cuda", "mem=nhwc")
    monkeypatch.setattr(cuda, "Cuda", Card)
    monkeypatch.setattr(cuda, "MOST_COPIES", 2)  # of 64, which would take most of the time
    monkeypatch.setattr(cuda, "CudaPlace", lambda device, **more: place(**more))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr(properties, "check", lambda step, name: iter(()))
    return tmp_path / "gpu.jsonl"


def test_the_programme_runs_from_end_to_end_on_a_stub(rehearsal):
    names = ["cudnn", "canary", "properties", "anchors", "fused", "tuner"]
    for name in [*names, "suites", "others", "cudnn-rest"]:
        assert steps.main(name, rehearsal, 600, "card | 1") == 0
    rows, broken = records.read(rehearsal)
    assert broken == []
    assert {row["what"] for row in rows} == {*("point", "absent", "tuning", "tuned", "searched")}
    lines = {row["line"] for row in rows if row["what"] == "point" and row["arm"] == "stub"}
    pools = {line for line in lines if line.startswith("max_pool")}
    kinds = options.keys(steps.DTYPES, steps.MATH)
    assert (len(pools), len(lines - pools)) == (2 * 3, 2 * 3 * len(kinds))
    kinds = {(row["what"], row["arm"]) for row in rows if "arm" in row}
    assert {("point", f"{arm}+relu") for arm in ("stub", "eager")} <= kinds
    assert {("point", f"{arm}+silu") for arm in ("stub", "eager")} <= kinds
    assert ("absent", "cudnn+silu") in kinds
    assert {("absent", f"{arm}+add_relu") for arm in ("cudnn", "compile")} <= kinds
    assert {("tuned", arm) for arm in ("stub@0", "stub@1", "torch", "torch.nchw")} <= kinds
    why = {row["why"] for row in rows if row.get("arm") == "compile+relu"}
    assert why == {"torch.compile: LookupError: no compiler here"}
    before = rehearsal.read_bytes()
    for name in ("cudnn", "suites", "tuner"):
        assert steps.main(name, rehearsal, 600, "card | 1") == 0
    assert rehearsal.read_bytes() == before  # nothing is measured twice
    assert steps.main("anchors", rehearsal, -1, "card | 2") == gpu.PARTIAL


class Profiler:
    """Stands in for torch's: an event of the host, three of the device."""

    def __init__(self, activities):
        self.names = [("aten::conv2d", "DeviceType.CPU"), *[("fprop", "DeviceType.CUDA")] * 2]
        self.names.append(("f" * 200, "DeviceType.CUDA"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def events(self):
        return [SimpleNamespace(name=name, device_type=where) for name, where in self.names]


def test_kernels_of_an_arm_or_the_reason_why_none(monkeypatch):
    monkeypatch.setattr(torch.profiler, "profile", Profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    call = call_of(False)
    assert cuda.launched("torch", call, "cpu") == {"kernels": ["fprop", "f" * 120]}
    why = "an epilogue needs a forward convolution with bias"
    assert cuda.launched("eager+relu", call_of(False, "dgrad"), "cpu") == {"absent": why}


def test_names_step_records_each_arm_once(rehearsal, monkeypatch):
    monkeypatch.setattr(cuda, "launched", lambda name, call: {"kernels": [name]})
    assert steps.main("names", rehearsal, 600, "card | 1") == 0
    rows = records.read(rehearsal)[0]
    arms = {row["arm"] for row in rows}
    assert arms == {"stub", "torch", "torch.nchw"}
    assert len(rows) == 3 * len({row["line"] for row in rows}) == 3 * 2 * 3
    assert steps.main("names", rehearsal, 600, "card | 1") == 0
    assert records.read(rehearsal)[0] == rows


CARD = SimpleNamespace(
    name="A Card", multi_processor_count=7, L2_cache_size=20_000, total_memory=2**30
)


def test_versions_step_records_card_and_versions(rehearsal, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: CARD)
    assert steps.main("versions", rehearsal, 600, "k") == 0
    (row,) = records.read(rehearsal)[0]
    assert (row["what"], row["card"], row["sms"]) == ("machine", "A Card", 7)
    assert row["torch"] == records.version("torch")
    assert row["packages"]["numpy"] != "absent"
    assert row["kernels"]["stub"] == dispatch.load("stub").fingerprint()


def test_the_peaks_are_rates_of_a_copy_and_of_products(rehearsal, monkeypatch):
    monkeypatch.setattr(steps, "COPIED", 1000)
    monkeypatch.setattr(steps, "MULTIPLIED", 32)
    monkeypatch.setattr(cuda, "POINT", QUICK)
    monkeypatch.setattr(Card, "sample", lambda self, work, calls, cold: work() is None or 0.5)
    assert steps.main("peaks", rehearsal, 600, "A Card | x") == 0
    assert steps.StepRun(rehearsal, 600, "A Card | y").roof() == Roof(
        dict.fromkeys(("bf16", "f16", "tf32"), 2 * 32**3 / 0.5) | {"f32": 2 * 16**3 / 0.5},
        8000 / 0.5,
    )


def rows_then_none_left(monkeypatch, module, name, row):
    """Let a step's source of rows give two, the second when the step's time is up."""
    held = {}

    def rows(*given):
        yield row
        held["step"].end = -1.0
        yield row

    monkeypatch.setattr(module, name, rows)
    init = steps.StepRun.__init__
    monkeypatch.setattr(
        steps.StepRun, "__init__", lambda self, *given: held.update(step=self) or init(self, *given)
    )


def test_steps_that_run_out_of_time_keep_their_records(rehearsal, monkeypatch):
    from convref_bench.gpu import accumulate
    from convref_bench.timing import training

    monkeypatch.setattr(training, "network", lambda: object)
    for name, module in (
        ("truncation", accumulate),
        ("training", training),
    ):
        row = {"a": 1} | ({"what": "training"} if name == "training" else {})
        with pytest.MonkeyPatch.context() as patch:
            rows_then_none_left(patch, module, "rows", row)
            assert steps.main(name, rehearsal, 600, name) == gpu.PARTIAL
        found = [one for one in records.read(rehearsal)[0] if one["key"] == name]
        assert len(found) in (1, 2)
        assert all(one["a"] == 1 for one in found)


def test_timing_steps_stop_at_their_deadline_and_continue(rehearsal):
    """One more line each time: earlier measurements are not repeated."""
    for name in ("canary", "anchors", "suites", "fused", "cudnn", "others", "cudnn-rest", "tuner"):
        assert steps.main(name, rehearsal, -1, name) == gpu.PARTIAL
        left, ran = gpu.PARTIAL, 0
        while left == gpu.PARTIAL:
            with pytest.MonkeyPatch.context() as patch:
                asked = iter([None])

                def one_line_only(self, asked=asked):
                    if next(asked, self) is self:
                        raise steps.OutOfTime

                patch.setattr(steps.StepRun, "check_time", one_line_only)
                left, ran = steps.main(name, rehearsal, 600, name), ran + 1
        assert ran > 1, name
        mine = [row for row in records.read(rehearsal)[0] if row["key"] == name]
        both = [(row["line"], row["arm"]) for row in mine if "arm" in row]
        again = 2 if name == "tuner" else 1  # the fastest arm is timed again with the rest
        assert max(map(both.count, both)) <= again, name


class Event:
    """Stands in for torch's: each record is 3 ms later on the card's clock."""

    clock = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.clock += 3.0
        self.at = Event.clock

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


class Nvml:
    """Stands in for libnvidia-ml: each of its functions returns 0, or fails."""

    def __init__(self, failing=""):
        self.failing = failing

    def __getattr__(self, name):
        def function(*given):
            if name == "nvmlDeviceGetClockInfo":
                given[2]._obj.value = 1755
            return int(name == self.failing)

        return function


def test_cuda_device_times_by_events_and_reads_the_clock(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: CARD)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    cuda.nvml_clock.cache_clear()
    device, ran = cuda.Cuda(), []
    device.settle()
    assert (device.name, device.where, device.cache_bytes) == ("A Card", "cuda", 20_000)
    seconds = device.sample(lambda: ran.append(1), 4, True)
    assert (seconds, len(ran)) == (pytest.approx(3e-3 / 4), 4)
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Nvml())
    assert device.clock_mhz() == 1755.0
    cuda.nvml_clock.cache_clear()
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: Nvml("nvmlInit_v2"))
    assert device.clock_mhz() is None
    assert device.now() <= device.now()
    cuda.nvml_clock.cache_clear()


def test_wrong_lines_fail_the_properties_step(rehearsal, monkeypatch):
    found = iter([{"line": "conv.fprop:n1c1k1_i1_f1", "verdict": "wrong"}])
    monkeypatch.setattr(properties, "check", lambda step, name: found)
    with pytest.raises(SystemExit, match="1 lines are wrong, the first"):
        steps.main("properties", rehearsal, 600, "card | 1")
