"""Kernels in CUDA C++, as nvcc and NVRTC compile them; NVRTC is a wheel and needs no driver."""

import json
import math
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from convref.errors import ConvrefError, UnsupportedError
from convref_driver import Manifest
from convref_ptx import Fault, cuda
from convref_ptx.cli import main
from convref_ptx.launches import run, run_file

HERE = Path(__file__).parent / "cuda"
NVCC = pytest.param("nvcc", marks=pytest.mark.nightly(reason="a compilation of some seconds"))
DRAW = np.random.default_rng(0)
# Units in the last place: CUDA C++ Programming Guide, "Mathematical Functions".
ULPS = (2, 2, 4, 2, 1, 2, 0, 0, 2, 0)
FUNCTIONS = (
    math.sin, lambda v: math.cos(np.float32(v * np.float32(1e6))), lambda v: v**1.5, math.tanh,
    math.log1p, math.erf, lambda v: v / 3, math.sqrt, lambda v: (v + 1) ** -0.5,
    lambda v: math.fmod(v, np.float32(0.3)),
)  # fmt: skip


@cache
def compiled(compiler, file, change=None):
    """Return the PTX of a file, with a text of it replaced; skip where it cannot be compiled."""
    source = (HERE / file).read_text("utf-8")
    if change:
        assert source.count(change[0]) == 1
        source = source.replace(*change)
    if compiler == "nvrtc":
        try:
            return cuda.compile_cuda(source, file=file)[0]
        except UnsupportedError as error:
            pytest.skip(str(error))
        except ConvrefError as error:
            if "cannot open source file" not in str(error):
                raise
            pytest.skip("the headers of CUDA are not installed")
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    words = ["nvcc", "-ptx", "-lineinfo", "-arch=sm_90", "-std=c++17", file, "-o", "out.ptx"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file).write_text(source, "utf-8")
        subprocess.run(words, cwd=folder, check=True)
        return (Path(folder) / "out.ptx").read_text("utf-8")


def launched(text, kernel, parameters, threads, grid, arguments, shared=0):
    symbol = re.search(rf"\.entry (\w*{kernel}\w*)", text)[1]
    sizes = (*threads, 1, 1)[:3]
    run(text, Manifest(symbol, tuple(parameters.split()), sizes, shared), grid, arguments)


def whole(*shape, dtype=np.float32):
    return DRAW.integers(-4, 5, shape).astype(dtype)


def empty(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def sums(dtype, instance, threads):
    x, out = whole(1000, dtype=dtype), empty(1, dtype=dtype)
    return (instance, "ptr ptr i32", (threads,), (3,), [x, out, 1000]), [(out, x.sum())]


def scan():
    x, out = whole(100, dtype=np.int32), empty(100, dtype=np.int32)
    return ("scan", "ptr ptr i32", (128,), (1,), [x, out, 100], 1024), [(out, x.cumsum())]


def transpose():
    x, out = whole(70, 50), empty(50, 70)
    return ("transpose", "ptr ptr i32 i32", (32, 8), (2, 3), [x, out, 70, 50]), [(out, x.T)]


def product(name="product", dtype=np.float32, threads=(16, 16)):
    a, b, c = whole(48, 48, dtype=dtype), whole(48, 48, dtype=dtype), empty(48, 48)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    return (name, "ptr ptr ptr i32", threads, (3, 3), [a, b, c, 48]), [(c, wanted)]


def softmax():
    """Differences of 200 give zeros, so results are 1 / n."""
    x, out = np.full((3, 300), -200, np.float32), empty(3, 300)
    for row, many in enumerate((1, 4, 256)):
        x[row, DRAW.permutation(300)[:many]] = 0
    wanted = (x == 0) / (x == 0).sum(1, keepdims=True)
    return ("softmax", "ptr ptr i32", (128,), (3,), [x, out, 300]), [(out, wanted)]


def histogram():
    x, out = DRAW.integers(0, 256, 1000).astype(np.uint8), empty(256, dtype=np.uint32)
    wanted = np.bincount(x, minlength=256)
    return ("histogram", "ptr ptr i32", (128,), (3,), [x, out, 1000]), [(out, wanted)]


def stencil():
    x, out = whole(150), empty(150)
    wanted = np.convolve(x, [0.25, 0.5, 0.25], "same")
    return ("stencil", "ptr ptr i32", (64,), (3,), [x, out, 150]), [(out, wanted)]


def sort():
    x, out = whole(50, 16, dtype=np.int32), empty(50, 16, dtype=np.int32)
    return ("sorted", "ptr ptr i32", (32,), (2,), [x, out, 50]), [(out, np.sort(x, 1))]


def called():
    x, out = whole(64, 5), empty(64)
    wanted = [np.ptp(row[: i % 5 + 1]) for i, row in enumerate(x)]
    return ("called", "ptr ptr i32", (64,), (1,), [x, out, 5]), [(out, wanted)]


def ticket():
    out = empty(128, dtype=np.int32)
    return ("ticket", "ptr", (64,), (2,), [out]), [(lambda: np.sort(out), np.arange(128))]


def switched():
    which, out = np.arange(100, dtype=np.int32) % 10, empty(100)
    exact = np.array([FUNCTIONS[n % 10](np.float32(0.5) * n) for n in range(100)])
    ulps = np.array(ULPS)[which] * np.spacing(np.abs(exact).astype(np.float32))
    near = (lambda: abs(out - exact.astype(np.float32)) <= ulps, True)
    return ("switched", "ptr ptr i32", (64,), (2,), [which, out, 100]), [near]


def largest():
    x, out = abs(whole(100, dtype=np.float64)), empty(1, dtype=np.uint64)
    held = lambda: out.view(np.float64)  # noqa: E731
    return ("largest", "ptr ptr i32", (64,), (2,), [x, out, 100]), [(held, x.max())]


def voted():
    x, out = DRAW.integers(0, 9, 128).astype(np.int32), empty(128, 7, dtype=np.uint32)
    warps = np.repeat(x.reshape(-1, 32), 32, 0)

    def mask(holds):
        return (holds << np.arange(32, dtype=np.uint32)).sum(1)

    odd, same = mask(warps % 2), mask(warps == x[:, None])
    lane, lowest = np.arange(128) % 32, same & -same
    half = np.where(lane < 16, x[np.arange(128) // 8 * 8 + 3], 0)
    counts = [int(o).bit_count() + int(s).bit_length() + 32 - int(v).bit_length()
              for o, s, v in zip(odd, lowest, x)]  # fmt: skip
    wanted = [odd, same, np.ones(128), (warps > 7).any(1), warps.max(1), half, counts]
    call = "voted", "ptr ptr i32", (64,), (2,), [x, out, 128]
    return call, [(out, np.stack(wanted, 1))]


def said():
    x, out = np.arange(50, dtype=np.int32), empty(50, dtype=np.int32)
    return ("said", "ptr ptr i32", (64,), (1,), [x, out, 50]), [(out, x // 3 + x % 7)]


def groups():
    x, out = whole(200, dtype=np.int32), empty(33, dtype=np.int32)
    wanted = [*np.pad(x, (0, 56)).reshape(32, 8).sum(1)]
    return ("groups", "ptr ptr i32", (128,), (2,), [x, out, 200]), [(out[:32], wanted)]


def halves():
    """Of 0 and -30 the exponential is 1 and rounded to 0."""
    x = DRAW.choice([0, -30], (128, 2)).astype(np.float16)
    out, most = np.zeros_like(x), empty(4, dtype=np.float16)
    wanted = [(out, np.where(x == 0, 1, -60)), (most, x.reshape(4, 64).max(1))]
    return ("halves", "ptr ptr ptr i32", (64,), (2,), [x, out, most, 128]), wanted


def copied():
    x, out = whole(5, 64, 4), empty(5, 64, 4)
    wanted = x[:, ::-1].copy()
    wanted[..., 0] += wanted[..., 1]
    return ("copied", "ptr ptr i32", (64,), (1,), [x, out, 5]), [(out, wanted)]


PLAIN = {
    "float": lambda: sums(np.float32, "sumsIf", 128),
    "double": lambda: sums(np.float64, "sumsId", 64),
    **{f.__name__: f for f in (scan, transpose, product, softmax, histogram, stencil, sort, called,
                               ticket, switched, largest, voted, said)},
}  # fmt: skip
HEADERS = {
    **{f.__name__: f for f in (groups, halves, copied)},
    "wmma": lambda: product("wmma_product", np.float16, (32,)),
}
RUNS = {**dict.fromkeys(PLAIN, "plain.cu"), **dict.fromkeys(HEADERS, "headers.cu")}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("compiler", ["nvrtc", NVCC])
def test_a_kernel_is_right(compiler, name):
    call, results = {**PLAIN, **HEADERS}[name]()
    launched(compiled(compiler, RUNS[name]), *call)
    for got, wanted in results:
        assert ((got() if callable(got) else got) == wanted).all()


# Of a kernel: text, its replacement, what is found, and text of the line where it is.
SYNC = "__syncthreads();"
FAULTS = {
    "no barrier in a sum": ("float", f"{SYNC}\n  if (threadIdx.x == 0)", "if (threadIdx.x == 0)",
                            "race|undefined", "s += part[i]"),
    "no barrier in a transposition": (
        "transpose", f"{SYNC}\n  int row", "int row", "race|undefined", "= tile[threadIdx.x][j]"),
    "no barrier after a tile": (
        "product", f"B[t][x];\n    {SYNC}", "B[t][x];", "race", "[y][x] = "),
    "a row too many": ("transpose", "if (row < rows && column", "if (row <= rows && column",
                       "outside", "= x[row * columns + column]"),
    "counts without atomics": ("histogram", "atomicAdd(&bins[x[i]], 1)", "bins[x[i]]++",
                               "race", "bins[x[i]]++"),
    "an element before the first": ("stencil", "i ? x[i - 1] : 0", "x[i - 1]", "outside",
                                    "x[i - 1]"),
    "memory that was not written": ("histogram", "i < 256; i += blockDim.x) bins",
                                    "i < 255; i += blockDim.x) bins", "unwritten memory", "(&bins"),
    "an assertion": ("said", "x[i] >= 0", "x[i] < 40", r"assert\(x\[i\] < 40\)", "assert("),
    "copies not waited for": ("copied", "wait_prior(1)", "wait_prior(2)", "not been waited for",
                              "= stage["),
}  # fmt: skip


@pytest.mark.nightly(reason="a compilation each")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_a_seeded_fault_is_found_at_its_line(compiler, fault):
    name, *change, found, line = FAULTS[fault]
    text = compiled(compiler, file := RUNS[name], tuple(change))
    with pytest.raises(Fault, match=found) as raised:
        launched(text, *{**PLAIN, **HEADERS}[name]()[0])
    lines = (HERE / file).read_text("utf-8").replace(*change).splitlines()
    numbers = re.findall(rf"{re.escape(file)}:(\d+)", str(raised.value))
    assert any(line in lines[int(n) - 1] for n in numbers), raised.value


SCALE = """template <typename T> __global__ void scale(const T* x, T* out, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = x[i] * by;
}"""


def test_a_launch_from_json_names_a_source(tmp_path, capsys):
    """It is compiled; a fault is at the line of the source, an error of the compiler is shown."""
    pytest.importorskip("nvidia", reason="NVRTC is not installed")
    array = {"shape": [100], "dtype": "float64", "fill": "arange"}
    told = {
        "ptx": "k.cu", "name": "scale<double>", "parameters": ["ptr", "ptr", "f64", "i32"],
        "threads": [64], "grid": [2], "arguments": [array, array, 3.0, 100],
    }  # fmt: skip
    path = tmp_path / "launch.json"
    (tmp_path / "k.cu").write_text(SCALE, "utf-8")
    path.write_text(json.dumps(told), "utf-8")
    assert np.array_equal(run_file(path)[1], 3 * np.arange(100))
    told["arguments"][3] = 101
    path.write_text(json.dumps(told), "utf-8")
    assert main([str(path)]) == 1
    assert "k.cu:4, program (1, 0, 0), warp 1, lane 4)" in capsys.readouterr().out
    (tmp_path / "k.cu").write_text(SCALE.replace("by;", "by"), "utf-8")
    with pytest.raises(ConvrefError, match=r'k\.cu\(5\): error: expected a ";"'):
        run_file(path)


def test_nvrtc_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(cuda, "_folders", lambda name: iter(()))
    monkeypatch.setattr(cuda, "find_library", lambda name: None)
    cuda._nvrtc.cache_clear()
    with pytest.raises(UnsupportedError, match="pip install nvidia-cuda-nvrtc"):
        cuda.compile_cuda(SCALE)
    cuda._nvrtc.cache_clear()
