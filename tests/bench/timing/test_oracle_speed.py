"""The arms compute the same: the oracle and torch."""

import numpy as np
import pytest

from convref import oracle, parse
from convref.conformance.operands import operands
from convref.judge import Numerics, bound

speed = pytest.importorskip(
    "convref_bench.timing.oracle_speed", reason="needs torch", exc_type=ImportError
)

SMALL = {
    "group_norm": "n2c4g2_i6x5",
    "max_pool": "n2c3_i6x5_f3_s2_p1",
    "avg_pool": "n2c3_i6x5_f3_s2_p1",
    "lp_pool": "n2c3_i6x5_f2",
    "adaptive_avg_pool": "n2c3_i7x5_o3x2",
    "resize": "n2c3_i6x5_o12x10",
}


def within_bounds(call, role, got, given):
    where = call.signature.results.index(role)
    want = oracle.evaluate(call, *given)[where]
    sizes = oracle.magnitudes(call, *given)[where]
    got = got.detach().numpy().reshape(want.shape)
    assert np.all(np.abs(got - want) <= 2 * bound(call, role, want, sizes, Numerics("rn64")))


@pytest.mark.parametrize(("op", "keys"), [row[:2] for row in speed.ROWS])
def test_both_arms_compute_the_same(op, keys):
    shape = ":".join(filter(None, (SMALL.get(op, "n2c3_i6x5"), keys, "dt=f64")))
    call, given, theirs = speed.by_torch(op, shape)
    within_bounds(call, "y", theirs["fprop"](), given)
    backward = parse(f"{op}.backward:{shape}:fill=normal")
    ready = dict(zip(call.roles, given)) | speed._saved_results(call, given)
    dy = operands(backward)[0]
    arrays = [dy if role == "dy" else ready[role] for role in backward.call.roles]
    for pass_ in ("backward", "again"):
        within_bounds(backward.call, "dx", theirs[pass_]()[0], arrays)


def test_a_point_has_every_arm(monkeypatch):
    monkeypatch.setattr(speed, "STOP", speed.Stop(samples=2, noise=1.0, timeout_s=0.0))
    rows = list(speed.point("tanh", "n1c1_i3x3:dt=f64"))
    assert [row["pass"] for row in rows] == ["fprop", "backward"]
    assert all(row[f"{arm}_ms"] > 0 for row in rows for arm in ("oracle", "torch", "torch2"))
    assert "again_ms" in rows[1]


def test_only_the_ops_that_are_named_are_timed(monkeypatch, capsys):
    monkeypatch.setattr(speed, "STOP", speed.Stop(samples=2, noise=1.0, timeout_s=0.0))
    row = ("relu", "", ("n1c1_i3x3",))
    monkeypatch.setattr(speed, "ROWS", (row, ("tanh", "", ("n1c1_i3x3",))))
    speed.main("tanh")
    said = capsys.readouterr().out
    assert "tanh" in said
    assert "relu" not in said
