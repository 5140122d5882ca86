"""Print the PTX of every kernel, for every architecture, between lines that name them."""

from max.gpu.host import get_gpu_target
from std.compile import compile_info

from direct import correlate, gather, total
from product import correlate_mma, gather_mma


def emit[arch: StaticString]():
    """Print the kernels for one architecture."""
    comptime target = get_gpu_target[arch]()
    print("//// ", arch, " gather_f32", sep="")
    print(compile_info[gather[DType.float32], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " gather_f64", sep="")
    print(compile_info[gather[DType.float64], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " gather_bf16", sep="")
    print(compile_info[gather[DType.bfloat16], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " correlate_f32", sep="")
    print(compile_info[correlate[DType.float32], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " correlate_f64", sep="")
    print(compile_info[correlate[DType.float64], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " correlate_bf16", sep="")
    print(compile_info[correlate[DType.bfloat16], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " total_f32", sep="")
    print(compile_info[total[DType.float32], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " total_f64", sep="")
    print(compile_info[total[DType.float64], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " total_bf16", sep="")
    print(compile_info[total[DType.bfloat16], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " gather_mma_v8f8", sep="")
    print(compile_info[gather_mma[8, 8], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " gather_mma_v8f1", sep="")
    print(compile_info[gather_mma[8, 1], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " gather_mma_v1f1", sep="")
    print(compile_info[gather_mma[1, 1], emission_kind="asm", target=target]().asm)
    print("//// ", arch, " correlate_mma", sep="")
    print(compile_info[correlate_mma, emission_kind="asm", target=target]().asm)


def main():
    emit["sm_80"]()
    emit["sm_90a"]()
