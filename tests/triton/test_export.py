"""Exported kernels: the C header, the description, and the PTX, all without Triton."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from driver_stub import compiler_of
from forced import facts, judged
from judged import NEEDS_A_GPU

from convref.case import parse
from convref.conformance.operands import operands
from convref.errors import ConvrefError, UnsupportedError
from convref_driver.exported import Export
from convref_driver.manifest import format_of
from convref_ptx.launches import run_export
from convref_triton.export import export, main

TMA = "conv.fprop:n1c64k64_i9x9_f3x3_p1:bias=0:dt=bf16:mem=nhwc"
LINES = (
    (TMA, "tma"),
    ("conv.fprop:n2c16k24_i9x9_f3x3_s2_p1:dt=bf16:mem=nhwc", "gather"),
    ("conv.fprop:n1c512k16_i3x3_f3x3_p1:dt=f16:mem=nhwc", "split"),  # a workspace, two launches
    ("conv.wgrad:n2c16k24_i9x9_f3x3_p1:dt=bf16:mem=nhwc", ""),
    ("conv.fprop:n2c16k24_i9x9_f3x3_p1:dt=bf16:mem=w.ohwi", "gather"),  # copies of x and y
    ("max_pool.fprop:n2c5_i9x8_f3x3_s2_p1:dt=bf16:mem=nhwc", ""),
    ("avg_pool.backward:n2c5_i9x8_f3x3_s2_p1:fill=normal", ""),
    ("layer_norm.fprop:n33c72_i1:dt=bf16:fill=normal", ""),
)
TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def written(line, kernel, folder, name=""):
    """Return the export of a line, read from its file, and the file's path."""
    paths = export(line, folder, kernel=kernel, name=name)
    path = next(path for path in paths if path.suffix == ".json")
    return Export.read(path), path


def memory(tensor):
    """Return the memory of a tensor, which shares it."""
    span = 1 + sum(s * (n - 1) for n, s in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span,), (1,)).view(TYPES[tensor.element_size()]).numpy()


def allocated(made, tensors):
    """Return every tensor of an export: the operands, and new ones full of ones' bits."""
    found = {name: tensors[name] for name, m in made.tensors.items() if m.use == "operand"}
    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i64": torch.int64}
    for name, m in made.tensors.items():
        if name not in found:
            new = torch.empty_strided(m.shape, m.strides, dtype=kinds[m.dtype])
            found[name] = new.fill_(torch.nan if new.is_floating_point() else -1)
    return found


def by_role(made, found):
    roles = {name: name.removesuffix(".new") for name, m in made.tensors.items()}
    return {roles[n]: found[n] for n, m in made.tensors.items() if m.use == "result"}


@pytest.mark.parametrize(("line", "kernel"), LINES)
def test_exported_ptx_computes_the_call(line, kernel, tmp_path):
    made, path = written(line, kernel, tmp_path)
    assert kernel in made.made_by
    case = parse(line)
    arrays = operands(case)
    tensors = allocated(made, facts(case.call, arrays)[0])
    run_export(path, {name: memory(tensor) for name, tensor in tensors.items()})
    assert judged(case, arrays, by_role(made, tensors))


CALLER = """
#include "{name}.h"
static {name}_kernels kernels;
int load(const void **images) {{ return {name}_load(&kernels, images); }}
int launch(unsigned long long *at, void *stream) {{
  return {name}_launch(&kernels, {at}, (CUstream)stream);
}}
int unload(void) {{ return {name}_unload(&kernels); }}
"""


def built(made, library, folder):
    """Return the header's functions, compiled against cuda.h and linked to the stand-in."""
    source, target = folder / "caller.c", folder / "caller.so"
    at = ", ".join(f"at[{i}]" for i in range(len(made.tensors)))
    source.write_text(CALLER.format(name=made.name, at=at))
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    compiler, headers = compiler_of()
    command = [compiler, *flags, f"-I{headers}", str(source), str(library), "-o", str(target)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def compared(log):
    """Return the maps and launches of a log, without handles and places of arguments."""
    lines = [line for line in log if line.startswith(("map", "im2col", "launch"))]
    return [re.sub(r"launch \S+| \d+@", " ", line) for line in lines]


@pytest.mark.parametrize(("line", "kernel"), LINES[:5])
def test_the_header_launches_what_the_driver_launches(line, kernel, driver, library, tmp_path):
    made, path = written(line, kernel, tmp_path, name="int")  # also a keyword of C
    addresses = {name: 0x100000 * (i + 1) for i, name in enumerate(made.tensors)}
    images = [(tmp_path / f"{image}.cubin").read_bytes() for image in made.images]
    kinds = made.launches[0].manifest.parameters if len(made.launches) == 1 else ()
    driver.layout([struct.calcsize(f"<{format_of(kind)}") for kind in kinds])
    driver.static_shared(48 << 10)  # so that every kernel with shared memory asks for more
    loaded = made.load(path.parent, driver=driver)
    asked = [line for line in driver.log() if line.startswith("cuFuncSetAttribute")]
    loaded(addresses, stream=0x77)
    ours = compared(driver.log())
    driver.call("cuCtxSetCurrent", 0xC0)
    library = built(made, library, tmp_path)
    assert library.load((ctypes.c_char_p * len(images))(*images)) == 0
    log = [line for line in driver.log() if line.startswith("cuFuncSetAttribute")]
    assert [line.split()[2:] for line in log] == [line.split()[2:] for line in asked]
    at = (ctypes.c_ulonglong * len(addresses))(*addresses.values())
    assert library.launch(at, ctypes.c_void_p(0x77)) == 0
    assert compared(driver.log()) == ours
    assert ours
    driver.fail("cuLaunchKernelEx", 700)
    assert library.launch(at, ctypes.c_void_p(0x77)) == 700
    assert library.unload() == 0


def test_what_is_wrong_is_said(tmp_path, driver):
    with pytest.raises(
        UnsupportedError, match="w is copied before the first launch, needs mem=nhwc"
    ):
        export("conv.fprop:n1c64k64_i9x9_f3x3:dt=bf16", tmp_path)
    with pytest.raises(UnsupportedError, match='needs --kernel "flat 128x16x32 w8 s4"'):
        export("conv.fprop:n32c3k16_i640x640_f3x3_s2_p1:dt=bf16:mem=nhwc", tmp_path)
    with pytest.raises(UnsupportedError, match=r"needs mem=w\.ihwo"):
        export("conv.dgrad:n8c3k128_i28x28_f3x3_p1:dt=bf16:mem=nhwc", tmp_path)
    with pytest.raises(UnsupportedError, match="gfx942 has no CUDA driver"):
        export(TMA, tmp_path, arch="gfx942")
    with pytest.raises(ConvrefError, match="name is 'a-b', needs an identifier of C"):
        export(TMA, tmp_path, name="a-b")
    with pytest.raises(ConvrefError, match="sms is 0, needs a positive number"):
        export(TMA, tmp_path, sms=0)
    with pytest.raises(UnsupportedError, match="an empty result, nothing is launched"):
        export(TMA.replace("n1", "n0"), tmp_path)
    with pytest.raises(UnsupportedError, match="for sm_12: Value 'sm_12' is not defined"):
        export(LINES[1][0], tmp_path, arch="sm_12")
    assert not list(tmp_path.iterdir())
    made, path = written(TMA, "", tmp_path)
    arrays = {name: np.zeros(m.bytes, np.uint8) for name, m in made.tensors.items()}
    with pytest.raises(
        ConvrefError, match=r"conv_fprop: y: has strides \(2,\), needs a contiguous"
    ):
        run_export(path, {**arrays, "y": np.zeros(2 * len(arrays["y"]), np.uint8)[::2]})
    with pytest.raises(ConvrefError, match="conv_fprop: x: is a Tensor, needs a contiguous array"):
        run_export(path, {**arrays, "x": torch.zeros(1)})
    loaded = made.load(tmp_path, driver=driver)
    with pytest.raises(ConvrefError, match="conv_fprop: w, y: missing or unknown"):
        loaded({"x": 0x1000})
    with pytest.raises(ConvrefError, match="x is at 0x1002, needs a multiple of 16"):
        loaded({"x": 0x1002, "w": 0x1000, "y": 0x1000})
    path.write_text(path.read_text().replace('"tensors"', '"tensor"'))
    with pytest.raises(ConvrefError, match=r"conv_fprop.json: is no export"):
        Export.read(path)


def test_the_command_prints_the_files(tmp_path, capsys):
    assert main([TMA, "--out", str(tmp_path), "--name", "layer"]) == 0
    names = [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]
    assert names == ["layer.json", "layer.h", "layer.0.cubin", "layer.0.ptx"]


ON_A_CARD = """
import sys
sys.modules["triton"] = None
import torch
from convref_driver.exported import Export
folder, *names = sys.argv[1:]
tensors = torch.load(f"{folder}/tensors.pt")
tensors = {name: tensor.cuda() for name, tensor in tensors.items()}
loaded = Export.read(f"{folder}/{names[0]}").load(folder)
stream = torch.cuda.current_stream()
loaded({name: tensor.data_ptr() for name, tensor in tensors.items()}, stream.cuda_stream)
torch.cuda.synchronize()
torch.save({name: tensor.cpu() for name, tensor in tensors.items()}, f"{folder}/tensors.pt")
"""


@pytest.mark.gpu
@NEEDS_A_GPU
@pytest.mark.parametrize(("line", "kernel"), LINES)
def test_on_a_gpu_without_triton(line, kernel, tmp_path):
    made, path = written(line, kernel, tmp_path)
    case = parse(line)
    arrays = operands(case)
    torch.save(allocated(made, facts(case.call, arrays)[0]), tmp_path / "tensors.pt")
    command = [sys.executable, "-c", ON_A_CARD, str(tmp_path), path.name]
    subprocess.run(command, check=True)
    assert judged(case, arrays, by_role(made, torch.load(tmp_path / "tensors.pt")))
