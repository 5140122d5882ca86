"""Filters packed once: never an older version, never beyond the limit, gone with their tensor."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convref.case import parse
from convref.errors import ConvrefError

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import operands
from convref_triton.plan.choose import offered, plan
from convref_triton.run import gpu, packed

LINE = "conv.dgrad:n1c64k64_i6x6_f3x3_p1:dt=bf16:mem=x.nhwc,dy.nhwc"  # w is read with k innermost
BYTES = 64 * 64 * 9 * 2


@pytest.fixture
def cache(monkeypatch):
    made = packed.Cache(4 * BYTES)
    monkeypatch.setattr(packed, "filters", made)
    return made


@pytest.fixture(scope="module")
def made():
    call = parse(LINE).call
    known = operands(call)
    return plan(call, known, next(c for c in offered(call, known) if c.kernel == "tma"))


def filter_like(seed):
    like = operands(parse(LINE).call)["w"]
    tensor = torch.empty_strided(like.shape, like.strides, dtype=torch.bfloat16)
    return tensor.copy_(torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)))


def target(made):
    (name,) = {s.target for s in made.copies if s.source == "w"}
    return name


def call_with(made, device, w):
    """Return the packed filter that the launches of a call were given."""
    dy = operands(parse(LINE).call)["dy"]
    given_ = {"dy": torch.zeros(dy.shape).to(torch.bfloat16).as_strided(dy.shape, dy.strides)}
    ready = gpu.prepare(made, device)
    tensors = ready([w if role == "w" else given_[role] for role in ready.roles])
    return dict(zip(made.buffers, tensors))[target(made)]


def right(found, w):
    return torch.equal(found[:, : w.shape[1]], w)


def test_the_cache_is_disabled_by_default(device, made):
    w = filter_like(0)
    first, second = (call_with(made, device, w) for _ in range(2))
    assert first is not second
    assert right(first, w)
    assert len(packed.filters) == packed.filters.limit == 0


def test_a_filter_seen_before_is_not_packed_again(device, made, cache, monkeypatch):
    w = filter_like(0)
    first = call_with(made, device, w)
    assert right(first, w)
    monkeypatch.setattr(gpu, "copy", None)
    assert call_with(made, device, w) is first
    assert cache.bytes == first.nbytes


CHANGES = {
    "in place": lambda w: w.add_(1),
    "a slice": lambda w: w[3:5].zero_(),
    "through a view": lambda w: w.detach().mul_(2),
    "of each": lambda w: torch._foreach_add_([w], 1.0),
    "other memory": lambda w: setattr(w, "data", filter_like(9)),
    "by an optimizer": lambda w: torch.optim.SGD([grown(w)], lr=1.0).step(),
}


def grown(w):
    w.requires_grad_().grad = torch.ones_like(w)
    return w


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_filter_that_changed_is_packed_again(device, made, cache, change):
    w = filter_like(0)
    before = call_with(made, device, w).clone()
    change(w)
    found = call_with(made, device, w)
    assert right(found, w)
    assert not torch.equal(found, before)
    assert cache.bytes == found.nbytes  # the older one is not kept beside it


def test_memory_goes_with_the_tensor(device, made, cache):
    w = filter_like(0)
    call_with(made, device, w)
    assert len(cache) == 1
    del w
    gc.collect()
    assert (len(cache), cache.bytes) == (0, 0)


def test_cache_keeps_most_recently_used_within_the_limit(device, made, cache):
    several = [filter_like(seed) for seed in range(3)]
    size = call_with(made, device, several[0]).nbytes
    cache.limit = 2 * size
    first = call_with(made, device, several[0])
    call_with(made, device, several[1])
    assert call_with(made, device, several[0]) is first
    call_with(made, device, several[2])  # the second goes, which was used longest ago
    assert (len(cache), cache.bytes) == (2, 2 * size)
    assert call_with(made, device, several[0]) is first
    cache.limit = size - 1
    assert right(call_with(made, device, several[1]), several[1])
    assert (len(cache), cache.bytes) == (0, 0)


def test_a_graph_packs_at_each_replay(device, made, cache):
    """What a graph recorded is replayed with filters that have changed since."""
    w, state = filter_like(0), []
    recording = replace(device, capturing=lambda: bool(state))
    kept = call_with(made, recording, w)
    state.append("recording")
    recorded = call_with(made, recording, w)
    assert recorded is not kept
    assert right(recorded, w)
    assert len(cache) == 1


def test_streams_do_not_share(device, made, cache):
    w, streams = filter_like(0), [1]
    there = replace(device, stream=lambda: streams[-1])
    first = call_with(made, there, w)
    streams.append(2)
    assert call_with(made, there, w) is not first
    streams.append(1)
    assert call_with(made, there, w) is first


def test_uncounted_versions_are_not_kept(device, made, cache):
    with torch.inference_mode():
        w = filter_like(0)
        assert right(call_with(made, device, w), w)
        w.add_(1)
        assert right(call_with(made, device, w), w)
    assert len(cache) == 0


def test_a_reused_object_identity_is_another_filter(cache):
    one = torch.arange(4.0).reshape(2, 2)
    other = one.t()  # of the same memory and version
    cache.get(one, "form", one.clone)
    (key,) = cache._entries
    cache._entries[id(other), "form"] = cache._entries.pop(key)
    assert torch.equal(cache.get(other, "form", other.clone), other)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["use", "use", "add", "new", "data"]),
       st.sampled_from("ab")), max_size=30))  # fmt: skip
def test_no_sequence_of_changes_returns_a_stale_copy(steps):
    cache, tensors = packed.Cache(5 * 16), [torch.full((4,), float(i)) for i in range(4)]
    for count, (i, what, form) in enumerate(steps):
        if what == "use":
            found = cache.get(tensors[i], form, tensors[i].clone)
            assert torch.equal(found, tensors[i])
        elif what == "add":
            tensors[i].add_(1)
        elif what == "new":
            tensors[i] = torch.full((4,), 100.0 + count)
        else:
            tensors[i].data = torch.full((4,), 200.0 + count)
        assert cache.bytes == 16 * len(cache) <= cache.limit


def test_threads_share_a_cache():
    cache, wrong = packed.Cache(6 * 16), []
    shared = torch.full((4,), -1.0)
    gate = threading.Barrier(4)

    def work(number):
        gate.wait()
        for turn in range(300):
            own = torch.full((4,), float(number * 1_000 + turn))
            for source in (own, shared, own.add_(0.5)):
                found = cache.get(source, "form", source.clone)
                if not torch.equal(found, source):
                    wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    del threads
    gc.collect()
    assert cache.bytes == 16 * len(cache) <= cache.limit


def test_a_limit_is_no_negative_number(monkeypatch):
    monkeypatch.setattr(packed, "filters", packed.Cache())
    packed.keep(100)
    assert packed.filters.limit == 100
    with pytest.raises(ConvrefError, match="keep: limit is -1 bytes, needs 0 or more"):
        packed.keep(-1)
