"""Record the calls of convref's ops in a program, with operands and results, and judge them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ... import dispatch, dtypes
from ...arrays import to_numpy
from ...case import Call
from ...judge import Reference, Verdict, judge, reference
from . import _library
from ._kernels import PassConfig, Tensors, call_of
from ._native import Observer
from ._table import BY_NAME

Arrays = tuple[np.ndarray[Any, Any] | None, ...]


@dataclass(frozen=True)
class Seen:
    """One call and what computed it: a backend's name, or "package.module:object".

    Operands and results are copies, by role; None where there is none.
    """

    call: Call
    backend: str
    operands: Arrays
    results: Arrays

    @cached_property
    def reference(self) -> Reference:
        """Return the results of the oracle."""
        return reference(self.call, self.operands)

    def verdict(self, results: Arrays | None = None, backend: str | None = None) -> Verdict:
        """Return the judge's verdict on these results, or on those of another implementation.

        The declared arithmetic is that of `backend`, by default of the one that computed them.
        """
        numerics = dispatch.load(backend or self.backend).numerics(self.call)
        given = self.results if results is None else results
        return judge(self.call, self.operands, given, numerics, ref=self.reference)


class Calls(Observer):
    """A context that keeps every call of convref's ops made in it, forward and backward.

    >>> from convref.integrations.torch import functional
    >>> x = torch.ones(1, 1, 3, requires_grad=True)
    >>> with Calls() as calls:
    ...     functional.conv1d(x, torch.ones(1, 1, 2)).sum().backward()
    >>> for one in calls.seen:
    ...     print(one.call, one.verdict().kind)
    conv.fprop:n1c1k1_i3_f2:bias=0 pass
    conv.dgrad:n1c1k1_i3_f2:mem=dy.expandw pass
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = op(*args, **(kwargs or {}))
        if op.namespace == _library.NAMESPACE:
            self.seen.append(_seen(op, args, found))
        return found


def _seen(op: Any, arguments: tuple[Any, ...], found: Any) -> Seen:
    row = BY_NAME[op._schema.name.partition("::")[2]]
    count = len(row.signature.operands)
    operands, config = arguments[:count], PassConfig.of(row, arguments[count:])
    call = call_of(config, operands)
    results = (found,) if isinstance(found, torch.Tensor) else tuple(found)
    by_role = zip(call.signature.results, results)
    wanted = tuple(r if role in call.wanted else None for role, r in by_role)
    plan = dispatch.plan(call, config.backend, "torch")
    given = [
        np.zeros(call.problem.shape(role), dtypes.numpy_dtype(call.dtype_of(role)))
        if array is None and call.is_present(role)  # an absent tangent
        else array
        for role, array in zip(call.roles, _arrays(operands))
    ]
    name = plan.backend.name if config.backend == "auto" else config.backend
    return Seen(call, name, tuple(given), _arrays(wanted))


def _arrays(tensors: Tensors) -> Arrays:
    """Return copies: a program may write over its tensors later."""
    return tuple(None if t is None else np.array(to_numpy(t.detach())) for t in tensors)
