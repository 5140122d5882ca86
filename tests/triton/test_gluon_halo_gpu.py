"""The kernels whose taps share blocks on a GPU, as in `test_gluon_gpu`."""

from __future__ import annotations

import sys

import pytest
import raced
from hypothesis import strategies as st
from raced import on_a_card, one_check

KERNELS = ["gluon_halo", "gluon_halo_wgrad"]


def lines():
    """Hold each kernel to the oracle."""
    from test_gluon_halo import LINES
    from test_gluon_halo_wgrad import LINES as COTANGENTS

    raced.lines((*LINES, *COTANGENTS))


def generated():
    """Hold generated problems to the oracle."""
    import test_gluon_halo
    import test_gluon_halo_wgrad

    raced.generated(st.one_of(test_gluon_halo.shared(), test_gluon_halo_wgrad.shared()))


CHECKS = {check.__name__: check for check in (lines, generated, raced.large)}


@pytest.mark.gpu
@on_a_card
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    one_check(__file__, name)


if __name__ == "__main__":
    raced.NAMES[:] = KERNELS
    CHECKS[sys.argv[1]]()
