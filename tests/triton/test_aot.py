"""Compiling without a GPU: every architecture, refusals with reasons, many at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import aot_kernels
import psutil
import pytest
import torch
import triton

from convref.errors import ConvrefError
from convref_triton.compile import aot
from convref_triton.compile.specialize import specialize
from convref_triton.hopper.precompiled import assembler
from convref_triton.plan.launch import Descriptor, Launch, Slot

SIZES = ("M", "N", "K", "a_row", "b_row", "c_row")
PRODUCT = Launch(
    aot_kernels.product,
    (8, 8, 1),
    {**{n: Slot(n, "bf16") for n in "abc"}, **dict.fromkeys(SIZES, 1024), "factor": 0.5},
    {"TM": 128, "TN": 128, "TK": 64},
    warps=8,
    stages=4,
)
MATRIX = {"shape": (1024, 1024), "strides": (1024, 1)}
BOXES = Launch(
    aot_kernels.product_of_boxes,
    (8, 8, 1),
    {
        "a": Descriptor(Slot("a", "bf16"), block=(128, 64), **MATRIX),
        "b": Descriptor(Slot("b", "bf16"), block=(64, 128), **MATRIX),
        "c": Slot("c", "bf16"),
        "c_row": 1024,
        "K": 1024,
    },
    {"TM": 128, "TN": 128, "TK": 64},
    warps=8,
)


# Of another process that imports what this one does.
PATHS = (str(Path(__file__).parent), *filter(None, sys.path))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}


def store(kernel, dtype="i32", **constants):
    return specialize(Launch(kernel, (1, 1, 1), {"y": Slot("y", dtype)}, constants))


@pytest.fixture
def empty_cache(monkeypatch):
    """What is in memory already, here and in a worker, is not compiled; the disk's stays."""
    monkeypatch.setattr(aot, "_cache", {})


@pytest.mark.parametrize(
    ("arch", "text", "needle", "magic"),
    [
        ("sm_90", "ptx", ".target sm_90a", b"\x7fELF"),
        ("sm_80", "ptx", ".target sm_80", b"\x7fELF"),
        ("gfx942", "amdgcn", '-gfx942"', b"\x7fELF"),
    ],
)
def test_every_architecture(arch, text, needle, magic):
    compiled = aot.compile(specialize(PRODUCT), arch)
    assert needle in compiled.asm[text]
    assert compiled.binary.startswith(magic)
    assert "tt.dot" in compiled.asm["ttir"]
    assert compiled.name == "product"
    assert compiled.metadata["num_warps"] == 8
    assert compiled.metadata["shared"] >= 2 * 128 * 64
    assert compiled.seconds > 0


def test_second_compilation_is_cached_in_memory(empty_cache):
    first = aot.compile(specialize(PRODUCT), "sm_90")
    assert aot.is_cached(specialize(PRODUCT), "sm_90")
    assert aot.compile(specialize(PRODUCT), "sm_90") is first
    assert not aot.is_cached(specialize(PRODUCT), "sm_86")


def test_another_shape_of_the_class_compiles_nothing():
    larger = {**PRODUCT.arguments, "M": 4096, "a_row": 2048, "factor": 3.0}
    first = aot.compile(specialize(PRODUCT), "sm_90")
    assert aot.compile(specialize(replace(PRODUCT, arguments=larger)), "sm_90") is first


def test_a_misaligned_view_has_another_binary():
    view = {**PRODUCT.arguments, "b": Slot("b", "bf16", aligned=False)}
    aligned = aot.compile(specialize(PRODUCT), "sm_90")
    other = aot.compile(specialize(replace(PRODUCT, arguments=view)), "sm_90")
    assert other.binary != aligned.binary
    assert other.asm["ptx"].count("ld.global") > aligned.asm["ptx"].count("ld.global")


@pytest.mark.parametrize(
    ("specialization", "text"),
    [
        (
            store(aot_kernels.not_assembled),
            "not_assembled for sm_90: Not a name of any known instruction: 'nonsense'",
        ),
        (store(aot_kernels.not_typed), "not_typed for sm_90: NameError('absent is not defined')"),
        (
            specialize(replace(PRODUCT, constants={**PRODUCT.constants, "TM": 100})),
            "product for sm_90: arange's range must be a power of 2",
        ),
    ],
)
def test_refusals_have_a_reason(specialization, text, capfd):
    with pytest.raises(aot.CompileError) as raised:
        aot.compile(specialization, "sm_90")
    assert str(raised.value) == text
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(
    not triton.__version__.startswith("3.6."), reason="another Triton may compile this kernel"
)
def test_a_pass_that_fails_is_named_and_its_dump_is_kept(capfd):
    """Triton 3.6 prints the module and raises no more than "PassManager::run failed"."""
    with pytest.raises(aot.CompileError, match="WarpSpecialization") as raised:
        aot.compile(store(aot_kernels.fails_a_pass, "f16", T=64), "sm_90")
    assert len(str(raised.value)) < 500
    assert "tt.dot" in raised.value.log
    assert "PassManager::run failed" in raised.value.log
    assert capfd.readouterr() == ("", "")


def test_compiler_warnings_are_printed(empty_cache, monkeypatch, capfd):
    def chatty(*arguments, **options):
        os.write(2, b"a warning\n")
        return compile_(*arguments, **options)

    compile_ = aot.triton.compile
    monkeypatch.setattr(aot.triton, "compile", chatty)
    aot.compile(specialize(PRODUCT), "sm_90")
    assert capfd.readouterr().err == "a warning\n"


@pytest.mark.parametrize("arch", ["sm90", "gfx1100", "", "sm_90; rm"])
def test_an_unknown_architecture(arch):
    with pytest.raises(ConvrefError, match=r"arch: is .*, needs sm_90, sm_80, gfx942"):
        aot.compile(specialize(PRODUCT), arch)


@pytest.mark.parametrize("jobs", [1, 2])
def test_many_at_a_time_with_an_error_for_each_that_fails(empty_cache, jobs):
    """One is refused and one ends its worker's process; the others come out all the same."""
    fine = specialize(PRODUCT)
    refused, deadly = store(aot_kernels.not_typed), store(aot_kernels.aborts)
    wanted = [deadly, fine, refused, specialize(BOXES), fine]
    results = aot.compile_all(wanted, "sm_90", jobs)
    kinds = [type(result).__name__ for result in results]
    assert kinds == ["CompileError", "Compiled", "CompileError", "Compiled", "Compiled"]
    assert str(results[0]) == "aborts for sm_90: the compiler ended its process"
    assert str(results[2]) == "not_typed for sm_90: NameError('absent is not defined')"
    assert results[3].specialization.kernel is aot_kernels.product_of_boxes
    assert results[4] is results[1] is aot.compile(fine, "sm_90")


def test_a_worker_may_die_while_others_are_submitted(empty_cache, monkeypatch):
    """A broken pool takes no more tasks; those not submitted are tried alone, like those lost."""

    class Patient(aot.ProcessPoolExecutor):
        def submit(self, *given):
            future = super().submit(*given)
            wait([future])
            return future

    monkeypatch.setattr(aot, "ProcessPoolExecutor", Patient)
    deadly, refused = store(aot_kernels.aborts), store(aot_kernels.not_typed)
    results = aot.compile_all([deadly, refused], "sm_90", 2)
    assert str(results[0]) == "aborts for sm_90: the compiler ended its process"
    assert str(results[1]) == "not_typed for sm_90: NameError('absent is not defined')"


# Nothing here imports torch, which takes longer than all else.
DOUBLE = """
import sys
import aot_kernels
from convref_triton.compile import aot
from convref_triton.hopper.precompiled import assembler
from convref_triton.plan.launch import Launch, Slot
from convref_triton.compile.specialize import specialize
def double(warps):
    slots = {name: Slot(name, "f32") for name in "xy"}
    launch = Launch(aot_kernels.double, (2, 1, 1), {**slots, "n": 20}, {"SIZE": 16}, warps)
    return specialize(launch)
"""
MANY = f"{DOUBLE}aot.compile_all(map(double, (1, 2, 4, 8)), 'sm_90', 2)"
# An assembler that prints its process id and its parent's, and never ends.
ENDLESS = """#!/bin/sh
[ "$1" = --version ] && exec {ptxas} --version
echo $$ $PPID >> {told}
exec sleep 300
"""


@pytest.fixture
def endless(tmp_path):
    """Return (a process whose two workers run assemblers without end, those processes)."""
    told, ptxas = tmp_path / "told", tmp_path / "ptxas"
    told.touch()
    ptxas.write_text(ENDLESS.format(ptxas=assembler("sm_90"), told=told), "utf-8")
    ptxas.chmod(0o755)
    folder = tmp_path / "temporary"
    folder.mkdir()
    env = {**ENVIRONMENT, "TRITON_CACHE_DIR": str(tmp_path), "TMPDIR": str(folder)}
    env |= dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), str(ptxas))
    command = [sys.executable, "-c", MANY]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert _within(300, lambda: len(told.read_text("utf-8").split()) == 4)
            yield child, [int(word) for word in told.read_text("utf-8").split()]
        finally:
            child.kill()
            processes = [int(word) for word in told.read_text("utf-8").split()]
            for process in processes:
                if not _within(300, lambda: not _runs(process)):  # noqa: B023
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)


def test_interrupt_ends_workers_and_their_children(endless, tmp_path):
    child, processes = endless
    assert list((tmp_path / "temporary").rglob("*.ptx"))
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=300)[1].endswith("KeyboardInterrupt\n")
    assert _within(300, lambda: not any(map(_runs, processes)))
    assert not list((tmp_path / "temporary").iterdir())


def test_a_worker_that_its_pool_ends_takes_its_assembler_along(endless):
    """The pool ends it because it lost another one."""
    _, (_, first, other, _) = endless
    os.killpg(first, signal.SIGKILL)
    assert _within(300, lambda: not _runs(other))


def _runs(process):
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _within(seconds, holds):
    """Return whether `holds()` becomes true within some seconds."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_interpreted_functions_in_the_same_process():
    """The interpreter patches triton.language while it runs; the compiler must not notice."""
    from triton.runtime.interpreter import InterpretedFunction

    interpreted = InterpretedFunction(aot_kernels.double.fn)
    x, y = torch.arange(20.0), torch.zeros(20)
    interpreted[(2,)](x, y, 20, SIZE=16)
    assert y.tolist() == [2.0 * i for i in range(20)]
    arguments = {"x": Slot("x", "f32"), "y": Slot("y", "f32"), "n": 20}
    launch = Launch(aot_kernels.double, (2, 1, 1), arguments, {"SIZE": 16})
    assert aot.compile(specialize(launch), "sm_90").name == "double"


PROBE = f"{DOUBLE}print(aot.compile(double(4), 'sm_90').from_disk, 'torch' in sys.modules)"


def test_another_process_finds_it_on_disk(tmp_path):
    env = {**ENVIRONMENT, "TRITON_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [run.stdout.split()[:1] for run in runs] == [["False"], ["True"]], runs[0].stderr
