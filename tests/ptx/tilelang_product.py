"""A product in TileLang: `python tilelang_product.py FOLDER` writes its PTX there, by nvcc."""

import subprocess
import sys
from pathlib import Path

import tilelang
import tilelang.language as T
from tvm.target import Target

M, N, K = 128, 128, 64
ROWS, COLUMNS, DEPTH = 64, 64, 32  # of a tile


@T.prim_func
def product(
    a: T.Tensor((M, K), "bfloat16"), b: T.Tensor((K, N), "bfloat16"), c: T.Tensor((M, N), "float32")
):
    with T.Kernel(N // COLUMNS, M // ROWS, threads=128) as (column, row):
        s_a = T.alloc_shared((ROWS, DEPTH), "bfloat16")
        s_b = T.alloc_shared((DEPTH, COLUMNS), "bfloat16")
        acc = T.alloc_fragment((ROWS, COLUMNS), "float32")
        T.clear(acc)
        for k in T.Pipelined(K // DEPTH, num_stages=2):
            T.copy(a[row * ROWS, k * DEPTH], s_a)
            T.copy(b[k * DEPTH, column * COLUMNS], s_b)
            T.gemm(s_a, s_b, acc)
        T.copy(acc, c[row * ROWS, column * COLUMNS])


if __name__ == "__main__":
    folder, target = Path(sys.argv[1]), Target({"kind": "cuda", "arch": "sm_80"})
    with target:
        made = tilelang.lower(product, target=target, enable_device_compile=False)
    (folder / "product.cu").write_text(made.kernel_source, "utf-8")
    root = Path(tilelang.__file__).parent
    headers = [f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]
    command = ["nvcc", "-ptx", "-arch=sm_80", "-std=c++17", "-w", *headers]
    files = ["-o", str(folder / "product.ptx"), str(folder / "product.cu")]
    subprocess.run([*command, *files], check=True)
