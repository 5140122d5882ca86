"""A device that is a stand-in for the driver."""

import contextlib

import pytest
import torch

from convref.errors import UnsupportedError
from convref_driver import stub


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    try:
        return stub.Stub(stub.build(tmp_path_factory.mktemp("stub")))
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture
def device(stand_in):
    stand_in.layout([])
    stand_in.log()
    here = contextlib.nullcontext
    place = torch.device("cpu")
    gpu = pytest.importorskip("convref_triton.gpu", reason="triton is not installed")
    return gpu.Device(
        place, "sm_90", stand_in, lambda: 0x77, lambda: True, here, capturing=lambda: False
    )
