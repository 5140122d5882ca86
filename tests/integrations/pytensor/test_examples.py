"""The examples of docs/examples in PyTensor and PyMC: they are right, and they learn."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytensor", reason="pytensor is not installed")

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
pytestmark = [
    pytest.mark.nightly(reason="minutes each"),
    pytest.mark.filterwarnings("ignore"),  # of PyMC, of samplers, of a missing BLAS
]


@pytest.fixture
def example(monkeypatch):
    """Return a function that imports a script."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("mode", ["CVM", "JAX"])
def test_every_pass_of_yolo11n_is_within_the_bound_and_the_loss_halves(example, mode):
    pytest.importorskip("torch", reason="torch is not installed")
    losses = example("yolo11n_pytensor").main(["--mode", mode, "--dtype", "float64"])
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("sampler", "draws", "least"), [("nuts", 60, 0.9), ("numpyro", 60, 0.9), ("advi", 300, 0.7)]
)
def test_a_bayesian_network_classifies(example, sampler, draws, least):
    pytest.importorskip("pymc", reason="pymc is not installed")
    if sampler == "numpyro":
        pytest.importorskip("numpyro", reason="numpyro is not installed")
    assert example("bayes").main(["--sampler", sampler, "--draws", str(draws)]) >= least
