"""Values of the command line: number types by their usual names, devices, lists."""

from convref.dtypes import FLOATS, short
from convref.errors import invalid, needs_one, shorten
from convref.ops import FAMILY, ops_of

# Number type -> keys of a line; float32 that may use tensor cores is a `math`, not a type.
DTYPES = {
    "bf16": "dt=bf16",
    "fp16": "dt=f16",
    "tf32": "math=tf32",
    "tf32x3": "math=tf32x3",
    "fp32": "",
    "fp64": "dt=f64",
}
DEVICES = {"cpu": "", "cuda": "mem=nhwc:dev=cuda", "cpu-nhwc": "mem=nhwc"}


def words(text: str) -> tuple[str, ...]:
    """Return the words between commas, each once.

    >>> words("triton, torch,triton")
    ('triton', 'torch')
    """
    return tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))


def keys(dtype: str, device: str = "cpu") -> str:
    """Return the keys of a line for a number type on a device.

    >>> keys("fp16"), keys("f32"), keys("tf32", "cuda")
    ('dt=f16', '', 'math=tf32:mem=nhwc:dev=cuda')
    """
    code = short(dtype)
    name = f"fp{code[1:]}" if code in FLOATS and code[0] == "f" else code
    found = _known("dtype", name, DTYPES), _known("device", device, DEVICES)
    return ":".join(filter(None, found))


def _known(what: str, name: str, table: dict[str, str]) -> str:
    if name not in table:
        raise invalid("bench", f"--{what} is {shorten(repr(name))}, {needs_one(name, table)}")
    return table[name]


def chosen(text: str, table: tuple[str, ...], what: str) -> tuple[str, ...]:
    for word in (found := words(text)):
        _known(what, word, dict.fromkeys(table, ""))
    return found


def ops(text: str) -> tuple[str, ...]:
    """Return the ops of `text`, each an op or a family of ops.

    >>> ops("conv,max_pool")
    ('conv', 'max_pool')
    """
    return chosen(",".join(ops_of(words(text))), tuple(FAMILY), "op")
