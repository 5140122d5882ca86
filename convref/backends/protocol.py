"""What the methods of a backend return, checked: a third-party one may return anything."""

from collections.abc import Sequence
from typing import Any

from ..arrays import facts
from ..case import Call, check_result
from ..errors import ProtocolError, a_kind, shorten
from ..judge import Numerics
from . import Backend

OURS = "convref", "convref_mojo", "convref_triton"  # whose own tests check the form of results


def refusal(backend: Backend, call: Call) -> str | None:
    """Return why a backend refuses a call; None if it computes it."""
    reason = backend.supports(call)
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    wrong = f"supports returned {shorten(repr(reason), 40)}"
    raise ProtocolError(f"{_name(backend)}.{wrong}, needs None for yes, else the reason")


def arithmetic(backend: Backend, call: Call) -> Numerics:
    """Return the arithmetic that a backend declares."""
    found: object = backend.numerics(call)
    if isinstance(found, Numerics):
        return found
    raise ProtocolError(f"{_name(backend)}.numerics returned {a_kind(found)}, needs a Numerics")


def versions(backend: Backend) -> dict[str, str]:
    """Return what a backend says about itself."""
    found: object = backend.fingerprint()
    if isinstance(found, dict):
        return {str(key): str(value) for key, value in found.items()}
    raise ProtocolError(f"{_name(backend)}.fingerprint returned {a_kind(found)}, needs a dict")


def run_checked(
    backend: Backend, call: Call, kind: str, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the results of a call on arrays of a kind; those of a third party are checked."""
    results = backend.run(call, *operands)
    if type(backend).__module__.partition(".")[0] in OURS:
        return results
    return _by_role(backend, call, kind, results)


def _by_role(backend: Backend, call: Call, kind: str, results: Any) -> tuple[Any, ...]:
    roles, name = call.signature.results, _name(backend)
    if not isinstance(results, (tuple, list)) or len(results) != len(roles):
        got = f"{len(results)} results" if isinstance(results, (tuple, list)) else a_kind(results)
        raise ProtocolError(f"{name}.run returned {got}, needs a tuple of {', '.join(roles)}")
    for role, result in zip(roles, results):
        fact = None if result is None else facts(f"{name}.run", role, result)
        if wrong := check_result(call, role, fact, kind):
            raise ProtocolError(f"{name}.run: {role} {wrong}")
    return tuple(results)


def _name(backend: Backend) -> str:
    return f"backend: {shorten(backend.name, 60)}"
