"""The kernels in Gluon on a GPU, each check in a process of its own: what hangs is a failure."""

from __future__ import annotations

import sys

import pytest
import raced
import torch
from hypothesis import strategies as st
from raced import in_child, layouts, on_a_card, on_card, one_check, parse, plan

from convref_triton.run import gpu

KERNELS = ["gluon_fprop", "gluon_wgrad"]


def lines():
    """Hold each kernel to the oracle."""
    from test_gluon_classes import LINES as CLASSES
    from test_gluon_numbers import LINES

    raced.lines((*LINES, *CLASSES))


def counted():
    """A program is launched for each multiprocessor of the card, where there is work for all."""
    here = gpu.cuda(torch.cuda.current_device())
    assert here.sms == torch.cuda.get_device_properties(here.place).multi_processor_count
    call = on_card(parse("conv.fprop:n64c64k64_i64x64_f3x3_p1:dt=bf16:mem=nhwc").call)
    (launch,) = plan(call, layouts(call), raced.raced(call)[0], sms=here.sms).steps
    assert launch.grid == (here.sms, 1, 1)


def generated():
    """Hold generated problems to the oracle."""
    from test_gluon_numbers import filters, strided

    raced.generated(st.one_of(strided(), filters()))


CHECKS = {check.__name__: check for check in (lines, counted, generated, raced.large)}


@pytest.mark.gpu
@on_a_card
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    one_check(__file__, name)


def test_what_hangs_or_fails_is_a_failure():
    assert in_child(["-c", "while True: pass"], limit_s=0.5)[0] is None
    status, said = in_child(["-c", "raise SystemExit('wrong')"])
    assert (status, said.strip()) == (1, "wrong")


if __name__ == "__main__":
    raced.NAMES[:] = KERNELS
    CHECKS[sys.argv[1]]()
