"""Two and four processes on sharded tensors give the results of one process on whole ones."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

SCRIPT = Path(__file__).with_name("ranks.py")
TIMEOUT_S = 900
CHECKS = (
    "convolutions",
    "convolutions_that_must_move",
    "second_derivatives",
    "channelwise",
    "norms",
    "image_by_image",
    "a_pair_of_layers",
    "a_mesh_of_two_axes",
    "data_parallel",
    "fully_sharded",
)


@pytest.fixture(scope="module", params=(2, 4))
def reports(request, tmp_path_factory):
    """Return the report of each process on each check, and its output."""
    size, folder = request.param, tmp_path_factory.mktemp("ranks")
    child = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(size), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        child.wait(TIMEOUT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    files = [folder / f"{rank}.json" for rank in range(size)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    # A process whose torch threads crash at exit, after the last check, has reported everything.
    return [(each, file.with_suffix(".log").read_text()) for each, file in zip(found, files)]


@pytest.mark.parametrize("check", CHECKS)
def test_sharded_result_equals_unsharded(reports, check):
    for rank, (found, log) in enumerate(reports):
        assert check in found, f"rank {rank} did not reach it: {found} {log}"
        assert not found[check], f"rank {rank}: {found[check]}"


def test_every_check_is_listed():
    spec = importlib.util.spec_from_file_location("ranks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert tuple(module.CHECKS) == CHECKS


def test_importing_convref_registers_no_rule():
    code = (
        "import sys, convref.integrations.torch\n"
        "assert 'convref.integrations.torch.sharding' not in sys.modules\n"
        "import convref.integrations.torch.sharding\n"
        "from torch.distributed.tensor import DTensor\n"
        "known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs\n"
        "assert not [op for op in known if op.namespace == 'convref']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
