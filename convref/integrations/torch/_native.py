"""Calls that "auto" gives to PyTorch unchanged: torch.nn.functional's own functions compute them.

They are recorded, traced, exported, counted and profiled as PyTorch's own. A call is one of them if
"auto" selects the backend `torch` for it and for all passes that may follow, and if ATen computes
each of these by convref's rules without its adapter.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, partial
from inspect import Parameter, signature
from itertools import accumulate
from marshal import dumps
from operator import mul
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.autograd.graph import get_gradient_edge
from torch.fx import Proxy
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from ... import dispatch, knownbugs
from ...arrays import Facts, facts
from ...case import Call, Spec, argument, role_dtype
from ...case.spec import channels_last
from ...errors import UnsupportedError, invalid, message
from ...ops import SIGNATURE, STATISTICS
from ._autograd import is_recorded, rule_of
from ._kernels import call_of_facts

# Return a function of the operands, in the order of their roles, from settings and flags by name.
Make = Callable[..., Callable[..., Any]]

MAX_SEEN = 4096
_CONSTANTS = (int, float, bool, str, type(None))
_PADDINGS = ("valid", "same")
_PLAIN = (Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)
_CODES = {torch.float16: "f16", torch.bfloat16: "bf16"}
FLAGS = ("return_indices", "inplace")
_NAMED = Parameter.POSITIONAL_OR_KEYWORD
_is_tracing = torch._C._get_tracing_state
_is_autocast = torch._C._is_any_autocast_enabled  # of any device, which is cheaper to ask
_is_transformed = torch._C._functorch.peek_interpreter_stack
_modes = torch._C._len_torch_dispatch_stack
_Found = tuple[Callable[..., Any] | None, bool, bool, Callable[..., Any] | None]
_NONE: _Found = (None, False, False, None)
_seen: dict[Any, _Found] = {}
_decisions: ContextVar[list[Any] | None] = ContextVar("convref_decisions", default=None)


class Observer(TorchDispatchMode):  # type: ignore[misc]
    """The base of modes that must see convref's ops rather than ATen's."""


class Native:
    """PyTorch's own function of an op.

    Parameters
    ----------
    op : functional._Op
    make : callable
        Returns it for given settings.
    ordered : bool
        Whether it gives cotangents the memory order of the input.
    **fixed
        Arguments of `op.public` that are neither operands nor settings.
    """

    def __init__(self, op: Any, make: Make, ordered: bool = False, **fixed: Any) -> None:
        self.op, self.make, self.ordered, self.fixed = op, make, ordered, fixed

    def find(
        self, operands: Any, settings: Any, backend: str, flags: tuple[Any, ...] = ()
    ) -> Callable[..., Any] | None:
        """Return the function of the operands, None where convref's own op has to be called."""
        autocast = (
            _is_autocast() and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
        )
        try:
            key = (
                self,
                backend,
                flags,
                autocast,
                dumps(settings, 2),  # 1, True and 1.0 differ, as do 0.0 and -0.0
                *[
                    None if t is None else (t.shape, t.stride(), t.dtype, t.is_cpu, type(t))
                    for t in operands
                ],
            )
            found = _seen.get(key)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # sizes may be symbols
            key, found = None, None
        if found is None:
            if any(isinstance(t, Proxy) for t in operands):
                return self._proxy_function(settings, backend, flags)
            found = self._decide_call(operands, settings, backend, flags)
            if key is not None and not _is_tracing():
                if len(_seen) >= MAX_SEEN:
                    _seen.clear()
                _seen[key] = found
        function, first, second, twice = found
        # a compiled function has no second derivatives, an exported one has none
        recorded = second or (first and _is_compiling())
        if _is_tracing():
            if function is None:
                what = (
                    f"takes PyTorch's ops only, not backend={backend!r}; needs revert(model) first"
                )
                raise UnsupportedError(message("torch.jit.trace", f"{self.op.where} {what}"))
            return function
        if (
            function is None
            or forward_ad._current_level >= 0
            or _is_transformed() is not None
            or (_modes() and _is_observed())
        ):
            function = None
        elif not (recorded or not is_recorded(operands) or torch.compiler.is_exporting()):
            function = twice
        if (decisions := _decisions.get()) is not None:
            x, *others = (t for t in operands if t is not None)  # others may be unfrozen later
            always = recorded or not (others or x.requires_grad)
            known = function is not None and not autocast
            decisions.append(known and (always or (function is twice and twice)))
        return function

    def _with_second(self, function: Callable[..., Any], settings: Any, backend: str) -> Any:
        """Return PyTorch's function of one operand, with convref's second derivative."""

        def gradient(x: Tensor, found: Any, grads: tuple[Any, ...]) -> Any:
            if not torch.is_grad_enabled() or grads[0] is None:
                return None  # what PyTorch found
            y = self.op.run((x,), settings, backend)[0]
            return torch.autograd.grad(y, x, grads[0], create_graph=True)

        single: list[bool] = []  # whether PyTorch's function is one op, so that its node is found

        def run(x: Tensor) -> Any:
            y = function(x)
            if (node := y.grad_fn) is None:
                return y
            if not single:
                single.append(node.next_functions[0][0] is get_gradient_edge(x).node)
            if not single[0]:
                return self.op.run((x,), settings, backend)[0]
            node.register_hook(partial(gradient, x))
            return y

        return run

    def _decide_call(
        self, operands: Any, settings: Any, backend: str, flags: tuple[Any, ...]
    ) -> _Found:
        """Return PyTorch's function, if it computes the op, and whether also its derivatives.

        The last is the function with convref's second derivative, where PyTorch's has only a first.
        """
        if not all(t is None or type(t) in _PLAIN for t in operands):
            return _NONE
        with _untraced():
            values = tuple(map(_hinted, settings))
            if not _takes_settings(dict(zip(self.op.definition.settings, values))):
                return _NONE
            shapes = [None if t is None else _hinted(tuple(t.shape)) for t in operands]
            made = self.op.configured(shapes, values, backend)
            roles = self.op.row.signature.operands
            given = zip(roles, operands, made.operands)
            found = {role: self._facts(role, t, shape) for role, t, shape in given if t is not None}
            if self.op.widens:
                if len({fact.dtype for fact in found.values()}) > 1:
                    return _NONE
                # as `model.half()` makes them: ATen computes with 16-bit statistics in float32
                found = {r: f._replace(dtype=role_dtype(r, f.dtype)) for r, f in found.items()}
            call = call_of_facts(made.config, self._with_statistics(found))
            alone, first, second = _decide(call, backend, self.ordered)
        function = self.make(settings, flags) if alone else None
        if function is None or len(operands) > 1 or second or not first or any(flags):
            return function, first, second, None
        return function, first, second, self._with_second(function, settings, backend)

    def _proxy_function(
        self, settings: Any, backend: str, flags: tuple[Any, ...]
    ) -> Callable[..., Any]:
        """Return the function of proxies that writes a call of convref into their graph."""
        known = signature(self.op.public).parameters
        named = dict(zip(self.op.definition.settings, settings)) | dict(zip(FLAGS, flags))
        named |= {**self.fixed, "backend": None if backend == "auto" else backend}
        named = {name: value for name, value in named.items() if name in known}
        roles = [argument(role) for role in self.op.row.signature.operands]

        def write(*operands: Any) -> Any:
            named.update((n, t) for n, t in zip(roles, operands) if n in known)
            tracer = next(t for t in operands if isinstance(t, Proxy)).tracer
            return tracer.create_proxy("call_function", self.op.public, (), named)

        return write

    def _facts(self, role: str, tensor: Tensor, shape: tuple[int, ...]) -> Facts:
        """Return the facts of an operand, in its shape in the formulas and its type under autocast.

        The memory order of an operand with another shape is taken for the plain one.
        """
        found = facts(self.op.where, argument(role), tensor)
        strides = _hinted(tuple(tensor.stride()))
        if len(shape) != len(strides):
            strides = tuple(accumulate((1, *shape[:0:-1]), mul))[::-1]
        dtype, rule = found.dtype, rule_of(self.op.row.op, found.device)
        if rule and dtype in ("f16", "bf16", "f32"):
            dtype = _CODES.get(torch.get_autocast_dtype("cpu"), "f32") if rule == "low" else "f32"
        return found._replace(shape=tuple(shape), strides=strides, dtype=dtype)

    def _with_statistics(self, found: dict[str, Facts]) -> dict[str, Facts]:
        x = found["x"]
        absent = [r for r in self.op.row.signature.operands if r in STATISTICS and r not in found]
        fact = x._replace(shape=x.shape[1:2], strides=(1,), dtype=role_dtype("rmean", x.dtype))
        return {**found, **dict.fromkeys(absent, fact)}


_whole: list[Callable[..., Any]] = []


def in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let torch.compile put calls of a function into its graph, unread, after `allow_in_graph`.

    What is called there is seen by the compiler's backend, as within torch.export.
    """
    _whole.append(function)
    return function


def allow_in_graph() -> bool:
    """Return True, after the functions of `in_graph` are known to torch.compile."""
    torch.compiler.allow_in_graph(_whole)
    return True


# What torch.compiler.assume_constant_result does, which imports the compiler.
allow_in_graph.__dict__["_dynamo_marked_constant"] = True


def of_functional(name: str, names: list[str], roles: list[str], constants: dict[str, Any]) -> Make:
    """Return what makes ``torch.nn.functional.<name>`` a function of the operands.

    Parameters
    ----------
    name : str
    names : list of str
        The positional parameters of convref's function of that name.
    roles : list of str
        Those that are operands, in the order of their roles.
    constants : dict
        The settings in their order, with their defaults.
    """
    theirs = getattr(torch.nn.functional, name)
    try:
        known = [p.name for p in signature(theirs).parameters.values() if p.kind is _NAMED]
    except ValueError:  # a builtin
        known = []
    setting_names = [n for n in names if n not in roles]
    ordered = known[: len(names)] == names
    call_arguments = ", ".join(n if ordered or n in roles else f"{n}={n}" for n in names)
    head = f"lambda theirs, {', '.join(setting_names)}: lambda {', '.join(roles)}"
    curried = eval(f"{head}: theirs({call_arguments})")

    def make(settings: Any, flags: Any) -> Any:
        named = dict(zip(constants, settings))
        if any(repr(named[n]) != repr(d) for n, d in constants.items() if n not in setting_names):
            return None  # an argument that PyTorch's function does not have
        named |= dict(zip(FLAGS, flags))
        return curried(theirs, *(named[n] for n in setting_names))

    return make


def batch_norm_of_torch(x: Tensor, *rest: Any) -> Tensor:
    """Return torch.batch_norm's result; the arguments are in its order, up to eps."""
    y: Tensor = torch.batch_norm(x, *rest, torch.backends.cudnn.enabled)
    if not rest[4]:
        return y
    return with_ordered_gradient(y, not x.is_contiguous() and x.ndim > 3 and x.stride(1) == 1)


def with_ordered_gradient(y: Tensor, last: bool) -> Tensor:
    """Give the gradient of y the memory order of x, in which ATen's backward reads both."""
    if (node := y.grad_fn) is not None:  # `register_hook`, without its handle
        y._backward_hooks = OrderedDict(order=_LAST[y.ndim] if last else Tensor.contiguous)
        node._register_hook_dict(y)
    return y


_LAST = {
    4: partial(Tensor.contiguous, memory_format=torch.channels_last),
    5: partial(Tensor.contiguous, memory_format=torch.channels_last_3d),
}


def _takes_settings(constants: dict[str, Any]) -> bool:
    """Return whether torch.nn.functional takes settings like these: no pairs per axis."""
    for name, value in constants.items():
        listed = value if isinstance(value, (tuple, list)) else (value,)
        if any(type(item) not in _CONSTANTS for item in listed):
            return False
        if name == "padding" and isinstance(value, str) and value not in _PADDINGS:
            return False
    return True


def _hinted(value: Any) -> Any:
    """Return a value with integers in place of symbols, and of the tensors that jit.trace makes."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_hinted, value))
    if isinstance(value, torch.SymInt):
        return value.node.hint
    return int(value) if isinstance(value, Tensor) else value


def as_node(module: Any, *inputs: Any) -> Any:
    """Return the call of a layer on the proxies of torch.fx, as one node of their graph."""
    tracer = next((t.tracer for t in inputs if isinstance(t, Proxy)), None)
    if tracer is None:
        raise invalid(type(module).__name__, f"{type(inputs[0]).__name__} given, needs a tensor")
    return tracer.create_proxy("call_module", tracer.path_of_module(module), inputs, {})


def as_call(function: Any, *inputs: Any, **named: Any) -> Any:
    """Return the call of a function on the proxies of torch.fx, as one node of their graph."""
    tracer = next((t.tracer for t in inputs if isinstance(t, Proxy)), None)
    if tracer is None:
        what = f"{type(inputs[0]).__name__} given, needs a tensor"
        raise invalid(function.__name__, what)
    return tracer.create_proxy("call_function", function, inputs, named)


@contextmanager
def decisions() -> Iterator[list[Any]]:
    """Collect whether PyTorch computes each op that is called, and all derivatives of it.

    In the place of True there may be the function that does, of the op's one operand.
    """
    found: list[Any] = []
    token = _decisions.set(found)
    try:
        yield found
    finally:
        _decisions.reset(token)


@contextmanager
def _untraced() -> Iterator[None]:
    """Let torch.jit.trace record nothing."""
    state = _is_tracing()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _is_compiling() -> bool:
    # before torch 2.13 the flag is not set while torch.compile runs the functions of `in_graph`
    return torch.compiler.is_compiling() or TracingContext.try_get() is not None


def _is_observed() -> bool:
    return any(isinstance(mode, Observer) for mode in _get_current_dispatch_mode_stack())


def _decide(call: Call, backend: str, ordered: bool) -> tuple[bool, bool, bool]:
    """Return whether a forward pass is PyTorch's own, and its first and second derivatives."""
    if backend != "auto" or call.specs[0].device != "cpu":
        return False, False, False
    if any(map(call.problem.positions, call.roles)):
        return False, False, False  # convref checks their values
    alone = _is_torchs(call, ordered)
    first, second = (
        alone and all(_is_torchs(each, ordered) for each in _derivatives(call, pass_))
        for pass_ in ("backward", "double_backward")
    )
    return alone, first, first and second


def _is_torchs(call: Call, ordered: bool) -> bool:
    try:
        backend: Any = dispatch.choose(call, "auto", "torch").backend
    except UnsupportedError:
        return False
    if backend.name != "torch" or backend.raw.supports(call):
        return False
    made_of = backend.fingerprint()
    return not any(region.contains(call, made_of) for region in _raw_regions(ordered))


@cache
def _raw_regions(ordered: bool) -> tuple[knownbugs.Region, ...]:
    """Return the regions that only the adapter computes correctly, whatever the data are."""
    return tuple(
        replace(region, terms=tuple(term for term in region.terms if term.field != "fill"))
        for region in knownbugs.regions("torch")
        if region.raw
        and not (ordered and any((t.scope, t.field) == ("order", "dy") for t in region.terms))
    )


def _derivatives(call: Call, pass_: str) -> Iterator[Call]:
    """Yield the calls of a pass that reverse mode may make, with cotangents in either order."""
    known = dict(zip(call.roles, call.specs))
    form = SIGNATURE[call.op, pass_]
    masks = [(), (False, *(True,) * (len(form.results) - 1))] if form.maskable else [()]
    for last in (False, True):
        given = tuple(known.get(r) or _cotangent(call, r, last) for r in form.operands)
        for mask in masks:
            yield Call(call.op, pass_, call.problem, mask, None, given)


def _cotangent(call: Call, role: str, last: bool) -> Spec:
    letters = call.problem.letters(role)
    order = channels_last(letters) if last and letters.startswith("nc") else ""
    return Spec(call.dtype, order=order, device=call.specs[0].device)
