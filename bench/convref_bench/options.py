"""Values of the command line: number types and `math` as in lines, devices, lists."""

from convref.case import MATHS
from convref.dtypes import short_name
from convref.errors import invalid, needs_one, shorten
from convref.ops import FAMILY, ops_of

# Number type or math -> keys of a line.
DTYPES = {"bf16": "dt=bf16", "f16": "dt=f16", "f32": "", "f64": "dt=f64"}
MATH = {math: "" if math == "ieee" else f"math={math}" for math in MATHS}
DEVICES = {"cpu": "", "cuda": "mem=nhwc:dev=cuda", "cpu-nhwc": "mem=nhwc"}


def words(text: str) -> tuple[str, ...]:
    """Return the words between commas, each once.

    >>> words("triton, torch,triton")
    ('triton', 'torch')
    """
    return tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))


def keys(dtypes: str, maths: str = "ieee", device: str = "cpu") -> tuple[str, ...]:
    """Return the keys of a line for each number type on a device, of f32 for each math.

    >>> keys("f16,float32"), keys("f32", "ieee,tf32", "cuda")
    (('dt=f16', ''), ('mem=nhwc:dev=cuda', 'math=tf32:mem=nhwc:dev=cuda'))
    """
    where = _look_up("device", device, DEVICES)
    math = [_look_up("math", word, MATH) for word in words(maths)]
    found: list[str] = []
    for dtype in words(dtypes):
        if dtype in MATH:
            raise invalid("bench", f"--dtype is {dtype!r}, needs f32 with --math {dtype}")
        key = _look_up("dtype", short_name(dtype), DTYPES)
        found += [key] if key else math
    if any(math) and not set(math) <= set(found):
        raise invalid("bench", f"--math is {shorten(repr(maths))}, needs --dtype f32")
    return tuple(":".join(filter(None, (key, where))) for key in dict.fromkeys(found))


def _look_up(what: str, name: str, table: dict[str, str]) -> str:
    if name not in table:
        raise invalid("bench", f"--{what} is {shorten(repr(name))}, {needs_one(name, table)}")
    return table[name]


def parse_choices(text: str, table: tuple[str, ...], what: str) -> tuple[str, ...]:
    for word in (found := words(text)):
        _look_up(what, word, dict.fromkeys(table, ""))
    return found


def ops(text: str) -> tuple[str, ...]:
    """Return the ops of `text`, each an op or a family of ops.

    >>> ops("conv,max_pool")
    ('conv', 'max_pool')
    """
    return parse_choices(",".join(ops_of(words(text))), tuple(FAMILY), "op")
