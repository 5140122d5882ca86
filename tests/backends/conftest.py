"""Shared by the tests of several frameworks."""

from collections import Counter

import pytest

from convref.conformance.examine import examine
from convref.conformance.generate import chunk_cases


@pytest.fixture
def right():
    """Return a function that compares a backend with the oracle on the first cases of axes."""

    def examined(backend, axes, least, without=()):
        seen: Counter[str] = Counter()
        for case in chunk_cases(axes, 0):
            call = case.call
            if backend.supports(call) is None and (call.op, call.pass_) not in without:
                found = examine(case, backend)
                assert found.verdict in ("pass", "vacuous"), f"{case}: {found.reason}"
                seen[found.verdict] += 1
        assert seen["pass"] >= least, seen

    return examined
