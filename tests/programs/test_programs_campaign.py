"""Correct implementations of many programs are never wrong; mutations of them are."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sample_programs as samples  # noqa: E402
from other_implementations import IMPLEMENTATIONS, UNFAIR, one_thread  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from convref import Numerics  # noqa: E402
from convref.judge.programs import Program, for_program, mutants, verdict  # noqa: E402

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
SEEDS = range(int(os.environ.get("CONVREF_SEEDS", "40")) if NIGHTLY else 1)
DTYPES = (torch.float32, torch.bfloat16, torch.float16) if NIGHTLY else (torch.float32,)


def arithmetic(dtype):
    """Return PyTorch's arithmetic: its 16-bit convolutions round the sum of each tap."""
    return Numerics(stages=9 if dtype.itemsize == 2 else 0)


def test_correct_implementations_are_never_wrong():
    runs = elements = 0
    with one_thread():
        for seed in SEEDS:
            for name in samples.PROGRAMS:
                for dtype in DTYPES:
                    for kind in ("normal", "integers") if NIGHTLY else ("normal",):
                        done = implementations(name, dtype, kind, seed)
                        runs, elements = runs + done[0], elements + done[1]
    print(f"{runs} runs, {elements} elements")
    assert runs >= len(samples.PROGRAMS) * 7


def implementations(name, dtype, kind, seed):
    """Judge every implementation of a program; return how many runs and elements were judged."""
    f, args = samples.PROGRAMS[name][0], samples.arguments(name, dtype, seed, kind)
    _, wanted = Program(f, args, {}, arithmetic(dtype)).traced()
    runs = elements = 0
    for label, implementation in IMPLEMENTATIONS.items():
        if (label, name) in UNFAIR:
            continue
        results = [t for t in tree_leaves(implementation(f, *args)) if t is not None]
        for got, (place, (like, pair)) in zip(results, wanted.items()):
            found = verdict(place, got, like, pair, arithmetic(dtype))
            assert found.kind != "wrong", f"{label} {name} {dtype} {kind} {seed}: {found.reason}"
            elements += got.numel()
        runs += 1
    return runs, elements


def caught_by(name, draws):
    """Return by mutation whether the judge fails it on some generated data."""
    f, args = samples.PROGRAMS[name][0], samples.arguments(name, torch.float32)
    caught = {}
    for _, data in for_program(args, draws):
        traced = Program(f, tuple(data), {}, Numerics()).traced
        _, right = traced()
        for mutation, results in mutants(traced):
            if caught.get(mutation):
                continue
            caught[mutation] = any(
                verdict(n, results[n], like, pair, Numerics()).kind == "wrong"
                for n, (like, pair) in right.items()
            )
    return caught


# Mutations that change nothing: the operation is the identity, or its last term is a constant zero.
EQUIVALENT = ()


def test_mutations_are_wrong_on_generated_data():
    names = samples.PROGRAMS if NIGHTLY else ("affine", "conv", "softmax", "written attention")
    caught = {f"{n}: {m}": c for n in names for m, c in caught_by(n, 2 if NIGHTLY else 1).items()}
    missed = [m for m, c in caught.items() if not c and not any(e in m for e in EQUIVALENT)]
    print(f"{len(caught) - len(missed)} of {len(caught)} mutations fail; not: {missed}")
    assert len(missed) <= len(caught) // 100
