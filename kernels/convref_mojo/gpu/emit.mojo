"""Print the PTX of every kernel, for every architecture, between lines that name them."""

from max.gpu.host import get_gpu_target
from std.compile import compile_info

from correlate_mma import correlate_mma_v8
from direct import correlate, gather, total
from pool import maxima, means, picked, returned
from mma import correlate_mma, gather_mma
from wgmma import gather_wgmma


def show[Kind: TrivialRegisterPassable, //, kernel: Kind, arch: StaticString](*name: StaticString):
    """Print one kernel."""
    print("//// ", arch, " ", sep="", end="")
    for part in name:
        print(part, end="")
    comptime target = get_gpu_target[arch]()
    print("\n", compile_info[kernel, emission_kind="asm", target=target]().asm, sep="")


def of_any_type[arch: StaticString, T: DType](suffix: StaticString):
    """Print the kernels that there are for every number type."""
    show[gather[T], arch]("gather_", suffix)
    show[correlate[T], arch]("correlate_", suffix)
    show[total[T], arch]("total_", suffix)
    show[maxima[T], arch]("maxima_", suffix)
    show[picked[T], arch]("picked_", suffix)
    show[means[T], arch]("means_", suffix)
    show[returned[T, True], arch]("placed_", suffix)
    show[returned[T, False], arch]("spread_", suffix)


def emit[arch: StaticString]():
    """Print the kernels for one architecture."""
    of_any_type[arch, DType.float32]("f32")
    of_any_type[arch, DType.float64]("f64")
    of_any_type[arch, DType.bfloat16]("bf16")
    show[gather_mma[8, 8], arch]("gather_mma_v8f8")
    show[gather_mma[8, 1], arch]("gather_mma_v8f1")
    show[gather_mma[1, 1], arch]("gather_mma_v1f1")
    show[correlate_mma_v8, arch]("correlate_mma_v8")
    show[correlate_mma, arch]("correlate_mma_v1")


def main():
    emit["sm_80"]()
    emit["sm_90a"]()
    show[gather_wgmma, "sm_90a"]("gather_wgmma")
