"""The kernels in Gluon on a GPU, each check in a process of its own: a hang is a failure."""

from __future__ import annotations

import sys

import gluon_checks
import pytest
import torch
from gluon_checks import in_child, layouts, on_a_gpu, one_check, parse, plan
from hypothesis import strategies as st

from convref_triton.run import gpu

KERNELS = ["gluon_fprop", "gluon_wgrad"]


def lines():
    """Check each kernel against the oracle."""
    from test_gluon_classes import LINES as CLASSES
    from test_gluon_numbers import LINES

    gluon_checks.lines((*LINES, *CLASSES))


def counted():
    """A program is launched for each multiprocessor of the card, where there is work for all."""
    here = gpu.cuda(torch.cuda.current_device())
    assert here.sms == torch.cuda.get_device_properties(here.place).multi_processor_count
    call = parse("conv.fprop:n64c64k64_i64x64_f3x3_p1:dt=bf16:mem=nhwc").call.on("cuda")
    (launch,) = plan(call, layouts(call), gluon_checks.gluon_choices(call)[0], sms=here.sms).steps
    assert launch.grid == (here.sms, 1, 1)


def generated():
    """Check generated problems against the oracle."""
    from test_gluon_numbers import filters, strided

    gluon_checks.check_generated(st.one_of(strided(), filters()))


CHECKS = {check.__name__: check for check in (lines, counted, generated, gluon_checks.large)}


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    one_check(__file__, name)


def test_hangs_and_errors_are_failures():
    assert in_child(["-c", "while True: pass"], limit_s=0.5)[0] is None
    status, said = in_child(["-c", "raise SystemExit('wrong')"])
    assert (status, said.strip()) == (1, "wrong")


if __name__ == "__main__":
    gluon_checks.NAMES[:] = KERNELS
    CHECKS[sys.argv[1]]()
