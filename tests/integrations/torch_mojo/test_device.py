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
    print(device, flush=True)
    return torch.autograd.grad(y, leaves, torch.ones(y.shape).to(device))


pairs = zip(gradients("cpu"), gradients("mojo"))
assert all(torch.equal(one, other.cpu()) for one, other in pairs)
print("equal")
"""

CHANGED = """
import torch
from torch_mojo_backend import register_mojo_devices
from convref.integrations import torch_mojo

register_mojo_devices()


def tables():
    return {name: torch._C._dispatch_dump_table(name) for name in names}


names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
before = tables()
torch_mojo.install()
print(*{name for name, table in tables().items() if table != before[name]})
torch_mojo.uninstall()
assert tables() == before
"""
# Operators whose gradient, or its refusal in the forward pass, depends on `install`.
FORWARD = "_adaptive_avg_pool2d avg_pool2d convolution max_pool2d_with_indices"
FORWARD += " native_batch_norm native_group_norm sigmoid silu"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        find_spec("torch_mojo_backend") is None, reason="torch-mojo-backend is not installed"
    ),
]


def run(program, *words):
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=3000)


def test_install_changes_no_other_operator():
    """The dispatcher's tables of all operators of ATen, as text."""
    done = run(CHANGED)
    assert done.returncode == 0, done.stderr
    names = [f"aten::{name}" for name in FORWARD.split()]
    names += [f"{name}_backward" for name in names]
    assert {*done.stdout.split()} == {*names, "aten::relu", "aten::threshold_backward"}


@pytest.mark.parametrize("words", [[], ["installed"]], ids=["alone", "installed"])
def test_a_convolution_has_gradients_only_after_install(words):
    """Without it, the backward pass of 0.3.1 ends the process."""
    done = run(PROGRAM, *words)
    assert done.stdout.split() == ["cpu", "mojo", *["equal"] * len(words)], done.stderr
    assert (done.returncode == 0) == bool(words)
