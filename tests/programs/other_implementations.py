"""Other correct implementations of a program: sums in other orders, wider intermediate results."""

from __future__ import annotations

import contextlib
import os
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

aten = torch.ops.aten


class Shuffled(TorchDispatchMode):
    """Adds the terms of matrix products, convolutions and sums in another order."""

    def __init__(self, seed):
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)

    def order(self, count):
        return torch.randperm(count, generator=self.random)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket
        if name in (aten.mm, aten.bmm):
            order = self.order(args[0].shape[-1])
            return func(args[0][..., order], args[1][..., order, :])
        if name is aten.addmm and not kwargs:
            order = self.order(args[1].shape[-1])
            halves = order.chunk(2)
            held = torch.promote_types(args[0].dtype, torch.float32)
            b, x, w = (a.to(held) for a in args)
            return (sum(x[:, part] @ w[part] for part in halves) + b).to(args[0].dtype)
        if name is aten.convolution and not args[6] and args[8] == 1:
            order = self.order(args[0].shape[1])
            return func(args[0][:, order], args[1][:, order], *args[2:])
        if name in (aten.sum, aten.mean) and len(args) > 1 and args[1] and args[0].ndim:
            axis = args[1][0]
            shuffled = args[0].index_select(axis, self.order(args[0].shape[axis]))
            return func(shuffled, *args[1:], **kwargs)
        return func(*args, **kwargs)


def wide(f, *args):
    """Return the results of f in float64, rounded at the end."""
    like = f(*args)
    found = f(*tree_map(lambda t: t.double() if t.is_floating_point() else t, args))
    return tree_map(lambda t, old: t.to(old.dtype), found, like)


def channels_last(f, *args):
    def strided(t):
        return t.to(memory_format=torch.channels_last) if t.ndim == 4 else t

    return f(*map(strided, args))


def shuffled(f, *args, seed):
    with Shuffled(seed):
        return f(*args)


def without_onednn(f, *args):
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags warns on CPUs
    try:
        return f(*args)
    finally:
        torch._C._set_mkldnn_enabled(True)


def two_threads(f, *args):
    count = torch.get_num_threads()
    torch.set_num_threads(3 - min(count, 2))
    try:
        return f(*args)
    finally:
        torch.set_num_threads(count)


def not_contiguous(f, *args):
    def spread(t):
        return t.repeat_interleave(2, -1)[..., ::2] if t.ndim else t

    return f(*map(spread, args))


IMPLEMENTATIONS = {
    "eager": lambda f, *args: f(*args),
    "float64": wide,
    "channels last": channels_last,
    "without oneDNN": without_onednn,
    "two threads": two_threads,
    "not contiguous": not_contiguous,
}
ORDERS = 30 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 1
IMPLEMENTATIONS |= {f"shuffled {n}": partial(shuffled, seed=n) for n in range(ORDERS)}
UNFAIR = {("float64", "narrow")}  # which rounds on purpose


@contextlib.contextmanager
def one_thread():
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
