"""What Python reads from the Mojo sources, and the tables that both sides have."""

import ctypes
import re

import pytest

from convref_mojo import build, library
from convref_mojo.structs import struct, table


def test_a_struct_has_the_fields_of_the_source():
    axis = struct("cpu", "Axis")
    names = "count size step taps shift tap_step"
    assert [name for name, _ in axis._fields_] == names.split()
    assert dict(struct("cpu", "Geometry")._fields_)["x"] is axis
    assert ctypes.sizeof(struct("cpu", "Source")) == 6 * 8
    assert ctypes.sizeof(struct("gpu", "Strides")) == 5 * 4


def test_a_missing_struct_is_an_error():
    with pytest.raises(LookupError, match="no struct Nothing in cpu"):
        struct("cpu", "Nothing")


def test_the_number_types_have_the_same_order():
    text = (build.SOURCES / "launch.mojo").read_text("utf-8")
    found = re.search(r"comptime DTYPES = \((.*?)\)", text)[1].replace("DType.", "").split(", ")
    names = {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}
    assert found == [names[code] for code in library.DTYPES]


def test_each_kernel_is_used():
    text = (build.SOURCES / "launch.mojo").read_text("utf-8")
    kernels = table("cpu/launch.mojo", "KERNELS")
    assert len(kernels) == 16
    paths = (build.SOURCES / "passes").glob("*.mojo")
    passes = "".join(path.read_text("utf-8") for path in paths)
    assert all(f'"{name}"' in passes for name in kernels)
    assert all(f'name == "{name}"' in text for name in kernels)
