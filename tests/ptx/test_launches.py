"""Launches of PTX that no compiler of ours made, from Python and from JSON."""

import json

import numpy as np
import pytest

from convref.errors import ConvrefError
from convref_driver import Manifest
from convref_ptx import Fault
from convref_ptx.cli import main
from convref_ptx.launches import run, run_file

# Two entries, as of nvcc: y[i] += a * x[i] for i < n, and an empty one before it.
PTX = """.version 8.3 .target sm_90 .address_size 64
.visible .entry other() { ret; }
.visible .entry axpy(.param .u64 p0, .param .u64 p1, .param .f32 p2, .param .u32 p3) {
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.f32 %f1, [p2]; ld.param.u32 %r1, [p3];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra $E;
cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2; mul.wide.u32 %rd5, %r5, 4;
add.s64 %rd3, %rd3, %rd5; add.s64 %rd4, %rd4, %rd5;
ld.global.f32 %f2, [%rd3]; ld.global.f32 %f3, [%rd4]; fma.rn.f32 %f4, %f1, %f2, %f3;
st.global.f32 [%rd4], %f4;
$E: ret; }"""
AXPY = Manifest("axpy", ("ptr", "ptr", "f32", "i32"), (64, 1, 1))


def test_arrays_and_numbers():
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    run(PTX, AXPY, (2,), [x, y, 2.0, 100])
    assert np.array_equal(y, 1 + 2 * x)
    with pytest.raises(Fault, match=r"past the last of 400 bytes of argument 0 float32\(100,\)"):
        run(PTX, AXPY, (2,), [x, y, 2.0, 101])
    y.flags.writeable = False
    with pytest.raises(Fault, match="writes to an operand"):
        run(PTX, AXPY, (2,), [x, y, 2.0, 100])


def test_a_wrong_description_is_refused():
    x = np.ones(4, np.float32)
    with pytest.raises(ConvrefError, match="3 arguments, needs 4"):
        run(PTX, AXPY, (1,), [x, x, 2.0])
    with pytest.raises(ConvrefError, match="argument 3"):
        run(PTX, AXPY, (1,), [x, x, 2.0, 1.5])
    with pytest.raises(Fault, match=r"no \.visible \.entry gemm"):
        run(PTX, Manifest("gemm", (), (1, 1, 1)), (1,), [])


def test_launch_from_json(tmp_path, capsys):
    (tmp_path / "axpy.ptx").write_text(PTX, "utf-8")
    array = {"shape": [100], "dtype": "float32", "fill": "arange"}
    told = {
        "ptx": "axpy.ptx", "name": "axpy", "parameters": list(AXPY.parameters), "threads": [64],
        "grid": [2], "arguments": [array, array, 2.0, 100],
    }  # fmt: skip
    path = tmp_path / "launch.json"
    path.write_text(json.dumps(told), "utf-8")
    _, y, *_ = run_file(path)
    assert np.array_equal(y, 3 * np.arange(100))
    assert main([str(path)]) == 0
    told["arguments"][3] = 128
    path.write_text(json.dumps(told), "utf-8")
    assert main([str(path)]) == 1
    assert ": ld.global.f32" in capsys.readouterr().out
    path.write_text(json.dumps({**told, "block": 1}), "utf-8")
    with pytest.raises(ConvrefError, match="block: missing or unknown"):
        run_file(path)


def test_each_wrong_field_of_a_file_is_named_in_one_line(tmp_path):
    path, x = tmp_path / "launch.json", {"shape": [4], "dtype": "float32"}
    (tmp_path / "axpy.ptx").write_text(PTX, "utf-8")
    (tmp_path / "text.npy").write_text("no array", "utf-8")
    right = {"ptx": "axpy.ptx", "name": "axpy", "parameters": list(AXPY.parameters),
             "threads": [64], "grid": [1], "arguments": [x, x, 2.0, 4]}  # fmt: skip
    wrong = (
        ({"ptx": "none.ptx"}, "ptx: cannot read .*none.ptx"),
        ({"ptx": 1}, "ptx is 1, needs the name of a file"),
        ({"name": None}, "name is None, needs the name of a kernel"),
        ({"parameters": "ptr"}, "parameters is 'ptr', needs a list of types"),
        ({"parameters": ["float"] * 4}, "a parameter is 'float', needs one of"),
        ({"threads": 64}, "threads is 64, needs a list of one to three positive"),
        ({"grid": [1, 1, 1, 1]}, "grid is .*, needs a list of one to three positive"),
        ({"grid": [0.5]}, "grid is .*, needs a list of one to three positive"),
        ({"grid": [1, 65536]}, "grid is .*, needs a list .*, at most .*65535"),
        ({"threads": [1024, 2]}, "threads is .*, needs a list .* 1024 threads"),
        ({"shared": "1 KB"}, "shared is '1 KB', needs a number of bytes"),
        ({"arguments": {}}, "arguments is {}, needs a list"),
        ({"arguments": [x, x, 2.0]}, "3 arguments, needs 4"),
        ({"arguments": [x, x, "two", 4]}, "argument 2: 'two' is not a f32"),
        ({"arguments": [x, 7, 2.0, 4]}, "argument 1: is an int, needs a contiguous array"),
        ({"parameters": ["tensormap", "ptr", "f32", "i32"]}, "argument 0: .*needs a TensorMap"),
        *(({"arguments": [given, x, 2.0, 4]}, f"argument 0: {text}") for given, text in (
            ({"shape": [4]}, "dtype: missing or unknown"),
            ({**x, "value": 3}, "value: missing or unknown"),
            ({**x, "fill": "ties"}, "fill is 'ties', needs one of normal"),
            ({**x, "dtype": "float33"}, ".*float33"),
            ({**x, "shape": "4 by 4"}, ".*4 by 4"),
            ({**x, "shape": [2**50]}, ".*Unable to allocate"),
            ({**x, "dtype": "object"}, "dtype is object, needs"),
            ({**x, "writable": "no"}, "writable is 'no', needs true or false"),
            ({"file": "none.npy"}, ".*none.npy"),
            ({"file": "text.npy"}, ".*text.npy"),
        )),
    )  # fmt: skip
    for change, text in wrong:
        path.write_text(json.dumps({**right, **change}), "utf-8")
        with pytest.raises(ConvrefError, match=text) as error:
            run_file(path)
        assert "\n" not in str(error.value)
    for content in ("{", "[]", "3"):
        path.write_text(content, "utf-8")
        with pytest.raises(ConvrefError, match="is no JSON object"):
            run_file(path)
    for program, text in (
        ("none.json", "cannot read none.json"), ("none.py", "no file none.py"), ("f", "needs MOD"),
        ("no_such:f", "no module no_such"), ("math:f", "module math has no function f"),
    ):  # fmt: skip
        with pytest.raises(ConvrefError, match=text):
            main([program])
