"""The backends by name, loaded on request."""

import importlib
from functools import cache

from ..errors import MissingExtraError, a_kind, hint, invalid, shorten
from . import Backend

GROUP = "convref.backends"
NEEDED = ("name", "supports", "run", "numerics", "fingerprint")  # of `Backend`

# Backends of convref are found without an installation too.
SHIPPED = {
    name: f"convref.backends.{name}:backend"
    for name in ("numpy", "loops", "torch", "jax", "onnxruntime")
}


@cache
def names() -> dict[str, str]:
    """Return the registered backends as name -> "module:attribute"."""
    from importlib.metadata import entry_points  # a third of the time of importing convref

    found = {point.name: point.value for point in entry_points(group=GROUP)}
    return {**SHIPPED, **found}


@cache
def load(name: str) -> Backend:
    """Return the backend called `name`, or the object at "package.module:attribute".

    If its framework is not installed, the text of the MissingExtraError names the pip command.

    >>> load("numpy").name
    'numpy'
    """
    known = names()
    target = known.get(name, name)
    module, colon, attribute = target.partition(":")
    if not colon:
        wanted = f"needs {', '.join(sorted(known))} or pkg.mod:object{hint(name, known)}"
        raise invalid("backend", f"{shorten(repr(name))} is unknown, {wanted}")
    try:
        backend = importlib.import_module(module)
        for part in attribute.split("."):
            backend = getattr(backend, part)
    except MissingExtraError:
        raise
    except Exception as error:  # a third-party module may raise anything
        raise invalid("backend", f"{shorten(name)} does not load: {shorten(error)}") from error
    # isinstance of a protocol does not see attributes that __getattr__ returns, since Python 3.12.
    if isinstance(backend, type):
        raise invalid("backend", f"{shorten(name)} is a class, needs an object of it")
    if not all(hasattr(backend, one) for one in NEEDED):
        needs = f"needs an object with {', '.join(NEEDED)}"
        raise invalid("backend", f"{shorten(name)} is {a_kind(backend)}, {needs}")
    return backend
