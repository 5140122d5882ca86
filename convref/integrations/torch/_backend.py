"""Which backend computes: per call, else that of `use_backend`, else "auto"."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ... import dispatch

_current: ContextVar[str] = ContextVar("convref_backend", default="auto")
current = _current.get


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Use the backend called `name` for calls that name none.

    A compiled function keeps the one that it was compiled under.

    Raises
    ------
    ConvrefError
        If there is no such backend, or it does not load.

    Examples
    --------
    >>> with use_backend("numpy"):
    ...     backend_or_default(None)
    'numpy'
    """
    check_backend("use_backend", name)
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def check_backend(where: str, backend: Any) -> None:
    """Raise unless calls can name this backend: here rather than in the first call."""
    dispatch.check_name(where, backend)
    if backend != "auto":
        dispatch.load(backend)


def backend_or_default(backend: str | None) -> str:
    """Return the backend of a call."""
    return _now() if backend is None else backend


def _now() -> str:
    return _current.get()


# What torch.compiler.assume_constant_result does, which first imports the compiler: 1.3 s.
_now.__dict__["_dynamo_marked_constant"] = True
