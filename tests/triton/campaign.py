"""Judge one kernel on random cases, each on a random tile, interpreted or as PTX.

``python tests/triton/campaign.py KERNEL --examples 3000 [--ptx]`` prints the lines that fail. As
PTX, each compiled call is run on several fills.
"""

from __future__ import annotations

import argparse
import random
import time
import types
from dataclasses import replace

from forced import channels_innermost, facts, judged, planned, regrouped

from convref.case import FILLS
from convref.conformance.fills import available
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref_triton import backend, emulated
from convref_triton.plan.builder import Builder
from convref_triton.plan.choose import tasks
from convref_triton.plan.kernels import BY_NAME

PASSES = {"gather": "fprop", "scatter": "dgrad", "correlate": "wgrad"}
# Channels of a group.
EACH = {"blocks": (2, 4, 6, 8, 16), "blocks_wgrad": (1, 2, 3, 4, 5, 7, 8, 12, 16, 31)}
FILLS_OF_A_CALL = 5  # as PTX
SMALL = {"max_elements": 200, "max_macs": 2_000}


def shaped(name, case, rng):
    """Return the case with channels and layouts that the kernel takes."""
    if name in ("blocks", "blocks_wgrad"):
        case = regrouped(case, rng.randint(1, 16), rng.choice(EACH[name]), rng.choice(EACH[name]))
    elif name == "classes":
        case = regrouped(case, 1, rng.randint(1, 5), 8 * rng.randint(1, 9))
    elif name == "depthwise_wgrad":
        case = channels_innermost(regrouped(case, rng.randint(1, 18), 1, 1))
    return case


def drawn(spec, rng):
    """Yield cases of the passes and ops that the kernel serves."""
    passes = [PASSES[kind] for kind in spec.serves if kind in PASSES]
    options = {"passes": passes, **SMALL} if passes else {"ops": spec.serves, "max_elements": 400}
    if passes and "gather" in spec.serves:
        passes.append("jvp")
    built = cases(dtypes=("f32", "bf16", "f16"), **options)
    while True:
        yield shaped(spec.name, built.of(rng.randbytes(built.size)), rng)


def on_a_tile(spec, case, pick):
    """Return the case's plan on some tile, None if the kernel computes nothing of it."""
    _, known = facts(case.call, operands(case))
    if not spec.whole_call:
        made, admitted = planned(case.call, known, types.SimpleNamespace(SPEC=spec), pick)
        return made if admitted else None
    builder = Builder(case.call, known)
    (task,) = tasks(builder)
    if spec.refusal(task):
        return None
    rows = spec.tiles(task)
    spec.add(task, rows[pick % len(rows)])
    return builder.plan()


def variants(case, count, rng):
    """Yield the case, and its call with other data."""
    yield case
    fills = [fill for fill in FILLS if available(fill, case.call.dtype)]
    for _ in range(count - 1):
        yield replace(case, fill=rng.choice(fills), seed=rng.randrange(2**16))


def wrong(case, made, executor):
    """Return why the results of a plan are wrong, nothing if they are right."""
    arrays = operands(case)
    tensors, _ = facts(case.call, arrays)
    try:
        told = judged(case, arrays, executor(made, tensors))
    except Exception as error:  # a fault of an interpreter
        return f"{type(error).__name__}: {error}"
    return "" if told else f"{told.kind}: {told.reason}"


def main(name, examples, ptx, seed):
    spec, rng, start = BY_NAME[name], random.Random(seed), time.perf_counter()
    executor = (emulated if ptx else backend).backend.interpret
    done = failed = calls = 0
    for case in drawn(spec, rng):
        pick = rng.randrange(2**16)
        if (made := on_a_tile(spec, case, pick)) is None:
            continue
        calls += 1
        for one in variants(case, FILLS_OF_A_CALL if ptx else 1, rng):
            if reason := wrong(one, made, executor):
                failed += 1
                print(f"{one} {made.reason} pick {pick}: {reason}", flush=True)
            done += 1
        if done >= examples or calls % 100 == 0:
            text = f"{name}: {done} examples of {calls} calls, {failed} wrong"
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
    raise SystemExit(main(given.kernel, given.examples, given.ptx, given.seed))
