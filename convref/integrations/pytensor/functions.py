"""The functions of each op, from the definitions of `convref.api`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from ...api import definitions
from ...api import function as public
from ...api.conv import CONV
from ...api.definition import Definition
from ...api.generate import function, names
from ...api.generate.passes import PassFunction
from ...ops import RANKS, SIGNATURE, to_builtins
from .concat import concat
from .op import ConvrefOp

_LEFT_OUT = ("layout", "weight_layout", "return_statistics", "dtype")


def apply(
    name: str, rank: int, op: str, operands: Any, settings: Any, backend: str
) -> dict[str, Variable]:
    """Return the results of the forward pass of a definition, by role."""
    form = SIGNATURE[op, "fprop"]
    given = {r: pt.as_tensor_variable(a) for r, a in zip(form.operands, operands) if a is not None}
    made = ConvrefOp(
        name,
        rank,
        "fprop",
        tuple(given),
        form.results,
        _hashable(to_builtins(settings, [])),
        backend,
    )
    return dict(zip(form.results, made.make_node(*given.values()).outputs))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (tuple, list)) else value


def _public_function(definition: Definition, key: str, name: str, rank: int, **fixed: Any) -> Any:
    """Return the function that has the arguments of convref's `name`."""
    like = public(name)
    listed = [
        p.replace(annotation="Any") if p.name in definition.roles else p
        for p in signature(like).parameters.values()
        if p.name not in _LEFT_OUT
    ]

    def body(operands: Any, settings: Any, _: Any, backend: str, every: bool = False) -> Any:
        found = apply(key, rank, definition.op, operands, settings, backend)
        return (found["y"], found["indices"]) if every else found["y"]

    text = (like.__doc__ or "").partition("\n")[0]
    return function(
        name,
        listed,
        PassFunction(definition, rank, "fprop").call(listed, fixed),
        body,
        doc=f"{text}\n\nArguments as in convref.{name}; arrays are PyTensor's variables.\n",
        returns="Any",
        module=globals(),
    )


def batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised per channel.

    Arguments as in convref.batch_norm. In training with running statistics, the result is
    (output, new running mean, new running variance): PyTensor has no function that writes.
    """
    given = input, weight, bias, running_mean, running_var
    return _normalised("batch_norm", given, training, (eps, momentum), backend)


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    backend: str = "auto",
) -> Any:
    """Return `input` normalised per image and channel; results as those of `batch_norm`."""
    given = input, weight, bias, running_mean, running_var
    return _normalised("instance_norm", given, use_input_stats, (eps, momentum), backend)


def _normalised(op: str, given: Any, training: bool, settings: Any, backend: str) -> Any:
    x, w, b, *running = given
    if not training:
        name, eps = "batch_norm_eval", settings[0]
        return apply(name, 0, name, given, (eps,), backend)["y"]
    x = pt.as_tensor_variable(x)
    if kept := all(statistic is not None for statistic in running):
        mean, var = running
    else:
        dtype = "float32" if x.dtype == "float16" else x.dtype
        mean = var = pt.zeros((x.shape[1],), dtype)
    found = apply(op, 0, op, (x, w, b, mean, var), settings, backend)
    return (found["y"], found["rmean"], found["rvar"]) if kept else found["y"]


def _ranks() -> list[Callable[..., Any]]:
    """Return the functions of each definition and rank that has derivatives."""
    made = [
        *(
            _public_function(CONV, "conv", f"conv{r}d", r, transposed=False, output_padding=0)
            for r in RANKS
        ),
        *(_public_function(CONV, "conv", f"conv_transpose{r}d", r, transposed=True) for r in RANKS),
    ]
    for d in definitions():
        if (d.op, "backward") not in SIGNATURE:
            continue
        for rank in d.ranks or (0,):
            made.append(_public_function(d, d.name, f"{d.name}{rank}d" if rank else d.name, rank))
    return made


FUNCTIONS = names([*_ranks(), batch_norm, instance_norm, concat])
