"""Two and four processes compute with shares of tensors; one process with whole ones says what."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

SCRIPT = Path(__file__).with_name("ranks.py")
TIMEOUT_S = 240
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
def said(request, tmp_path_factory):
    """Return the report of each process on each check, and its output."""
    size, folder = request.param, tmp_path_factory.mktemp("ranks")
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    logs = [(folder / f"{rank}.log").open("w") for rank in range(size)]
    children = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(size), str(folder)],
            env=threads,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        for rank, log in enumerate(logs)
    ]
    try:
        for child in children:
            child.wait(TIMEOUT_S)
    finally:
        for child, log in zip(children, logs):
            child.kill()
            child.wait()
            log.close()
    files = [folder / f"{rank}.json" for rank in range(size)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    # A process whose torch threads crash at exit, after the last check, has reported everything.
    return [(each, Path(log.name).read_text()) for each, log in zip(found, logs)]


@pytest.mark.parametrize("check", CHECKS)
def test_sharded_result_equals_unsharded(said, check):
    for rank, (found, log) in enumerate(said):
        assert check in found, f"rank {rank} did not get that far: {found} {log}"
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
