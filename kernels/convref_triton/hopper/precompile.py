"""Compile the kernels of `precompiled`: `python -m convref_triton.hopper.precompile`.

It needs a Triton whose Gluon has TMA im2col loads, and neither torch nor a GPU.
"""

import os

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from ..compile.specialize import TRITON_TYPES
from ..plan.tile import Tile
from . import gluon_im2col, im2col, precompiled, ring
from .precompiled import Precompiled

PTX_VERSION = 86  # the oldest with im2col loads on sm_90a: any ptxas since CUDA 12.7 takes it
# Without line numbers the PTX has no paths of this machine; fusion is set because defaults differ.
ENVIRONMENT = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
METADATA = ["num_warps", "num_ctas", "shared", "tensordesc_meta"]
METADATA += [f"{kind}_scratch_{n}" for kind in ("global", "profile") for n in ("size", "align")]


def compile_kernel(dtype: str, rank: int, tile: Tile, transposed: bool) -> Precompiled:
    """Return the kernel of a dtype and a tile for tensor maps with `rank` spatial axes.

    `transposed` is as in `Config`.
    """
    kernel, element = gluon_im2col.gluon_im2col, TRITON_TYPES[dtype]
    constants = ring.configured({}, tile, rank=rank, transposed=transposed)
    signature = {p.name: "constexpr" if p.is_constexpr else "i32" for p in kernel.params}
    signature |= {"y": f"*{element}", "bias": f"*{element}"}
    filters = (tile.bk, tile.bn) if transposed else (tile.bn, tile.bk)
    for name, block in (("x", (tile.bm, tile.bk)), ("w", filters)):
        layout = gl.NVMMASharedLayout.get_default_for([*block], gl.dtype(element))
        mode, more = ("_im2col", f",input_rank={rank + 2}") if name == "x" else ("", "")
        sizes = ",".join(map(str, block))
        signature[name] = f"tensordesc{mode}<{element}[{sizes}]{more},{layout!r}>"
    names = list(signature)
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in ("y", "bias")}
    compiled = triton.compile(
        GluonASTSource(kernel, signature, values, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": tile.warps, "ptx_version": PTX_VERSION},
    )
    metadata = compiled.metadata._asdict()
    return Precompiled(
        compiled.name,
        {"dtype": dtype, "RANK": rank, "tile": list(tile), "TRANSPOSED": transposed},
        {name: kind for name, kind in signature.items() if kind != "constexpr"},
        {name: metadata[name] for name in METADATA},
        precompiled.strip(compiled.asm["ptx"]),
    )


def main() -> int:
    os.environ |= ENVIRONMENT
    kernels = tuple(
        compile_kernel(dtype, rank, tile, transposed)
        for dtype in im2col.DTYPES
        for rank in im2col.RANKS
        for tile in im2col.TILES
        for transposed in (False, True)
    )
    sources = {module: precompiled.source_digest(module) for module in im2col.SOURCES}
    print(precompiled.save(im2col.NAME, precompiled.File(kernels, triton.__version__, sources)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
