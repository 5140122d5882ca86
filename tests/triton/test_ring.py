"""The protocol of a ring of blocks: every order in which one warp, the copies and two groups run.

Only what the kernels ask of barriers is kept: which slot, which parity, when something is given
back. All interleavings are gone through, for few slots, blocks and turns.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

from convref_triton.hopper import ring

SLOT, PARITY, FREED = ring.slot_of.fn, ring.parity_of.fn, ring.freed.fn
PASSED_ON, TURNS = ring.passed_on.fn, ring.turns


@pytest.fixture(autouse=True)
def as_python(monkeypatch):
    """Let a function of a kernel call another one outside of it."""
    monkeypatch.setattr(ring, "parity_of", PARITY)


class Word(int):
    """An integer that a scalar function of a kernel takes."""

    def to(self, kind):
        return self

    def __mod__(self, other):
        return Word(int(self) % other)

    def __floordiv__(self, other):
        return Word(int(self) // other)


class State(NamedTuple):
    """Where each actor stands, what is on its way, and what lies in the slots and the barriers."""

    at: tuple[int, int, int]
    flying: frozenset[int]
    slots: tuple[int, ...]
    phases: tuple[tuple[str, int], ...]
    reads: frozenset[tuple[int, int]]


class Wrong(AssertionError):
    """Somebody waits for ever, or reads or writes what is not his."""


def loader(blocks, stages):
    """Return what the warp that loads does."""
    for block in range(blocks):
        slot = SLOT(Word(block), stages)
        yield "wait", f"free{slot}", FREED(Word(block), stages)
        yield "load", slot, block


def group(which, steps, stages, readers, ordered):
    """Return what a warp group does, turn by turn: as `ring.summed` with `steps` blocks each."""
    taking = TURNS(readers)
    for turn in range(which % taking, len(steps), taking):
        first, before = sum(steps[:turn]), None
        if readers == 1 and ordered:
            yield "wait", f"order{which}", PASSED_ON(turn, which)
        for block in range(first, first + steps[turn]):
            slot = SLOT(Word(block), stages)
            yield "wait", f"full{slot}", PARITY(Word(block), stages)
            yield "begin", slot, block
            if before is not None:
                yield "end", *before
            before = slot, block
        if readers == 1 and ordered:
            yield "arrive", f"order{1 - which}", 1
        if before is not None:
            yield "end", *before


def explored(steps, stages, readers, ordered=True):
    """Go through all states of turns with so many blocks each; return how many there are."""
    actors = [tuple(loader(sum(steps), stages))]
    actors += [tuple(group(g, steps, stages, readers, ordered)) for g in range(2)]
    names = [f"{kind}{n}" for kind in ("free", "full") for n in range(stages)]
    phases = tuple((name, 0) for name in (*names, "order0", "order1"))
    todo = [State((0, 0, 0), frozenset(), (-1,) * stages, phases, frozenset())]
    seen = set(todo)
    while todo:
        state = todo.pop()
        following = list(moves(state, actors, stages, readers))
        if not following and any(at < len(a) for at, a in zip(state.at, actors)):
            raise Wrong("all wait")
        fresh = set(following) - seen
        seen |= fresh
        todo += fresh
    return len(seen)


def moves(state, actors, stages, readers):
    """Yield the states that one step of an actor, or the end of a copy, leads to."""
    for block in state.flying:
        slot = block % stages
        slots = (*state.slots[:slot], block, *state.slots[slot + 1 :])
        done = state._replace(flying=state.flying - {block}, slots=slots)
        yield arrived(done, f"full{slot}", 1)
    for actor, ops in enumerate(actors):
        if state.at[actor] == len(ops):
            continue
        kind, what, value = ops[state.at[actor]]
        at = tuple(n + (a == actor) for a, n in enumerate(state.at))
        after = state._replace(at=at)
        if kind == "wait":
            count = 1 if what.startswith(("full", "order")) else readers
            if (dict(state.phases)[what] // count - value) % 2 == 1:
                yield after
        elif kind == "load":
            if any(slot == what for slot, _ in state.reads):
                raise Wrong(f"block {value} comes while slot {what} is read")
            yield after._replace(flying=state.flying | {value})
        elif kind == "begin":
            if state.slots[what] != value or any(b % stages == what for b in state.flying):
                raise Wrong(f"block {value} is read where {state.slots[what]} lies")
            yield after._replace(reads=state.reads | {(what, actor)})
        elif kind == "end":
            yield arrived(after._replace(reads=state.reads - {(what, actor)}), f"free{what}", 1)
        else:
            yield arrived(after, what, 1)


def arrived(state, name, count):
    """Return the state with one more arrival at a barrier; phases count arrivals."""
    phases = tuple((n, p + count * (n == name)) for n, p in state.phases)
    return state._replace(phases=phases)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_no_order_of_events_is_wrong(stages, readers, steps):
    for turns in range(6):
        assert explored((steps,) * turns, stages, readers) > turns


@given(st.lists(st.integers(0, 3), max_size=5), st.integers(2, 4), st.integers(1, 2))
@example([2, 0, 0, 3, 0], 2, 1)
def test_turns_may_have_different_numbers_of_blocks_or_none(steps, stages, readers):
    assert explored(tuple(steps), stages, readers) >= 1


def test_groups_that_do_not_wait_for_their_turn_read_what_is_not_theirs():
    """A slot that comes round twice has the parity that a group waits for two rounds later."""
    with pytest.raises(Wrong, match="is read where"):
        explored((4, 4), 2, 1, ordered=False)


@given(st.integers(0, 2**31 - 1), st.integers(2, 9))
def test_slots_and_parities(count, stages):
    word = Word(count)
    assert SLOT(word, stages) == count % stages
    assert PARITY(word, stages) == count // stages % 2
    assert FREED(word, stages) != PARITY(word, stages)
