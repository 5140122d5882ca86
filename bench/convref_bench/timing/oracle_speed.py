"""The oracle against torch in float64, op by op, on images of ResNet-50, YOLO11n and a U-Net.

NumPy computes these formulas in one thread; torch has an arm with one and an arm with two. Torch's
backward uses what its forward pass has saved; the oracle has only the operands of the call and
computes the rest again. A third arm of torch does so too.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from convref import oracle
from convref.arrays import to_torch
from convref.backends.torch.direct import direct
from convref.case import Call, Case, parse
from convref.conformance.operands import operands
from convref.ops import GROUPS

from ..records import Record
from .cpu import Cpu
from .measure import Stop, Work, geometric_mean, measure

STOP = Stop(samples=8, noise=0.05, timeout_s=1.0, turn=2)
IMAGES = (  # of ResNet-50, YOLO11n and the U-Net of Stable Diffusion, early and late ones
    "n1c64_i112x112",
    "n1c256_i56x56",
    "n1c1024_i14x14",
    "n1c16_i320x320",
    "n1c128_i40x40",
    "n1c320_i64x64",
    "n1c1280_i16x16",
)
SCORES = ("n1c80_i80x80", "n64c1000_i1x1", "n4c8_i128x128")  # classes: boxes, images, pixels
HALVED = ("n1c64_i112x112", "n1c128_i40x40", "n1c320_i64x64")
GROUPED = tuple(image.replace("_", "g32_" if "c16_" not in image else "g8_") for image in IMAGES)
POOLED = tuple(f"{image}_f2" for image in HALVED)
GROWN = ("n1c256_i20x20_o40x40", "n1c128_i40x40_o80x80", "n1c640_i32x32_o64x64")

# What is timed: op, keys of the line, problems.
ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *((op, "", IMAGES) for op in ("relu", "leaky_relu", "silu", "hardswish", "sigmoid", "tanh")),
    ("gelu", "", IMAGES),
    ("gelu", "approx=tanh", IMAGES),
    *((op, "", SCORES) for op in ("softmax", "log_softmax", "cross_entropy")),
    *((op, "", IMAGES) for op in ("batch_norm", "batch_norm_eval", "layer_norm")),
    ("group_norm", "", GROUPED),
    ("max_pool", "", ("n1c64_i112x112_f3_s2_p1", "n1c128_i20x20_f5_p2", *POOLED)),
    ("avg_pool", "", ("n1c64_i112x112_f3_s2_p1", *POOLED)),
    ("adaptive_avg_pool", "", ("n4c2048_i7x7_o1x1", "n1c320_i64x64_o7x7")),
    ("lp_pool", "", POOLED),
    ("resize", "mode=nearest:coord=asymmetric", GROWN),
    ("resize", "", GROWN),
    ("resize", "mode=cubic", GROWN),
)


# Ops whose backward needs a function of x that torch's forward pass has saved.
RECOMPUTED = (*GROUPS["activation"], "lp_pool")


def forward(call: Call) -> Callable[..., Tensor]:
    p: Any = call.problem
    if call.op == "cross_entropy":
        return F.cross_entropy
    if call.op == "lp_pool":
        return lambda x: F.lp_pool2d(x, p.norm, p.filter, p.stride)
    run = direct(call)
    assert run is not None
    return lambda *given: run(*given)[0]


def by_torch(op: str, shape: str) -> tuple[Call, tuple[Any, ...], dict[str, Work]]:
    """Return the forward call of a problem, its operands, and torch's function for each pass."""
    call = parse(f"{op}.fprop:{shape}").call
    given = operands(Case(call, fill="normal"))
    tensors = [to_torch(array) for array in given if array is not None]
    run = forward(call)
    differentiated = [t.detach() for t in tensors[:3]]
    wanted = [t for t in differentiated if t.is_floating_point()]
    for tensor in wanted:
        tensor.requires_grad_()
    y = run(*differentiated, *tensors[3:])
    dy = to_torch(operands(Case(_backward(op, shape), fill="normal"))[0]).reshape(y.shape)
    works: dict[str, Work] = {
        "fprop": lambda: run(*tensors),
        "backward": lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True),
        "again": lambda: torch.autograd.grad(
            run(*differentiated, *tensors[3:]).reshape(dy.shape), wanted, dy
        ),
    }
    return call, given, works


def _backward(op: str, shape: str) -> Call:
    return parse(f"{op}.backward:{shape}").call


def point(op: str, shape: str) -> Iterator[Record]:
    """Yield a record per pass: the fastest times of the oracle and of torch, in milliseconds."""
    call, given, theirs = by_torch(op, shape)
    backward = _backward(op, shape)
    ready = dict(zip(call.roles, given)) | _saved_results(call, given)
    dy = operands(Case(backward, fill="normal"))[0]
    cotangent = [dy if role == "dy" else ready[role] for role in backward.roles]
    ours: dict[str, Work] = {
        "fprop": lambda: oracle.evaluate(call, *given),
        "backward": lambda: oracle.evaluate(backward, *cotangent),
    }
    for pass_, work in ours.items():
        arms = {
            "oracle": work,
            "torch": _with_threads(1, theirs[pass_]),
            "torch2": _with_threads(2, theirs[pass_]),
        }
        if pass_ == "backward" and op in RECOMPUTED:
            arms["again"] = _with_threads(1, theirs["again"])
        found = measure(arms, Cpu(0.0), STOP)
        times = {f"{arm}_ms": timing.low_ms for arm, timing in found.items()}
        yield {"what": "oracle", "line": f"{op}.{pass_}:{shape}", "pass": pass_, **times}


def _saved_results(call: Call, given: Sequence[Any]) -> dict[str, Any]:
    """Return the results of the forward pass that the backward one is given."""
    results = oracle.evaluate(call, *given)
    keep = {"mean", "rstd", "indices"}
    return {r: a for r, a in zip(call.signature.results, results) if r in keep}


def _with_threads(threads: int, work: Work) -> Work:
    def run() -> Any:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return work()

    return run


def mean(rows: Sequence[Record], arm: str) -> float:
    """Return the geometric mean of the oracle's time over an arm's.

    >>> mean([{"oracle_ms": 1.0, "torch_ms": 2.0}, {"oracle_ms": 8.0, "torch_ms": 1.0}], "torch")
    2.0
    """
    return round(geometric_mean(row["oracle_ms"] / row[f"{arm}_ms"] for row in rows), 6)


def main(*ops: str) -> None:
    """Time the ops, by default all of them; print the oracle's time over torch's."""
    print(f"{'op':39}{'pass':10}{'1 thread':>9}{'2 threads':>10}{'+ forward':>10}   each shape")
    all_rows: list[Record] = []
    for op, keys, problems in ROWS:
        if ops and op not in ops:
            continue
        ends = ":".join(filter(None, (keys, "dt=f64")))
        rows = [row for shape in problems for row in point(op, f"{shape}:{ends}")]
        rows.sort(key=lambda row: row["pass"], reverse=True)
        all_rows += rows
        for pass_, group in groupby(rows, lambda row: row["pass"]):
            mine = list(group)
            each = " ".join(f"{mean([row], 'torch'):.2f}" for row in mine)
            one, two = (mean(mine, arm) for arm in ("torch", "torch2"))
            again = f"{mean(mine, 'again'):10.2f}" if "again_ms" in mine[0] else " " * 10
            print(f"{f'{op} {keys}':39}{pass_:10}{one:9.2f}{two:10.2f}{again}   {each}", flush=True)
        print(f"{'':39}{'both':10}{mean(rows, 'torch'):9.2f}{mean(rows, 'torch2'):10.2f}")
    print(f"{'all':49}{mean(all_rows, 'torch'):9.2f}{mean(all_rows, 'torch2'):10.2f}")
