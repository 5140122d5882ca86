"""A campaign over KernelBench: `python tests/programs/kernelbench.py mutants|rewrites FOLDER...`.

FOLDER is one of KernelBench's levels; nothing of it is part of this repository. `mutants` writes a
line of JSON for each problem: the mutations of its reference that KernelBench's rule accepts on its
own data, and those that the judge accepts on the data that it draws; `counts FILE` adds them up, as
docs/figures/draw.py reads them. `rewrites` prints each correct implementation that the judge fails.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from other_implementations import IMPLEMENTATIONS
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import convref.grade.sizes
from convref import ConvrefError, Numerics, UnsupportedError
from convref.grade import certify, load
from convref.grade.certify import problems
from convref.grade.grading import kinds_of_data
from convref.judge.programs import Program, verdict

convref.grade.sizes.BUDGET = 2.0**14  # a level takes minutes instead of an hour
REWRITES = ("eager", "channels last", "without oneDNN", "shuffled 0", "shuffled 1")


def mutants(folders):
    for folder in folders:
        for found in certify("kernelbench", folder):
            print(json.dumps({"level": Path(folder).name} | asdict(found)), flush=True)


KINDS = ("zeros", "a constant", "without", "last term", "first term", "not written", "repeats")


def counts(files):
    """Print how many mutations of each kind there are, and how many each rule accepts."""
    found = {kind: [0, 0, 0, 0] for kind in (*KINDS, "in float16")}
    for line in Path(files[0]).read_text("utf-8").splitlines():
        each = json.loads(line)
        for place, rule in enumerate(("mutations", "own", "loose", "judge")):
            for name in each[rule]:
                kind = next((kind for kind in KINDS if kind in name), "in float16")
                found[kind][place] += 1
    print(json.dumps(found, indent=1))


def rewrites(folders):
    total = Counter()
    for folder in folders:
        for path in problems("kernelbench", Path(folder)):
            found = Counter()
            try:
                for kind in of_problem(path):
                    found[kind] += 1
            except (ConvrefError, UnsupportedError) as error:
                print(f"{path.stem}: {error}", flush=True)
            total += found
            print(f"{path.stem}: {dict(found)}", flush=True)
    print(dict(total))


def of_problem(path):
    """Yield the verdict on each rewrite of a problem at two sizes, and in bfloat16 at one."""
    problem = load("kernelbench", path)
    sizes = list(problem.sizes())
    for number, at in enumerate((sizes[0], sizes[-1])[: len(sizes)]):
        trial = problem.trial(at, number)
        for dtype in (torch.float32, torch.bfloat16)[: 2 - number]:
            for kind, data in kinds_of_data(trial, 1, number):
                narrow = tree_map(partial(rounded, dtype), data)
                for label, reason, found in of_data(trial.reference, narrow, dtype):
                    if found == "wrong":
                        print(f"WRONG {path.stem} {number} {dtype} {kind} {label}: {reason}")
                    yield found


def of_data(reference, data, dtype):
    """Yield label, reason and kind of the verdict on each rewrite."""
    numerics = Numerics(stages=9 if dtype == torch.bfloat16 else 0)
    with torch.no_grad():
        try:
            plain = reference(*data)
        except RuntimeError:  # running statistics in float32 with data in bfloat16
            return
        if not all(t.isfinite().all() for t in tree_leaves(plain) if floats(t)):
            return
        _, wanted = Program(reference, tuple(data), {}, numerics).traced()
        leaves, form = tree_flatten(data)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def function(*tensors):
            new = dict(zip(places, tensors))
            return reference(*tree_unflatten([new.get(i, x) for i, x in enumerate(leaves)], form))

        for label in REWRITES:
            results = tree_leaves(IMPLEMENTATIONS[label](function, *(leaves[i] for i in places)))
            for got, (name, (like, pair)) in zip(filter(is_tensor, results), wanted.items()):
                found = verdict(name, got.to(like.dtype), like, pair, numerics)
                yield label, found.reason, found.kind


def rounded(dtype, leaf):
    return leaf.to(dtype) if floats(leaf) else leaf


def is_tensor(leaf):
    return isinstance(leaf, torch.Tensor)


def floats(leaf):
    return is_tensor(leaf) and leaf.is_floating_point()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.nnpack.set_flags(False)  # Winograd's convolutions without oneDNN: other sums
    {"mutants": mutants, "counts": counts, "rewrites": rewrites}[sys.argv[1]](sys.argv[2:])
