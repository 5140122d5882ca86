"""The structs on both sides of the C functions: the same names in the same order."""

import re

import pytest

from convref_mojo import build, library
from convref_mojo.cpu import structures

SOURCES = sorted(build.SOURCES.glob("*.mojo"))
DEPTHWISE = ("depthwise", "depthwise_wgrad")
NAMES = ("Source", "Windows", "Filter", "Gather", "Correlate", "Pool", "Norm")


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
        (field, "Int" if kind is library.Word else kind.__name__)
        for field, kind in getattr(structures, name)._fields_
    ]
    assert mirrored == fields_of(name)


def test_a_missing_field_is_seen():
    assert fields_of("Pool")[:2] == [("images", "Int"), ("channels", "Int")]
    with pytest.raises(LookupError):
        fields_of("Nothing")


def test_the_number_types_have_the_same_order():
    text = (build.SOURCES / build.ENTRY).read_text("utf-8")
    mojo = re.search(r"comptime DTYPES = \((.*?)\)", text)[1].replace("DType.", "").split(", ")
    names = {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}
    assert mojo == [names[code] for code in library.DTYPES]


def test_each_exported_function_is_called():
    text = (build.SOURCES / build.ENTRY).read_text("utf-8")
    exported = re.findall(r'@export\("convref_(\w+)"\)', text)
    python = "".join(path.read_text("utf-8") for path in build.SOURCES.glob("*.py"))
    plans = {name for name in exported if name.startswith("plan_")}
    assert plans == {f"plan_{name}" for name in ("gather", "correlate", *DEPTHWISE)}
    assert all(f'"{name}"' in python for name in {*exported} - plans - {"tile"})
