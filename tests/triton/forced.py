"""Run a call with one kernel wherever that admits a result, and judge the results."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from convref.arrays import to_torch
from convref.case import axis_letters
from convref.case.call import MATHS
from convref.conformance.operands import operands
from convref.judge import judge
from convref.ops import BASE_ROLE

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend, results_of
from convref_triton.common.geometry import Tensor, geometry
from convref_triton.common.reorder import reorder
from convref_triton.conv import gather
from convref_triton.plan.builder import Builder
from convref_triton.plan.task import Task
from convref_triton.plan.tile import Tile
from convref_triton.run import interpreted


def nightly(value):
    """Return a parameter of a test that only the nightly profile runs."""
    return pytest.param(value, marks=pytest.mark.nightly)


def facts(call, arrays):
    """Return the operands' tensors by role, and their layouts for a plan."""
    tensors = {r: to_torch(a) for r, a in zip(call.roles, arrays) if a is not None}
    known = {
        role: Tensor(role, tuple(t.shape), t.stride(), call.dtype_of(role), t.data_ptr() % 16 == 0)
        for role, t in tensors.items()
    }
    return tensors, known


def copies_of(made):
    """Return (source, target) of each copy of a plan, whether a kernel does it or not."""
    moved = [s.arguments for s in made.launches if s.kernel is reorder]
    return [(s.source, s.target) for s in made.copies] + [(a["x"].role, a["y"].role) for a in moved]


def planned(call, known, kernel, pick=0, sms=0):
    """Return (plan, admitted): a plan on the `pick`-th tile of `kernel`, of `gather` elsewhere.

    `sms` is how many multiprocessors there are, as `Task` has it.
    """
    builder, admitted = Builder(call, known), []
    for role in call.wanted:
        task = Task(builder, geometry(call.conv), role, sms=sms)
        if role in builder.buffers:
            continue
        if not prod(call.problem.shape(role)):
            task.result()
        elif task.kind in kernel.SPEC.serves and kernel.SPEC.refusal(task) is None:
            rows = kernel.SPEC.tiles(task)
            kernel.SPEC.add(task, pick if isinstance(pick, Tile) else rows[pick % len(rows)])
            admitted.append(role)
        else:
            gather.SPEC.add(task, gather.SPEC.best(task))
    return builder.plan(), admitted


def run(call, arrays, kernel, pick=0):
    """Return (results by role, plan, roles that the kernel computed)."""
    tensors, known = facts(call, arrays)
    made, admitted = planned(call, known, kernel, pick)
    return interpreted.run(made, tensors), made, admitted


def verdict(case, kernel, pick=0):
    """Return the judge's verdict, and the roles that the kernel computed."""
    arrays = operands(case)
    found, _, admitted = run(case.call, arrays, kernel, pick)
    return judged(case, arrays, found), admitted


def verdict_if_admitted(case, kernel, pick):
    """Return the judge's verdict; where the kernel computes nothing the case is given up unrun."""
    arrays = operands(case)
    tensors, known = facts(case.call, arrays)
    made, admitted = planned(case.call, known, kernel, pick)
    assume(admitted)
    return judged(case, arrays, interpreted.run(made, tensors))


def judged(case, arrays, found):
    """Return the judge's verdict on the buffers of a plan."""
    results = results_of(case.call, next(a for a in arrays if a is not None), found)
    zero_mean = case.fill == "normal"
    return judge(case.call, arrays, results, backend.numerics(case.call), zero_mean=zero_mean)


def regrouped(case, groups, big, small):
    """Return the case with other channels: so many groups, and so many on each side of a group."""
    problem = case.call.problem
    c, k = (small, big) if problem.transposed else (big, small)
    channels = replace(problem, groups=groups, c=groups * c, k=groups * k)
    return replace(case, call=replace(case.call, problem=channels))


def with_math(case, data):
    """Return the case, of float32 with any of the maths of its products."""
    if case.call.dtype != "f32":
        return case
    return replace(case, call=replace(case.call, math=data.draw(st.sampled_from(MATHS))))


def strided(case):
    """Return the case with adjacent taps and several classes of pixels."""
    problem = case.call.problem
    stride = tuple(max(step, 2) for step in problem.stride)
    changed = replace(problem, stride=stride, dilation=(1,) * problem.rank)
    return replace(case, call=replace(case.call, problem=changed))


def pointwise(case, images, sizes):
    """Return the case with a filter of one tap, images of these sizes, and contiguous planes.

    Images and channels keep their steps; data begin at 16 bytes.
    """
    call, rank = case.call, len(sizes)
    one = dict.fromkeys(("filter", "stride", "dilation"), (1,) * rank)
    more = {"padding": ((0, 0),) * rank, "output_padding": (0,) * rank}
    problem = replace(call.problem, n=images, input=sizes, **one, **more)
    specs = []
    for role, spec in zip(call.roles, call.specs):
        if BASE_ROLE[role] in "xy":
            kept = axis_letters(problem, role)[:2]
            step = tuple(pair for pair in spec.step if pair[0] in kept)
            expand = "".join(letter for letter in spec.expand if letter in kept)
            spec = replace(spec, order="", step=step, expand=expand, offset=8 * spec.offset)
        specs.append(spec)
    return replace(case, call=replace(call, problem=problem, specs=tuple(specs)))


def channels_innermost(case):
    letters = [axis_letters(case.call.problem, role) for role in case.call.roles]
    orders = [text[:1] + text[2:] + text[1:2] for text in letters]
    specs = tuple(replace(s, order=order) for s, order in zip(case.call.specs, orders))
    return replace(case, call=replace(case.call, specs=specs))
