"""A campaign on a cluster of Ray equals that of one machine, also where nodes are lost."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from convref.conformance import campaign
from convref.conformance.examine import Finding
from convref.conformance.generate import Axes
from convref.conformance.log import add_report, read_log
from convref.errors import ConvrefError

fleet = pytest.importorskip(
    "convref.conformance.workers.fleet", reason="needs convref[ray]", exc_type=ImportError
)
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

AXES = Axes(ops=("conv", "relu"), dtypes=("f32",), size=50)
EXAMPLES = 1200


@pytest.fixture
def cluster(hostile, monkeypatch):
    """Return a cluster of three nodes with a processor each, beside one that runs nothing."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # of the nodes
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    found.nodes = [found.add_node(num_cpus=1) for _ in range(3)]
    yield found
    ray.shutdown()
    found.shutdown()


def settings(path, backend="convref_faults:six_channels", **more):
    return campaign.Settings(
        backend, AXES, examples=EXAMPLES, jobs=1, log=path, shrinks=False, **more
    )


def by_line(findings):
    """Return whole findings by line, whatever the order in which they came."""
    return sorted(map(Finding.as_dict, findings), key=lambda one: (one["line"], one["arm"]))


def chunks(path):
    """Return the reports of a log, by chunk."""
    found = {}
    for event in read_log(path):
        if event["event"] == "report":
            add_report(found, event)
    return found


def test_the_log_is_that_of_one_machine_where_nodes_are_lost_and_one_joins(cluster, tmp_path):
    lost = []

    def watch(outcome, note):
        seen = len(outcome.tally.chunks)
        if len(lost) < 2 and seen > 5 * len(lost):
            node = cluster.nodes[len(lost)]
            lost.append(node)
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)

    there = campaign.run(settings(tmp_path / "there", ray=cluster.address), watch)
    here = campaign.run(settings(tmp_path / "here"))
    assert len(lost) == 2
    assert there.tally.chunks == here.tally.chunks == set(range(24))
    assert there.tally.counts == here.tally.counts
    assert there.tally.arms == here.tally.arms
    assert by_line(there.tally.findings) == by_line(here.tally.findings) != []
    logged = chunks(tmp_path / "there")
    assert logged == chunks(tmp_path / "here")
    assert {number: part.done for number, part in logged.items()} == dict.fromkeys(range(24), True)


def test_a_crash_costs_its_example_alone(cluster, hostile):
    there = campaign.run(settings(None, f"{hostile}:crash", ray=cluster.address)).tally
    here = campaign.run(settings(None, f"{hostile}:crash")).tally
    assert there.examples == EXAMPLES
    assert there.counts == here.counts
    assert by_line(there.findings) == by_line(here.findings)
    assert there.count("crash")


def test_solutions_are_graded_as_on_one_machine(cluster, tmp_path, monkeypatch):
    """Their own files; the worker of a node starts the process of a solution."""
    pytest.importorskip("typer")
    from typer import Exit

    from convref.cli.grading import grade

    folder = Path(__file__).parents[2] / "docs" / "examples" / "grade"
    solutions = [folder / f"{name}.py" for name in ("right", "wrong", "cheating")]
    found, asked, each = {}, [], fleet.as_completed
    monkeypatch.setattr(
        fleet, "as_completed", lambda *given: asked.append(given[2]) or each(*given)
    )
    for ray in (cluster.address, ""):
        to = tmp_path / "grades.json"
        with pytest.raises(Exit):
            grade("kernelbench", folder / "problem.py", solutions, seed=1, ray=ray, to=to)
        found[ray] = sorted(json.loads(to.read_text()), key=lambda one: one["solution"])
    assert asked == [0.0]
    assert found[cluster.address] == found[""]
    assert [one["verdict"] for one in found[""]] == ["wrong", "pass", "wrong"]
    with pytest.raises(ConvrefError, match="--gpus is 1, needs --ray"):
        grade("kernelbench", folder / "problem.py", solutions, gpus=1.0)


def test_a_suite_is_tuned_as_on_one_machine_where_a_node_is_lost(cluster, tmp_path, monkeypatch):
    """The clock of the tiles is fixed, so that all times are those of one machine."""
    pytest.importorskip("torch")
    import tiles

    from convref_bench import records
    from convref_bench.gpu import nodes, tuner
    from convref_bench.suites import network, suite

    lines = "\n".join(f"conv:nNc{c}k4_i5x5_f3x3:bias=0 *{c} layer{c}" for c in (1, 2))
    layers = suite.read(lines, "net")
    monkeypatch.setattr(suite, "load", lambda name, ops=(): layers)
    monkeypatch.setattr(network, "place_of", tiles.place_of)
    cards = [cluster.add_node(num_cpus=1, num_gpus=1) for _ in range(2)]  # the others have none
    asked, seen, each = [], [], fleet.as_completed

    def watched(work, calls, gpus):
        asked.append(gpus)
        for one in each(work, calls, gpus):
            if one and not seen:
                cluster.remove_node(cards[0], allow_graceful=False)
            seen.extend([one] if one else [])
            yield one

    monkeypatch.setattr(fleet, "as_completed", watched)
    found = {}
    for ray, gpus in ((cluster.address, 1.0), ("", 0.0)):
        out = tmp_path / f"{bool(ray)}.jsonl"
        more = {"device": "cpu", "dtype": "f64", "ray": ray, "gpus": gpus, "out": out}
        assert tuner.main("net", backend="tiles:backend", **more) == 1  # a tile is wrong
        found[ray] = sorted(records.read(out)[0], key=str)
    assert asked == [1.0]
    assert len(seen) == 6
    assert found[cluster.address] == found[""]
    assert len(found[""]) == 1 + 6 * 5
    assert tuner.main("net", backend="tiles:backend", **more | {"ray": cluster.address}) == 0
    assert len(seen) == 6  # no call is searched again
    with pytest.raises(ConvrefError, match="a node has numpy 0, the first one"):
        nodes._check_same({"numpy": "0"}, {"numpy": "1"})


def test_no_cluster_is_one_sentence():
    with pytest.raises(ConvrefError, match="no cluster of Ray answers at localhost:1"):
        fleet.connect("localhost:1")


def test_an_error_of_a_task_is_raised_here(cluster):
    def refuse(number):
        raise ConvrefError(f"task {number} is refused")

    fleet.connect(cluster.address)
    with pytest.raises(ConvrefError, match="task 7 is refused"):
        list(fleet.as_completed(refuse, iter([7])))
