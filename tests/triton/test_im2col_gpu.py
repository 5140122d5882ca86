"""The carried kernels on a GPU, as in `test_gluon_gpu`."""

from __future__ import annotations

import sys

import pytest
import raced
from raced import on_a_card, one_check

KERNELS = ["im2col"]


def lines():
    """Hold each kernel to the oracle."""
    from test_im2col import LINES

    raced.lines(LINES)


CHECKS = {check.__name__: check for check in (lines, raced.large)}


@pytest.mark.gpu
@on_a_card
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    one_check(__file__, name)


if __name__ == "__main__":
    raced.NAMES[:] = KERNELS
    CHECKS[sys.argv[1]]()
