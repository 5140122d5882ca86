"""Correct implementations of many programs are never wrong; mutations of them are."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from shutil import which

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sample_programs as samples  # noqa: E402
from drawn_programs import Drawn, inductor, xla  # noqa: E402
from other_implementations import IMPLEMENTATIONS, UNFAIR, one_thread  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from convref import Numerics  # noqa: E402
from convref.judge.programs import Program, for_program, judged_mutants, verdict  # noqa: E402

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# A number of seeds, or the first and the one after the last as "40:80".
SEEDS = range(*map(int, os.environ.get("CONVREF_SEEDS", "40").split(":"))) if NIGHTLY else (0,)
DRAWN = 24 if NIGHTLY else 4  # programs of a seed
SAMPLED = 8  # the sample programs are run with every eighth seed
COMPILED = int(os.environ.get("CONVREF_COMPILED", "2"))  # seeds
DTYPES = (torch.float32, torch.bfloat16, torch.float16) if NIGHTLY else (torch.float32,)


def arithmetic(dtype):
    """Return PyTorch's arithmetic: its 16-bit convolutions round the sum of each tap."""
    return Numerics(stages=9 if dtype.itemsize == 2 else 0)


def test_correct_implementations_are_never_wrong():
    count, kinds = Counter(), ("normal", "integers") if NIGHTLY else ("normal",)
    with one_thread():
        for seed in SEEDS:
            fixed = () if seed % SAMPLED else sample_cases()
            for case in (*fixed, *drawn_cases(seed)):
                for dtype in DTYPES:
                    for kind in kinds:
                        judge_all(*case, dtype, kind, seed, count)
            print(f"after seed {seed}: {dict(count)}", flush=True)
    assert not count["wrong"]
    assert count["runs"] >= len(samples.PROGRAMS) * 7


def sample_cases():
    """Yield name, function, the maker of its arguments and its implementations."""
    for name, (f, *_) in samples.PROGRAMS.items():
        fair = {k: g for k, g in IMPLEMENTATIONS.items() if (k, name) not in UNFAIR}
        yield name, f, partial(samples.arguments, name), fair


def drawn_cases(seed):
    """Yield random programs; XLA also runs some of them, PyTorch's compiler few."""
    for place in range(DRAWN):
        number = seed * DRAWN + place
        program, others = Drawn(number), dict(IMPLEMENTATIONS)
        if NIGHTLY and place % 4 == 0 and find_spec("jax"):
            others["XLA"] = xla(program)
        if NIGHTLY and place < 1 and seed < COMPILED and which("c++"):
            others["Inductor"] = inductor(program)
        yield f"drawn {number} {program.names}", program, program.arguments, others


def judge_all(name, f, make, others, dtype, kind, seed, count):
    """Judge every implementation of a program; count runs and elements that have a bound."""
    args = make(dtype, seed, kind)
    wanted = {}
    for label, implementation in others.items():
        if label == "XLA" and dtype != torch.float32:
            continue
        # XLA flushes subnormal numbers
        numerics = replace(arithmetic(dtype), ftz=label == "XLA")
        if numerics not in wanted:
            wanted[numerics] = Program(f, args, {}, numerics).traced()[1]
        results = [t for t in tree_leaves(implementation(f, *args)) if t is not None]
        for got, (place, (like, pair)) in zip(results, wanted[numerics].items()):
            found = verdict(place, got, like, pair, numerics)
            if found.kind == "wrong":
                print(f"{label} {name} {dtype} {kind} {seed}: {found.reason}", flush=True)
            count["wrong"] += found.kind == "wrong"
            count["elements"] += round(got.numel() * (1 - (found.undecided or 0)))
        count["runs"] += 1
        count[label.partition(" ")[0]] += 1


TOLERANCES = {"1e-2": (1e-2, 1e-2), "1e-4": (1e-4, 1e-4), "torch.testing": (1.3e-6, 1e-5)}


def caught_by(name, draws):
    """Return which mutations of a program differ from it, and which of them each check fails."""
    f, args = samples.PROGRAMS[name][0], samples.arguments(name, torch.float32)
    random = torch.Generator().manual_seed(0)
    uniform = tuple(torch.rand(a.shape, generator=random) for a in args)  # as KernelBench has it
    differ, caught = set(), {check: set() for check in ("judge", *TOLERANCES)}
    for kind, data in (("uniform", uniform), *for_program(args, draws)):
        traced = Program(f, tuple(data), {}, Numerics()).traced
        for mutation, pairs, passes in judged_mutants(traced, caught["judge"]):
            if any(other(got, p.value.to(got.dtype)) for got, p in pairs):
                differ.add(f"{name}: {mutation}")
            caught["judge"] |= set() if passes else {mutation}
            for check, (relative, absolute) in TOLERANCES.items() if kind == "uniform" else ():
                if any(far(got, p.value, relative, absolute) for got, p in pairs):
                    caught[check].add(mutation)
    return differ, {c: {f"{name}: {m}" for m in found} for c, found in caught.items()}


def other(got, right):
    """Return whether two results have different numbers."""
    return bool(((got != right) & ~(got.isnan() & right.isnan())).any())


def far(got, value, relative, absolute):
    """Return whether a result fails a typed tolerance."""
    wide = value.double()
    return not bool(((got.double() - wide).abs() <= absolute + relative * wide.abs()).all())


def test_mutations_are_wrong_on_generated_data():
    names = samples.PROGRAMS if NIGHTLY else ("affine", "softmax", "written attention")
    found = [caught_by(name, 2 if NIGHTLY else 1) for name in names]
    differ = set().union(*(d for d, _ in found))
    caught = {c: set().union(*(by[c] for _, by in found)) & differ for c in found[0][1]}
    print({c: f"{len(each)} of {len(differ)}" for c, each in caught.items()})
    print(sorted(differ - caught["judge"]))
    assert len(differ - caught["judge"]) <= len(differ) // 100
    assert len(caught["1e-2"]) < len(caught["1e-4"]) < len(caught["judge"])
