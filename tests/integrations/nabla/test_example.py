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


@pytest.mark.nightly
def test_transposed_convolutions_have_second_derivatives():
    conv2d = example()["conv2d"]
    import nabla

    of = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2, "output_padding": 1}
    rng = np.random.default_rng(0)
    shapes = (1, 4, 3, 2), (4, 3, 3, 2), (1, 6, 8, 4)
    x, w, dy = arrays = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]

    def gradients(x, w, dy):
        y, pullback = nabla.vjp(lambda x, w: conv2d(x, w, transposed=True, **of), x, w)
        return y, *pullback(dy)

    tensors = [nabla.Tensor.from_dlpack(array) for array in arrays]
    first = gradients(*tensors)
    _, pullback = nabla.vjp(lambda *given: gradients(*given)[2], *tensors)
    found = [*first, *pullback(tensors[1])]  # the gradient of <dw, w> in x, w and dy
    nabla.realize_all(*found)
    y = convref.conv_transpose2d(x, w, **of)
    dx, dw, _ = convref.conv_transpose2d_backward(dy, x, w, **of)
    for one, other in zip(found, (y, dx, dw, dx, np.zeros_like(w), y), strict=True):
        np.testing.assert_array_equal(one.to_numpy(), other)
