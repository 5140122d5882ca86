"""Print the PTX of one kernel by several versions of Triton, and what it computes.

`python tests/ptx/side_by_side.py FOLDER ...`: each folder has a Triton (`pip install --no-deps
--target FOLDER triton==3.8.0`); the installed one comes first. The kernel is that of Triton's issue
11519: a flattened nest of loops, whose inner one has no iterations.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

import torch
import triton
import triton.language as tl

from convref_ptx import device

ROWS, BLOCK, WIDTH = 4, 64, 40
WANTED = [0.0, *[-1.0] * ROWS]  # the body writes to the other rows: it must not run


@triton.jit
def nested(x, out, rows, columns, BLOCK: tl.constexpr, FLAT: tl.constexpr):
    i, sums = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    if rows == 0:
        tl.assume(columns > 0)
        sums += tl.load(x + i)
    else:
        for row in tl.range(0, rows, flatten=FLAT):
            for column in range(columns):
                sums += tl.load(x + column * BLOCK + i)
                tl.store(out + (1 + row) * BLOCK + i, sums)
    tl.store(out + i, sums)


def computed(flat):
    """Return the PTX of the kernel without comments and directives, and the first column."""
    out = torch.full((1 + ROWS, BLOCK), -1.0)
    with device("sm_90"):
        made = nested[(1,)](torch.ones(BLOCK), out, ROWS, 0, BLOCK, flat)
    body = made.asm["ptx"].decode().partition("\n{")[2].partition("\n}")[0]
    lines = (" ".join(re.sub(r"//.*", "", line).split()) for line in body.splitlines())
    code = [line for line in lines if line and not re.match(r"\.loc|\.reg|\$L__(tmp|func)", line)]
    return code, out[:, 0].tolist()


def described():
    """Return what this Triton makes of the kernel."""
    found = {str(flat): computed(flat) for flat in (False, True)}
    return {"version": triton.__version__, **found}


def ran(folder):
    """Return what the Triton of a folder makes of the kernel, the installed one for none."""
    path = os.pathsep.join([*filter(None, [folder, os.environ.get("PYTHONPATH", "")])])
    with tempfile.TemporaryDirectory() as cache:
        own = {"PYTHONPATH": path, "TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "1"}
        words = [sys.executable, __file__, "--child"]
        done = subprocess.run(words, env={**os.environ, **own}, stdout=-1, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def show(found):
    """Print the results of each version, and their PTX with flatten=True in columns."""
    for each in found:
        for flat in ("False", "True"):
            right = "right" if each[flat][1] == WANTED else "wrong"
            print(f"Triton {each['version']}, flatten={flat}: {right}, {each[flat][1]}")
    columns = [[f"Triton {each['version']}", *each["True"][0]] for each in found]
    for row in zip_longest(*columns, fillvalue=""):
        print(" | ".join(f"{cell[:WIDTH]:{WIDTH}}" for cell in row).rstrip())


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        print(json.dumps(described()))
    else:
        show([ran(folder and str(Path(folder).resolve())) for folder in ["", *sys.argv[1:]]])
