"""Backends compute Calls: the protocol, and the backends that convref ships.

Each module is imported only when its backend is loaded, and imports its framework itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..case import Call
from ..judge import Numerics
from ._autodiff import Autodiff
from ._operands import contiguous

__all__ = ["PLAIN", "Arm", "Autodiff", "Backend", "Inspected", "contiguous"]


@dataclass(frozen=True)
class Arm:
    """One way to run a library: with variables set, through another backend object, or both.

    Parameters
    ----------
    name : str
        "plain" for the library as it is.
    environment : tuple of (str, str)
        Variables of the worker process, which a library may read only once.
    backend : str
        The object that is called instead, as `convref.dispatch.load` takes it.
    share : int
        How many chunks it gets for each chunk of an arm with share 1.
    """

    name: str = "plain"
    environment: tuple[tuple[str, str], ...] = ()
    backend: str = ""
    share: int = 1


PLAIN = Arm()


class Inspected(NamedTuple):
    """One kernel of a call, as a backend's ``inspect`` shows it.

    Parameters
    ----------
    title : str
        Which kernel, and how it is launched.
    facts : mapping of str to str
        Properties of its code, by name.
    asm : mapping of str to str
        Its stages as text: "ptx", "sass" ...
    """

    title: str
    facts: Mapping[str, str]
    asm: Mapping[str, str]


@runtime_checkable
class Backend(Protocol):
    """An object that computes calls. Register one in the entry-point group "convref.backends".

    These are optional, for the court:

    - ``raw``, the same backend without checks of its own;
    - ``checked_by_dispatch``, true where `convref.dispatch.run` has checked the operands' sizes, so
      that the court does not hand it wrong ones;
    - ``arms``, a tuple of `Arm` over which a campaign spreads its chunks, the plain one among them;
    - ``chunk``, how many examples are a chunk, where 1,000 take minutes;
    - ``data``, on how many data a campaign runs each call that it draws, where calls are compiled;
    - ``run_many(calls, operands)``, which returns the results of `run` for each call, where a batch
      takes less time, and ``batch``, the number of calls in one;
    - ``serial``, true where two threads must not call it at once;
    - ``stateless``, true where no call leaves anything behind for a later one, as in an emulator:
      the court makes no earlier calls then;
    - ``threads(count)``, a context manager in which that many threads compute;
    - ``run_into(call, outputs, *operands)``, which writes the results into arrays that it is given:
      one for each role, contiguous, None where masked off. The court checks the memory around them.

    These are optional too:

    - ``with_unproven``, the "package.module:object" of a variant that also uses kernels that no
      device has run; `convref.dispatch.plan` takes it for ``unproven=True``;
    - ``prepare(call)``, which compiles and loads the kernels that the first `run` of a call needs;
      `convref.dispatch.plan` calls it;
    - ``inspect(call, arch)``, which returns an `Inspected` for each kernel of a call, compiled for
      an architecture such as "sm_90". `convref inspect` calls it, with the beginning of a choice's
      name as a third argument if one is requested;
    - ``xla_calls(call)``, by which compiled JAX programs compute a call without Python: a function
      that returns the handler of `jax.ffi`, and operands, results (roles) and the attribute
      ``words`` of each of its calls;
    - ``cuda_results(call, operands)``, by which JAX programs compiled for CUDA compute a call:
      operands and results are JAX's arrays by role.
    """

    name: str

    def supports(self, call: Call) -> str | None:
        """Return None if the backend can compute `call`, else the reason why not."""

    def run(self, call: Call, *operands: Any) -> tuple[Any, ...]:
        """Return the results by role, as the caller's kind of array; None where masked off.

        Operands come in the order of the signature, None where absent, in the axis order of
        the formulas (N, C, spatial) with any strides.
        """

    def numerics(self, call: Call) -> Numerics:
        """Return the arithmetic that the backend declares for `call`."""

    def fingerprint(self) -> dict[str, str]:
        """Return versions, device, instruction set and the like: facts that results depend on."""
