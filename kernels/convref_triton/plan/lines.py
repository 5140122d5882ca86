"""Lines that represent the classes of binaries which a kernel has, for static tests."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from convref.dtypes import EIGHT

Sizes = Mapping[str, str]

# By how sizes divide: by 16, by 8 only, by nothing, all equal to 1, and offsets beyond 32 bits.
SIZES = {
    "by_16": "n8c128k128_i28x28",
    "by_8": "n8c72k104_i28x28",
    "odd": "n3c67k35_i29x13",
    "ones": "n1c1k1_i1x1",
    "wide": "n2c128k128_i6000x6000",
}
GROUPED = {"by_16": "n8c128k128g128_i28x28", "by_8": "n8c72k72g72_i28x28"}
FOURS = {"by_16": "n8c128k128g32_i28x28", "by_8": "n8c72k72g18_i28x28"}
KINDS: Mapping[str, Sizes] = {"": SIZES, "depthwise": GROUPED, "grouped": FOURS}
DEEP = {  # few results, each a long sum, which is cut into parts
    "by_16": "n1c2048k128_i7x7",
    "by_8": "n1c2040k104_i7x7",
    "odd": "n1c2047k35_i7x7",
    "wide": "n1c262144k1024_i7x7",
}
COLUMNS = {size: text.replace("k128", "").replace("k104", "") for size, text in SIZES.items()}
COLUMNS |= {"odd": "n3c67_i29x13", "ones": "n1c1_i1x1"}
FAR = SIZES | {"wide": "n1c32768k32776_i8x8"}  # where offsets into the filter take 64 bits


PLAIN = ("bf16", "f16", "f32", "tf32", "tf32x3")  # types, and math of float32


class Line(NamedTuple):
    """A line without its sizes."""

    text: str  # with "{}" where sizes belong
    sizes: Mapping[str, Sizes] = KINDS  # by the kind of groups: "", "depthwise" or "grouped"
    numbers: tuple[str, ...] = PLAIN
    memory: str = "nhwc"


FPROP = {
    "fprop": Line("conv.fprop:{}_f3x3_p1"),
    "fprop_1x1": Line("conv.fprop:{}_f1x1"),
    "jvp": Line("conv.jvp:{}_f3x3_p1"),
}
SPLIT = {"fprop_deep": Line("conv.fprop:{}_f3x3_p1", {"": DEEP})}
DGRAD = {"dgrad": Line("conv.dgrad:{}_f3x3_p1"), "dgrad_s2": Line("conv.dgrad:{}_f3x3_s2_p1")}
POINTS = SIZES | {"by_8": "n8c72k104_i14x14", "odd": "n3c72k104_i29x13"}  # pixels by 4, by 1
PLANES = {  # results in NCHW; the filter is not copied
    name: Line(text, {"": sizes}, PLAIN, "w.ohwi")
    for name, text, sizes in (
        ("planes", "conv.fprop:{}_f3x3_p1", SIZES),
        ("planes_1x1", "conv.fprop:{}_f1x1", POINTS),
        ("planes_dgrad", "conv.dgrad:{}_f3x3_p1", SIZES),
        ("planes_dgrad_1x1", "conv.dgrad:{}_f1x1", POINTS),
    )
}
WGRAD = {"wgrad": Line("conv.wgrad:{}_f3x3_p1")}
PLANES_WGRAD = {"planes_wgrad": Line("conv.wgrad:{}_f1x1", {"": POINTS}, PLAIN, "w.ohwi")}
SCALED = {
    name: Line(f"scaled_conv.fprop:{{}}_{ending}", {"": SIZES}, EIGHT)
    for name, ending in (("scaled", "f3x3_p1"), ("scaled_1x1", "f1x1"))
}
BGRAD = {"bgrad": Line("conv.bgrad:{}_f1x1")}
ROWS = {"by_16": "n4096c1024_i1", "by_8": "n4096c72_i1", "odd": "n333c67_i1"}
ELEMENTS = {size: COLUMNS[size] for size in ("by_16", "by_8", "odd")}
UNFOLD = {
    "unfold": Line("unfold.fprop:{}_f3x3_p1", {"": COLUMNS}),
    "fold": Line("fold.fprop:{}_f3x3_s2_p1", {"": COLUMNS}),
}


def alone(ops: Iterable[str], sizes: Sizes) -> dict[str, Line]:
    """Return a line of each op and pass."""
    pairs = ((op, pass_) for op in ops for pass_ in ("fprop", "backward"))
    return {f"{op}_{pass_}": Line(f"{op}.{pass_}:{{}}", {"": sizes}) for op, pass_ in pairs}
