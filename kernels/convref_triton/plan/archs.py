"""Figures of architectures: capacity and peak rates of a multiprocessor."""

import re
from functools import cache

DEFAULT = "sm_90"  # architecture of a plan unless one is given
SMS = 132  # multiprocessors that plans assume: those of an H100 or H200
PER_SM = 4  # programs of four warps that a multiprocessor runs at a time
REGISTERS = 2**16  # of a multiprocessor
FP8 = ("sm_89", "sm_90")  # architectures whose tensor cores take 8-bit floats in our kernels
# Products of a multiprocessor in a cycle, by dtype of at most 16 bits or math of float32.
PRODUCTS = {"f16": 2048, "bf16": 2048, "tf32": 1024, "tf32x3": 340, "ieee": 128}
PRODUCTS |= {"e4m3": 4096, "e5m2": 4096}
ISSUED = 4  # instructions of warps in a cycle
# Bytes of shared memory that a block may have, by how an architecture's name begins; first match.
SHARED = (
    ("sm_8[07]", 163 * 1024),
    ("sm_(8[69]|12)", 99 * 1024),
    ("sm_(9|10)", 227 * 1024),
    ("gfx950", 160 * 1024),
    ("gfx", 64 * 1024),
)
# Where products read registers, the pipeline keeps one stage less in shared memory.
IN_REGISTERS = ("gfx", "sm_8", "sm_12")


@cache
def shared(arch: str) -> int:
    """Return the bytes of shared memory that a block may have; 48 KiB of an unknown one."""
    return next((size for name, size in SHARED if re.match(name, arch)), 48 * 1024)
