"""A failure as the text of a bug report for the library in which it was found."""

from ... import exports
from ...case import parse
from ...errors import ConvrefError, UnsupportedError
from ..causes import Failure
from ..examine import THREADS, WITH_THREADS

_WRITERS = {"jax": exports.to_jax, "tensorflow": exports.to_tensorflow}  # others: PyTorch's


def program(failure: Failure, backend: str) -> str:
    """Return the case as a program of the library at fault, or a comment with the reason."""
    case = parse(failure.line)
    library = backend.partition("_backend")[0].partition(":")[0].rpartition(".")[2]
    threads = THREADS if WITH_THREADS in failure.reason else 1  # as a worker has
    try:
        if library in _WRITERS:
            return _WRITERS[library](case)
        return exports.to_torch(case, threads=threads)
    except (UnsupportedError, ConvrefError) as error:
        return f"# {' '.join(str(error).split())}"


def issue(failure: Failure, backend: str, fingerprint: dict[str, str]) -> str:
    """Return a bug report in Markdown: title, versions, program, expected and actual results.

    >>> failure = Failure("relu.fprop:n1c1_i1:fill=nan", "wrong", "y[0, 0, 0] is 0.0, needs nan")
    >>> print(issue(failure, "torch", {"torch": "2.13.0", "cpu": "AVX2"})[:68])
    # relu forward: wrong result (float32)
    <BLANKLINE>
    y[0, 0, 0] is 0.0, needs nan
    """
    call = parse(failure.line).call
    passes = {"fprop": "forward", "backward": "gradient", "jvp": "forward-mode derivative"}
    passes["double_backward"] = "second derivative"
    names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
    words = {"wrong": "wrong result", "rejects-valid": "error on a valid call", "hang": "hangs"}
    words["accepts-invalid"] = "accepts operands that do not match"
    needs = f"It depends on {', '.join(failure.needs)}." if failure.needs else ""
    also = "\n".join(f"- {where.partition(': ')[0]}" for where in failure.also)
    parts = [
        f"# {call.op} {passes[call.pass_]}: {words.get(failure.verdict, failure.verdict)}"
        f" ({names.get(call.dtype, call.dtype)})",
        " ".join(filter(None, (failure.reason, needs))),
        "## Program",
        "It prints the result, and the expected one where it is small.",
        f"```python\n{program(failure, backend).rstrip()}\n```",
        f"## Also seen in\n\n{also}" if also else "",
        "## Versions",
        "\n".join(f"- {name}: {value}" for name, value in fingerprint.items()),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"
