"""The tuner with a backend of tiles and their clock."""

import pytest
from tiles import Stub, place

from convref import dispatch
from convref.errors import ConvrefError
from convref_bench import cli as bench
from convref_bench import records
from convref_bench.gpu import steps, tuner
from convref_bench.suites import suite
from convref_bench.timing.measure import Stop
from convref_bench.timing.point import configured


@pytest.fixture
def stub(monkeypatch):
    made = Stub()
    real = dispatch.load
    monkeypatch.setattr(dispatch, "load", lambda name: made if name == "stub" else real(name))
    return made


class Unproven(dict):
    """A configuration that no card has run."""

    unproven, kernel = True, "new"


LAYER = suite.Layer("conv:nNc4k4_i5x5_f3x3:bias=0", 3, "first")


def test_the_whole_matrix_is_written_losers_references_and_refusals(stub, tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "m.jsonl"
    search = tuner.Search("stub", place(stub), out, "k")
    call = LAYER.call("fprop", 1, "dt=f64")
    search.add("net", LAYER, call)
    head, *rows, last = records.read(out)[0]
    assert head["what"] == "tuning"
    assert head["sources"] == tuner.source_hash(stub)
    assert {"card", "torch", "triton", "numpy", "python"} <= set(head)
    assert last["what"] == "searched"
    by_arm = {row["arm"]: row for row in rows}
    assert by_arm["stub@0"]["configuration"] == {"tile": 64}
    assert by_arm["stub@0"]["median_ms"] == pytest.approx(2.0)
    assert by_arm["stub@1"]["median_ms"] == pytest.approx(1.0)
    assert by_arm["stub@2"]["what"] == "refused"
    assert by_arm["torch"]["median_ms"] == pytest.approx(3.0)
    assert {row["times"] for row in rows} == {3}
    assert {row["suite"] for row in rows} == {"net"}


def test_a_line_is_searched_once_until_the_sources_change(stub, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    out, call = tmp_path / "m.jsonl", LAYER.call("fprop", 1, "dt=f64")
    assert tuner.Search("stub", place(stub), out).add("net", LAYER, call)
    assert tuner.Search("stub", place(stub), out).add("net", LAYER, call) == []
    monkeypatch.setattr(tuner, "source_hash", lambda backend: "changed")
    assert tuner.Search("stub", place(stub), out).add("net", LAYER, call)


def test_a_line_that_lost_the_device_is_left_out_of_the_next_run(stub, tmp_path, monkeypatch):
    out, call = tmp_path / "m.jsonl", suite.load("stress")[0].call("fprop", 1, "dt=f32")

    def lost(*_, **__):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(tuner, "point", lost)
    search = tuner.Search("stub", place(stub), out)
    with pytest.raises(RuntimeError, match="illegal"):
        search.add("net", suite.load("stress")[0], call)
    again = tuner.Search("stub", place(stub), out)
    assert again.is_timed(call)
    assert "illegal" in records.read(out)[0][-1]["lost"]


def test_unproven_kernels_are_skipped_until_their_tests_pass(stub, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    offered = [{"tile": 64}, Unproven(tile=128)]
    monkeypatch.setattr(stub, "configurations", lambda call: offered)
    out, call = tmp_path / "m.jsonl", LAYER.call("fprop", 1, "dt=f64")
    for proven, new in (
        (set(), {"stub@0"}),
        ({"other"}, set()),
        ({"new"}, {"stub@1"}),  # earlier times stay
        (None, set()),
    ):
        for arms in (new, set()):
            search = tuner.Search("stub", place(stub), out, proven=proven)
            assert search.is_timed(call) == (not arms)
            found = {row["arm"] for row in search.add("net", LAYER, call)}
            assert {arm for arm in found if arm.startswith("stub")} == arms
    anew = tuner.Search("stub", place(stub), tmp_path / "other.jsonl", proven=None)
    assert {row["arm"] for row in anew.add("net", LAYER, call)} > {"stub@0", "stub@1"}


def test_every_line_has_its_first_few_before_any_has_the_rest(stub, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(tuner, "FEW", 1)
    out = tmp_path / "m.jsonl"
    calls = [LAYER.call(pass_, 1, "dt=f64") for pass_ in ("fprop", "dgrad")]
    search = tuner.Search("stub", place(stub), out)
    assert [one["tile"] for one in search.untimed(calls[0], tuner.FIRST)] == [64]
    first = [search.add("net", LAYER, call, tuner.FIRST) for call in calls]
    assert [[row["arm"] for row in rows] for rows in first] == [["stub@0", "torch"]] * 2
    again = tuner.Search("stub", place(stub), out)
    assert all(again.is_timed(call, tuner.FIRST) and not again.is_timed(call) for call in calls)
    assert [one["tile"] for one in again.untimed(calls[0], tuner.REST)] == [128, 0]
    rest = [again.add("net", LAYER, call, tuner.REST) for call in calls]
    # the rest, together with the fastest of ours and of the others so far
    arms = {"stub@1", "stub@2", "stub@0", "torch"}
    assert [{row["arm"] for row in rows} for rows in rest] == [arms] * 2
    assert all(again.is_timed(call, part) for call in calls for part in (tuner.FIRST, tuner.REST))
    assert tuner.Search("stub", place(stub), out).add("net", LAYER, calls[0]) == []


def test_slow_configurations_are_dropped_early(stub, tmp_path):
    pytest.importorskip("torch")
    here = place(stub)
    here.stop = Stop(samples=5, noise=9.0, timeout_s=99.0)
    search = tuner.Search("stub", here, tmp_path / "m.jsonl")
    found = search.add("net", LAYER, LAYER.call("fprop", 1, "dt=f64"))
    by_arm = {row["arm"]: row for row in found if row["what"] == "tuned"}
    assert {arm: row["samples"] for arm, row in by_arm.items()} == {
        **{"stub@0": 2, "stub@1": 5},
        "torch": 5,  # three times as slow as ours, but the reference
    }
    assert by_arm["stub@0"]["unmet"] == "2.00 of the fastest after 2 samples"
    assert here.stop.at_most > tuner.AT_MOST  # other steps sample to the end


HALO, OTHER = "tests/triton/test_gluon_halo_gpu.py", "tests/triton/test_pool.py"


@pytest.mark.parametrize(
    ("rows", "green"),
    [
        ([], False),
        ([(HALO, 0)], True),
        ([(HALO, 0), (OTHER, 1)], True),
        ([(HALO, 0), ("tests/triton/test_im2col_gpu.py", 1)], True),
        ([(OTHER, 0)], False),
        ([(HALO, 1)], False),
        ([(HALO, 5)], False),  # no test of it ran
        ([(HALO, None)], False),
        ([(HALO, -11)], False),
        ([(HALO, 1), (HALO, 0)], True),
    ],
)
def test_kernels_are_proven_if_their_tests_ran_on_the_card_and_none_failed(tmp_path, rows, green):
    for file, status in rows:
        row = {"what": "marked-file", "key": "k", "file": file, "status": status, "failed": []}
        records.append(tmp_path / "gpu.jsonl", row)
    found = steps.proven(steps.StepRun(tmp_path / "gpu.jsonl", 9.0, "k"))
    assert found == (set(steps.PROOF[HALO]) if green else set())


def test_each_unproven_kernel_has_tests_in_proof():
    kernels = pytest.importorskip("convref_triton.plan.kernels", reason="triton is not installed")
    names = {spec.name for spec in kernels.KERNELS if spec.unproven}
    assert names <= {kernel for proven in steps.PROOF.values() for kernel in proven}
    for file, proven in steps.PROOF.items():
        text = (steps.TESTS.parent / file).read_text("utf-8")
        assert f"KERNELS = {list(proven)}".replace("'", '"') in text


def test_configurations_are_arms_by_index(stub):
    call = LAYER.call("fprop", 1)
    assert configured("stub@1", call) == (stub, {"configuration": {"tile": 128}})
    assert configured("stub", call) == (stub, {})
    with pytest.raises(ConvrefError, match="stub offers 3 configurations"):
        configured("stub@3", call)


def test_the_hash_follows_the_files_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "tuned_package"
    package.mkdir()
    (package / "__init__.py").write_text("class Backend: ...\n")
    (package / "table.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    import tuned_package

    before = tuner.source_hash(tuned_package.Backend())
    assert tuner.source_hash(tuned_package.Backend()) == before
    (package / "table.json").write_text("[]")
    assert tuner.source_hash(tuned_package.Backend()) != before


def test_the_command_searches_a_suite(stub, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    from convref_bench.suites import network

    monkeypatch.setattr(suite, "load", lambda name, ops=(): (LAYER,))
    monkeypatch.setattr(network, "place_of", lambda device: place(stub))
    out = tmp_path / "m.jsonl"
    words = ["tune", "net", "--backend", "stub", "--dtype", "f64", "--device", "cpu"]
    assert bench.main([*words, "--out", str(out)]) == 1  # a configuration was wrong
    text = capsys.readouterr().out
    assert "3 arms, stub@1 {'tile': 128} 1 ms" in text
    assert text.count("conv.") == 3
    assert bench.main([*words, "--out", str(out), "--seconds", "0"]) == 0
    assert "time limit reached" in capsys.readouterr().out
    with pytest.raises(ConvrefError, match="torch has no configurations"):
        bench.main(["tune", "net", "--backend", "torch", "--device", "cpu"])
