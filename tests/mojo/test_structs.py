"""What Python reads from the Mojo sources, and the tables that both sides have."""

import ctypes
import re

import pytest

from convref_mojo import build, library
from convref_mojo.structs import struct


def test_a_struct_has_the_fields_of_the_source():
    pool = struct("cpu", "Pool")
    names = "images channels z y x reads divisor big small indices"
    assert [name for name, _ in pool._fields_] == names.split()
    assert dict(pool._fields_)["big"] is struct("cpu", "Source")
    assert ctypes.sizeof(struct("cpu", "Source")) == 6 * 8
    assert ctypes.sizeof(struct("gpu", "Strides")) == 5 * 4


def test_a_missing_struct_is_an_error():
    with pytest.raises(LookupError, match="no struct Nothing in cpu"):
        struct("cpu", "Nothing")


@pytest.mark.parametrize("name", ["DTYPES", "KERNELS"])
def test_both_tables_have_the_same_order(name):
    text = (build.SOURCES / build.ENTRY).read_text("utf-8")
    rows = re.search(rf"comptime {name} = \((?:  #[^\n]*)?(.*?)\)", text, re.S)[1]
    codes = {"DType.float32": "f32", "DType.float64": "f64", "DType.bfloat16": "bf16"}
    found = [row.strip().strip('"') for row in rows.split(",") if row.strip()]
    assert [codes.get(row, row) for row in found] == list(getattr(library, name))


def test_each_kernel_is_used():
    text = (build.SOURCES / build.ENTRY).read_text("utf-8")
    python = "".join(path.read_text("utf-8") for path in build.SOURCES.glob("*.py"))
    assert all(f'"{name}"' in python for name in library.KERNELS)
    assert all(f'name == "{name}"' in text for name in library.KERNELS)
