"""Correct implementations pass: a nightly campaign over each, all ops and passes.

``HYPOTHESIS_PROFILE=nightly CONVREF_EXAMPLES=200000 pytest tests/conformance/test_false_alarms.py``
"""

from __future__ import annotations

import importlib.util
import os

import pytest

from convref import knownbugs
from convref.conformance import campaign
from convref.conformance.examine import PASSED_OVER
from convref.conformance.generate import Axes
from convref.ops import OPS

EXAMPLES = int(os.environ.get("CONVREF_EXAMPLES", "2000"))
EVERY = tuple(OPS)
LIBRARIES = ("torch", "jax", "onnxruntime")
# A backend, and what it is asked for; libraries outside of their known bugs.
CORRECT = {
    "numpy": Axes(ops=EVERY),
    "numpy, integers": Axes(ops=("conv", "max_pool"), dtypes=("i8", "i16", "i32", "u8")),
    "numpy, complex": Axes(dtypes=("c64", "c128")),
    "numpy, large means and NaN": Axes(ops=EVERY, fills=("shifted", "nan")),
    "loops": Axes(ops=EVERY),
    "other_order:backend": Axes(dtypes=("f32",)),
    "torch": Axes(ops=EVERY),
    "jax": Axes(ops=EVERY),
    "onnxruntime": Axes(ops=EVERY),
}


@pytest.mark.nightly(reason="hours in all")
@pytest.mark.parametrize("name", CORRECT)
def test_no_false_alarm(name):
    backend = name.partition(",")[0]
    if backend in LIBRARIES and not importlib.util.find_spec(backend):
        pytest.skip(f"needs {backend}")
    known = knownbugs.regions(backend)
    outcome = campaign.run(
        campaign.Settings(backend, CORRECT[name], examples=EXAMPLES, known=known)
    )
    tally = outcome.tally
    judged = tally.examples - sum(map(tally.count, PASSED_OVER))
    print(f"{name}: {judged:,} of {tally.examples:,} judged")
    assert judged
    own = backend not in LIBRARIES  # a library may check less than its adapter, and crash
    of_invalid = {
        f.line for f in tally.findings if f.verdict == "accepts-invalid" or f.tier == "form"
    }
    alarms = [f for f in outcome.failures if own or not {f.line, f.first} & of_invalid]
    for failure in alarms:
        print(failure.verdict, failure.line, failure.reason)
    assert not alarms
