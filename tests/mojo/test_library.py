"""The shared library itself: its dependencies, its exports, and the variant for other CPUs."""

import struct
from pathlib import Path

import pytest

from convref import parse
from convref.conformance.examine import examine
from convref_mojo import build, library
from convref_mojo.backend import MojoBackend

NEEDED, STRTAB, RUNPATH, RPATH = 1, 5, 29, 15  # tags of an ELF dynamic section
ALLOWED = {"libc.so.6", "libm.so.6"}


def dynamic(path):
    """Yield (tag, value) of the dynamic section of a 64-bit ELF file that are texts."""
    data = Path(path).read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    offset, size, count = (
        struct.unpack_from("<Q", data, 32)[0],
        *struct.unpack_from("<HH", data, 54),
    )
    segments = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
    loads = [s for s in segments if s[0] == 1]

    def in_file(address):
        found = next(s for s in loads if s[3] <= address < s[3] + s[6])
        return address - found[3] + found[2]

    start, length = next((s[2], s[5]) for s in segments if s[0] == 2)
    entries = [struct.unpack_from("<QQ", data, start + i) for i in range(0, length, 16)]
    texts = in_file(dict(entries)[STRTAB])
    for tag, value in entries:
        if tag in (NEEDED, RUNPATH, RPATH):
            end = data.index(b"\0", texts + value)
            yield tag, data[texts + value : end].decode()


def test_the_library_links_only_the_c_library():
    found = list(dynamic(build.library()))
    assert {text for tag, text in found if tag == NEEDED} <= ALLOWED
    assert [text for tag, text in found if tag in (RUNPATH, RPATH) and text] == []


def test_the_elf_reader_finds_the_libraries_that_are_needed():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "libpython" in line or "libm.so" in line)
    assert "libc.so.6" in {text for tag, text in dynamic(path) if tag == NEEDED}


def test_the_library_contains_no_path_of_the_build_machine():
    data = build.library().read_bytes()
    assert b"site-packages" not in data
    assert str(build.PACKAGE).encode() not in data


LINES = (
    "conv.backward:n2c33k40_i9x8_f3x2_s2x1_p1:mem=nhwc",
    "conv.fprop:n1c70k33_i9x8_f3_p1:mem=nhwc:fill=normal",
    "conv.backward:n2c20k20g20_i9x8_f3_p1:mem=nhwc",
    "conv.jvp:n1c9k7_i5x4x6_f3_p1:t=1",
)


@pytest.mark.parametrize("name", ["x86-64-v3"])
def test_the_other_variant_computes_the_same(name, monkeypatch):
    """Both run on a CPU that has the wider registers; the narrower one is what others get."""
    variant = next(v for v in build.VARIANTS if v.name == name)
    if not variant.flags <= build.cpu_flags():
        pytest.skip(f"this CPU does not run {name}")
    other = library.load(build.library(variant))
    monkeypatch.setattr(library, "loaded", lambda: other)
    assert library.tile() == (6, 2, 8)
    for line in LINES:
        for dtype in library.DTYPES:
            found = examine(parse(f"{line}:dt={dtype}"), MojoBackend(), repeat=True)
            assert (found.verdict, found.reason) == ("pass", "")
