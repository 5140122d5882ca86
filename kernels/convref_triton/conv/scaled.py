"""Convolutions of 8-bit floats, by the kernel `gather`: the scales are those of its epilogue.

y[n, k, p] = scale[k] (sum over r, c of x[n, c, o_r] w[k, c, r]) + b[k]

Tensor cores keep 13 bits of such a sum on sm_89 and sm_90, so each step's sum begins at zero and is
added to the others in float32.
"""

from ..plan import lines
from ..plan.spec import Expectation, KernelSpec
from ..plan.task import Epilogue, Task
from ..plan.tile import Tile, TileTable, tiles
from .gather import gather, gather_launch, gather_work

TILES = TileTable(
    {
        "*": tiles(
            "128x128x128 w8 s3, 128x64x128 w8 s3, 64x64x128 w4 s4, 128x128x64 w8 s4, "
            "64x64x64 w4 s4, 64x32x64 w4 s4"
        )
    },
    short={"*": tiles("64x32x32 w8 s3, 32x32x32 w8 s3")},  # an address for each byte
    tallest=128,
    blocks=1,
)
BITS = 13  # that tensor cores keep: docs/sanitize.md
DEEPEST = 128  # most products of a step


def add_scaled(task: Task, tile: Tile) -> None:
    pairs, y = task.aligned_pairs(), task.result()
    stored, after = task.stored(y), Epilogue(scale=task.vector("scale"), shift=task.added)
    launch = gather_launch(task.geometry, pairs, stored, False, tile, epilogue=after)
    task.builder.steps.append(launch)
    task.finish(stored, y)


SPEC = KernelSpec(
    "scaled",
    serves=("scaled_conv",),
    refusal=lambda task: None,
    tiles=lambda task: TILES.of(task, task.width),
    add=add_scaled,
    kernels=(gather,),
    work=gather_work,
    dtypes=("e4m3", "e5m2"),
    ops=("scaled_conv",),
    lines=lines.SCALED,
    expects=Expectation(
        products=1,
        in_flight=0,
        why="the sum of each step is added in float32 before the next one begins",
        loop=((257,),),
    ),
)
