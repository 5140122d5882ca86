"""Judge the backend on a case, on the CPU or on a GPU; inspect its compiled launches."""

from __future__ import annotations

import pytest
import torch
from forced import facts

from convref.case import parse
from convref.conformance.operands import operands
from convref.judge import judge

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton import emulated
from convref_triton.backend import backend
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile import aot
from convref_triton.compile.inspection import inspect
from convref_triton.compile.layouts import accesses
from convref_triton.compile.sass import resources
from convref_triton.compile.specialize import specialize
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import offered, plan, tasks

NEEDS_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
IS_A_SWEEP = pytest.mark.nightly(reason="hundreds of compilations")


def verdict(case, **options):
    """Return the judge's verdict on the backend's results."""
    arrays = operands(case)
    found = backend.run(case.call, *arrays, **options)
    zero_mean = case.fill == "normal"
    return judge(case.call, arrays, found, backend.numerics(case.call), zero_mean=zero_mean)


def with_tile(case, pick):
    """Return the verdict on the `pick`-th tile that the case has."""
    choices = backend.configurations(case.call)
    return verdict(case, configuration=choices[pick % len(choices)] if choices else None)


def with_each_tile(line):
    """Return whether a line is right on every tile that it has."""
    case = parse(line)
    return all(verdict(case, configuration=c) for c in backend.configurations(case.call))


def binaries(lines):
    """Return the keys of what lines compile, planned with the first choice of the first one."""
    calls = [parse(line).call for line in lines]
    choice = offered(calls[0], layouts(calls[0]))[0]
    plans = (plan(call, layouts(call), choice) for call in calls)
    return {specialize(step).key for made in plans for step in made.steps}


def on_first_tile(line, arch):
    """Return the inspection of a line's launch on the first tile that is offered."""
    call = parse(line).call
    (step,) = plan(call, layouts(call), offered(call, layouts(call))[0], arch=arch).steps
    return inspect(aot.compile(specialize(step), arch))


def emulated_on_first_tile(line, spec, **options):
    """Return (call, operands, results) of a line's PTX, on the first tile of a kernel."""
    case = parse(line)
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    builder = Builder(case.call, known)
    (task,) = tasks(builder)
    spec.add(task, spec.tiles(task)[0])
    found = emulated.run(builder.plan(), tensors, **options)
    return case.call, arrays, (found[task.role].numpy(),)


def compiled(line, arch, every):
    """Yield (launch, access, what) of the plans of a line, no launch of which may spill.

    `every`: of each tile that is offered, else of the one that is chosen.
    """
    call = parse(line).call
    for choice in offered(call, layouts(call)) if every else (None,):
        for launch in plan(call, layouts(call), choice, arch=arch).steps:
            binary = aot.compile(specialize(launch), arch)
            what = f"{line}: {choice}"
            assert resources(binary)["STACK"] == 0, what
            for access in accesses(binary.asm["ttgir"]):
                yield launch, access, f"{what}: {access}"
