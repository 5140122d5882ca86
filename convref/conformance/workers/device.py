"""Backends on another device: the court's NumPy arrays are copied there, and the results back."""

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ...arrays import Array, to_numpy, to_torch, why_no_device
from ...backends import Backend
from ...case import Call, axis_letters
from ...dtypes import code_of, numpy_dtype
from ...judge import Numerics
from ..operands import poison

DEVICES = ("cpu", "cuda")
MEMORY = {"cpu": 4 << 30, "cuda": 32 << 30}  # bytes of a worker; the libraries of CUDA take 4 GiB
LOST = 70  # exit status
_GUARD = 64  # elements on each side of an operand, so that its alignment stays


class OnDevice:
    """A backend of the court whose operands are torch tensors on the device of the call.

    They have the strides of the given arrays, and poison in the gaps and around.

    Parameters
    ----------
    inner : Backend
    where : str
        The device of all calls; by default each has its own.
    """

    def __init__(self, inner: Backend, where: str = "") -> None:
        self.inner, self.where, self.name = inner, where, inner.name
        self.checked_by_dispatch = getattr(inner, "checked_by_dispatch", False)
        self.serial = getattr(inner, "serial", False)

    def supports(self, call: Call) -> str | None:
        """Return None if the device is there and the backend can compute `call`, else why not."""
        there = self._on_device(call)
        device = there.specs[0].device
        return why_no_device(device) or self.inner.supports(there) or _too_large(there, device)

    def numerics(self, call: Call) -> Numerics:
        """Return the arithmetic that the backend declares."""
        return self.inner.numerics(self._on_device(call))

    def fingerprint(self) -> dict[str, str]:
        """Return that of the backend."""
        return self.inner.fingerprint()

    def run(self, call: Call, *operands: Any) -> Any:
        """Return the results as NumPy arrays; a lost device ends this process."""
        there = self._on_device(call)
        device = there.specs[0].device
        if device == "cpu" and not self.where:
            return self.inner.run(call, *operands)
        try:
            made = {id(a): _Copy(a, device) for a in operands if a is not None}
            copies = [None if a is None else made[id(a)] for a in operands]
            results = self.inner.run(there, *(None if c is None else c.tensor for c in copies))
            if isinstance(results, (tuple, list)):
                results = tuple(map(_from_device, results))
            for copy in made.values():
                copy.give_back()
            synchronize(device)
        except Exception as error:
            if is_lost(partial(synchronize, device)):
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(LOST)  # every later call would fail too
            raise
        return results

    def _on_device(self, call: Call) -> Call:
        return call.on(self.where) if self.where else call


class _Copy:
    """A copy of an operand on a device."""

    def __init__(self, array: Array, device: str) -> None:
        import torch

        self.given = given = to_torch(array)
        # elements of an expanded axis are one
        self.once = tuple(slice(None) if step else slice(0, 1) for step in given.stride())
        span = 1 + sum((n - 1) * step for n, step in zip(given.shape, given.stride()) if n)
        value = poison(code_of(array.dtype))
        size = span + 2 * _GUARD
        buffer = torch.full((size,), value, dtype=given.dtype, device=device)
        self.tensor = buffer.as_strided(given.shape, given.stride(), _GUARD)
        self.tensor[self.once].copy_(given[self.once])
        self.before = self._bits()

    def give_back(self) -> None:
        """Write what the backend wrote to the copy to the operand, where the court looks for it."""
        if not self.before.equal(self._bits()):
            self.given[self.once].copy_(self.tensor[self.once])

    def _bits(self) -> Any:
        import torch

        packed = self.tensor[self.once].clone(memory_format=torch.contiguous_format)
        return packed.view(-1).view(torch.uint8)


def _from_device(result: Any) -> Any:
    import torch

    return to_numpy(result.cpu()) if isinstance(result, torch.Tensor) else result


def synchronize(device: str) -> None:
    """Wait for the device; an error of a kernel is raised here at the latest."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def is_lost(settle: Callable[[], None]) -> bool:
    """Return whether a device is lost: `settle`, which waits for it, raises an error."""
    try:
        settle()
    except RuntimeError:
        return True
    return False


@cache
def memory_of_device() -> int:
    """Return the bytes of memory of the current CUDA device."""
    import torch

    return int(torch.cuda.mem_get_info()[1])


def _too_large(call: Call, device: str) -> str | None:
    """Return how much memory operands that are stored far apart take, if the device has less."""
    if device == "cpu":
        return None
    total, needed = memory_of_device(), 0
    for role in filter(call.is_present, call.roles):
        shape, spec = call.problem.shape(role), call.spec(role)
        steps = spec.strides(shape, axis_letters(call.problem, role))
        span = 1 + sum((n - 1) * abs(step) for n, step in zip(shape, steps) if n)
        needed += span * numpy_dtype(call.dtype_of(role)).itemsize
    if 2 * needed <= total:  # the backend may copy them
        return None
    return f"operands span {needed / 2**30:.1f} GiB, the device has {total / 2**30:.1f} GiB"
