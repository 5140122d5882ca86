"""Print the PTX of every kernel for every architecture, each after a line with its name."""

from max.gpu.host import get_gpu_target
from std.compile import compile_info

from correlate_mma import correlate_mma_v8
from direct import bgrad, correlate, gather
from pool import avg_pool_fprop, max_pool_fprop, max_pool_select, pool_backward
from mma import correlate_mma, gather_mma
from wgmma import gather_wgmma


def show[Kind: TrivialRegisterPassable, //, kernel: Kind, arch: StaticString](*name: StaticString):
    print("//// ", arch, " ", sep="", end="")
    for part in name:
        print(part, end="")
    comptime target = get_gpu_target[arch]()
    print("\n", compile_info[kernel, emission_kind="asm", target=target]().asm, sep="")


def of_any_type[arch: StaticString, T: DType](suffix: StaticString):
    show[gather[T], arch]("gather_", suffix)
    show[correlate[T], arch]("correlate_", suffix)
    show[bgrad[T], arch]("bgrad_", suffix)
    show[max_pool_fprop[T], arch]("max_pool_fprop_", suffix)
    show[max_pool_select[T], arch]("max_pool_select_", suffix)
    show[avg_pool_fprop[T], arch]("avg_pool_fprop_", suffix)
    show[pool_backward[T, True], arch]("max_pool_backward_", suffix)
    show[pool_backward[T, False], arch]("avg_pool_backward_", suffix)


def emit[arch: StaticString]():
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
