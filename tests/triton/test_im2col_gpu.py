"""The precompiled kernels on a GPU, as in `test_gluon_gpu`."""

from __future__ import annotations

import sys

import gluon_checks
import pytest
from gluon_checks import on_a_gpu, one_check

KERNELS = ["im2col"]


def lines():
    """Check each kernel against the oracle."""
    from test_im2col import LINES

    gluon_checks.lines(LINES)


CHECKS = {check.__name__: check for check in (lines, gluon_checks.large)}


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    one_check(__file__, name)


if __name__ == "__main__":
    gluon_checks.NAMES[:] = KERNELS
    CHECKS[sys.argv[1]]()
