"""The driver's loader against a stand-in for libcuda, compiled with the real cuda.h."""

from __future__ import annotations

import struct
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convref.errors import ConvrefError, UnsupportedError
from convref_driver import (
    VARIES,
    CudaError,
    Driver,
    Manifest,
    Scratch,
    encode,
    load,
)
from convref_driver.manifest import FORMATS

CUBIN = b"\x7fELF and more"
PTX = b".version 8.7\n.visible .entry f()"
NUMBERS = {
    "bool": st.booleans(),
    **{f"i{b}": st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)},
    **{f"u{b}": st.integers(0, 2**b - 1) for b in (8, 16, 32, 64)},
    **{f"f{b}": st.floats(width=b) for b in (16, 32, 64)},
    "ptr": st.integers(0, 2**64 - 1),
    "tensormap": st.binary(min_size=128, max_size=128),
}


def manifest(*parameters, **fields):
    return Manifest("f", parameters, fields.pop("threads", (128, 1, 1)), **fields)


def starting(lines, word):
    return [line for line in lines if line.startswith(word)]


def in_a_new_thread(work):
    """Return what `work` returned in a thread of its own, which has no context yet."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_a_cubin_is_loaded_launched_and_unloaded(driver, monkeypatch):
    monkeypatch.setattr(driver, "_primary", {})  # as if no test had run before

    def work():
        with load(CUBIN, manifest("ptr", "i32"), driver=driver) as kernel:
            driver.layout([8, 4])
            kernel.launch((5, 2), [0xABCDEF, -2], stream=0x77)

    in_a_new_thread(work)
    lines = driver.log()
    assert lines[: lines.index("cuModuleLoadDataEx ELF")] == [
        "cuInit 0",
        "cuDeviceGet 0",
        "cuCtxGetCurrent",
        "cuDevicePrimaryCtxRetain 0",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent 0xc0",
    ]
    (launch,) = starting(lines, "launch")
    assert "grid 5 2 1 block 128 1 1 shared 0 stream 0x77" in launch
    assert launch.split()[-2:] == ["0@efcdab0000000000", "8@feffffff"]
    module = next(line.split()[1] for line in lines if line.startswith("cuModuleGetFunction"))
    assert lines[-1] == f"cuModuleUnload {module}"


@pytest.mark.parametrize("before", [None, 0, 1])
@pytest.mark.parametrize("device", [0, 1])
def test_calls_use_the_device_and_restore_the_context(driver, before, device):
    """The stand-in accepts a module only in its own context, and encodes no map without one."""

    def work():
        if before is not None:
            driver.call("cuCtxSetCurrent", driver.context(before))
        driver.log()
        kept = []
        with load(CUBIN, manifest("ptr"), device, driver) as kernel:
            kept.append(driver.current())
            kernel.launch((1,), [0x40])
            kept.append(driver.current())
            encode(driver, "f32", 0x10, (8, 8), (8, 1), (8, 8), device=device)
            kept.append(driver.current())
        return [*kept, driver.current()]

    alone = 0xC0 if device == 0 else 0  # as the runtime would make it, or nothing
    assert in_a_new_thread(work) == [alone if before is None else 0xC0 + before] * 4
    lines = driver.log()
    assert len(starting(lines, "launch")) == 1
    assert (f"cuCtxSetCurrent {0xC0 + device:#x}" in lines) is (before != device)


def test_a_current_context_is_used(driver):
    """One that its owner made, on the right device."""

    def work():
        driver.call("cuCtxSetCurrent", 0x1C1)
        load(CUBIN, manifest(), 1, driver).launch((1,), [])

    in_a_new_thread(work)
    lines = driver.log()
    assert len(starting(lines, "launch")) == 1
    assert starting(lines, "cuCtxSetCurrent") == ["cuCtxSetCurrent 0x1c1"]


def test_the_primary_context_of_a_device_is_retained_once(driver):
    for _ in range(2):
        in_a_new_thread(lambda: load(CUBIN, manifest(), device=3, driver=driver))
    lines = driver.log()
    assert "cuDeviceGet 3" in lines
    assert starting(lines, "cuDevicePrimaryCtxRetain") == ["cuDevicePrimaryCtxRetain 3"]


def test_a_failure_on_another_device_leaves_the_thread_its_context(driver):
    def work():
        driver.call("cuCtxSetCurrent", driver.context(0))
        driver.fail("cuModuleGetFunction", 1)
        with pytest.raises(CudaError):
            load(CUBIN, manifest(), 1, driver)
        kernel = load(CUBIN, manifest(), 1, driver)
        driver.fail("cuLaunchKernelEx", 700)
        with pytest.raises(CudaError, match="an illegal memory access"):
            kernel.launch((1,), [])
        return driver.current()

    assert in_a_new_thread(work) == 0xC0


def test_a_thread_without_a_context_gets_the_kernels(driver):
    kernel = load(CUBIN, manifest(), driver=driver)
    driver.log()
    in_a_new_thread(lambda: [kernel.launch((1, 1, 1), []) for _ in range(2)])
    lines = driver.log()
    assert len(starting(lines, "cuCtxSetCurrent")) == 1
    assert len(starting(lines, "launch")) == 2


@st.composite
def parameters(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(FORMATS)), max_size=12))
    values = [draw(NUMBERS[kind]) for kind in kinds]
    can_vary = [kind in ("ptr", "tensormap") for kind in kinds]
    varies = [can and draw(st.booleans()) for can in can_vary]
    return kinds, values, varies, draw(st.integers(0, 3))


@given(drawn=parameters())
@example(drawn=(("ptr", "tensormap"), (1, bytes(range(128))), (True, True), 1))
def test_every_argument_arrives_byte_for_byte(driver, drawn):
    kinds, values, varies, hidden = drawn
    needs = manifest(*kinds, scratch=(Scratch(0),) * hidden)
    kernel = load(CUBIN, needs, driver=driver)
    sizes = [struct.calcsize(f"<{FORMATS[kind]}") for kind in kinds] + [8] * hidden
    driver.layout(sizes)
    given_ = [VARIES if vary else value for vary, value in zip(varies, values)]
    prepared = kernel.prepare((1, 1, 1), given_)
    driver.log()
    for stream in (0, 9):  # the second time in memory that was used before
        prepared(stream, *(values[i] for i in prepared.varying))
    for line in driver.log():
        seen = line.split()[14:]
        expected = [struct.pack(f"<{FORMATS[k]}", v) for k, v in zip(kinds, values)]
        expected += [bytes(8)] * hidden
        assert [word.partition("@")[2] for word in seen] == [data.hex() for data in expected]
        for word, size in zip(seen, sizes):
            assert int(word.partition("@")[0]) % min(size, 64) == 0


def test_threads_do_not_share_the_memory_of_a_launch(driver):
    """A launch inside a launch, as another thread could make it, has memory of its own."""
    prepared = load(CUBIN, manifest("ptr"), driver=driver).prepare((1,), [VARIES])
    driver.layout([8])
    driver.log()
    call, nested = prepared._launch, []

    def interrupted(*arguments):
        if not nested:
            nested.append(True)
            prepared(0, 0x2222)
        return call(*arguments)

    prepared._launch = interrupted
    prepared(0, 0x1111)
    seen = [line.split()[-1].partition("@")[2] for line in starting(driver.log(), "launch")]
    assert seen == [struct.pack("<Q", 0x2222).hex(), struct.pack("<Q", 0x1111).hex()]


def test_shared_memory_beyond_48_kib_is_requested(driver):
    load(CUBIN, manifest(shared=48 << 10), driver=driver)
    assert not starting(driver.log(), "cuFuncSetAttribute")
    kernel = load(CUBIN, manifest(shared=(48 << 10) + 1), driver=driver)
    assert starting(driver.log(), "cuFuncSetAttribute") == ["cuFuncSetAttribute 8 49153"]
    kernel.launch((1, 1, 1), [])
    assert "shared 49153" in driver.log()[-1]


@pytest.mark.parametrize(
    ("static", "dynamic", "requests"), [(16, 0, 0), (16, 49136, 0), (17, 49136, 1)]
)
def test_static_shared_memory_counts_too(driver, static, dynamic, requests):
    driver.static_shared(static)
    load(CUBIN, manifest(shared=dynamic), driver=driver)
    assert (
        starting(driver.log(), "cuFuncSetAttribute")
        == [f"cuFuncSetAttribute 8 {dynamic}"] * requests
    )


def test_clusters(driver):
    kernel = load(CUBIN, manifest(cluster=(4, 4, 1)), driver=driver)
    assert "cuFuncSetAttribute 14 1" in driver.log()
    kernel.launch((8, 4, 1), [])
    spread = "attribute 5 01000000"
    assert "attribute 4 040000000400000001000000 " + spread in driver.log()[-1]
    with pytest.raises(ConvrefError, match=r"f: grid is \(6, 4, 1\), needs whole clusters of"):
        kernel.launch((6, 4, 1), [])


def test_an_empty_grid_is_not_launched(driver):
    kernel = load(CUBIN, manifest(), driver=driver)
    driver.log()
    kernel.launch((4, 0, 1), [])
    assert driver.log() == []


@pytest.mark.parametrize("grid", [(2**31, 1, 1), (1, 65536, 1), (1, 1, 65536), (-1,), (1,) * 4])
def test_a_grid_beyond_the_limits_is_refused(driver, grid):
    with pytest.raises(ConvrefError, match=r"f: grid is .*, needs at most"):
        load(CUBIN, manifest(), driver=driver).launch(grid, [])


@pytest.mark.parametrize(
    ("kinds", "values", "text"),
    [
        (("i32",), [2**31], "f: argument 0: 2147483648 is not a i32"),
        (("ptr", "u8"), [0, -1], "f: argument 1: -1 is not a u8"),
        (("f32",), ["x"], "f: argument 0: 'x' is not a f32"),
        (("f32",), [1e39], "f: argument 0: 1e+39 is not a f32"),
        (("ptr",), [], "f: got 0 arguments, needs 1"),
        (("ptr",), [1, 2], "f: got 2 arguments, needs 1"),
    ],
)
def test_arguments_that_do_not_fit(driver, kinds, values, text):
    with pytest.raises(ConvrefError) as raised:
        load(CUBIN, manifest(*kinds), driver=driver).launch((1, 1, 1), values)
    assert str(raised.value).startswith(text)


def test_scratch_memory(driver):
    kernel = load(CUBIN, manifest(scratch=(Scratch(0), Scratch(64, 16))), driver=driver)
    with pytest.raises(ConvrefError, match="f: got 0 scratch pointers, needs 2"):
        kernel.launch((1, 1, 1), [])
    driver.layout([8, 8])
    kernel.launch((1, 1, 1), [], scratch=(0, 0x40))
    assert driver.log()[-1].split()[-1] == "8@4000000000000000"


def test_ptx_is_zero_terminated_and_errors_include_the_jit_log(driver):
    load(PTX + b"\0\0", manifest(), driver=driver)
    assert "cuModuleLoadDataEx .version 8.7" in driver.log()
    driver.fail("cuModuleLoadDataEx", 218)
    with pytest.raises(CudaError) as raised:
        load(PTX, manifest(), driver=driver)
    first, log = str(raised.value).splitlines()
    assert first == (
        "f: cuModuleLoadDataEx: a PTX JIT compilation failed (CUDA_ERROR_INVALID_PTX, 218)"
    )
    assert log == "line 7: unknown instruction"
    assert raised.value.code == 218


@pytest.mark.parametrize(
    ("name", "after", "code", "text"),
    [
        ("cuModuleLoadDataEx", 0, 209, "f: cuModuleLoadDataEx: no kernel image is available"),
        ("cuModuleGetFunction", 0, 1, "f: cuModuleGetFunction: invalid argument"),
        ("cuFuncGetAttribute", 0, 1, "f: cuFuncGetAttribute: invalid argument"),
        ("cuFuncSetAttribute", 0, 1, "f: 300000 B of shared memory: cuFuncSetAttribute: invalid"),
        ("cuLaunchKernelEx", 0, 700, "f: cuLaunchKernelEx: an illegal memory access was"),
        ("cuLaunchKernelEx", 0, 4242, "f: cuLaunchKernelEx: an error without a description"),
        ("cuInit", 0, 1, "cuda driver: cuInit: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)"),
    ],
)
def test_the_failing_driver_call_is_named(driver, name, after, code, text):
    driver.fail(name, code, after)
    with pytest.raises(CudaError) as raised:
        load(CUBIN, manifest(shared=300000), driver=driver).launch((1, 1, 1), [])
    assert str(raised.value).startswith(text)
    lines = driver.log()
    unloaded = len(starting(lines, "cuModuleUnload"))
    assert unloaded == (name in ("cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute"))


def test_no_driver_at_all():
    with pytest.raises(UnsupportedError) as raised:
        Driver("libcuda.so.nowhere")
    assert str(raised.value).startswith("cuda driver: libcuda.so.nowhere: cannot open")
    assert str(raised.value).endswith("needs an NVIDIA driver for CUDA 12 or newer")


def test_a_driver_that_is_too_old():
    with pytest.raises(UnsupportedError, match="undefined symbol: cuInit, needs an NVIDIA driver"):
        Driver("libc.so.6")


def test_a_tensor_map(driver):
    shape, strides, box = (3, 56, 57, 64), (60_000_000_000, 3648, 64, 1), (1, 8, 16, 64)
    data = encode(driver, "bf16", 0x10000, shape, strides, box, swizzle=3)
    assert data == bytes(i % 256 for i in range(128))
    assert starting(driver.log(), "map") == [
        "map 9@0 0x10000 dim 64 57 56 3 strides 128 7296 120000000000 box 64/1 16/1 8/1 1/1 0 3 2 0"
    ]


def test_bit_85_of_a_small_tensor_is_cleared_for_drivers_that_set_it_wrongly(driver):
    """The stand-in's byte i is i plus the address."""
    rows = {}
    for version in (13010, 13020):
        driver.set_version(version)
        rows[version] = [
            encode(driver, "u8", 0x20, (n, 1024), (1024, 1), (8, 8)) for n in (127, 128)
        ]
    (small, large), fixed = rows[13010], rows[13020]
    assert large == fixed[0] == fixed[1] == bytes(i + 0x20 for i in range(128))
    assert small == large[:10] + bytes([large[10] - 32]) + large[11:]


def test_a_tensor_map_with_element_strides(driver):
    """The driver takes the positions that a box spans, and the element strides."""
    shape, strides, every = (3, 56, 57, 64), (4_000_000, 3648, 64, 1), (1, 2, 3, 1)
    encode(driver, "bf16", 0x10000, shape, strides, (1, 8, 16, 64), 3, every)
    assert driver.log()[-1].endswith("box 64/1 46/3 15/2 1/1 0 3 2 0")
    with pytest.raises(ConvrefError, match="needs equal lengths"):
        encode(driver, "bf16", 0x10000, shape, strides, (1, 8, 16, 64), 3, every[1:])


@pytest.mark.parametrize("device", [0, 1])
def test_tensor_maps_in_a_thread_that_has_no_context(driver, device):
    """Some drivers refuse it with error 201, as the stand-in does."""

    def work():
        layout = driver, "f32", 0x10, (8, 8, 8), (64, 8, 1)
        tiled = encode(*layout, (1, 8, 8), device=device)
        column = encode(*layout, (64, 8), 0, (), (0,), (0,), device)
        return len(tiled), len(column), driver.current()

    assert in_a_new_thread(work) == (128, 128, 0 if device else 0xC0)


def test_a_tensor_map_of_rows_of_pixels(driver):
    shape, strides, every = (3, 56, 57, 64), (4_000_000, 3648, 64, 1), (1, 2, 3, 1)
    geometry = "bf16", 0x10000, shape, strides, (128, 32), 3, every, (-1, -2), (1, -3)
    data = encode(driver, *geometry)
    assert data == bytes(i % 256 for i in range(128))
    assert starting(driver.log(), "im2col") == [
        "im2col 9@0 0x10000 dim 64 57 56 3 strides 128 7296 8000000 corners -2:-3 -1:1 "
        "box 32 128 every 1 3 2 1 0 3 2 0"
    ]
    for n, wrong in ((-1, (1,)), (-5, (128, 32, 1)), (-3, (1, 2))):
        unequal = [*geometry]
        unequal[n] = wrong
        with pytest.raises(ConvrefError, match="needs equal lengths"):
            encode(driver, *unequal)
    driver.fail("cuTensorMapEncodeIm2col", 1)
    with pytest.raises(CudaError, match=r"pixels \(128, 32\) at 0x10000 from \(-1, -2\) to"):
        encode(driver, *geometry)


def test_a_tensor_map_that_the_driver_refuses(driver):
    driver.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(CudaError, match=r"tensor map of f32\(8, 8\) strides \(8, 1\) box \(8, 8\)"):
        encode(driver, "f32", 0x10, (8, 8), (8, 1), (8, 8))


@pytest.mark.parametrize(
    ("dtype", "strides"), [("f80", (8, 1)), ("f32", (1, 8)), ("f32", (64, 8, 1))]
)
def test_an_invalid_tensor_map_is_refused(driver, dtype, strides):
    with pytest.raises(ConvrefError, match="needs equal lengths, a last stride of 1"):
        encode(driver, dtype, 0x10, (8, 8), strides, (8, 8))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"parameters": ("pointer",)}, "f: a parameter is 'pointer', needs one of ptr, bool"),
        ({"threads": (0, 1, 1)}, r"f: threads is \(0, 1, 1\), needs three from 1 up"),
        ({"cluster": (1, 1)}, r"f: cluster is \(1, 1\), needs three from 1 up"),
    ],
)
def test_an_invalid_manifest_is_refused(fields, text):
    with pytest.raises(ConvrefError, match=text):
        Manifest(**{"name": "f", "parameters": (), "threads": (1, 1, 1), **fields})
