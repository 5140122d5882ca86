"""Times of the plug-ins beside the systems' own functions."""

import pytest

from convref_bench.suites import suite
from convref_bench.timing import plugins


def test_layers_of_jax_are_timed_beside_lax(monkeypatch, capsys):
    pytest.importorskip("jax", reason="jax is not installed")
    build = pytest.importorskip("convref_mojo.build", reason="convref_mojo is not installed")
    if reason := build.why_missing():
        pytest.skip(reason)
    layers = suite.read("conv:nNc2k2_i4x4_f1x1_s2 *1 a\nconv:nNc2k2_i4x4_f3x3_p1 *1 b", "two")
    monkeypatch.setattr(suite, "load", lambda name: layers)
    took = iter((2.0, 1.0) * 2 + (1.0, 4.0, 1.0, 4.0) + (1.0, 1.0, 4.0, 1.0))

    def times(works):
        for work in works.values():
            work()
        return {name: next(took) for name in works}

    found = {name: rest for name, *rest in plugins.of_jax(times, 1)}
    assert found == {
        "forward, 1x1x4x4: mojo / lax": ["2.00"] * 3,
        "both gradients, 1x1x4x4: mojo / lax": ["2.00"] * 3,
        "forward: mojo / lax": ["0.50", "0.25", "1.00"],
        "both gradients: mojo / lax": ["1.00", "0.25", "4.00"],
        "both gradients of 1x1 layers: mojo / lax": ["0.25"] * 3,
    }


def test_unknown_systems_and_clocks_are_refused():
    with pytest.raises(ValueError, match="system: 'mlx' is unknown, needs pytensor, jax, max"):
        plugins.main("mlx")
    with pytest.raises(ValueError, match="clock: 'sun' is unknown, needs wall, process"):
        plugins.main("jax", clock="sun")
