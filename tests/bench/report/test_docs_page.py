"""The kept records of a card become part of a page; parts that are not measured are named."""

import re

import pytest

from convref_bench import cli as bench
from convref_bench import records
from convref_bench.gpu import keep
from convref_bench.report import docs_page as page
from convref_bench.timing.measure import Timing

KEY = "A Card, 1.0 | 123"
LAYERS = {
    "conv.{}:n32c64k64_i56x56_f3x3_p1{}": ("resnet50", "layer1.0.conv2", 3),
    "conv.{}:n32c256k256_i14x14_f3x3_p1{}": ("resnet50", "layer3.1.conv2", 5),
    "conv.{}:n8c64k64_i80x80_f3x3_p1{}": ("yolo11n", "model.4", 2),
}


def line(shape, pass_):
    return shape.format(pass_, ":bias=0" if pass_ == "fprop" else "") + ":dt=bf16:mem=nhwc:dev=cuda"


def tuned(shape, pass_, arm, ms, ratio=None, verdict="", **more):
    suite, layer, times = LAYERS[shape]
    timing = Timing(ms, ms, ms, 7, 1, 0.0).record()
    against = {"against": "torch", "ratio": ratio, "verdict": verdict} if ratio else {}
    row = {"what": "tuned", "suite": suite, "layer": layer, "times": times, "arm": arm, "key": KEY}
    return {**row, "line": line(shape, pass_), **timing, **against, **more}


def configuration(kernel, *tile):
    return {"configuration": {"kernel": kernel, "tile": [*tile, 64, 4, 4, 8, 1, 1], "source": "x"}}


FEW = configuration("tma", 128, 128)
FIRST, SECOND, THIRD = LAYERS
ROWS = [
    {"what": "machine", "key": KEY, "date": "2026-01-01", "python": "3.12", "torch": "2.11",
     "cudnn": 91002, "triton": "3.6.0", "sms": 132, "card": "A Card", "packages": {"numpy": "2"}},
    {"what": "peaks", "key": KEY, "flops": {"bf16": 7.6e14}, "bytes_s": 3e12, "card": "A Card"},
    tuned(FIRST, "fprop", "triton@1", 0.02, 2.0, "faster", **configuration("gluon_halo", 128, 64)),
    tuned(FIRST, "fprop", "triton@2", 0.04, 1.0, "ambiguous", **FEW),
    tuned(FIRST, "fprop", "torch", 0.08),  # of a later run: 2.0 is what was measured in one
    tuned(SECOND, "fprop", "triton@0", 0.08, 0.5, "slower", **FEW),
    tuned(SECOND, "dgrad", "triton@0", 0.04, 1.01, "ambiguous", **FEW),
    tuned(THIRD, "wgrad", "triton@0", 0.04, 1.5, "faster", **configuration("wgrad", 64, 64)),
    tuned(THIRD, "wgrad", "auto", 0.001, 60.0, "faster"),
    {"what": "kernels", "key": KEY, "line": line(SECOND, "fprop"), "arm": "torch",
     "kernels": ["sm90_xmma"]},
    {"what": "properties", "key": KEY, "backend": "triton", "chunk": 0, "findings": [],
     "counts": {"pass": 38, "unsupported": 2}},
    {"what": "properties", "key": KEY, "backend": "triton", "chunk": 1, "findings": [{}],
     "counts": {"pass": 3, "wrong": 1}},
    {"what": "marked-file", "key": KEY, "file": "tests/x.py", "status": 1, "said": [],
     "failed": ["FAILED x"]},
    {"what": "refused", "key": KEY, "line": line(FIRST, "dgrad"), "arm": "triton@3",
     "why": "error is 7 times its bound"},
    {"what": "accumulator", "key": KEY, "by": "triton", "dtype": "bf16", "n": 512,
     "mean": -12.5, "worst": 30.0},
    {"what": "training", "key": KEY, "network": "yolo11n", "size": 640, "batch": 16,
     "dtype": "bfloat16", "arm": "auto", "images_s": 812.4, "ratio": 1.07},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with pages that are filled, and their figures."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("triton", reason="triton is not installed")
    made = tmp_path_factory.mktemp("page")
    for row in ROWS:
        records.append(made / "gpu.jsonl", row)
    (made / "figures").mkdir()
    write(made, f"before\n\n{page.BEGIN}\nformer text\n{page.END}\n\nafter\n")
    fill(made)
    return made


@pytest.fixture
def text(folder):
    return (folder / "performance.md").read_text("utf-8")


@pytest.fixture
def by_line(folder):
    return (folder / "triton" / "speed.md").read_text("utf-8")


def write(docs, text):
    for name in page.PAGES:
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text(text)


def fill(folder):
    assert keep.main(folder / "gpu.jsonl", folder=folder / "cards") == 0
    words = ["page", str(folder / "cards"), "--docs", str(folder)]
    assert bench.main(words) == 0


def test_pages_are_filled_from_the_kept_records(folder, text, by_line):
    for one in (text, by_line):
        assert one.startswith("before\n\n")
        assert one.endswith(f"{page.END}\n\nafter\n")
        assert "former text" not in one
        assert "### A Card\n" in one
    assert "cudnn 91002, date 2026-01-01, " in text
    assert "bf16 760. A copy moves 3 TB/s" in text
    fill(folder)
    assert (folder / "performance.md").read_text("utf-8") == text  # a second run replaces it


def test_layers_have_the_ratio_of_one_run_and_means_are_weighted(text, by_line):
    assert "| layer1.0.conv2 | 3 | **2.00** |  |  | `gluon_halo` |" in by_line
    assert "| layer3.1.conv2 | 5 | 0.50 | 1.01 ? |  | `tma` |" in by_line
    assert "| model.4 | 2 |  |  | **1.50** | `wgrad` |" in by_line  # "auto" is no kernel
    weighted = (2.0**3 * 0.5**5) ** (1 / 8)
    assert f"| resnet50 | fprop | bf16 | {weighted:.2f} | 1 | 1 | 0 |" in text


def test_losses_name_the_reference_and_the_longest_term_of_the_estimate(by_line):
    (row,) = [row for row in by_line.splitlines() if "`sm90_xmma`" in row]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:4] == ["0.50", "tma 128x128x64", "`sm90_xmma`"]
    assert cells[4].endswith("%")
    assert cells[5] in ("products", "L2", "issue", "ends of tiles", "memory", "launches")


def test_correctness_comes_first(text):
    assert "| property list, triton | 42 | 1 |" in text
    assert "| `tests/x.py` |  | 1 |" in text
    assert "packages" not in text
    assert "1 timed results were wrong" in text
    assert text.index("tests/x.py") < text.index("| resnet50 |")
    assert "| yolo11n 640 | 16 | auto | 812 | 1.07 |" in text
    assert "Not measured on this card: fused epilogues against cuDNN's." in text


def test_kernels_have_a_page_by_line(text, by_line):
    assert "| triton | bf16 | 512 | -12.5 | 30 |" in by_line
    assert re.search(r"\| as estimated \| 1 \| \d\.\d{3} \| 1\.000 \|", by_line)
    assert not {*re.findall("^####.*", text, re.M)} & {*re.findall("^####.*", by_line, re.M)}


def test_plots_are_written_and_linked(folder, text):
    image = pytest.importorskip("matplotlib.image")
    for kind in ("roofline", "ratios"):
        name = f"figures/a_card_{kind}.png"
        assert f"]({name})" in text
        pixels = image.imread(folder / name)[..., :3]
        assert 0.002 < (pixels.min(axis=2) < 0.9).mean() < 0.5  # drawn, and not all over


def test_without_cards_every_part_is_not_measured(tmp_path, capsys):
    write(tmp_path, f"{page.BEGIN}\n{page.END}\n")
    assert page.main(tmp_path, docs=tmp_path) == 0
    for name, parts in page.PAGES.items():
        assert (tmp_path / name).read_text("utf-8").count(page.NOTHING) == len(parts)
    assert page.NOTHING in capsys.readouterr().out
    write(tmp_path, "no place for it")
    assert page.main(tmp_path, docs=tmp_path) == 2
    assert {(tmp_path / name).read_text("utf-8") for name in page.PAGES} == {"no place for it"}


def test_pages_are_generated_from_the_committed_cards(tmp_path):
    """No number in it is written by hand."""
    for name in ("matplotlib", "triton"):  # plots, and what a kernel waits for
        pytest.importorskip(name, reason=f"{name} is not installed")
    (tmp_path / "figures").mkdir()
    (tmp_path / "triton").mkdir()
    kept = {name: (page.DOCS / name).read_text("utf-8") for name in page.PAGES}
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    from convref_bench.records import RESULTS

    assert page.main(RESULTS / "cards", docs=tmp_path) == 0
    assert {name: (tmp_path / name).read_text("utf-8") for name in kept} == kept
