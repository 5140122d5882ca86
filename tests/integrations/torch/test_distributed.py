"""Two and four processes on sharded tensors give the results of one process on whole ones."""

from __future__ import annotations

import contextlib
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
# What two processes do not show: fewer images than processes, a mesh of two axes of two.
OF_FOUR = ("convolutions_that_must_move", "norms", "a_mesh_of_two_axes", "fully_sharded")
CHECKS = {2: (), 4: () if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else OF_FOUR}


def test_sharded_result_equals_unsharded(tmp_path):
    """All checks are one test: a fixture would import torch in each worker of pytest."""
    groups = (",".join([str(size), *names]) for size, names in CHECKS.items())
    child = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path), *groups],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        child.wait(TIMEOUT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    # A process whose torch threads crash at exit, after the last check, has reported everything.
    for size, rank in ((n, rank) for n in CHECKS for rank in range(n)):
        report, log = (tmp_path / str(size) / f"{rank}.{kind}" for kind in ("json", "log"))
        where = f"rank {rank} of {size}"
        assert report.exists(), f"{where}: {log.read_text() if log.exists() else 'no log'}"
        failed = {name: text for name, text in json.loads(report.read_text()).items() if text}
        assert not failed, f"{where}: {failed} {log.read_text()}"
