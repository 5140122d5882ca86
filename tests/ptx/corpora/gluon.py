"""Triton's Gluon tutorials (triton-lang/triton, python/tutorials/gluon): cp.async, TMA, wgmma."""

import importlib
import sys
from unittest import mock

import torch
from triton._C.libtriton import nvidia

from corpora import folder

sys.path.insert(0, str(folder("tutorials/gluon")))
SIZES = 64, 64, 64  # of a tile of a product


def tutorial(number):
    """Return a tutorial as a module; cuBLAS, which they time, needs a GPU."""
    (path,) = folder("tutorials/gluon").glob(f"{number}-*.py")
    with mock.patch.object(nvidia.cublas, "CublasLt"):
        return importlib.import_module(path.stem)


def cases():
    """Yield the tutorials' functions that run on Hopper, but for layouts (02)."""
    copies = {"01.memcpy": (), "03.memcpy_1d_cpasync": (), "04.memcpy_1d_tma": ()}
    yield from ((name, lambda name=name: copied(name)) for name in copies)
    yield from ((name, lambda name=name: added(name)) for name in ADDITIONS)
    yield from ((name, lambda name=name: multiplied(name, *PRODUCTS[name])) for name in PRODUCTS)
    yield "05.small_mma", small_mma


ADDITIONS = ("03.elementwise_add", "03.elementwise_add_pipelined", "04.elementwise_add_tma",
             "08.elementwise_add_warp_specialized")  # fmt: skip
PRODUCTS = {"05.blocked_matmul": (False, 4), "05.blocked_matmul_pipelined": (4,)}


def function(name):
    number, _, name = name.partition(".")
    return getattr(tutorial(number), name)


def copied(name):
    x, out = torch.randn(200), torch.empty(200)
    function(name)(x, out, 128)
    return [(out, x)]


def added(name):
    a, b, c = (torch.randn(40, 200) for _ in range(3))
    function(name)(a, b, c)
    return [(c, a + b)]


def multiplied(name, *more):
    sizes = (100, 200), (200, 136), (100, 136)
    a, b, c = (torch.randn(size, dtype=torch.float16) for size in sizes)
    function(name)(a, b, c, *SIZES, *more)
    return [(c, a.float() @ b.float())]


def small_mma():
    a, b = (torch.randn(64, 64, dtype=torch.float16) for _ in range(2))
    c, d = torch.randn(64, 64), torch.empty(64, 64)
    function("05.small_mma")(a, b, c, d, 16)
    return [(d, a.float() @ b.float() + c)]
