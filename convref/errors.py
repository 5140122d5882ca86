"""The exceptions of convref and the one form of their messages."""

from collections.abc import Collection
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path

# Words of other libraries -> convref's, of which the first that an argument takes is suggested.
_ELSEWHERE = {
    "SAME": ("same_upper",),
    **dict.fromkeys(("axis", "axes"), ("dim",)),
    **dict.fromkeys(("data_format", "memory_format", "data_layout"), ("layout",)),
    **dict.fromkeys(("pool_size", "window_shape"), ("kernel_size",)),
    **dict.fromkeys(("kernel", "filters", "rhs"), ("weight", "kernel_size")),
    **dict.fromkeys(("x", "data", "lhs"), ("input",)),
    **{"dilation_rate": ("dilation",), "feature_group_count": ("groups",), "precision": ("math",)},
    "channels_last": ("NHWC", "NWC", "NDHWC"),
    "channels_first": ("NCHW", "NCW", "NCDHW"),
    **dict.fromkeys(("avg", "average"), ("mean",)),
    **dict.fromkeys(("fp32", "f32", "float32"), ("ieee", "rn32", "f32")),
    **dict.fromkeys(("fp64", "f64", "float64"), ("rn64", "f64")),
    **dict.fromkeys(("forward", "fwd"), ("fprop",)),
    **dict.fromkeys(("bwd", "vjp", "grad", "gradient"), ("backward",)),
    "convolution": ("conv",),
}


class ConvrefError(ValueError):
    """A user's input is wrong; the text names the argument, its value and the required one."""


class ProtocolError(ConvrefError):
    """A method of a backend returned what the protocol does not allow; the text names both."""


class UnsupportedError(NotImplementedError):
    """A named backend cannot do a call; the text is the reason that its ``supports`` gave."""


class MissingExtraError(ImportError):
    """An optional dependency is absent; the text is one sentence with the pip command."""


class ExitStatus(IntEnum):
    """How the command line ends; docs/conformance.md says what each means."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    REFUSED = 3
    INTERRUPTED = 130


def shorten(value: object, limit: int = 120) -> str:
    """Return ``str(value)`` cut in the middle, so that no message repeats a megabyte of input."""
    try:
        text = str(value)
    except Exception as error:  # an integer of thousands of digits, or of any third-party class
        text = f"{a_kind(value)} whose str() raises {a_kind(error)}"
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"


def one_line(error: BaseException, limit: int = 300) -> str:
    """Return an exception with its class as one line; none that its class defines raises here.

    >>> one_line(KeyError("a")), one_line(AssertionError())
    ("KeyError: 'a'", 'AssertionError')
    """
    words = printable(shorten(error, 10 * limit))
    return shorten(f"{type(error).__name__}: {words}" if words else type(error).__name__, limit)


def printable(text: str) -> str:
    """Return a text as one line without what would control a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def a_kind(value: object) -> str:
    """Return the class of a value with its article.

    >>> a_kind([]), a_kind(5), a_kind(None), a_kind(SystemError())
    ('a list', 'an int', 'None', 'a SystemError')
    """
    if value is None:
        return "None"
    name = shorten(type(value).__name__, 40)
    start = name[:3].lower()  # a uint8, a Union, an Unknown, an ndarray
    vowel = start[:1] in tuple("aeio") or start[:2] == "nd"
    vowel |= start[:2] == "un" and start != "uni"
    return f"{'an' if vowel else 'a'} {name}"


def choices(value: object, known: Collection[str]) -> str:
    """Return the words that an argument may be; of more than 20 those like its value.

    >>> choices("max_pol", ("conv", "max_pool", *map(str, range(20))))
    'max_pool or 21 others'
    """
    words = list(known)
    if len(words) <= 20:
        return ", ".join(words)
    like = get_close_matches(shorten(value), words) or words[:3]
    return f"{', '.join(like)} or {len(words) - len(like)} others"


def message(where: str, what: str, line: object = None) -> str:
    """Return ``where: what (line)``, the form that every error of the package has."""
    return f"{where}: {what} ({shorten(line)})" if line is not None else f"{where}: {what}"


def invalid(where: str, what: str, line: object = None) -> ConvrefError:
    """Return the error of a user's input, with its `message`."""
    return ConvrefError(message(where, what, line))


def closest_word(given: object, known: Collection[str]) -> str:
    """Return the word among those known that `given` may stand for; empty if there is none."""
    text = shorten(given, 40)
    for word in (*_ELSEWHERE.get(text, ()), *_ELSEWHERE.get(text.lower(), ())):
        if word in known:
            return word
    lower = {word.lower(): word for word in known}
    close = get_close_matches(text.lower(), lower, 1, cutoff=0.8)
    return lower[close[0]] if close else ""


def hint(given: object, known: Collection[str]) -> str:
    """Return the end of a message on a word that is not known: which one may be meant."""
    meant = closest_word(given, known)
    return f"; did you mean {meant}?" if meant else ""


def needs_one(given: object, known: Collection[str], wanted: str = "one of ") -> str:
    """Return ``needs one of ...`` for a word that is not known."""
    return f"needs {wanted}{choices(given, known)}{hint(given, known)}"


def missing_extra(extra: str, error: ImportError) -> MissingExtraError:
    """Return the error with the pip command for the package missing from the import ``error``."""
    return MissingExtraError(f"{error.name or error} is not installed; run: {pip_command(extra)}")


def pip_command(extra: str) -> str:
    """Return the command that installs an extra: of the sources, where this file is in them."""
    sources = Path(__file__).resolve().parent.parent
    if (sources / "pyproject.toml").is_file():
        return f"pip install -e '{sources}[{extra}]'"
    return f"pip install 'convref[{extra}]'"
