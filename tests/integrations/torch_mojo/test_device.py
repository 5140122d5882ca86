"""The eager device of torch-mojo-backend, whose kernels compile for minutes (nightly profile)."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import sys, torch
from torch_mojo_backend import register_mojo_devices
from convref.integrations import torch_mojo

register_mojo_devices()
if sys.argv[1:] == ["installed"]:
    torch_mojo.install()


def gradients(device):
    torch.manual_seed(0)
    x, w = torch.randn(2, 4, 7, 6).to(device), torch.randn(6, 2, 3, 3).to(device)
    leaves = [x.requires_grad_(), w.requires_grad_()]
    y = torch.nn.functional.conv2d(*leaves, stride=2, padding=2, dilation=2, groups=2)
    return torch.autograd.grad(y, leaves, torch.ones(y.shape).to(device))


pairs = zip(gradients("cpu"), gradients("mojo"))
assert all(torch.equal(one, other.cpu()) for one, other in pairs)
print("equal")
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    find_spec("torch_mojo_backend") is None, reason="torch-mojo-backend is not installed"
)
@pytest.mark.parametrize("words", [[], ["installed"]], ids=["alone", "installed"])
def test_a_convolution_has_gradients_only_after_install(words):
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert ("equal" in done.stdout) == bool(words), done.stderr
    assert (done.returncode == 0) == bool(words)
