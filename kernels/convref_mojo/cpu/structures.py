"""The structs of the .mojo files as ctypes structures, field by field; all fields are 64 bits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..library import Word
from ..strides import LAYOUTS, Array, Strides, channel, elements, spatial


class Source(ctypes.Structure):
    """An array (n, channel, z, y, x): address, and strides in elements."""

    _fields_ = [(name, Word) for name in ("data", "n", "c", "z", "y", "x")]


def source(array: Array) -> Source:
    """Return the address and strides of an array (N, C, *space)."""
    return Source(array.ctypes.data, *_source_strides(array.shape, array.strides, array.itemsize))


@lru_cache(LAYOUTS)
def _source_strides(shape: tuple[int, ...], strides: Strides, size: int) -> Strides:
    found = elements(shape, strides, size)
    return found[0], channel(found, shape[1]), *spatial(found)


def table(values: Sequence[int]) -> tuple[int, Any]:
    """Return the address of an array of 64-bit integers, and the object that owns it."""
    memory = (Word * max(1, len(values)))(*values)
    return ctypes.addressof(memory), memory


class Windows(ctypes.Structure):
    """Windows over one source, or over two of the same sizes."""

    _fields_: list[tuple[str, Any]] = [
        *((name, Word) for name in ("images", "groups", "channels", "sources")),
        *((f"{name}_{axis}", Word) for name in ("count", "size", "step", "taps") for axis in "zyx"),
        ("shift", Word),
        ("first", Source),
        ("second", Source),
    ]


class Filter(ctypes.Structure):
    """A filter: address, strides of group, summed channel and result, address of tap offsets."""

    _fields_ = [(name, Word) for name in ("data", "group", "channel", "result", "taps")]


class Gather(ctypes.Structure):
    """One launch of the sum over windows."""

    _fields_: list[tuple[str, Any]] = [
        ("windows", Windows),
        ("results", Word),
        *((name, Word) for name in ("dst", "dst_n", "dst_c", "dst_z", "dst_y", "dst_x")),
        ("bias", Word),
        ("bias_c", Word),
        ("first", Filter),
        ("second", Filter),
        ("panels", Word),
        ("min_units", Word),
        ("panels_bytes", Word),
        ("panels_units", Word),
        ("scratch_bytes", Word),
        ("units", Word),
        ("block_depth", Word),
        ("tiles", Word),
        ("row_blocks", Word),
        ("column_blocks", Word),
        ("lines", Word),
        ("across", Word),
        ("planar", Word),
    ]


class Correlate(ctypes.Structure):
    """One launch of the filter gradient."""

    _fields_: list[tuple[str, Any]] = [
        ("windows", Windows),
        ("small", Source),
        ("rows", Word),
        ("dst", Filter),
        ("min_units", Word),
        ("sums", Word),
        ("scratch_bytes", Word),
        ("sums_bytes", Word),
        ("units", Word),
        ("slices", Word),
        ("tiles", Word),
        ("row_blocks", Word),
        ("panels", Word),
        ("column_blocks", Word),
        ("lines", Word),
        ("across", Word),
    ]


class Pool(ctypes.Structure):
    """One launch of a pool."""

    _fields_: list[tuple[str, Any]] = [
        *((name, Word) for name in ("images", "channels")),
        *((f"{name}_{axis}", Word) for name in ("count", "size", "dilation") for axis in "zyx"),
        ("reads", Word),
        ("divisor", Word),
        *((name, Source) for name in ("big", "small", "indices")),
    ]


VECTORS = ("mean", "rstd", "sum", "sum_z", "p", "q", "r")  # of channels, of batch norm


class Norm(ctypes.Structure):
    """One launch of batch norm, or of a sum over images and pixels."""

    _fields_: list[tuple[str, Any]] = [
        *((name, Word) for name in ("images", "channels", "size_z", "size_y", "size_x")),
        *((name, Source) for name in ("x", "u", "out")),
        *((name, Word) for name in VECTORS),
    ]
