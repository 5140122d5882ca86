"""Where a micro-test's PTX runs: in the interpreter, or on a GPU, which confirms what is expected.

A run on a GPU writes which tests it confirmed, with a digest of the PTX, next to the tests. After
an error of the device each later call of its process fails: a worker of pytest-xdist ends then,
and xdist goes on with another one.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from micro import run as run_interpreted

from convref_ptx import Allocation, Im2colMap, TensorMap, launch, parse

GOLDEN = Path(__file__).parent / "golden.json"
CONFIRMED = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
RAN = {}  # name of a test: (digest of its PTX, digest of what a GPU computed)
TODAY = {}  # name of a test that has run anywhere: digest of its PTX
RECORD = "ran on a GPU"  # key of a test's record among the properties of its report
BODIES = {}  # of the tests that have run, by their file
HEADER = ".version 8.3\n.target sm_90a\n.address_size 64\n"
# A bulk copy to the memory of its own block needs PTX 8.6.
# So do products of 8-bit floats (8.4).
NEWER = HEADER.replace("8.3", "8.6"), r"shared::cta\.global\.im2col|mma\S*\.e[45]m[23]\."


def header_of(body):
    return NEWER[0] if re.search(NEWER[1], body) else HEADER


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def plain(name):
    """Return the name of a test without where it runs."""
    return re.sub(r"(?<=[\[-])(gpu|numpy|early|late|model)(?=[\]-])", "", name, count=1)


def current(records, today):
    """Return the records of a GPU whose PTX is the current one."""
    return {name: r for name, r in records.items() if today.get(name, r[0]) == r[0]}


def on_gpu(text, grid, threads, arguments, shared):
    """Run a kernel on the machine's GPU, on copies of the buffers that come back."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a CUDA device of sm_90")
    from convref_driver import Manifest, driver, encode, load

    torch.zeros(1, device="cuda")  # makes the context
    held = {}

    def place(buffer):
        if id(buffer) not in held:
            flat = np.ascontiguousarray(buffer.array).view(np.uint8).ravel()
            held[id(buffer)] = buffer, torch.from_numpy(flat.copy()).cuda()
        return held[id(buffer)][1].data_ptr() + buffer.offset

    def packed(value):
        if not isinstance(value, TensorMap):
            return place(value) if isinstance(value, Allocation) else value or 0
        kind = f"u{8 * value.allocation.array.itemsize}"
        layout = value.shape, value.strides, value.box, value.swizzle, value.every
        corners = (value.lower, value.upper) if isinstance(value, Im2colMap) else ()
        return encode(driver(), kind, place(value.allocation), *layout, *corners)

    program, values = parse(text), [packed(value) for value in arguments]
    kinds = {8: "ptr", 128: "tensormap"}
    parameters = tuple(kinds.get(p.size, f"bytes{p.size}") for p in program.parameters)
    manifest = Manifest(program.name, parameters, (*threads, 1, 1)[:3], shared)
    with load(text.encode(), manifest) as kernel:
        kernel.launch(grid, values)
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            if "PYTEST_XDIST_WORKER" in os.environ:
                print(error, file=sys.__stderr__, flush=True)
                os._exit(70)
            raise
    for buffer, tensor in held.values():
        if buffer.writable:
            back = tensor.cpu().numpy().view(buffer.array.dtype)
            buffer.array[...] = back.reshape(buffer.array.shape)


def executor(request):
    """Return a function that runs (body, grid, threads, arguments, shared) on the chosen place."""
    texts, before = [], []

    def execute(body, grid, threads, arguments, shared=0):
        text, name = header_of(body) + body, plain(request.node.name)
        texts[:] = [digest(*texts, text.encode()).encode()]
        TODAY[name] = texts[0].decode()
        ran = [""]
        request.node.user_properties[:] = [(RECORD, [name, TODAY[name], ran])]
        if request.param != "gpu":
            BODIES.setdefault(request.path, []).append(body)
            late, how = request.param == "late", "model" if request.param == "model" else "exact"
            launch(parse(text), grid, threads, arguments, 0, late, shared, how)
            return
        on_gpu(text, grid, threads, arguments, shared)
        buffers = [a.allocation if isinstance(a, TensorMap) else a for a in arguments]
        results = [buffer.array.tobytes() for buffer in buffers if buffer.writable]
        before[:] = [digest(*before, *results).encode()]
        ran[:] = [before[0].decode()]

    return execute


ON_GPU = pytest.param("gpu", marks=pytest.mark.gpu)


@pytest.fixture(params=["numpy", ON_GPU])
def execute(request):
    """Return a function that runs PTX without asynchronous operations."""
    return executor(request)


@pytest.fixture(name="run")
def run_where_asked(execute):
    """Return `micro.run` on the interpreter, and on a GPU where there is one."""
    return partial(run_interpreted, execute=execute)


@pytest.fixture(params=["early", "late", ON_GPU])
def execute_later(request):
    """Return a function that runs asynchronous PTX at its earliest and at its latest moment."""
    return executor(request)


@pytest.fixture
def records(request):
    """Return the name of a test, the records of its runs, and the digest of current records."""
    return plain(request.node.name), TODAY, current


@pytest.fixture
def assemble(request, tmp_path):
    """Return a function that assembles every body that this file has run, and returns errors."""
    path = Path(pytest.importorskip("triton").__file__).parent / "backends/nvidia/bin/ptxas"
    if not path.exists():
        pytest.skip("this triton came without ptxas")
    bodies = dict.fromkeys(BODIES.get(request.path, ()))
    text = "\n".join(re.sub(r"\bf(_\d)?\b", rf"f{n}\1", body) for n, body in enumerate(bodies))
    (tmp_path / "all.ptx").write_text(header_of(text) + text, "utf-8")

    def run():
        words = [path, "-arch=sm_90a", "-o", tmp_path / "all.cubin", tmp_path / "all.ptx"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr

    return run


def pytest_runtest_logreport(report):
    """Take the records of a test, from any process; drop those of wrong GPU results."""
    found = (value for key, value in report.user_properties if key == RECORD)
    for name, today, (result,) in found if report.when == "call" else ():
        TODAY[name] = today
        if result:
            RAN[name] = today, result
    for known in (RAN, CONFIRMED) if report.failed else ():
        known.pop(plain(report.nodeid.rpartition("::")[2]), None)


def pytest_sessionfinish():
    """Write what a GPU has confirmed next to the tests and to the folder of results."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the main process has the records of all workers
    folders = [GOLDEN.parent, *filter(None, [os.environ.get("OUT")])]
    for folder in folders if RAN else ():
        text = json.dumps(current(CONFIRMED | RAN, TODAY), indent=0, sort_keys=True)
        (Path(folder) / GOLDEN.name).write_text(text + "\n", "utf-8")


def pytest_terminal_summary(terminalreporter):
    """Print how many micro-tests a GPU has confirmed, and how many records are stale."""
    known = current(CONFIRMED | RAN, TODAY)
    stale = len(CONFIRMED | RAN) - len(known)
    terminalreporter.write_line(
        f"PTX micro-tests that a GPU has confirmed: {len(TODAY.keys() & known)} of {len(TODAY)}"
        + f"; {stale} records are of another PTX and confirm nothing" * bool(stale)
        if known or stale
        else "PTX micro-tests: their expected values are unconfirmed, no GPU has run them"
    )
