"""The structs on both sides of the C functions: the same names in the same order."""

import re
from pathlib import Path

import pytest

from convref_mojo import build
from convref_mojo.cpu import structures

SOURCES = sorted(build.SOURCES.glob("*.mojo"))
NAMES = ("Source", "Windows", "Filter", "Gather", "Correlate", "Total", "Pool", "Norm")


def fields_of(name, sources=SOURCES):
    """Return (field, type) of the struct `name` as the Mojo sources have it."""
    for path in sources:
        body = re.search(rf"^struct {name}\(.*?(?=^\S)", path.read_text("utf-8"), re.M | re.S)
        if body:
            return re.findall(r"^    var (\w+): (\w+)", body[0], re.M)
    raise LookupError(name)


@pytest.mark.parametrize("name", NAMES)
def test_ctypes_has_the_fields_of_the_source(name):
    mirrored = [
        (field, "Int" if kind is structures.Word else kind.__name__)
        for field, kind in getattr(structures, name)._fields_
    ]
    assert mirrored == fields_of(name)


def test_a_missing_field_is_seen():
    assert fields_of("Total")[:2] == [("images", "Int"), ("channels", "Int")]
    with pytest.raises(LookupError):
        fields_of("Nothing")


def test_functions_are_exported_for_each_dtype():
    text = (build.SOURCES / build.ENTRY).read_text("utf-8")
    exported = re.findall(r'@export\("convref_(\w+?)(?:_(f32|f64|bf16))?"\)', text)
    kinds = {name for name, dtype in exported if dtype}
    assert {(name, dtype) for name, dtype in exported if dtype} == {
        (name, dtype) for name in kinds for dtype in ("f32", "f64", "bf16")
    }
    python = "".join(path.read_text("utf-8") for path in Path(build.SOURCES).glob("*.py"))
    assert all(f'"{name}"' in python or name.startswith("plan_") for name in kinds)
