"""The table of ops, gathered from the families, and what is derived from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import (
    activation,
    attention,
    conv,
    matmul,
    norm,
    pool,
    quantized,
    reduce,
    resize,
    sample,
    scaling,
    softmax,
    window,
)
from .base import Problem
from .spec import OpSpec, Signature, Terms

OPS: dict[str, OpSpec] = {
    **conv.OPS,
    **quantized.OPS,
    **window.OPS,
    **pool.OPS,
    **resize.OPS,
    **sample.OPS,
    **norm.OPS,
    **activation.OPS,
    **softmax.OPS,
    **scaling.OPS,
    **matmul.OPS,
    **reduce.OPS,
    **attention.OPS,
}
FAMILY: dict[str, type[Problem]] = {op: spec.problem for op, spec in OPS.items()}
# The roles of every pass: laws, command line, court and bench loop over this table.
SIGNATURE: dict[tuple[str, str], Signature] = {
    (op, name): pass_.signature for op, spec in OPS.items() for name, pass_ in spec.passes.items()
}
TERMS: dict[tuple[str, str, str], Terms] = {
    (op, name, role): terms
    for op, spec in OPS.items()
    for name, pass_ in spec.passes.items()
    for role, terms in pass_.results.items()
}
# Words for several ops, as the command line takes them.
GROUPS: dict[str, tuple[str, ...]] = {
    "pool": tuple(pool.OPS),
    "norm": tuple(norm.OPS),
    "sample": tuple(sample.OPS),
    "activation": (*activation.OPS, *softmax.OPS),
}
_GRADIENTS = ("dx", "dw", "db")
MASK_NAMES: dict[str, tuple[bool, ...]] = {
    "dgrad": (True, False, False),
    "wgrad": (False, True, False),
    "bgrad": (False, False, True),
}


def mask_names(op: str) -> dict[str, tuple[bool, ...]]:
    """Return the names of one-bit masks of backward, for an op that has those three results."""
    row = SIGNATURE.get((op, "backward"))
    return MASK_NAMES if row is not None and row.results == _GRADIENTS else {}


def passes(op: str) -> Iterator[str]:
    """Yield the passes of `op` in the order of the table."""
    yield from OPS[op].passes if op in OPS else ()


def ops_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the ops that `words` name, each an op or a family of ops."""
    return tuple(op for word in words for op in GROUPS.get(word, (word,)))
