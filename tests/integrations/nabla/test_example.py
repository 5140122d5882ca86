"""The Nabla example; graphs compile for minutes (nightly profile)."""

import importlib.metadata
import runpy
from pathlib import Path

import numpy as np
import pytest

import convref

EXAMPLE = Path(__file__).parents[3] / "docs/examples/nabla_conv2d.py"


def versions():
    def of(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "absent"

    return f"nabla-ml {of('nabla-ml')}, modular {of('modular')}, max {of('max')}"


def example():
    """Return the example's functions, or skip with Nabla's reason for not starting."""
    try:
        return runpy.run_path(str(EXAMPLE))
    except (ImportError, RuntimeError) as error:  # Nabla refuses each stable release of MAX
        pytest.skip(f"{versions()}: {error}")


@pytest.mark.nightly
def test_derivatives_are_right_in_both_modes(record_property):
    conv2d = example()["conv2d"]
    import nabla

    record_property("versions", versions())
    of = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}
    rng = np.random.default_rng(0)
    shapes = (1, 4, 7, 6), (6, 2, 3, 2), (1, 6, 3, 3)
    x, w, dy = arrays = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
    tx, tw, tdy = map(nabla.Tensor.from_dlpack, arrays)

    y, pullback = nabla.vjp(lambda x, w: conv2d(x, w, **of), tx, tw)
    _, y_dot = nabla.jvp(lambda x, w: conv2d(x, w, **of), (tx, tw), (tx, tw))
    found = [y, *pullback(tdy), y_dot]
    nabla.realize_all(*found)  # one graph to compile
    expected = convref.conv2d(x, w, **of), *convref.conv2d_backward(dy, x, w, **of)[:2]
    for one, other in zip(found, (*expected, 2 * expected[0]), strict=True):
        np.testing.assert_array_equal(one.to_numpy(), other)
