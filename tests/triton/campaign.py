"""Judge one kernel on random cases, each on a random tile, interpreted or as PTX.

``python tests/triton/campaign.py KERNEL --examples 3000 [--ptx]`` prints the lines that fail. As
PTX, compiled kernels are run on several sizes, and each call on several fills. Kernels in Gluon and
those that came along compiled are run as PTX alone.
"""

from __future__ import annotations

import argparse
import random
import time
import types
from contextlib import suppress
from dataclasses import replace
from math import prod

from forced import channels_innermost, facts, judged, planned, pointwise, regrouped

from convref.case.call import MATHS
from convref.conformance.generate import on_data
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.errors import ConvrefError, invalid
from convref_triton import backend, emulated
from convref_triton.hopper import gluon
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import tasks
from convref_triton.plan.kernels import BY_NAME

PASSES = {"gather": "fprop", "scatter": "dgrad", "correlate": "wgrad", "total": "bgrad"}
# Channels of a group.
EACH = {"blocks": (2, 4, 6, 8, 16), "blocks_wgrad": (1, 2, 3, 4, 5, 7, 8, 12, 16, 31)}
SIZES_OF_KERNELS, FILLS_OF_A_CALL = 3, 5  # as PTX
TRIES = 20  # of sizes that compile to the same kernels
SMALL = {"max_elements": 200, "max_macs": 2_000}
LARGEST, MOST_WARPS = 100_000, 64  # elements of an operand and warps of a plan that is run
AS_PTX = {"im2col", *gluon.NAMES}  # the interpreter of Triton runs none of them


def with_served_shapes(name, case, rng):
    """Return the case with channels and layouts that the kernel takes."""
    if name in ("blocks", "blocks_wgrad"):
        case = regrouped(case, rng.randint(1, 16), rng.choice(EACH[name]), rng.choice(EACH[name]))
    elif name == "classes":
        case = regrouped(case, 1, rng.randint(1, 5), 8 * rng.randint(1, 9))
    elif name in ("columns", "planes"):
        sizes = 8 * rng.randint(1, 18), 8 * rng.randint(1, 28)
        case = regrouped(case, rng.randint(1, 2), *rng.sample(sizes, 2))
        if name == "planes" and rng.random() < 0.5:
            case = pointwise(case, rng.randint(1, 3), plane(case, rng))
    elif name == "planes_wgrad":
        case = regrouped(case, rng.randint(1, 3), rng.randint(1, 150), rng.randint(1, 150))
        case = pointwise(case, rng.randint(1, 3), plane(case, rng))
    elif name == "tma":
        case = regrouped(case, 1, 8 * rng.randint(8, 18), 8 * rng.randint(8, 18))
    elif name in AS_PTX:
        groups = rng.choice((1, 1, 2))
        sizes = [8 * rng.randint(8, 18) if groups == 1 else 64 * rng.randint(1, 2) for _ in "ck"]
        case = regrouped(case, groups, *sizes)
        if name.endswith("wgrad"):  # whose boxes have to be full of images
            case = with_images(case, rng.randint(1, 70))
    elif name == "split":
        case = regrouped(
            case, 1, *rng.sample((8 * rng.randint(1, 4), 8 * rng.randint(100, 300)), 2)
        )
    elif name in ("depthwise_strided", "depthwise_taps", "depthwise_wgrad"):
        case = channels_innermost(regrouped(case, rng.randint(1, 18), 1, 1))
    return case


def plane(case, rng):
    """Return sizes of images whose pixels are a multiple of 4."""
    sizes = [rng.choice((1, 3, 5, 7)) for _ in case.call.problem.input]
    sizes[rng.randrange(len(sizes))] *= rng.choice((4, 8, 12))
    return tuple(sizes)


def with_images(case, count):
    return replace(case, call=replace(case.call, problem=replace(case.call.problem, n=count)))


def draw_cases(spec, rng):
    """Yield cases of the passes and ops that the kernel serves."""
    passes = [PASSES[kind] for kind in spec.serves if kind in PASSES]
    options = {"passes": passes, **SMALL} if passes else {"ops": spec.serves, "max_elements": 400}
    if passes and "scatter" in spec.serves:
        passes += {"fprop", "jvp"} - set(passes)
    dtypes = ("bf16", "f16") if spec.name in AS_PTX else ("f32", "bf16", "f16")
    built = cases(dtypes=dtypes, **options)
    while True:
        case = with_served_shapes(spec.name, built.of(rng.randbytes(built.size)), rng)
        if passes and case.call.dtype == "f32":
            case = replace(case, call=replace(case.call, math=rng.choice(MATHS)))
        yield case


def on_a_tile(spec, case, pick):
    """Return the case's plan on some tile, None if the kernel computes nothing of it.

    Kernels that run as PTX alone have a few multiprocessors, so that programs have several tiles.
    """
    _, known = facts(case.call, operands(case))
    if not PASSES.keys().isdisjoint(spec.serves):
        of_ptx = spec.name in AS_PTX
        call, sms = (case.call.on("cuda"), 1 + pick % 3) if of_ptx else (case.call, 0)
        made, admitted = planned(call, known, types.SimpleNamespace(SPEC=spec), pick, sms)
        return made if admitted else None
    builder = Builder(case.call, known)
    (task,) = tasks(builder)
    is_empty = task.geometry is not None and not prod(case.call.problem.shape(task.role))
    if is_empty or spec.refusal(task):  # nothing is launched for an empty result
        return None
    rows = spec.tiles(task)
    spec.add(task, rows[pick % len(rows)])
    return builder.plan()


def largest_operand(call):
    return max(prod(call.problem.shape(role)) for role in call.roles)


def is_small(call, made):
    """Return whether a plan takes little time: large ones take most of it and do nothing else."""
    warps = sum(prod(launch.grid) * launch.warps for launch in made.launches)
    return warps <= MOST_WARPS and largest_operand(call) <= LARGEST


def with_other_sizes(case, rng):
    """Return the case with another batch and other extents; ConvrefError if there is none."""
    problem, largest = case.call.problem, largest_operand(case.call)
    sizes = tuple(rng.randint(1, 2 * size + 2) for size in problem.input)
    sizes = tuple(rng.choice(pair) for pair in zip(sizes, problem.input))
    batch = rng.choice((problem.n, rng.randint(1, max(4, problem.n))))
    other = replace(case, call=replace(case.call, problem=replace(problem, n=batch, input=sizes)))
    if largest_operand(other.call) > 2 * max(largest, SMALL["max_elements"]):
        raise invalid("campaign", "is too large")
    return other


def served_cases(spec, rng):
    """Yield small cases that the kernel computes, with their plans and the picks of the tiles."""
    for case in draw_cases(spec, rng):
        pick = rng.randrange(2**16)
        made = on_a_tile(spec, case, pick)
        if made and is_small(case.call, made):
            yield case, made, pick


def same_kernel_cases(spec, case, made, pick, rng):
    """Yield the case and its plan, then those of other sizes with the same compiled kernels."""
    yield case, made
    wanted, seen = emulated.kernels(made), {case.call}
    for _ in range(TRIES):
        with suppress(ConvrefError):
            other = with_other_sizes(case, rng)
            plan = None if other.call in seen else on_a_tile(spec, other, pick)
            if plan and is_small(other.call, plan) and emulated.kernels(plan) == wanted:
                seen.add(other.call)
                yield other, plan
        if len(seen) == SIZES_OF_KERNELS:
            return


def failure_reasons(cases, plans, executor):
    """Return why the results of each case are wrong, an empty text where they are right."""
    arrays = [operands(case) for case in cases]
    tensors = [facts(case.call, each)[0] for case, each in zip(cases, arrays)]
    try:
        found = executor(plans, tensors)
    except Exception as error:  # a fault of an interpreter
        if len(cases) == 1:
            return [f"{type(error).__name__}: {error}"]
        alone = (failure_reasons([case], [made], executor) for case, made in zip(cases, plans))
        return [reason for (reason,) in alone]
    verdicts = map(judged, cases, arrays, found)
    return ["" if told else f"{told.kind}: {told.reason}" for told in verdicts]


def interpreted_all(plans, tensors):
    return [backend.backend.interpret(made, held) for made, held in zip(plans, tensors)]


def main(name, examples, ptx, seed):
    spec, rng, start = BY_NAME[name], random.Random(seed), time.perf_counter()
    executor = emulated.backend.interpret_all if ptx else interpreted_all
    done = failed = calls = 0
    for kernels, (case, made, pick) in enumerate(served_cases(spec, rng), 1):
        of_it = [*same_kernel_cases(spec, case, made, pick, rng)] if ptx else [(case, made)]
        fills = FILLS_OF_A_CALL if ptx else 1
        chosen = [(one, p) for other, p in of_it for one in on_data(other, fills, rng.randrange)]
        for (one, plan), reason in zip(chosen, failure_reasons(*zip(*chosen), executor)):
            done += 1
            if reason:
                failed += 1
                print(f"{one} {plan.reason} pick {pick}: {reason}", flush=True)
        calls += len(of_it)
        if done >= examples or kernels % 100 == 0:
            text = f"{name}: {done} examples of {calls} calls of {kernels} kernels, {failed} wrong"
            print(f"{text}, {time.perf_counter() - start:.0f} s", flush=True)
        if done >= examples:
            return failed > 0
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernel", choices=BY_NAME)
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--ptx", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.kernel in AS_PTX and not given.ptx:
        parser.error(f"{given.kernel} needs --ptx")
    raise SystemExit(main(given.kernel, given.examples, given.ptx, given.seed))
