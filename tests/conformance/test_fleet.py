"""A campaign on a cluster of Ray equals that of one machine, also where nodes are lost."""

from __future__ import annotations

import json
import os
import sys

import pytest

from convref.conformance import campaign
from convref.conformance.generate import Axes
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
    assert {f.line for f in there.tally.findings} == {f.line for f in here.tally.findings}
    assert there.tally.findings
    reports = [json.loads(line) for line in (tmp_path / "there").read_text("utf-8").splitlines()]
    done = [one["chunk"] for one in reports if one["event"] == "report" and one["done"]]
    assert sorted(done) == list(range(24))


def test_a_crash_costs_its_example_alone(cluster, hostile):
    outcome = campaign.run(settings(None, f"{hostile}:crash", ray=cluster.address))
    assert outcome.tally.examples == EXAMPLES
    assert outcome.tally.count("crash")


def test_no_cluster_is_one_sentence():
    with pytest.raises(ConvrefError, match="no cluster of Ray answers at localhost:1"):
        fleet.connect("localhost:1")


def test_an_error_of_a_task_is_raised_here(cluster):
    def refuse(number):
        raise ConvrefError(f"task {number} is refused")

    fleet.connect(cluster.address)
    with pytest.raises(ConvrefError, match="task 7 is refused"):
        list(fleet.each(refuse, iter([7])))
