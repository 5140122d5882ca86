"""Every pass of an op from its forward function and the derivatives that a library has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from ..case import Call
from ..dtypes import numpy_dtype
from ..ops import BASE_ROLE, SIGNATURE
from ._operands import contiguous

Tensors = Mapping[str, Any]  # a library's tensors by role, None where there is none
Function = Callable[[Tensors], Tensors]


@dataclass(frozen=True)
class Autodiff:
    """Every pass of an op, from four functions of a library with automatic differentiation.

    Functions that are differentiated take a dict of tensors and return another, both by role.

    Parameters
    ----------
    tensor : callable
        Makes the library's tensor of an ndarray.
    array : callable
        Makes an ndarray of a tensor.
    vjp : callable
        ``vjp(function, at, cotangents)`` returns the gradients of the sum of cotangents times
        results, in the order of `at`; None is zero. It may be called inside of a function that is
        differentiated in turn.
    jvp : callable, optional
        ``jvp(function, at, tangents)`` returns two dicts: results and their tangents.

    Examples
    --------
    A library that can triple:

    >>> from convref.case import parse
    >>> library = Autodiff(
    ...     tensor=np.copy, array=np.asarray, vjp=lambda function, at, dots: [3 * dots["y"]]
    ... )
    >>> call = parse("avg_pool.backward:n1c1_i1_f1").call
    >>> dy = np.ones((1, 1, 1), np.float32)
    >>> library.run(lambda problem, x: {"y": 3 * x}, call, dy)
    (array([[[3.]]], dtype=float32),)
    """

    tensor: Callable[[Array], Any]
    array: Callable[[Any], Array]
    vjp: Callable[[Function, Tensors, Tensors], Sequence[Any]]
    jvp: Callable[[Function, Tensors, Tensors], tuple[Tensors, Tensors]] | None = None

    @property
    def passes(self) -> tuple[str, ...]:
        """Return the passes that `run` computes."""
        return ("fprop", "backward", "double_backward", *(("jvp",) if self.jvp else ()))

    def run(
        self, forward: Callable[..., Tensors], call: Call, *operands: Any
    ) -> tuple[Array | None, ...]:
        """Return the results of a call by role, as a backend's ``run`` has to.

        Parameters
        ----------
        forward : callable
            ``forward(problem, **tensors)`` takes the operands of the op's fprop by role and returns
            its results by role; derivatives need the first alone. What a derivative neither has nor
            depends on is None, or zeros for x.
        call : Call
        operands : array or None
            In the order of the signature.

        Returns
        -------
        tuple of (ndarray or None)
        """
        arrays = zip(call.roles, contiguous(call, operands))
        given = {role: None if a is None else self.tensor(a) for role, a in arrays}
        found = self.derive(forward, call, given)
        return call.results(lambda role: self._result(role, found[role]))

    def derive(self, forward: Callable[..., Tensors], call: Call, given: Tensors) -> Tensors:
        """Return the wanted results of a call as tensors by role, perhaps with others.

        Parameters
        ----------
        forward, call
            As in `run`.
        given : mapping of str to tensor
            The operands by role, None or left out where absent; they are not checked.
        """
        roles = SIGNATURE[call.op, "fprop"].operands
        fixed = {role: given.get(role) for role in roles}
        fixed.update(self._stand_ins(call, given))

        def function(moved: Tensors) -> Tensors:
            return forward(call.problem, **{**fixed, **moved})

        return getattr(self, f"_{call.pass_}")(call, function, fixed, given)

    def _fprop(self, call: Call, function: Function, fixed: Tensors, given: Tensors) -> Tensors:
        return function({})

    def _backward(self, call: Call, function: Function, fixed: Tensors, given: Tensors) -> Tensors:
        y = _output(call)
        at = {role: fixed[role] for role in _bases(call.wanted)}
        found = self._gradients(call, _one_result(y, function), at, {y: given[f"d{y}"]})
        return {f"d{role}": gradient for role, gradient in found.items()}

    def _jvp(self, call: Call, function: Function, fixed: Tensors, given: Tensors) -> Tensors:
        y, dots = _output(call), _present({role: given.get(f"{role}_dot") for role in fixed})
        if not dots or self.jvp is None:
            return {y: function({})[y], f"{y}_dot": self._filled(call, y, 0)}
        found, moved = self.jvp(
            _one_result(y, function), {role: fixed[role] for role in dots}, dots
        )
        return {y: found[y], f"{y}_dot": moved[y]}

    def _double_backward(
        self, call: Call, function: Function, fixed: Tensors, given: Tensors
    ) -> Tensors:
        y, outer = _output(call), _present({role: given.get(f"dd{role}") for role in fixed})
        dy = given.get(f"d{y}")
        point = {**fixed, y: self._filled(call, y, 0) if dy is None else dy}

        def first(moved: Tensors) -> Tensors:
            here = {**point, **moved}
            cotangent = {y: here.pop(y)}
            inner = _one_result(y, lambda own: function({**here, **own}))
            return self._gradients(call, inner, {role: here[role] for role in outer}, cotangent)

        at = {BASE_ROLE[role]: point[BASE_ROLE[role]] for role in call.wanted}
        found = self._gradients(call, first, at, outer) if outer else dict.fromkeys(at)
        return {role: self._or_zero(call, role, found[BASE_ROLE[role]]) for role in call.wanted}

    def _gradients(
        self, call: Call, function: Function, at: Tensors, cotangents: Tensors
    ) -> Tensors:
        found = zip(at, self.vjp(function, at, cotangents) if at else ())
        return {role: self._or_zero(call, role, gradient) for role, gradient in found}

    def _stand_ins(self, call: Call, given: Tensors) -> Tensors:
        """Return values of absent operands that derivatives are taken by: x = 0, w = 1, b = 0."""
        first, *others = _bases(SIGNATURE[call.op, "backward"].results)
        carried = {BASE_ROLE[role] for role in _present(given) if role.startswith("dd")}
        needed = {first, *carried, *_bases(call.wanted)}
        missing = (role for role in (first, *others) if role in needed and given.get(role) is None)
        return {role: self._filled(call, role, role == "w") for role in missing}

    def _or_zero(self, call: Call, role: str, tensor: Any) -> Any:
        return self._filled(call, role, 0) if tensor is None else tensor

    def _filled(self, call: Call, role: str, value: float) -> Any:
        return self.tensor(np.full(call.problem.shape(role), value, numpy_dtype(call.dtype)))

    def _result(self, role: str, tensor: Any) -> Array:
        """Return an ndarray; indices are of whatever width the library has."""
        array = self.array(tensor)
        return array.astype(np.int64) if role == "indices" else array


def _output(call: Call) -> str:
    return SIGNATURE[call.op, "fprop"].results[0]


def _bases(roles: Iterable[str]) -> list[str]:
    return [BASE_ROLE[role] for role in roles]


def _present(tensors: Tensors) -> Tensors:
    return {role: tensor for role, tensor in tensors.items() if tensor is not None}


def _one_result(role: str, function: Function) -> Function:
    return lambda at: {role: function(at)[role]}
