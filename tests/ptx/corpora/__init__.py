"""Kernels from other people's packages, unchanged, run as PTX and compared with PyTorch.

`PYTHONPATH=tests/ptx python -m corpora liger fla` prints a table. What is not installed is skipped.
attorch and Triton's tutorials are no packages: CONVREF_CORPORA names the folder that has `attorch`
(github.com/BobMcDear/attorch at 67c2772baf33913ef51c2d1064f746ca17b63749) and `tutorials`
(python/tutorials of triton-lang/triton at 7c56a5e40f7fd928dfd5c72902d5def0097db73a).
"""

import contextlib
import importlib.util
import os
import signal
import time
from pathlib import Path

import torch

from convref_ptx import device

PACKAGES = {"liger": "liger_kernel", "gems": "flag_gems", "fla": "fla"}
NAMES = (*PACKAGES, "attorch", "tutorials", "gluon")
LIMIT = int(os.environ.get("CONVREF_CORPORA_SECONDS", "240"))  # of the processor, for a case
# Of the cases of a kernel the last state counts; "raises": the case ended with nothing compared.
STATES = ("raises", "slow", "right", "differs", "finding", "refused")


def folder(name):
    """Return a folder of CONVREF_CORPORA; an ImportError if it is not there."""
    path = Path(os.environ.get("CONVREF_CORPORA", "")) / name
    if not path.is_absolute() or not path.is_dir():
        raise ImportError(f"CONVREF_CORPORA names no folder with {name}")
    return path


def available(name):
    """Raise an ImportError if the package of a corpus is not installed."""
    if name in PACKAGES and importlib.util.find_spec(PACKAGES[name]) is None:
        raise ImportError(f"{PACKAGES[name]} is not installed")


def leaf(*shape):
    return torch.randn(shape).requires_grad_()


def with_gradients(function, reference, *operands):
    """Return pairs of the results of two functions, and of their gradients."""
    pairs, ran = [], []
    for run in (function, reference):
        given = [a.detach().clone().requires_grad_(a.requires_grad) for a in operands]
        out = run(*given)
        out = out if isinstance(out, tuple) else (out,)
        leaves = [a for a in given if a.requires_grad]
        kept = [a.detach().clone() for a in out if isinstance(a, torch.Tensor)]
        torch.manual_seed(1)  # the same cotangent for both
        if leaves and out[0].requires_grad:
            out[0].backward(torch.randn(out[0].shape, dtype=out[0].dtype))
        ran.append([*kept[:1], *(a.grad for a in leaves)])
    for got, want in zip(*ran, strict=True):
        if want is not None:
            pairs.append((got, want))
    return pairs


def relative_difference(got, want):
    """Return the largest difference relative to the largest wanted element; 0 if equal."""
    if not want.numel():
        return 0.0  # ATen returns no statistics where a kernel does
    if got is None or got.numel() != want.numel():
        return float("inf")
    got = got.reshape(want.shape)
    if not want.is_floating_point():
        return 0.0 if torch.equal(got.to(want.dtype), want) else float("inf")
    got, want = got.detach().double(), want.detach().double()
    finite = want.isfinite()
    if not torch.equal(got.nan_to_num()[~finite], want.nan_to_num()[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = max(float(want[finite].abs().max()), torch.finfo(torch.float32).tiny)
    found = float((got - want)[finite].abs().max()) / largest
    return found if found == found else float("inf")


@contextlib.contextmanager
def time_limit(seconds):
    """Raise a TimeoutError after some seconds of the processor, and again while it is caught."""

    def stop(*_):
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(run, arch):
    """Return what became of a case: {kernel: (state, text)}, and (state, text) of the case."""
    findings, state, text = [], "right", ""
    torch.manual_seed(0)
    with device(arch, findings=findings) as made:
        try:
            with time_limit(LIMIT):
                worst = max([relative_difference(*pair) for pair in run()], default=0.0)
            # Factors and results may be rounded to bfloat16; a wrong kernel is further off.
            if worst > 4 * torch.finfo(torch.bfloat16).eps:
                state, text = "differs", f"by {worst:.1e} of the largest element"
        except TimeoutError as error:
            state, text = "slow", str(error)
        except Exception as error:  # of any kind: the next case goes on
            first = (str(error).strip().splitlines() or [""])[0]
            state, text = "raises", f"{type(error).__name__}: {first[:150]}"
    wrong = {}
    for finding in findings:
        refused = "unknown" in finding.text or "not supported" in finding.text
        wrong.setdefault(finding.kernel, ("refused" if refused else "finding", finding.text))
    if wrong:  # what differs then may be a consequence
        state, text = max(wrong.values(), key=lambda pair: STATES.index(pair[0]))
    rest = ("raises", "not compared") if wrong else (state, text)
    return {name: wrong.get(name, rest) for name in made.launched}, (state, text)


def sweep(name, chosen="", arch="sm_90", show=print):
    """Run the cases of a corpus whose names contain `chosen`; return the kernels and cases."""
    available(name)
    with device(arch):
        cases = list(importlib.import_module(f"corpora.{name}").cases())
    kernels, done = {}, {}
    for case, run in cases:
        if chosen not in case:
            continue
        begun = time.monotonic()
        found, done[case] = outcome(run, arch)
        for kernel, new in found.items():
            old = kernels.get(kernel, new)
            kernels[kernel] = max(old, new, key=lambda pair: STATES.index(pair[0]))
        show(f"{case:40} {time.monotonic() - begun:6.1f} s  {' '.join(done[case])[:300]}")
    return kernels, done


def main(names):
    """Print what became of the cases and kernels of some corpora, given as NAME or NAME:CASE."""
    for word in names or NAMES:
        name, _, chosen = word.partition(":")
        try:
            kernels, done = sweep(name, chosen, show=lambda line: print(line, flush=True))
        except ImportError as error:
            print(f"{name}: skipped, {error}")
            continue
        lines = [f"{name} {kernel}: {' '.join(k)[:400]}" for kernel, k in kernels.items() if k[1]]
        count = {state: sum(state == k[0] for k in kernels.values()) for state in STATES}
        cases = sum(state == "right" for state, _ in done.values())
        rest = (("raises", "slow"), ("differs", "finding"), ("refused",))
        row = (len(kernels), count["right"], *(sum(map(count.get, states)) for states in rest))
        lines.append(f"{name}: {count}; {cases} of {len(done)} cases right")
        lines.append(f"| {name} | {' | '.join(map(str, row))} |")  # of the table in the docs
        print(*lines, sep="\n", flush=True)
