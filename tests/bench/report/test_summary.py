"""Results of records: comparison, ratios, the report; and the reference for GPU results."""

import re

import pytest

from convref import dispatch
from convref.case import parse
from convref.judge import Numerics
from convref_bench import records
from convref_bench.gpu import keep
from convref_bench.report import compare, docs_page, summary
from convref_bench.suites import network, suite
from convref_bench.timing import cpu, oracle_convs
from convref_bench.timing.measure import Stop, Timing

LINE = "conv.fprop:n4c64k64_i56x56_f3x3_p1:bias=0:dt=f64"


def row(arm, median, line=LINE, what="point", **more):
    timing = Timing(0.9 * median, median, 1.1 * median, 10, 1, 0.01)
    return {"what": what, "line": line, "arm": arm, **timing.record(), **more}


def layer_rows(ratio, line=LINE, times=3, layer="layer1.0.conv2"):
    more = {"times": times, "layer": layer}
    compared = {"against": "torch", "ratio": ratio, "verdict": "faster", "memory": 1.5}
    ours = row("oracle", 10.0, line, **more, **compared)
    return [ours, row("torch", 10.0 * ratio, line, **more)]


STEM = LINE.replace("c64", "c3")
OTHER = LINE.replace("c64", "c128")
ROWS = [
    *layer_rows(2.0),
    *layer_rows(0.5, OTHER, 1, "x"),
    *layer_rows(0.1, STEM, 1, oracle_convs.STEM),
]


def test_the_summary_is_weighted_and_shows_the_stem_apart():
    mean = f"{2.0 ** ((3 - 1) / 4):.2f}"
    first, *others = oracle_convs.summary(ROWS)
    assert first == ["fprop", mean, "0.10", "1.50"]
    assert others == [[pass_, *"--", "0.00"] for pass_ in ("dgrad", "wgrad")]


def test_a_record_is_printed_with_spread_ratio_and_verdict(capsys):
    for one in (*ROWS[:2], row("formula", 0.03, what="host")):
        summary.print_record(one)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("conv.fprop:n4c64k64")
    assert first.endswith("10 [9, 11] 2.00 faster vs torch")
    assert second.split()[1:3] == ["torch", "20"]
    assert "formula" in third


def test_compare_reports_slower_lines(tmp_path, capsys):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, scale in ((a, 1.0), (b, 2.0)):
        records.append(path, row("oracle", 10.0 * scale))
        records.append(path, row("torch", 10.0))
        records.append(path, {"what": "machine"})
    assert compare.main(a, b) == 1
    text = capsys.readouterr().out
    assert "slower" in text
    assert "ambiguous" in text
    assert compare.main(b, a) == 0
    assert "faster" in capsys.readouterr().out
    assert len(compare.pairs(a, b)) == 2


def test_report_has_every_table_and_plot(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    source = tmp_path / "cpu.jsonl"
    suite_rows = [one | {"suite": "resnet50"} for one in ROWS]
    for one in ({"what": "machine", "cpu": "a CPU"}, *suite_rows):
        records.append(source, one)
    source.write_bytes(source.read_bytes() + b"{broken\n")
    records.append(source, {"what": "peaks", "flops": {"f64": 1e11}, "bytes_s": 2e10})
    records.append(source, {"what": "refused", "line": LINE, "arm": "other", "why": "too large"})
    docs_page.report(source, tmp_path / "page")
    text = (tmp_path / "page" / "report.md").read_text("utf-8")
    assert text.startswith("### cpu\n\ncpu a CPU.")
    assert "Peaks in TFLOP/s: f64 0.1. A copy moves 0.02 TB/s." in text
    assert f"| oracle | torch | fprop | f64 | {(2.0**3 * 0.5 * 0.1) ** (1 / 5):.2f} | 3 |" in text
    assert f"| {LINE} | other | too large |" in text
    assert f"| {LINE} | oracle | 10 [9, 11] |  | faster |" in text
    assert text.endswith("1 lines could not be read.")
    shown = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(shown) == 2
    assert all((tmp_path / "page" / name).stat().st_size > 5000 for name in shown)


def test_report_without_measurements(tmp_path):
    records.append(tmp_path / "x.jsonl", {"what": "machine", "cpu": "a"})
    docs_page.report(tmp_path / "x.jsonl", tmp_path / "page")
    text = (tmp_path / "page" / "report.md").read_text("utf-8")
    assert "Not measured on this card: kernels compared with the oracle on a card;" in text


def test_host_times_every_entry():
    pytest.importorskip("torch")
    found = list(oracle_convs.host(Stop(samples=2, noise=9.0, timeout_s=5.0)))
    assert [one["arm"] for one in found][:2] == ["formula", "oracle.evaluate"]
    assert all(one["median_ms"] > 0 for one in found)


def test_layers_are_judged_and_have_the_memory_of_the_oracle(monkeypatch):
    pytest.importorskip("torch")
    few = suite.read("conv:nNc2k3_i5x5_f3x3:bias=0 *2 first", "x")
    monkeypatch.setattr(suite, "load", lambda name: few)
    found = list(oracle_convs.layers(Stop(samples=2, noise=9.0, timeout_s=5.0), 0.0))
    assert [(one["what"], one["arm"]) for one in found] == [
        ("point", "numpy"),
        ("point", "torch"),
    ] * 3
    assert [one["against"] for one in found[::2]] == ["torch"] * 3
    assert all(one["memory"] > 0 for one in found[::2])


LINES = [
    "conv.{}:n2c6k4_i9x8_f3x2_s2x1_p1,0x2,1_d1x2:dt=bf16{}",
    "conv.{}:n3c8k4g4_i12_f5_s3_p2:dt=f16{}",
    "conv.{}:n2c4k6_i4x5x6_f2x3x1_p1{}",
    "conv.{}:n1c64k64_i20x20_f3x3_p1{}",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
def test_the_reference_on_the_device_is_the_oracle_and_judges_torch(line, pass_):
    torch = pytest.importorskip("torch")
    from convref.backends.torch.adapter import backend
    from convref_bench.gpu import sums

    call = parse(line.format(pass_, ":bias=0" if pass_ == "fprop" else "")).call
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[call.dtype]
    generator = torch.Generator().manual_seed(0)
    roles = [role for role in call.roles if call.is_present(role)]
    given = tuple(
        torch.randn(call.problem.shape(role), generator=generator).to(dtype) for role in roles
    )
    got = sums.evaluate(call, *given).to(dtype)
    assert 0 < sums.judge(call, Numerics("rn32"), given, got) <= 1
    padded = given + (None,) * (len(call.roles) - len(given))
    theirs = backend.run(call, *padded)[call.signature.results.index(call.wanted[0])]
    assert sums.judge(call, backend.numerics(call), given, theirs) <= 1
    wrong = got.clone()
    wrong.view(-1)[-1] += 1
    with pytest.raises(sums.JudgedWrong, match="times its bound"):
        sums.judge(call, Numerics("rn32"), given, wrong)
    value = sums.evaluate(call, *given)
    with pytest.raises(sums.JudgedWrong, match="disagrees with the oracle"):
        sums.check_slice(call, given, value + 1e-3, sums.evaluate(call, *(g.abs() for g in given)))


QUICK = Stop(samples=2, noise=9.0, timeout_s=5.0)
FIRST = "conv:nNc2k3_i5x5_f3x3:bias=0 *2 first"


def test_a_suite_runs_on_backends_judged_first():
    pytest.importorskip("torch")
    place = cpu.CpuPlace(QUICK, 0.0)
    keys = ["", "dt=f64"]
    found = list(network.rows(suite.read(FIRST, "x"), ["numpy", "torch"], place, keys=keys))
    assert [(one["arm"], one["times"]) for one in found] == [("numpy", 2), ("torch", 2)] * 6
    assert all(one["verdict"] and one["against"] == "torch" for one in found[::2])
    assert [":dt=f64" in one["line"] for one in found] == [False] * 6 + [True] * 6


def test_a_wrong_backend_is_refused_and_not_timed(monkeypatch):
    right = dispatch.load("numpy")

    class Wrong:
        name = "wrong"
        supports, numerics = right.supports, right.numerics

        def run(self, call, *operands):
            return tuple(None if r is None else r + 1 for r in right.run(call, *operands))

    monkeypatch.setattr(dispatch, "load", lambda name: Wrong() if name == "wrong" else right)
    place = cpu.CpuPlace(QUICK, 0.0)
    found = list(network.rows(suite.read(FIRST, "x"), ["wrong", "numpy"], place, ["fprop"]))
    assert [(one["arm"], one["what"]) for one in found] == [
        ("wrong", "refused"),
        ("numpy", "point"),
    ]
    assert "needs" in found[0]["why"]


def gpu_rows(count=80):
    """Records as a GPU run leaves them: two passes of one kernel, references, fused arms."""
    found = []
    for i in range(count):
        pass_ = ("fprop", "dgrad")[i % 2]
        line = (
            f"conv.{pass_}:n32c{16 + 8 * i}k64_i{7 + i}x{7 + i}_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda"
        )
        line = line.replace("_p1:", "_p1:bias=0:") if pass_ == "fprop" else line
        base = 0.02 * (1 + i % 7)
        more = {"against": "torch", "verdict": ("faster", "slower", "ambiguous")[i % 3]}
        found += [row("triton", base * (0.6 + 0.012 * i), line, "point", roof=0.4, **more)]
        found += [row("torch", base, line, "point"), row("eager+relu", 2 * base, line, "point")]
        more["against"] = "cudnn+relu"
        found += [row("triton+relu", base, line, "point", **more)]
        found += [row("cudnn+relu", 1.1 * base, line, "point")]
    return found


def test_fused_arms_are_never_compared_with_eager_operations_alone():
    found = summary.means(gpu_rows())
    assert {(arm, against) for arm, against, *_ in found} == {
        ("triton", "torch"),
        ("triton+relu", "cudnn+relu"),
    }
    assert next(mean for arm, *_, mean, _ in found if "+" in arm) == pytest.approx(1.1)


def test_keep_writes_the_last_of_each_record_by_card(tmp_path, capsys):
    source, folder = tmp_path / "gpu.jsonl", tmp_path / "cards"
    about = {"what": "point", "line": LINE, "arm": "torch"}
    records.append(source, {**about, "key": "A Card, 1.0 | old", "median_ms": 1.0})
    records.append(source, {"what": "peaks", "key": "A Card, 1.0 | x", "flops": {"bf16": 1 / 3}})
    records.append(source, {**about, "key": "A Card, 1.0 | new", "median_ms": 2 / 3})
    records.append(source, {**about, "key": "Other, 1.0 | new", "median_ms": 3.0})
    records.append(source, {"what": "step", "step": "tuner", "status": "absent", "key": "A Card, "})
    records.append(source, {"what": "searched", "key": "A Card, 1.0 | new"})
    assert keep.main(source, folder=folder) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a-card.jsonl", "other.jsonl"]
    rows, _ = records.read(folder / "a-card.jsonl")
    assert [row["what"] for row in rows] == ["peaks", "point"]
    assert rows[0]["flops"] == {"bf16": 0.33333}
    assert rows[1]["median_ms"] == 0.66667
    before = (folder / "a-card.jsonl").read_bytes()
    assert keep.main(source, folder=folder) == 0
    assert (folder / "a-card.jsonl").read_bytes() == before
    assert "2 records" in capsys.readouterr().out
