"""Print which kernels each version of Triton compiles for sm_90, as a table.

`python -m convref_triton.compile.versions FOLDER ...` takes folders that
`pip install --no-deps --target FOLDER triton==VERSION` made; without one, the installed Triton is
used.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import triton

from convref.case import parse

from ..common.geometry import operands
from ..hopper import gluon
from ..hopper.precompiled import Precompiled, assembler, assembler_version
from ..plan.choose import offered, plan
from ..plan.kernels import KERNELS
from ..plan.launch import Launch
from ..plan.spec import KernelSpec
from . import aot
from .specialize import specialize

ARCH = "sm_90"
# Of kernels without lines for static tests.
LINES = {
    "pool": "max_pool.fprop:n8c64_i28x28_f3x3_s2_p1",
    "norm": "group_norm.fprop:n8c64g8_i28x28",
    "activation": "silu.fprop:n8c64_i28x28",
    "rows": "layer_norm.fprop:n512c1024_i1x1",
    "integer": "quantized_conv.fprop:n8c64k64_i28x28_f3x3_p1",
    "resize": "resize.fprop:n8c64_i28x28_o56x56",
}


def outcome(spec: KernelSpec) -> str:
    """Return "compiled", "carried PTX", or why a kernel is refused or failed to compile."""
    if spec in gluon.ABSENT:
        return f"refused: {gluon.lacks(spec.name)}"
    dtype = "bf16" if "bf16" in spec.dtypes else spec.dtypes[0]
    for line in _lines(spec):
        call = parse(f"{line}:dt={dtype}:dev=cuda").call
        known = operands(call)
        for choice in offered(call, known):
            if choice.kernel == spec.name:
                launches = plan(call, known, choice).launches
                return _compiled(launches)
    return "no line"


def _lines(spec: KernelSpec) -> Iterator[str]:
    if spec.name in LINES:
        yield f"{LINES[spec.name]}:mem=nhwc"
    for line in spec.lines.values():
        for sizes in line.sizes.values():
            yield f"{line.text.format(sizes['by_16'])}:mem={line.memory}"


def _compiled(launches: list[Launch]) -> str:
    try:
        for launch in launches:
            aot.compile(specialize(launch), ARCH)
    except aot.CompileError as error:
        return f"failed: {error}"
    carried = any(isinstance(launch.kernel, Precompiled) for launch in launches)
    return "carried PTX" if carried else "compiled"


def column() -> dict[str, str]:
    """Return the outcome of each kernel with this process's Triton."""
    found = {spec.name: outcome(spec) for spec in KERNELS}
    return {"kernel": triton.__version__, **found, "ptxas": assembler_version(assembler(ARCH))}


def _column_of(folder: str) -> dict[str, str]:
    path = os.pathsep.join((folder, *filter(None, sys.path)))
    command = [sys.executable, "-m", __spec__.name, "--column"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.PIPE
    )
    made: dict[str, str] = json.loads(done.stdout)
    return made


def main(arguments: list[str]) -> int:
    """Print the table; exit status 1 if a kernel failed to compile that is not refused."""
    if arguments == ["--column"]:
        print(json.dumps(column()))
        return 0
    columns = [_column_of(folder) for folder in arguments] or [column()]
    head, *rows = ([name, *(one[name] for one in columns)] for name in columns[0])
    for row in (head, ["---"] * len(head), *rows):
        print("|", " | ".join(row), "|")
    return int(any(cell.startswith("failed") for row in rows for cell in row))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
