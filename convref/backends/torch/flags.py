"""The process-wide flags of torch: precision of float32 products and of 16-bit sums."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch

from ...case import Call

MATH = {"ieee": "ieee", "tf32": "tf32"}


def are_set(call: Call) -> Callable[[], bool]:
    """Return a cheap test of whether the process's flags are as the call requires."""
    read = torch._C._get_fp32_precision_getter
    wanted = MATH[call.math]
    if call.specs[0].device == "cpu":
        fine = (wanted, "none") if wanted == "ieee" else (wanted,)  # "none" is full precision
        return lambda: read("mkldnn", "conv") in fine and read("mkldnn", "matmul") in fine
    matmul = torch.backends.cuda.matmul
    return lambda: (
        read("cuda", "conv") == read("cuda", "matmul") == wanted
        and not matmul.allow_fp16_reduced_precision_reduction
        and not matmul.allow_bf16_reduced_precision_reduction
    )


_ONE_AT_A_TIME = RLock()  # the flags belong to the process


@contextmanager
def flags(math: str, onednn: bool) -> Iterator[None]:
    """Set the precision of float32 products and 16-bit sums, and restore it afterwards."""
    with _ONE_AT_A_TIME:
        yield from _set_flags(math, onednn)


def _legacy_flag() -> bool | None:
    """Return cuDNN's one flag of older programs, None where the new ones contradict it already."""
    try:
        found: bool = torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        return None
    return found


def _set_flags(math: str, onednn: bool) -> Iterator[None]:
    backends = torch.backends
    wanted: list[tuple[Any, str, Any]] = [
        (part, "fp32_precision", MATH[math])
        for part in (
            backends.cudnn.conv,
            backends.cudnn.rnn,  # torch reads one flag for both, and raises where they differ
            backends.cuda.matmul,
            backends.mkldnn.conv,
            backends.mkldnn.matmul,
        )
    ]
    if torch.cuda.is_available():
        wanted.append((backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False))
        wanted.append((backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False))
    legacy = _legacy_flag()
    before = [(part, name, getattr(part, name)) for part, name, _ in wanted]
    was_on = torch._C._get_mkldnn_enabled()
    nnpack = torch._C._get_nnpack_enabled()
    try:
        if legacy is not None:
            torch._C._set_cudnn_allow_tf32(MATH[math] == "tf32")
        for part, name, value in wanted:
            setattr(part, name, value)
        torch._C._set_mkldnn_enabled(onednn and was_on)
        torch._C._set_nnpack_enabled(onednn and nnpack)
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_on)
        torch._C._set_nnpack_enabled(nnpack)
        if legacy is not None:
            torch._C._set_cudnn_allow_tf32(legacy)
        for part, name, value in before:
            if name == "fp32_precision":
                part.fp32_precision = "none"  # an inherited value stays inherited
            if getattr(part, name) != value:
                setattr(part, name, value)
