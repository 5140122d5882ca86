"""Known bugs: how regions are read, what they contain, and that each is a bug here."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from convref import dispatch, knownbugs, parse
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.workers.worker import Task
from convref.errors import ConvrefError
from convref.knownbugs import parse_regions, refusals, region_of, regions, shipped_regions

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
        ("cg16 = 2, kg16 = 3", True),
        ("cg16 = 0", False),
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
        ("dev = cpu", True),
        ("dev != cpu", False),
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
    assert region_of(case, "jax") is not None
    assert region_of(case.call, "jax") is None
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
        ("a b | b | n = 1 | - | n", "id is 'a b', needs up to 64 letters"),
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
    assert region_of(case, "torch") is None
    assert region_of(case, "torch", raw=True).id == "torch-c0-shape"
    assert regions("numpy") == ()


@pytest.mark.parametrize(
    "line",
    [
        "conv.wgrad:n2c2k1_i4x4_f2x1:dt=f16:mem=x.nhwc,w.hwoi",
        "conv.fprop:n1c4k4g2_i5x5_f1x1:mem=nhwc",
        "conv.fprop:n1c3k3_i5x5_f3x3:dt=bf16:fill=nan",
        "conv.fprop:n1c8k8_i3x3_f3x3_p9:mem=nhwc",
    ],
)
def test_bugs_of_code_for_the_cpu_are_not_on_other_devices(line):
    assert region_of(parse(line), "torch", FACTS) is not None
    assert region_of(parse(line).on("cuda"), "torch", FACTS) is None


NATIVE = {"torch-wgrad-order-native": "convref.backends.torch:without_onednn"}
BUGS = [
    bug
    for path in Path(__file__).parents[1].joinpath("docs", "bugs").glob("*.toml")
    for bug in tomllib.loads(path.read_text("utf-8"))["bug"]
]


def examples(region):
    """Return lines of the bugs page that are in a region: two of the many, as a crash is slow."""
    facts = {"onednn": "off"} if region.id in NATIVE else FACTS
    lines = [
        line
        for bug in BUGS
        if region.id in bug.get("regions", [bug["id"]])
        for line in bug["lines"]
        if region.contains(parse(line), facts)
    ]
    nightly = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    return lines if nightly else list(dict.fromkeys((lines[0], lines[-1])))


@pytest.fixture(scope="module")
def verdicts():
    """Return the verdict on every example, each backend in worker processes of its own."""
    pytest.importorskip("psutil", reason="needs convref[check]")
    from convref.conformance.causes import run_lines
    from convref.conformance.workers.engine import Engine, Limits

    found: dict[str, dict[str, str]] = {}
    for name in sorted({region.backend for region in shipped_regions()}):
        try:
            dispatch.load(name)
        except ImportError:
            continue
        found[name] = {}
        for target in {NATIVE.get(r.id, name) for r in regions(name)}:
            mine = [r for r in regions(name) if NATIVE.get(r.id, name) == target]
            lines = [line for region in mine for line in examples(region)]
            with Engine(target, limits=Limits(seconds=3.0)) as engine:
                bad = {f.line: f.verdict for f in run_lines(engine, lines)}
            found[name] |= {line: bad.get(line, "pass") for line in lines}
    return found


@pytest.mark.parametrize("region", shipped_regions(), ids=lambda region: region.id)
def test_each_region_is_still_a_bug(region, verdicts):
    if region.backend not in verdicts:
        pytest.skip(f"needs {region.backend}")
    seen = [verdicts[region.backend][line] for line in examples(region)]
    if set(seen) == {"pass"}:
        pytest.skip(f"{region.id} does not show with the installed version on this CPU")
    assert set(seen) <= {
        *("pass", "wrong", "rejects-valid"),
        *("crash", "hang", "nondeterministic", "changed-input"),
    }


def test_auto_skips_a_known_bug_with_a_reason():
    pytest.importorskip("torch", reason="needs torch")
    line = "conv.wgrad:n2c2k1_i4x4_f2x1:dt=f16:mem=x.nhwc,w.hwoi"
    plan = dispatch.plan(parse(line).call, "auto", "torch")
    assert plan.backend.name == "numpy"
    assert "known bug torch-wgrad-order" in str(plan)
    beside = parse(line.replace(",w.hwoi", "")).call
    assert dispatch.plan(beside, "auto", "torch").backend.name == "torch"
    assert dispatch.plan(parse(line).call, "torch", "torch").backend.name == "torch"


def test_regions_left_out_by_op_pass_and_type_contain_no_such_call():
    """A campaign looks at the others alone, and finds the same bugs."""
    of_rank = parse_regions("a | b | op = resize, rank = 1 | - | why")
    task = Task(known=(*of_rank, *shipped_regions()))
    found, looked_at = [], 0
    for op in ("conv", "max_pool", "resize"):
        for case in chunk_cases(Axes(4, (op,), dtypes=("f32", "bf16", "i8"), size=150), 0):
            ids = [region.id for region in task.known if region.contains(case, {})]
            assert task.known_bug(case, {}) == (ids[0] if ids else None)
            found += ids
            looked_at += sum(region.may_contain(case.call) for region in shipped_regions())
    assert len(set(found)) > 5
    assert looked_at < 450 * len(shipped_regions()) / 2
