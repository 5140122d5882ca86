"""The kernels whose taps share blocks on a GPU, as in `test_gluon_gpu`."""

from __future__ import annotations

import sys

import gluon_checks
import pytest
from gluon_checks import on_a_gpu, one_check
from hypothesis import strategies as st

KERNELS = ["gluon_halo", "gluon_halo_wgrad"]


def lines():
    """Check each kernel against the oracle."""
    from test_gluon_halo import LINES
    from test_gluon_halo_wgrad import LINES as COTANGENTS

    gluon_checks.lines((*LINES, *COTANGENTS))


def generated():
    """Check generated problems against the oracle."""
    import test_gluon_halo
    import test_gluon_halo_wgrad

    gluon_checks.check_generated(
        st.one_of(test_gluon_halo.shared(), test_gluon_halo_wgrad.shared())
    )


CHECKS = {check.__name__: check for check in (lines, generated, gluon_checks.large)}


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    one_check(__file__, name)


if __name__ == "__main__":
    gluon_checks.NAMES[:] = KERNELS
    CHECKS[sys.argv[1]]()
