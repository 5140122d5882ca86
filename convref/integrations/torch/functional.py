"""torch.nn.functional's ops of a CNN, with its names, arguments and order, computed by convref.

Tensors on any device, differentiable both ways and twice; traced by torch.compile and torch.export
as the custom ops `torch.ops.convref.*`. Each takes ``backend``: a name, "package.module:object",
"auto", or None for the one that `use_backend` set.

The functions come from the definitions of `convref.api`, and have the same arguments.

Examples
--------
>>> import torch
>>> image = torch.arange(9.).reshape(1, 1, 3, 3).requires_grad_()
>>> max_pool2d(conv2d(image, torch.ones(1, 1, 2, 2)), 2).item()
24.0
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ...api import definitions, views
from ...api import function as public
from ...api.conv import CONV
from ...api.definition import Classified, Definition, Image
from ...api.generate import KEYWORD, POSITIONAL, function, names
from ...api.norm import norm_of_batch, norm_of_running
from ...errors import invalid
from ...ops import RANKS, STATISTICS, to_builtins
from . import _library
from ._autograd import invoke, rule_of
from ._backend import backend_or_default, current
from ._kernels import PassConfig
from ._native import (
    Make,
    Native,
    allow_in_graph,
    as_call,
    batch_norm_of_torch,
    in_graph,
    of_functional,
    with_ordered_gradient,
)
from ._table import ROWS

assert _library  # importing it defines the ops

_SIXTEEN = (torch.float16, torch.bfloat16)
_API_ONLY = ("layout", "weight_layout", "return_statistics", "dtype", "backend")
_BACKEND = Parameter("backend", KEYWORD, default=None, annotation="str | None")
_INPLACE = Parameter("inplace", POSITIONAL, default=False, annotation="bool")
_DTYPE = Parameter("dtype", POSITIONAL, default=None, annotation="torch.dtype | None")


class _Configured:
    """An op's configuration, its view, and the shapes of operands in and results out of it."""

    __slots__ = ("config", "operands", "results", "view")

    def __init__(self, config: PassConfig, view: views.View | None, operands: Any) -> None:
        self.config, self.view, self.operands = config, view, operands
        self.results: Any = None  # of the first call: results have the same shapes in all


class _Op:
    """The forward pass of a definition on tensors."""

    public: Callable[..., Any]  # the function of this module that computes it

    def __init__(
        self, definition: Definition, rank: int, make: Make | None = None, **native: Any
    ) -> None:
        self.definition, self.rank = definition, rank
        self.native = Native(self, make, **native) if make else None
        self.row = ROWS[definition.op, "fprop"]
        self.where = f"{definition.op}.fprop"
        lines = definition.view is views.along_dim  # the kernels take every other axis as one
        self.view = views.lines if lines else definition.view
        form = self.row.signature
        self.widens = any(role in STATISTICS for role in (*form.operands, *form.results))
        self.whole = in_graph(lambda *given: self(*given))

    def configured(self, shapes: Any, settings: Any, backend: str) -> _Configured:
        """Return the configuration of the op for operands of these shapes."""
        given = dict(zip(self.definition.settings, settings))
        roles = self.row.signature.operands
        view = self.view(self.where, self.rank, shapes[0], given)
        if view is not None:
            shapes = [None if s is None else view.enter(r, s) for r, s in zip(roles, shapes)]
        named = {role: shape for role, shape in zip(roles, shapes) if shape is not None}
        n, c, *space = named["x"]
        fields = self.definition.fields(Image(self.where, n, c, tuple(space)), named, given)
        attributes = self.row.attributes_of(fields)
        return _Configured(PassConfig(self.row, attributes, (), (), backend), view, shapes)

    def run(self, operands: Any, settings: Any, backend: str | None) -> Any:
        """Return the results in the shapes that the user has."""
        shapes: list[Any] = []
        for tensor in operands:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise invalid(self.where, f"{type(tensor).__name__} given, needs a tensor")
            shapes.append(None if tensor is None else tensor.shape)
        made = _cached_configuration(self, tuple(shapes), settings, backend_or_default(backend))
        if made.view is None:
            return invoke(made.config, *operands)
        entered = [None if t is None else t.reshape(s) for t, s in zip(operands, made.operands)]
        found = invoke(made.config, *entered)
        if made.results is None:
            leave, roles = made.view.leave, self.row.signature.results
            made.results = [None if t is None else leave(r, t.shape) for r, t in zip(roles, found)]
        return [None if t is None else t.reshape(s) for t, s in zip(found, made.results)]

    def of_torch(self, operands: Any, settings: Any, backend: str | None) -> Any:
        """Return PyTorch's own function of the operands, None unless it computes the op."""
        return self.native and self.native.find(operands, settings, backend_or_default(backend))

    def __call__(
        self,
        operands: Any,
        settings: Any,
        backend: str | None,
        return_indices: bool = False,
        inplace: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Any:
        """Return y; with `return_indices` the indices too."""
        if is_dynamo_compiling() and allow_in_graph():
            rest = return_indices, inplace, dtype
            return self.whole(operands, settings, backend_or_default(backend), *rest)
        if dtype is None and self.native is not None:
            flags = return_indices, inplace
            named = current() if backend is None else backend
            native = self.native.find(operands, settings, named, flags)
            if native is not None:
                return native(*operands)
        if inplace or dtype is not None or (self.widens and _is_wider(*operands[:2])):
            return self._converted(operands, settings, backend, inplace, dtype)
        found = self.run(operands, settings, backend)
        return (found[0], found[1]) if return_indices else found[0]

    def _converted(
        self, operands: Any, settings: Any, backend: str | None, inplace: bool, dtype: Any
    ) -> Any:
        """Return y of operands in another dtype, or written into the input."""
        x, *others = operands
        widened = self.widens and _is_wider(x, others[0])
        given = x if dtype is None else x.to(dtype)
        given = given.float() if widened else given
        if inplace and torch.is_grad_enabled():
            given = given.clone()  # derivatives will read it
        y = self.run((given, *others), settings, backend)[0]
        if inplace:
            return x.copy_(y)
        return y.to(x.dtype) if widened and rule_of(self.row.op, x.device.type) is None else y


class _Classified(_Op):
    """The forward pass of a loss, whose target may hold classes or probabilities."""

    def __init__(self, definition: Classified, rank: int) -> None:
        super().__init__(definition, rank)
        self.arguments, self.soft = definition.soft, _Op(definition.probabilities, rank)

    def run(self, operands: Any, settings: Any, backend: str | None) -> Any:
        """Return the results in the shapes that the user has."""
        target = operands[self.row.signature.operands.index("target")]
        if not isinstance(target, Tensor) or not target.is_floating_point():
            return super().run(operands, settings, backend)
        return self.soft.run(*self.arguments("fprop", operands, settings), backend)


def _op(definition: Definition, rank: int, make: Make) -> _Op:
    if isinstance(definition, Classified):
        return _Classified(definition, rank)
    return _Op(definition, rank, make)


def _is_wider(input: Any, weight: Any) -> bool:
    """Return whether parameters have 32 bits and images 16, as under autocast."""
    return weight is not None and weight.dtype == torch.float32 and input.dtype in _SIXTEEN


_MAX_SEEN = 4096
_seen: dict[Any, _Configured] = {}
_EXACT = frozenset((int, bool, str, float, type(None)))


def _cached_configuration(op: _Op, shapes: Any, settings: Any, backend: str) -> _Configured:
    """Return `op.configured(...)`, which may have been computed before."""
    if torch.compiler.is_compiling():
        return op.configured(shapes, settings, backend)
    types = tuple(map(type, settings))  # 1 and True are not the same stride
    if _EXACT.issuperset(types):
        floats = tuple([repr(v) for v in settings if type(v) is float]) if float in types else ()
        key: Any = op, shapes, backend, settings, types, floats  # 0.0 and -0.0 are equal
    else:
        foreign: list[Any] = []
        settings = to_builtins(settings, foreign)
        if foreign:
            return op.configured(shapes, settings, backend)
        key = op, shapes, backend, repr(settings)
    try:
        found = _seen.get(key)
    except TypeError:  # a size is a symbol, as make_fx has them, and torch.compile before 2.13
        return op.configured(shapes, settings, backend)
    if found is None:
        if len(_seen) >= _MAX_SEEN:
            _seen.clear()
        found = _seen[key] = op.configured(shapes, settings, backend)
    return found


def _functional(definition: Definition, name: str, rank: int, **fixed: Any) -> Callable[..., Any]:
    """Return a function of torch.nn.functional, with the signature of convref's `name`."""
    like = public(name)
    listed = [
        p.replace(annotation=_tensor(p)) if p.name in definition.roles else p
        for p in signature(like).parameters.values()
        if p.name not in _API_ONLY
    ]
    positional = [p for p in listed if p.kind is POSITIONAL]
    theirs = getattr(torch.nn.functional, name)
    torch_only = [p for p in (_INPLACE, _DTYPE) if _has_parameter(theirs, p.name)]
    keyword = [p for p in listed if p.kind is KEYWORD]
    arrays = {role: argument for argument, role in definition.roles.items()}
    operands = "".join(f"{arrays[r]}, " for r in ROWS[definition.op, "fprop"].signature.operands)
    defaults = {p.name: p.default for p in definition.parameters}
    parameter_names = {p.name for p in listed}
    constants = {**defaults, **fixed}
    settings = (s if s in parameter_names else repr(constants[s]) for s in definition.settings)
    extra = [
        p.name
        for p in (*positional, *torch_only)
        if p.name in ("return_indices", "inplace", "dtype")
    ]
    extra_arguments = "".join(f", {name}={name}" for name in extra)
    listed = [*positional, *torch_only, *keyword, _BACKEND]
    positional = [p.name for p in (*positional, *torch_only) if p.name != "dtype"]
    roles = [arrays[r] for r in ROWS[definition.op, "fprop"].signature.operands]
    make = of_functional(name, positional, roles, {s: constants[s] for s in definition.settings})
    text = (like.__doc__ or "").partition("\n")[0]
    op = _op(definition, rank, make)
    op.public = public_function = function(
        name,
        listed,
        f"({operands}), ({''.join(f'{s}, ' for s in settings)}), backend{extra_arguments}",
        op,
        doc=f"{text}\n\nArguments as in torch.nn.functional.{name}.\n",
        returns="Tensor | tuple[Tensor, Tensor]" if "return_indices" in extra else "Tensor",
        module=globals(),
    )
    return public_function


def _tensor(parameter: Parameter) -> str:
    return "Tensor" if parameter.default is parameter.empty else "Tensor | None"


def _has_parameter(function: Any, name: str) -> bool:
    try:
        return name in signature(function).parameters
    except ValueError:  # a builtin: torch gives in-place arguments to Python functions alone
        return False


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return `input` normalised per channel; in training the running statistics are updated.

    Arguments as in torch.nn.functional.batch_norm, which also writes into the running ones.
    """
    if is_dynamo_compiling() and allow_in_graph():
        tensors = input, running_mean, running_var, weight, bias
        return _WHOLE_BATCH(*tensors, training, momentum, eps, backend_or_default(backend))
    op, settings = (_TRAINING, (eps, momentum)) if training else (_EVALUATION, (eps,))
    operands = input, weight, bias, running_mean, running_var
    native = op.of_torch(operands, settings, backend)
    if native is not None:
        return native(*operands)
    widened = _is_wider(input, weight)
    x = input.float() if widened else input
    rmean, rvar = running_mean, running_var
    if rmean is not None and rvar is not None and rmean.dtype == x.dtype in _SIXTEEN:
        rmean, rvar = rmean.float(), rvar.float()
    if not training:
        y, *_ = _EVALUATION.run((x, weight, bias, rmean, rvar), (eps,), backend)
    else:
        if rmean is None or rvar is None:
            statistic = torch.float32 if x.dtype in _SIXTEEN else x.dtype
            rmean = rvar = x.new_zeros(x.shape[1], dtype=statistic)
        operands, settings = (x, weight, bias, rmean, rvar), (eps, momentum)
        y, _, _, new_mean, new_var = _TRAINING.run(operands, settings, backend)
        if running_mean is not None and running_var is not None:
            with torch.no_grad():
                running_mean.copy_(new_mean)
                running_var.copy_(new_var)
    return y.to(input.dtype) if widened else y


def _batch_norm(settings: Any, flags: Any) -> Callable[..., Tensor]:
    eps, momentum = settings
    return lambda *operands: batch_norm_of_torch(*operands, True, momentum, eps)


def _batch_norm_eval(settings: Any, flags: Any) -> Callable[..., Tensor]:
    return lambda *operands: batch_norm_of_torch(*operands, False, 0.0, *settings)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    backend: str | None = None,
) -> Tensor:
    """Return `input` normalised per image and channel: a batch norm of N * C channels.

    Arguments as in torch.nn.functional.instance_norm, which also writes into the running ones.
    """
    given = running_mean, running_var, weight, bias
    if not isinstance(input, Tensor):
        inputs = input, *given, use_input_stats, momentum, eps
        return as_call(instance_norm, *inputs, backend=backend)
    if is_dynamo_compiling() and allow_in_graph():
        return _WHOLE_INSTANCE(
            input, *given, use_input_stats, momentum, eps, backend_or_default(backend)
        )
    n, c, *space = input.shape
    op, settings = (_TRAINING, (eps, momentum)) if use_input_stats else (_EVALUATION, (eps,))
    operands = input, weight, bias, running_mean, running_var
    many = not use_input_stats or prod(space) > 1  # one element has no variance
    if many and op.of_torch(operands, settings, backend) is not None:
        enabled = torch.backends.cudnn.enabled
        y = torch.instance_norm(*operands, use_input_stats, momentum, eps, enabled)
        return with_ordered_gradient(y, last=False)
    if not use_input_stats:
        return batch_norm(input, *given, False, momentum, eps, backend=backend)
    mean, var, *affine = (None if t is None else t.repeat(n) for t in given)
    x = input.reshape(1, n * c, *space)
    y = batch_norm(x, mean, var, *affine, True, momentum, eps, backend=backend)
    with torch.no_grad():
        for running, new in zip(given, (mean, var)):
            if running is not None:
                running.copy_(new.view(n, c).mean(0))
    return y.view(input.shape)


def conv_config(
    rank: int, input: Tensor, weight: Tensor, backend: str | None, *geometry: Any
) -> PassConfig:
    """Return the configuration of conv; `geometry` is stride, padding, dilation and groups."""
    settings = (*geometry, *_CONV_DEFAULTS[len(geometry) :])
    shapes = input.shape, weight.shape, None
    return _cached_configuration(
        _CONVOLUTIONS[rank], shapes, settings, backend_or_default(backend)
    ).config


_WHOLE_BATCH = in_graph(lambda *given: batch_norm(*given[:-1], backend=given[-1]))
_WHOLE_INSTANCE = in_graph(lambda *given: instance_norm(*given[:-1], backend=given[-1]))
_CONVOLUTIONS = {rank: _Op(CONV, rank) for rank in RANKS}
_CONV_DEFAULTS = [p.default for p in CONV.parameters if p.name in CONV.settings]
_TRAINING = _Op(norm_of_batch, 0, _batch_norm, ordered=True, training=True)
_EVALUATION = _Op(norm_of_running, 0, _batch_norm_eval)
_TRAINING.public = _EVALUATION.public = batch_norm
OF_TORCH = [d for d in definitions() if d.layer]  # those that torch.nn has too
_MADE = [
    *(_functional(CONV, f"conv{r}d", r, transposed=False, output_padding=0) for r in RANKS),
    *(_functional(CONV, f"conv_transpose{r}d", r, transposed=True) for r in RANKS),
    *(
        _functional(d, f"{d.name}{rank or ''}{'d' * bool(rank)}", rank)
        for d in definitions()
        if d.layer or hasattr(torch.nn.functional, d.name)
        for rank in d.ranks or (0,)
    ),
]
globals().update(names(_MADE))
__all__ = ["batch_norm", "instance_norm", *names(_MADE)]
