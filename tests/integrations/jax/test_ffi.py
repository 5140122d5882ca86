"""Kernels of a backend that compiled programs call without Python (`jax.ffi`), here Mojo's."""

import pytest
from hypothesis import Phase, assume, given, settings

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import convref  # noqa: E402
from convref import UnsupportedError  # noqa: E402
from convref.conformance.examine import examine  # noqa: E402
from convref.conformance.strategies import cases  # noqa: E402
from convref.integrations.jax import run_recorded  # noqa: E402
from convref_mojo import backend as module  # noqa: E402
from convref_mojo import build, library, passes  # noqa: E402

pytestmark = pytest.mark.skipif(build.why_missing() is not None, reason=str(build.why_missing()))
EXAMPLES = max(10, settings.default.max_examples // 4)


class Compiled:
    """The backend mojo in a program that XLA compiles."""

    name = "mojo under jax.jit"
    supports = module.backend.supports
    numerics = module.backend.numerics
    fingerprint = module.backend.fingerprint

    def run(self, call, *operands):
        present = [i for i, a in enumerate(operands) if a is not None]

        def program(*arrays):
            given = dict(zip(present, arrays))
            return run_recorded("mojo", call, *(given.get(i) for i in range(len(operands))))

        lowered = jax.jit(program).lower(*(np.asarray(operands[i]) for i in present))
        assert ("@convref_mojo" in lowered.as_text()) == (call.wanted != ("db",))  # XLA sums dy
        found = lowered.compile()(*(np.asarray(operands[i]) for i in present))
        return tuple(None if a is None else np.asarray(a) for a in found)


def adds_in_xla(call):
    """Return whether XLA adds results of a kernel: those of two sums, or of a sum and a bias."""
    return call.op == "conv" and (call.pass_ != "backward" or call.mask[2])


@settings(max_examples=EXAMPLES, phases=[Phase.generate], deadline=None)
@given(cases(ops=tuple(passes.NATIVE), dtypes=library.DTYPES))
def test_any_case_is_right(case):
    assume(module.backend.supports(case.call) is None)
    # XLA rounds each sum to bfloat16, and flushes subnormal numbers.
    assume(not adds_in_xla(case.call) or (case.call.dtype != "bf16" and case.fill != "subnormal"))
    with jax.enable_x64(True):
        found = examine(case, Compiled())
    assert found.verdict == "pass", f"{found.verdict}: {found.reason}\n{found.line}"


def test_a_backend_that_is_not_installed_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(build, "why_missing", lambda: "no library and no compiler")
    x, w = jnp.ones((1, 1, 4, 17)), jnp.ones((1, 1, 3, 3))
    with pytest.raises(UnsupportedError, match="no library and no compiler"):
        jax.jit(lambda x, w: convref.conv2d(x, w, dilation=(1, 7), backend="mojo"))(x, w)


def test_without_x64_indices_are_computed_by_the_callback():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32))

    def total(x, backend):
        return convref.max_pool2d(x, 2, backend=backend).sum()

    gradient = jax.jit(jax.grad(total), static_argnums=1)
    assert "convref_mojo" not in gradient.lower(x, "mojo").as_text()
    assert (gradient(x, "mojo") == gradient(x, "numpy")).all()


def test_a_graph_of_passes_has_derivatives_and_batches():
    rng = np.random.default_rng(1)
    x, w = (
        jnp.asarray(rng.integers(-2, 3, s).astype(np.float32)) for s in ((3, 2, 4, 7), (4, 1, 3))
    )

    def loss(w, x, backend):
        y = convref.conv1d(x, w, stride=2, padding=1, groups=4, backend=backend)
        return (convref.avg_pool1d(y, 2, backend=backend) ** 2).sum()

    def second(w, x, backend):
        return jax.grad(lambda w: (jax.grad(loss)(w, x, backend) ** 2).sum())(w)

    mapped = jax.jit(jax.vmap(second, (None, 0, None)), static_argnums=2)
    assert (mapped(w, x, "mojo") == mapped(w, x, "jax")).all()
