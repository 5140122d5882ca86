"""Measure the judge of programs: `measure.py speed`, `memory` or `tightness`."""

from __future__ import annotations

import sys
import time
from itertools import accumulate

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from convref import Numerics
from convref.judge.programs import Program, judge_results

_IMAGE, _ROWS = (64, 128, 16, 16), (4096, 512)
SPEED = {
    "matmul": (torch.matmul, (512, 512), (512, 512)),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1), (4, 32, 56, 56), (32, 32, 3, 3)),
    "linear, bias apart": (lambda x, w, b: x @ w + b, (2048, 64), (64, 1024), (1024,)),
    "gelu(2 tanh + 1)": (lambda x: F.gelu(torch.tanh(x) * 2 + 1), _IMAGE),
    "relu": (F.relu, _IMAGE),
    "add": (torch.add, _IMAGE, _IMAGE),
    "silu gate": (lambda x, y: F.silu(x) * y, _IMAGE, _IMAGE),
    "layer_norm": (lambda x: F.layer_norm(x, (512,)), _ROWS),
    "rms_norm": (lambda x, w: F.rms_norm(x, (512,), w), _ROWS, (512,)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), _IMAGE),
    "softmax": (lambda x: F.softmax(x, -1), _ROWS),
    "sum": (lambda x: x.sum(-1), _ROWS),
    "attention": (F.scaled_dot_product_attention, *[(2, 8, 256, 64)] * 3),
    "max_pool": (lambda x: F.max_pool2d(x, 2), _IMAGE),
}


def _seconds(f, *args):
    start = time.thread_time()
    f(*args)
    return time.thread_time() - start


def cases():
    """Yield name, function, operands in float64, its results and its program."""
    for name, (f, *shapes) in SPEED.items():
        args = tuple(torch.randn(shape) for shape in shapes)
        yield name, f, [a.double() for a in args], f(*args), Program(f, args, {}, Numerics())


def speed(rounds=9):
    """Print the processor time of judging over that of the reference in float64, one thread."""
    for name, f, wide, got, program in cases():
        judge_results(program, got)
        f(*wide)
        times = [(_seconds(judge_results, program, got), _seconds(f, *wide)) for _ in range(rounds)]
        print(f"{name:20} {min(t[0] for t in times) / min(t[1] for t in times):6.1f}", flush=True)
    layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8), torch.nn.ReLU()] * 50)
    program = Program(layers, (torch.randn(2, 8),), {}, Numerics())
    program.traced()
    print(f"tracing 100 operations: {_seconds(program.traced):.3f} s")


def _peak(f, *args):
    """Return the largest number of bytes that f holds at a time, besides its operands."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        f(*args)
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


def memory():
    """Print the memory of judging over that of the reference in float64, operands included."""
    for name, f, wide, got, program in cases():
        judging = _peak(judge_results, program, got) + sum(a.nbytes for a in (*program.args, got))
        print(f"{name:20} {judging / (_peak(f, *wide) + sum(a.nbytes for a in wide)):6.1f}")


# Functions of x, whose last axis is reduced, and w with as many rows.
TIGHTNESS = {
    "sum": lambda x, w: x.sum(-1),
    "mean": lambda x, w: x.mean(-1),
    "cumsum": lambda x, w: x.cumsum(-1),
    "norm": lambda x, w: x.norm(dim=-1),
    "var": lambda x, w: x.var(-1),
    "matmul": lambda x, w: x @ w,
    "conv2d": lambda x, w: F.conv2d(x[:, :, None, None], w.t()[:, :, None, None]),
    "attention": lambda x, w: F.scaled_dot_product_attention(w.t()[None], x.t()[None], x.t()[None]),
    "softmax": lambda x, w: x.softmax(-1),
    "logsumexp": lambda x, w: x.logsumexp(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, x.shape[-1:]),
}


def bounded(name, length):
    """Return operands of a reduction of 2**length terms, and the pair of its result."""
    random = torch.Generator().manual_seed(length)
    shapes = (max(2, 2**16 >> length), 2**length), (2**length, max(1, 2**10 >> length))
    if name == "attention":  # as many keys as terms, of 4 numbers
        shapes = (4, 2**length), (4, 64)
    operands = [torch.randn(shape, generator=random) for shape in shapes]
    _, wanted = Program(TIGHTNESS[name], operands, {}, Numerics()).traced()
    return operands, wanted["output"][1]


def ratios(name, length):
    """Return bound over true error, median and 99th percentile, of 2**length terms."""
    operands, pair = bounded(name, length)
    error = (TIGHTNESS[name](*operands).double() - pair.value).abs()
    ratio = (pair.error / error)[error > 0].flatten().sort().values
    return [float(ratio[int(q * (len(ratio) - 1))]) if len(ratio) else 0.0 for q in (0.5, 0.99)]


def roundings(name, length):
    """Return the bound in roundings of the result for absolute values, median."""
    operands, pair = bounded(name, length)
    size = TIGHTNESS[name](*(x.double().abs() for x in operands)).abs()
    return float((pair.error / (2**-24 * size)).median())


def tightness(lengths=(4, 8, 12, 16, 20)):
    """Print median and 99th percentile of bound over true error, by length of the reduction."""
    for name in sys.argv[2:] or TIGHTNESS:
        cells = ["{:.2g}, {:.2g}".format(*ratios(name, length)) for length in lengths]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    for name in sys.argv[2:] or TIGHTNESS:
        cells = [f"{roundings(name, length):.3g}" for length in lengths[:3]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.no_grad():
        {"speed": speed, "memory": memory, "tightness": tightness}[sys.argv[1]]()
