"""Triton's tutorials 01 to 10 (github.com/triton-lang/triton, python/tutorials): their kernels."""

import ast
import sys
import types
from importlib.machinery import ModuleSpec

import torch
import torch.nn.functional as F

from corpora import folder, leaf, with_gradients

HERE = folder("tutorials")
ABOVE = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def defined(name):
    """Return what a tutorial defines, without running its experiments."""
    (path,) = HERE.glob(f"{name}-*.py")
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    tree = ast.parse(path.read_text("utf-8"))
    kept = []
    for node in tree.body:
        wanted = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in NAMES
        timed = "perf_report" in "".join(map(ast.unparse, getattr(node, "decorator_list", ())))
        chosen = isinstance(node, ast.If) and "NUM_STAGES_OPTIONS =" in ast.unparse(node)
        if (isinstance(node, ABOVE) and not timed) or wanted or chosen:
            kept.append(node)
    code = compile(ast.Module(kept, []), str(path), "exec")
    unused = types.ModuleType("tabulate")
    unused.__spec__ = ModuleSpec("tabulate", None)  # importers of torch look for it
    known = sys.modules.setdefault("tabulate", unused)
    exec(code, vars(module))
    if known is unused:
        del sys.modules["tabulate"]
    return module


NAMES = (
    "DEVICE", "TORCH_HAS_FP8", "properties", "NUM_SM", "NUM_REGS", "SIZE_SMEM", "WARP_SIZE",
    "target", "kernels", "configs", "tma_configs", "attention", "layer_norm",
    "HAS_APEX", "HAS_TENSOR_DESC", "HAS_HOST_TENSOR_DESC", "HAS_WARP_SPECIALIZE",
)  # fmt: skip


def cases():
    """Yield the tutorials' functions."""
    yield from (
        ("01-vector-add", vector_add), ("02-fused-softmax", softmax), ("03-matmul", matmul),
        ("04-dropout", dropout), ("05-layer-norm", layer_norm),
        ("05-layer-norm-wide", lambda: layer_norm(300)), ("06-attention", attention),
        ("06-attention-causal", lambda: attention(True)), ("07-libdevice", libdevice),
        ("08-grouped-gemm", grouped),
        *((f"09-{n}", lambda n=n: persistent(n))
          for n in ("matmul", "matmul_tma", "matmul_persistent", "matmul_tma_persistent",
                    "matmul_descriptor_persistent")),
        *((f"10-{kind}", lambda kind=kind: scaled(kind))
          for kind in ("mxfp8", "mixed")),
    )  # fmt: skip


def vector_add():
    x, y = torch.randn(3000), torch.randn(3000)
    return [(defined("01").add(x, y), x + y)]


def softmax():
    x = torch.randn(37, 200)
    return [(defined("02").softmax(x), x.softmax(1))]


def matmul():
    module = defined("03")
    a, b = (torch.randn(130, 130, dtype=torch.float16) for _ in range(2))
    wanted = a.float() @ b.float()
    return [(module.matmul(a, b), wanted),
            (module.matmul(a, b, activation="leaky_relu"), F.leaky_relu(wanted))]  # fmt: skip


def dropout():
    module = defined("04")
    x, keep = torch.randn(100), (torch.rand(100) > 0.5).to(torch.int32)
    seeded = module.seeded_dropout(x, p=0.5, seed=123)
    return [(module.dropout(x, x_keep=keep, p=0.5), 2 * x * keep),
            (seeded, torch.where(seeded != 0, 2 * x, 0))]  # fmt: skip


def layer_norm(columns=48):
    ours, shape = defined("05").layer_norm, (columns,)
    return with_gradients(
        lambda x, w, b: ours(x, shape, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, shape, w, b, 1e-5),
        leaf(300, columns), leaf(columns), leaf(columns),  # rows that share one of 256 locks
    )  # fmt: skip


def attention(causal=False):
    ours = defined("06").attention
    # The backward pass is that of causal attention, also without the mask.
    given = [
        torch.randn(1, 2, 256, 64, dtype=torch.float16).requires_grad_(causal) for _ in range(3)
    ]

    def reference(*given):
        q, k, v = (a.float() for a in given)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).half()

    return with_gradients(lambda q, k, v: ours(q, k, v, causal, 0.125, False), reference, *given)


def libdevice():
    module, x = defined("07"), torch.rand(1000)
    out = torch.zeros(1000)
    module.asin_kernel[(1,)](x, out, 1000, BLOCK_SIZE=1024)
    return [(out, torch.asin(x))]


def grouped():
    module = defined("08")
    left = [torch.rand(n, 64, dtype=torch.float16) for n in (128, 64)]
    right = [torch.rand(64, n, dtype=torch.float16) for n in (64, 128)]
    wanted = [a.float() @ b.float() for a, b in zip(left, right)]
    return list(zip(module.group_gemm_fn(left, right), wanted))


def persistent(name):
    module = defined("09")
    a, b = (torch.randn(256, 128, dtype=torch.float16) for _ in range(2))
    function = getattr(module, name)
    more = {"warp_specialize": False} if "tma" in name or "descriptor" in name else {}
    ours = function(a, b.T if name in ("matmul", "matmul_persistent") else b, **more)
    return [(ours, a.float() @ b.float().T)]


def scaled(kind):
    module, sizes = defined("10"), (128, 256, 512)
    made = module.initialize_block_scaled(*sizes, kind, compute_reference=True)
    *descriptors, rows, columns, depth, configs, wanted = made
    given = torch.float16, *sizes, rows, columns, depth, configs
    return [(module.block_scaled_matmul(*descriptors, *given), wanted)]
