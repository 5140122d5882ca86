"""Compile the kernels that are `carried`: `python -m convref_triton.hopper.carry`.

It needs a Triton whose Gluon loads rows of pixels, and neither torch nor a GPU.
"""

from __future__ import annotations

import os

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from ..compile.specialise import TRITON_TYPES
from ..conv import im2col
from ..plan.tile import Tile
from . import carried, gluon_im2col, ring
from .carried import Carried

PTX_VERSION = 86  # the oldest that has these loads: any assembler since CUDA 12.7 takes it
# No paths of the machine that compiles, and no doubt about fusion.
ENVIRONMENT = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
TOLD = ["num_warps", "num_ctas", "shared", "tensordesc_meta"]  # of the metadata
TOLD += [f"{kind}_scratch_{what}" for kind in ("global", "profile") for what in ("size", "align")]


def compiled(dtype: str, rank: int, tile: Tile) -> Carried:
    """Return the kernel of a type and a tile for maps of so many spatial axes."""
    kernel, kind = gluon_im2col.gluon_im2col, TRITON_TYPES[dtype]
    constants = {"RANK": rank, **ring.constants(tile)}
    signature = {p.name: "constexpr" if p.is_constexpr else "i32" for p in kernel.params}
    signature |= {"y": f"*{kind}", "bias": f"*{kind}"}
    for name, block in (("x", (tile.bm, tile.bk)), ("w", (tile.bn, tile.bk))):
        layout = gl.NVMMASharedLayout.get_default_for([*block], gl.dtype(kind))
        mode, more = ("_im2col", f",input_rank={rank + 2}") if name == "x" else ("", "")
        sizes = ",".join(map(str, block))
        signature[name] = f"tensordesc{mode}<{kind}[{sizes}]{more},{layout!r}>"
    names = list(signature)
    given = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in ("y", "bias")}
    made = triton.compile(
        GluonASTSource(kernel, signature, given, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": tile.warps, "ptx_version": PTX_VERSION},
    )
    told = made.metadata._asdict()
    return Carried(
        made.name,
        {"dtype": dtype, "RANK": rank, "tile": list(tile)},
        {name: kind for name, kind in signature.items() if kind != "constexpr"},
        {name: told[name] for name in TOLD},
        carried.bare(made.asm["ptx"]),
    )


def main() -> int:
    """Compile all kernels and write their file."""
    os.environ |= ENVIRONMENT
    made = [
        compiled(dtype, rank, tile)
        for dtype in im2col.DTYPES
        for rank in im2col.RANKS
        for tile in im2col.TILES
    ]
    made_of = {module: carried.digest(module) for module in im2col.MADE_OF}
    print(carried.keep(im2col.MODULE, carried.File(tuple(made), triton.__version__, made_of)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
