"""The mbarrier protocol of the ring: every interleaving of the producer, the copies and two groups.

Only the kernels' use of barriers is modelled: which stage, which parity, when a stage is
released. All states are visited, for few stages, blocks and turns.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

from convref_triton.hopper import ring

STAGE, FULL, EMPTY = ring.stage_of.fn, ring.full_phase.fn, ring.empty_phase.fn
ORDER = ring.order_phase.fn


@pytest.fixture(autouse=True)
def as_python(monkeypatch):
    """Let a function of a kernel call another one outside of it."""
    monkeypatch.setattr(ring, "full_phase", FULL)


class Word(int):
    """An integer that a scalar function of a kernel takes."""

    def to(self, kind):
        return self

    def __mod__(self, other):
        return Word(int(self) % other)

    def __floordiv__(self, other):
        return Word(int(self) // other)


class State(NamedTuple):
    """The next step of each actor, copies in flight, blocks in the stages, arrivals, reads."""

    at: tuple[int, int, int]
    flying: frozenset[int]
    stages: tuple[int, ...]
    phases: tuple[tuple[str, int], ...]
    reads: frozenset[tuple[int, int]]


class Wrong(AssertionError):
    """A deadlock, or a stage that is read or written at the wrong time."""


def producer(blocks, stages):
    """Yield the steps of the warp that copies."""
    for block in range(blocks):
        stage = STAGE(Word(block), stages)
        yield "wait", f"empty{stage}", EMPTY(Word(block), stages)
        yield "load", stage, block


def consumer(number, steps, stages, readers, ordered):
    """Yield the steps of a warp group, as `ring.accumulate` on turns of `steps` blocks each."""
    step = ring.GROUPS // readers
    for turn in range(number % step, len(steps), step):
        first, before = sum(steps[:turn]), None
        if readers == 1 and ordered:
            yield "wait", f"order{number}", ORDER(turn, number)
        for block in range(first, first + steps[turn]):
            stage = STAGE(Word(block), stages)
            yield "wait", f"full{stage}", FULL(Word(block), stages)
            yield "begin", stage, block
            if before is not None:
                yield "end", *before
            before = stage, block
        if readers == 1 and ordered:
            yield "arrive", f"order{1 - number}", 1
        if before is not None:
            yield "end", *before


def explored(steps, stages, readers, ordered=True):
    """Visit all states of turns of `steps` blocks each; return how many there are."""
    actors = [tuple(producer(sum(steps), stages))]
    actors += [tuple(consumer(n, steps, stages, readers, ordered)) for n in range(2)]
    names = [f"{kind}{n}" for kind in ("empty", "full") for n in range(stages)]
    phases = tuple((name, 0) for name in (*names, "order0", "order1"))
    todo = [State((0, 0, 0), frozenset(), (-1,) * stages, phases, frozenset())]
    seen = set(todo)
    while todo:
        state = todo.pop()
        following = list(moves(state, actors, stages, readers))
        if not following and any(at < len(a) for at, a in zip(state.at, actors)):
            raise Wrong("deadlock")
        fresh = set(following) - seen
        seen |= fresh
        todo += fresh
    return len(seen)


def moves(state, actors, stages, readers):
    """Yield the states that one step of an actor, or the end of a copy, leads to."""
    for block in state.flying:
        stage = block % stages
        blocks = (*state.stages[:stage], block, *state.stages[stage + 1 :])
        done = state._replace(flying=state.flying - {block}, stages=blocks)
        yield arrived(done, f"full{stage}", 1)
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
            if any(stage == what for stage, _ in state.reads):
                raise Wrong(f"block {value} is copied while stage {what} is read")
            yield after._replace(flying=state.flying | {value})
        elif kind == "begin":
            if state.stages[what] != value or any(b % stages == what for b in state.flying):
                raise Wrong(f"block {value} is read, the stage has {state.stages[what]}")
            yield after._replace(reads=state.reads | {(what, actor)})
        elif kind == "end":
            yield arrived(after._replace(reads=state.reads - {(what, actor)}), f"empty{what}", 1)
        else:
            yield arrived(after, what, 1)


def arrived(state, name, count):
    """Return the state with one more arrival at a barrier; phases count arrivals."""
    phases = tuple((n, p + count * (n == name)) for n, p in state.phases)
    return state._replace(phases=phases)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_every_interleaving_is_correct(stages, readers, steps):
    for turns in range(6):
        assert explored((steps,) * turns, stages, readers) > turns


@given(st.lists(st.integers(0, 3), max_size=5), st.integers(2, 4), st.integers(1, 2))
@example([2, 0, 0, 3, 0], 2, 1)
def test_turns_may_differ_in_their_number_of_blocks(steps, stages, readers):
    assert explored(tuple(steps), stages, readers) >= 1


def test_groups_that_skip_the_order_barrier_read_the_wrong_block():
    """Two phases later, `full` of a stage has the same parity again."""
    with pytest.raises(Wrong, match="is read, the stage has"):
        explored((4, 4), 2, 1, ordered=False)


@given(st.integers(0, 2**31 - 1), st.integers(2, 9))
def test_stages_and_phases(count, stages):
    word = Word(count)
    assert STAGE(word, stages) == count % stages
    assert FULL(word, stages) == count // stages % 2
    assert EMPTY(word, stages) != FULL(word, stages)
