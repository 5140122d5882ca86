"""Normalisations: the elements of each statistic, and how weights broadcast over an image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple

from ..dtypes import SIXTEEN
from ..errors import invalid
from .base import BASE_ROLE, INEXACT, Field, Problem
from .sizes import SPATIAL, Sizes, integer
from .spec import OpSpec, Pass, formula


class Blocks(NamedTuple):
    """An image seen with four axes, so that every norm is the same sums over some of them."""

    image: Sizes  # (N, G, C/G, positions): G groups of channels
    statistics: tuple[int, ...]  # the axes over which a mean is taken
    weight: Sizes  # shape of weight and bias on these axes; 1 where they are repeated

    @property
    def broadcast_axes(self) -> tuple[int, ...]:
        """Return the axes along which one weight serves many elements."""
        return tuple(axis for axis, size in enumerate(self.weight) if size == 1)


@dataclass(frozen=True, kw_only=True)
class NormProblem(Problem):
    """The base of all norms: y = (x - mean) * rstd * w + b with rstd = 1 / sqrt(var + eps).

    Parameters
    ----------
    n, c, input
        As in `Problem`.
    eps : float
        Added to the variance, at least 0 in batch norm. Elsewhere a sum below 0 gives NaN.
    weight, bias : bool
        Whether there is one.
    parameters : str
        Of 16-bit data, weights have the type of the data and running statistics float32. "wide"
        means that both are float32 (as under autocast), "data" that both have the type of the data
        (as in a model of 16 bits). Empty where the arrays of a pass do not differ.
    """

    OF_OPERANDS: ClassVar[tuple[str, ...]] = (*Problem.OF_OPERANDS, "parameters")
    KEYS: ClassVar[dict[str, Field]] = {
        "eps": Field("eps", "float", draws=(1e-5, 1e-5, 1e-5, 1e-3, 0.5, 1e-6)),
        "weight": Field("weight", "flag", draws=(True, True, True, False)),
        "bias": Field("bias", "flag", draws=(True, True, True, False)),
        "par": Field("parameters", "word", draws=("", "", "", "", "wide", "data")),
    }
    REFUSES: ClassVar[dict[str, str]] = INEXACT
    INDEPENDENT: ClassVar[str] = "n"
    SUBTRACTS_MEAN: ClassVar[bool] = True

    eps: float = 1e-5
    weight: bool = True
    bias: bool = True
    parameters: str = ""

    @cached_property
    def blocks(self) -> Blocks:
        """Return how the image is seen: here, statistics and a weight for each channel."""
        return Blocks((self.n, self.c, 1, prod(self.input)), (0, 2, 3), (1, self.c, 1, 1))

    @property
    def count(self) -> int:
        """Return how many elements one mean is taken over."""
        return prod(self.blocks.image[axis] for axis in self.blocks.statistics)

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        x, blocks = (self.n, self.c, *self.input), self.blocks
        kept = tuple(
            size for axis, size in enumerate(blocks.image) if axis not in blocks.statistics
        )
        statistic = dict.fromkeys(("mean", "rstd", "rmean", "rvar"), kept)
        return {"x": x, "y": x, **dict.fromkeys(("w", "b"), self._weights()), **statistic}

    def _weights(self) -> Sizes:
        return (self.c,)

    def letters(self, role: str) -> str:
        letters = "nc" + SPATIAL[self.rank]
        base = BASE_ROLE[role]
        if base in ("x", "y"):
            return letters
        if base in ("w", "b"):
            return letters[1 : 1 + len(self._weights())]
        return {(0, 2, 3): "c", (2, 3): "ng"}[self.blocks.statistics][: len(self.shape(role))]

    def for_pass(self, pass_: str, code: str) -> NormProblem:
        """Return the problem of `pass_`: in backward the mask alone decides on the bias."""
        given = _ROLES[self.name, pass_]
        differs = {"wide": self.weight or (self.bias and "b" in given), "data": "rmean" in given}
        kept = code in SIXTEEN and differs.get(self.parameters, False)
        bias = self.bias or pass_ == "backward"
        return replace(self, bias=bias, parameters=self.parameters if kept else "")

    def dtype_of(self, role: str, code: str) -> str:
        """Return the type of the array in `role` where data have the type `code`."""
        if self.parameters == "wide" and BASE_ROLE[role] in ("w", "b"):
            return "f32"
        if self.parameters == "data" and role in ("rmean", "rvar"):
            return code
        return super().dtype_of(role, code)

    @classmethod
    def of_dtypes(cls, pass_: str, types: dict[str, str]) -> dict[str, Any]:
        """Return the field `parameters` as the types of the operands, by role, determine it."""
        found = {BASE_ROLE[role]: code for role, code in reversed(types.items())}
        if found.get("x", found.get("y")) not in SIXTEEN:
            return {}
        if found.get("w", found.get("b")) == "f32":
            return {"parameters": "wide"}
        return {"parameters": "data"} if found.get("rmean") in SIXTEEN else {}

    @property
    def may_cancel(self) -> bool:
        return self.eps < 0  # var + eps may be 0

    def products(self, role: str) -> int:
        """Return the most roundings on the path to one element of the result `role`.

        docs/judge.md counts them: a mean of m elements 2 m + 8, however it is updated on the way.
        """
        statistics = 2 * self.count + 16
        weights = prod(self.blocks.image[axis] for axis in self.blocks.broadcast_axes)
        return {
            "dx": 2 * statistics,
            "y_dot": 2 * statistics,
            "ddy": 2 * statistics,
            "dw": 2 * statistics + weights,
            "db": weights + 1,
        }.get(role, statistics)


# Of norms without running statistics; "data" is as good as nothing there.
_PAR = NormProblem.KEYS["par"]._replace(draws=("", "", "wide"), words=("", "wide", "data"))
_STABLE = {**NormProblem.KEYS, "eps": NormProblem.KEYS["eps"]._replace(least=0.0)}


@dataclass(frozen=True, kw_only=True)
class BatchNormProblem(NormProblem):
    """Batch norm in training: one mean per channel, over batch and space.

    Parameters
    ----------
    n, c, input, eps, weight, bias
        As in `NormProblem`; at least two values per channel.
    momentum : float
        The weight of the new statistic in the running one.

    Examples
    --------
    >>> BatchNormProblem(n=8, c=3, input=(4, 4)).shape("mean")
    (3,)
    """

    name: ClassVar[str] = "batch_norm"
    INDEPENDENT: ClassVar[str] = "c"
    KEYS: ClassVar[dict[str, Field]] = {
        **_STABLE,
        "mom": Field("momentum", "float", draws=(0.1, 0.1, 0.01, 1.0, 0.25, 0.9)),
    }

    momentum: float = 0.1

    def _validate(self, where: str, rank: int) -> None:
        if self.count < 2 and (self.count or self.c):
            what = f"input has {self.count} values per channel, needs at least 2 in training"
            raise invalid(where, what)

    @classmethod
    def admissible(cls, sizes: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the sizes, but two images of one value each, and no channels of no values."""
        count = sizes["n"] * prod(sizes["input"])
        return {**sizes, "n": 2} if count == 1 else sizes if count else {**sizes, "c": 0}


@dataclass(frozen=True, kw_only=True)
class InstanceNormProblem(BatchNormProblem):
    """Instance norm in training: one mean per image and channel, running ones per channel.

    Parameters
    ----------
    n, c, input, eps, weight, bias, momentum
        As in `BatchNormProblem`; at least two values per image and channel.

    Examples
    --------
    >>> problem = InstanceNormProblem(n=8, c=3, input=(4, 4))
    >>> problem.shape("mean"), problem.shape("rmean")
    ((8, 3), (3,))
    """

    name: ClassVar[str] = "instance_norm"
    LEAST: ClassVar[dict[str, int]] = {"n": 1, "c": 0}
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1),)

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks((self.n, self.c, 1, prod(self.input)), (2, 3), (1, self.c, 1, 1))

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        return {**super()._shapes, **dict.fromkeys(("rmean", "rvar"), (self.c,))}

    def _validate(self, where: str, rank: int) -> None:
        if self.count < 2:
            what = f"input has {self.count} values per image and channel, needs at least 2"
            raise invalid(where, f"{what} in training")

    @classmethod
    def admissible(cls, sizes: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the sizes, or larger ones with two values per image and channel."""
        *lead, last = (max(1, size) for size in sizes["input"])
        last = last if prod(lead) * last >= 2 else 2
        return {**sizes, "n": max(1, sizes["n"]), "input": (*lead, last)}

    def letters(self, role: str) -> str:
        return {"mean": "nc", "rstd": "nc", "rmean": "c", "rvar": "c"}.get(
            role, super().letters(role)
        )

    def products(self, role: str) -> int:
        return super().products(role) + (self.n + 1 if role in ("rmean", "rvar") else 0)


class FrozenNormProblem(NormProblem):
    """Batch norm in evaluation: the running statistics are given and stay as they are.

    >>> FrozenNormProblem(n=1, c=3, input=(4, 4)).shape("rmean")
    (3,)
    """

    name: ClassVar[str] = "batch_norm_eval"
    KEYS: ClassVar[dict[str, Field]] = _STABLE
    INDEPENDENT: ClassVar[str] = "nc"
    frozen = True  # statistics are operands

    def products(self, role: str) -> int:
        summed = self.n * prod(self.input) if role in ("dw", "db") else 0
        return summed + 16


@dataclass(frozen=True, kw_only=True)
class GroupNormProblem(NormProblem):
    """Group norm: one mean per image and group of channels; a group per channel is instance norm.

    Parameters
    ----------
    n, c, input, eps, weight, bias
        As in `NormProblem`; no axis but n may be empty.
    groups : int
        A divisor of c.

    Examples
    --------
    >>> GroupNormProblem(n=8, c=6, groups=3, input=(4, 4)).shape("mean")
    (8, 3)
    """

    name: ClassVar[str] = "group_norm"
    KEYS: ClassVar[dict[str, Field]] = {**NormProblem.KEYS, "par": _PAR}
    HEAD: ClassVar[dict[str, str]] = {"n": "n", "c": "c", "g": "groups"}
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1),)
    LEAST: ClassVar[dict[str, int]] = {"n": 0, "c": 1}

    groups: int = 1

    def _validate(self, where: str, rank: int) -> None:
        self._put("groups", integer(where, "groups", self.groups))
        self._at_least("groups", self.groups, 1)
        if self.c % self.groups:
            raise invalid(where, f"input has C={self.c}, needs a multiple of groups={self.groups}")

    @cached_property
    def blocks(self) -> Blocks:
        per = self.c // self.groups
        image = (self.n, self.groups, per, prod(self.input))
        return Blocks(image, (2, 3), (1, self.groups, per, 1))


@dataclass(frozen=True, kw_only=True)
class LayerNormProblem(NormProblem):
    """Layer norm: one mean per image, over all that it holds, and a weight per element.

    Parameters
    ----------
    n, c, input, eps, weight, bias
        As in `NormProblem`; no axis but n may be empty.

    Examples
    --------
    >>> LayerNormProblem(n=8, c=3, input=(4, 4)).shape("w")
    (3, 4, 4)
    """

    name: ClassVar[str] = "layer_norm"
    KEYS: ClassVar[dict[str, Field]] = {**NormProblem.KEYS, "par": _PAR}
    SIZES: ClassVar[tuple[tuple[str, int], ...]] = (("input", 1),)
    LEAST: ClassVar[dict[str, int]] = {"n": 0, "c": 1}

    def _weights(self) -> Sizes:
        return (self.c, *self.input)

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks(
            (self.n, 1, self.c, prod(self.input)), (2, 3), (1, 1, self.c, prod(self.input))
        )

    @cached_property
    def _shapes(self) -> dict[str, Sizes]:
        shapes = super()._shapes
        return {**shapes, "mean": (self.n,), "rstd": (self.n,)}


@dataclass(frozen=True, kw_only=True)
class RmsNormProblem(LayerNormProblem):
    """RMS norm: layer norm without a mean and a bias, y = x * rstd * w.

    Parameters
    ----------
    n, c, input, weight
        As in `LayerNormProblem`.
    eps : float or None
        Added to the mean square; None is 2**-52 for float64 and 2**-23 for narrower numbers.
    bias : bool
        False.

    Examples
    --------
    >>> RmsNormProblem(n=8, c=3, input=(4, 4)).for_pass("fprop", "bf16").eps
    1.1920928955078125e-07
    """

    name: ClassVar[str] = "rms_norm"
    KEYS: ClassVar[dict[str, Field]] = {
        "eps": Field("eps", "float", draws=(None, None, 1e-5, 1e-6, 1e-3, 0.5)),
        "weight": NormProblem.KEYS["weight"],
        "par": _PAR,
    }
    SUBTRACTS_MEAN: ClassVar[bool] = False

    eps: float | None = None  # type: ignore[assignment]
    bias: bool = False

    def _validate(self, where: str, rank: int) -> None:
        self._put("bias", False)

    def for_pass(self, pass_: str, code: str) -> NormProblem:
        """Return the problem with the eps of numbers of type `code`, if it has none."""
        made = super().for_pass(pass_, code)
        own = 2.0**-52 if code in ("f64", "obj") else 2.0**-23  # as wide as it is computed
        return replace(made, eps=own) if self.eps is None else made


def _without_roles(passes: dict[str, Pass], *bases: str) -> dict[str, Pass]:
    """Return the passes without operands and results of these base roles."""

    def kept(roles: Iterable[str]) -> tuple[str, ...]:
        return tuple(role for role in roles if BASE_ROLE[role] not in bases)

    return {
        name: pass_._replace(
            operands=kept(pass_.operands),
            results={
                role: pass_.results[role]._replace(added=kept(pass_.results[role].added))
                for role in kept(pass_.results)
            },
        )
        for name, pass_ in passes.items()
    }


def _norm(
    saved: tuple[str, ...] = (), running: tuple[str, ...] = (), given: tuple[str, ...] = ()
) -> dict[str, Pass]:
    """Return the passes of a norm that takes `saved` statistics in backward.

    Its forward pass returns them, and updates the `running` ones; or all passes take statistics
    that are `given`, in which y is linear in x.
    """
    statistics = {role: formula("x") for role in saved}
    statistics |= {role: formula(role, "x") for role in running}
    y, dots = formula("x", "w", "b", *given), ("x_dot", "w_dot", "b_dot")
    kept = saved or given
    scale = ("rvar",) if given else ("x", *saved)  # the operands that a slope depends on
    curved = () if given else ("ddx", "w")
    return {
        "fprop": Pass(("x", "w", "b", *running, *given), {"y": y, **statistics}),
        "backward": Pass(
            ("dy", "x", "w", *kept),
            {
                "dx": formula("dy", "w", *scale),
                "dw": formula("dy", "x", *kept),
                "db": formula("dy"),
            },
            maskable=True,
        ),
        "jvp": Pass(
            ("x", "w", "b", *given, *dots), {"y": y, "y_dot": formula("x", "w", *given, *dots)}
        ),
        "double_backward": Pass(
            ("ddx", "ddw", "ddb", "dy", "x", "w", *kept),
            {
                "ddy": formula("ddx", "ddw", "ddb", "x", "w", *kept),
                "dx": formula("ddw", "dy", *scale, *curved),
                "dw": formula("ddx", "dy", *scale),
            },
            maskable=True,
        ),
    }


_RUNNING = ("rmean", "rvar")
_SAVED = ("mean", "rstd")
# Ones have no variance, and rstd magnifies the error of subnormal numbers.
_UNSUITABLE = ("ones", "subnormal")
OPS = {
    "batch_norm": OpSpec(BatchNormProblem, _norm(_SAVED, _RUNNING), _UNSUITABLE),
    "instance_norm": OpSpec(InstanceNormProblem, _norm(_SAVED, _RUNNING), _UNSUITABLE),
    "batch_norm_eval": OpSpec(FrozenNormProblem, _norm(given=_RUNNING), ("subnormal",)),
    "group_norm": OpSpec(GroupNormProblem, _norm(_SAVED), _UNSUITABLE),
    "layer_norm": OpSpec(LayerNormProblem, _norm(_SAVED), _UNSUITABLE),
    "rms_norm": OpSpec(
        RmsNormProblem, _without_roles(_norm(("rstd",)), "b"), ("subnormal",), like="layer_norm"
    ),
}
_ROLES = {(op, name): row.operands for op, spec in OPS.items() for name, row in spec.passes.items()}
