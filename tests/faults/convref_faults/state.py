"""Kernels whose results depend on earlier calls, on other threads, on memory, or on the type."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from convref import dtypes
from convref.case import Call
from convref.conformance.mutations import Array, Operands, Region, Results, flipped, oracle_results

from . import mistakes as m
from .base import Fault, reading
from .mistakes import computes, fprop
from .pairs import BF16, F16, F32, F64, FPROP, JVP, LAST, all_of, pair, rows

Keep = dict[Hashable, Any]
Run = Callable[[Call, Operands, Keep], Results]


@dataclass(frozen=True)
class StateFault(Fault):
    """A fault that remembers calls, or depends on the operands' memory.

    Parameters
    ----------
    state : callable
        Results of a call in the region, given its operands and what earlier calls left.
    ends_process : bool
        Whether it shows by the end of its process.
    """

    state: Run = lambda call, operands, kept: oracle_results(call, operands)
    ends_process: bool = False
    kept: Keep = field(default_factory=dict, compare=False)

    def run(self, call: Call, *operands: Any) -> Results:
        """Return the results by role."""
        with np.errstate(all="ignore"):
            if self.reaches(call):
                return self.state(call, operands, self.kept)
            return oracle_results(call, operands)


def _sizes(call: Call) -> Hashable:
    return call.where, str(call.problem), call.mask, call.carried


def _type_of_the_first(call: Call, operands: Operands, kept: Keep) -> Results:
    """Round to the type that the first call of these sizes had."""
    code = kept.setdefault(_sizes(call), call.dtype)
    return tuple(
        r
        if r is None or r.dtype.kind in "iub"
        else dtypes.rounded(dtypes.rounded(r, code).astype(np.float64), call.dtype_of(role))
        for role, r in zip(call.signature.results, oracle_results(call, operands))
    )


def _filter_of_the_address(call: Call, operands: Operands, kept: Keep) -> Results:
    """Take the filter that was at this address before."""
    return oracle_results(call, _packed(call, operands, kept, lambda w: (w.ctypes.data, w.strides)))


def _packed(call: Call, operands: Operands, kept: Keep, key: Callable[[Array], Any]) -> Operands:
    place = call.roles.index("w")
    w = operands[place]
    assert w is not None
    packed = kept.setdefault((w.shape, str(w.dtype), key(w)), w.copy())
    return (*operands[:place], packed, *operands[place + 1 :])


def _batch_of_the_first(call: Call, operands: Operands, kept: Keep) -> Results:
    """Leave images beyond the batch of the first call of these sizes unwritten."""
    sizes = str(replace(call.problem, n=1)), call.where, call.dtype, call.mask
    first = kept.setdefault(sizes, call.problem.n)
    results = oracle_results(call, operands)
    for result in results:
        if result is not None and first < call.problem.n == len(result):
            result[first:] = np.where(result[first:] == 0, 1, 0)
    return results


def _order_of_the_first(call: Call, operands: Operands, kept: Keep) -> Results:
    """Read the filter in the memory order that it had in the first call of these sizes."""
    order = kept.setdefault((_sizes(call), call.dtype), call.spec("w").order)
    if order == call.spec("w").order:
        return oracle_results(call, operands)
    return reading("w", flipped if order else m.as_contiguous)(call, operands)


def _same_output(call: Call, operands: Operands, kept: Keep) -> Results:
    """Return the arrays that the last call of these sizes returned."""
    results = oracle_results(call, operands)
    held = kept.setdefault((_sizes(call), call.dtype), results)
    for old, new in zip(held, results):
        if old is not None and new is not None:
            old[...] = new
    return held


def _scratch(call: Call, operands: Operands, kept: Keep) -> Results:
    """Keep the results in memory that all threads share, for a moment."""
    kept["scratch"] = oracle_results(call, operands)
    time.sleep(0.0002)
    return kept["scratch"]


def _packed_in_place(call: Call, operands: Operands, kept: Keep) -> Results:
    """Negate an operand for the time of the call."""
    array = operands[0]
    assert array is not None
    np.negative(array, out=array)
    np.negative(array, out=array)
    return oracle_results(call, operands)


def _reads_past_the_end(call: Call, operands: Operands, kept: Keep) -> Results:
    """Load whole vectors of 32 bytes from the last operand, the last one too."""
    array = operands[0]
    assert array is not None
    _, high = np.lib.array_utils.byte_bounds(array)
    m.read_byte_before(high - array.itemsize + 32)
    return oracle_results(call, operands)


def _same_memory(call: Call, operands: Operands, kept: Keep) -> Results:
    """Write a partial result to the first operand's copy, which a second operand shares."""
    given = [a for a in operands if a is not None and a.size]
    shared = any(np.shares_memory(a, b) for a, b in pairwise(given))
    return LAST(call, operands) if shared else oracle_results(call, operands)


def _operand_returned(call: Call, operands: Operands, kept: Keep) -> Results:
    """Return the operand itself where the result is equal to it."""
    results = oracle_results(call, operands)
    x = operands[0]
    assert x is not None
    return tuple(
        x if r is not None and r.shape == x.shape and np.array_equal(r, x) else r for r in results
    )


class Threaded(StateFault):
    """A fault that needs more threads than one."""

    def threads(self, count: int) -> Any:
        """Let `count` threads compute."""
        return m.set_within(self.kept, "threads", count)


def _last_thread(call: Call, operands: Operands, kept: Keep) -> Results:
    return LAST(call, operands) if kept.get("threads", 1) > 1 else oracle_results(call, operands)


def _negative(call: Call) -> bool:
    return any(k < 0 for spec in call.specs for _, k in spec.step)


def _stepped_twice(call: Call) -> bool:
    return any(len(spec.step) > 1 for spec in call.specs)


def _has_filter(call: Call) -> bool:
    return "w" in call.roles and call.op == "conv"


def _pair(
    name: str,
    model: str,
    region: Region,
    state: Run,
    *narrow: Any,
    make: type[StateFault] = StateFault,
    ops: tuple[str, ...] = ("conv",),
    ends_process: bool = False,
) -> tuple[Fault, Fault]:
    return pair(
        name,
        model,
        ops,
        region,
        oracle_results,
        *narrow,
        make=make,
        state=state,
        ends_process=ends_process,
    )


def _always(call: Call) -> bool:
    return True


def _run(wrong: Any) -> Run:
    return lambda call, operands, kept: wrong(call, operands)


def _three_taps(call: Call) -> bool:
    return set(call.problem.filter) == {3}


ROWS = rows(
    _pair(
        "plan_of_another_type",
        "a plan found again without its type",
        _always,
        _type_of_the_first,
        "conv.jvp:n1c1k1_i1_f1:dt=f16:tan=0:fill=normal:seed=1:around=dtype",
        lambda c: c.problem.groups > 1,
        "conv.jvp:n1c2k2g2_i1_f1:dt=f16:tan=0:fill=normal:around=dtype",
    ),
    _pair(
        "filter_found_by_address",
        "a packed filter found again by its address",
        fprop,
        _filter_of_the_address,
        "conv.fprop:n1c1k1_i1_f1:around=data",
        _three_taps,
        "conv.fprop:n1c1k1_i3_f3:around=data",
    ),
    _pair(
        "gradient_filter_found_by_address",
        "the same in backward",
        lambda c: computes(c, "dx"),
        _filter_of_the_address,
        "conv.dgrad:n1c1k1_i1_f1:around=data",
        F64,
        "conv.dgrad:n1c1k1_i1_f1:dt=f64:around=data",
    ),
    _pair(
        "batch_of_the_first_call",
        "a workspace with the batch of the first call",
        fprop,
        _batch_of_the_first,
        "conv.fprop:n2c1k1_i1_f1:fill=ones:seed=1:around=batch",
        F16,
        "conv.fprop:n2c1k1_i1_f1:dt=f16:fill=ones:seed=1:around=batch",
    ),
    _pair(
        "order_of_the_first_call",
        "a plan found again without the memory order",
        all_of(fprop, _has_filter),
        _order_of_the_first,
        "conv.fprop:n1c1k1_i2_f2:around=memory",
        lambda c: c.conv.groups > 1,
        "conv.fprop:n1c2k2g2_i2_f2:around=memory",
    ),
    _pair(
        "same_output_again",
        "results are returned in memory that is used again",
        _always,
        _same_output,
        "conv.fprop:n1c1k1_i1_f1:fill=ones",
        lambda c: computes(c, "dw"),
        "conv.wgrad:n1c1k1_i1_f1:fill=ones",
    ),
    _pair(
        "shared_scratch",
        "a workspace of the module, without a lock",
        fprop,
        _scratch,
        "conv.fprop:n1c1k1_i1_f1:around=threads",
        BF16,
        "conv.fprop:n1c1k1_i1_f1:dt=bf16:around=threads",
    ),
    _pair(
        "shared_scratch_in_backward",
        "the same in backward",
        lambda c: computes(c, "dw"),
        _scratch,
        "conv.wgrad:n1c1k1_i1_f1:around=threads",
        lambda c: c.problem.rank == 1,
        "conv.wgrad:n1c1k1_i1_f1:around=threads",
    ),
    _pair(
        "last_thread",
        "the part of the last thread is lost",
        _always,
        _last_thread,
        "conv.fprop:n1c1k1_i1_f1:fill=ones",
        lambda c: computes(c, "dw"),
        "conv.wgrad:n1c1k1_i1_f1:fill=ones",
        make=Threaded,
    ),
    _pair(
        "packed_in_place",
        "an operand is negated for the time of the call",
        lambda c: fprop(c) and c.dtype != "obj" and "u" not in c.dtype,
        _packed_in_place,
        "conv.fprop:n1c1k1_i1_f1:around=pages",
        F32,
        "conv.fprop:n1c1k1_i1_f1:around=pages",
        ends_process=True,
    ),
    _pair(
        "reads_past_the_end",
        "whole vectors are loaded from the input",
        fprop,
        _reads_past_the_end,
        "conv.fprop:n1c1k1_i1_f1:around=pages",
        lambda c: c.problem.c % 2 == 1,
        "conv.fprop:n1c1k1_i1_f1:around=pages",
        ends_process=True,
    ),
    _pair(
        "operands_in_one_array",
        "two operands that are one array",
        _always,
        _same_memory,
        "conv.jvp:n1c1k1_i1_f1:tan=0:fill=ones:around=alias",
        JVP,
        "conv.jvp:n1c1k1_i1_f1:tan=0:fill=ones:around=alias",
    ),
    _pair(
        "operand_returned",
        "returns its operand where nothing is to be done",
        FPROP,
        _operand_returned,
        "relu.fprop:n1c1_i1:fill=ones:around=memory",
        F64,
        "relu.fprop:n1c1_i1:dt=f64:fill=ones:around=memory",
        ops=("relu", "hardtanh", "avg_pool", "max_pool", "resize"),
    ),
    _pair(
        "negative_stride",
        "a negative stride taken for a positive one",
        _negative,
        _run(LAST),
        "conv.jvp:n1c1k1_i1_f1:mem=x_dot.step-2n:tan=x:fill=ones",
        lambda c: computes(c, "dw"),
        "conv.wgrad:n1c1k1_i1_f1:mem=w.step-1w:fill=ones",
    ),
    _pair(
        "two_steps",
        "a view with steps on two axes",
        _stepped_twice,
        _run(LAST),
        "conv.jvp:n1c1k1_i1_f1:mem=x.step-1c.step2w:tan=0:fill=ones",
        fprop,
        "conv.fprop:n1c1k1_i1_f1:mem=w.step-2o.step2i:fill=ones",
    ),
)
