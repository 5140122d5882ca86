"""Reverse and forward derivatives of every op, first and second, from the passes in the tables.

An op computes f(x, w, b); its backward pass is the gradient of <dy, f>. The matrix of
second derivatives of that number is symmetric, so the tangent of a backward pass, and the gradient
of a jvp, are rows of double_backward with the tangents in place of ddx, ddw and ddb.
"""

from collections.abc import Iterable
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from ...api import definitions
from ...api.conv import CONV
from ...arrays import is_followed
from ...case import Call, argument
from ...errors import UnsupportedError, message
from ...ops import OWN_TYPE
from ._kernels import PassConfig, Tensors, batched, compute
from ._table import ROWS, PassSchema

# what ops are differentiated by
_PRIMALS = tuple(
    dict.fromkeys(
        role.removeprefix("d")
        for row in ROWS.values()
        if row.pass_ == "backward"
        for role in row.signature.results
    )
)
_KEPT = ("mean", "rstd", "indices")  # results of a forward pass that its derivatives use
AUTOCAST = {definition.op: definition.autocast for definition in (CONV, *definitions())}
_AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_AUTOCAST_KEYS |= torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
_PLAIN = (Tensor, torch.nn.Parameter)
_BATCHED = torch._C._parse_dispatch_key("Batched")
_TRANSFORMS = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
_is_profiled = torch._C._autograd._profiler_enabled
_is_transformed = torch._C._are_functorch_transforms_active


def invoke(config: PassConfig, *operands: Tensor | None) -> Tensors:
    """Return the results of a pass by role, None where masked off, recorded where they must be."""
    if torch.compiler.is_compiling():
        return _through_dispatcher(config, operands)
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        operands = cast(config.row, operands)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):  # a backend's ops are not cast
            return _apply(config, operands)
    return _apply(config, operands)


def run_recorded(backend: str, call: Call, *operands: Tensor | None) -> Tensors:
    """Return the results of a call by role, recorded; autocast casts nothing."""
    row = ROWS.get((call.op, call.pass_))
    if row is None:
        what = "records no derivatives, needs detached operands outside of torch.func"
        raise UnsupportedError(message(call.where, what, call))
    attributes = row.attributes_of({**vars(call.problem), "math": call.math})
    input = call.problem.input if row.needs_input else ()
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
        return _apply(PassConfig(row, attributes, call.mask, input, backend), operands)


def _apply(config: PassConfig, operands: Tensors) -> Tensors:
    if _is_within_transform():
        return _through_dispatcher(config, operands)
    if is_followed("torch", operands):
        return apply_recorded(config, operands)
    return apply_unrecorded(config, operands)


def apply_recorded(config: PassConfig, operands: Tensors) -> Tensors:
    """Return the results of a pass, recorded so that autograd can differentiate them."""
    if _is_within_transform():  # one level records; the dispatcher takes the call to the next
        with enable_single_level_autograd_function():
            found = OF_ONE_LEVEL[config.row.pass_].apply(config, *operands)
    else:
        found = FUNCTIONS[config.row.pass_].apply(config, *operands)
    named = dict(zip(config.wanted, found if isinstance(found, tuple) else (found,)))
    return tuple(named.get(role) for role in config.row.signature.results)


def apply_unrecorded(config: PassConfig, operands: Tensors) -> Tensors:
    """Return the results of a pass without recording it for derivatives."""
    if _is_within_transform():  # the next level does its own recording
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return _below_autograd(config, operands)
    if is_plain(config.row.pass_, operands):
        return compute(config, operands)
    return _below_autograd(config, operands)


def _below_autograd(config: PassConfig, operands: Tensors) -> Tensors:
    with torch._C._AutoDispatchBelowAutograd():
        return _through_dispatcher(config, operands)


def rule_of(op: str, device: str) -> str | None:
    """Return the dtype to which autocast, if enabled for a device, casts an op's operands."""
    rule = AUTOCAST[op].get(device) if op in AUTOCAST else None
    return rule if rule and torch.is_autocast_enabled(device) else None


def cast(row: PassSchema, operands: Tensors) -> Tensors:
    """Return the operands in the dtypes that autocast, where it is enabled, requires."""
    device = next(t.device.type for t in operands if t is not None)
    rule = rule_of(row.op, device) if row.pass_ == "fprop" else None
    if rule is None:
        return operands
    dtype = torch.get_autocast_dtype(device) if rule == "low" else torch.float32
    castable = (torch.float16, torch.bfloat16, torch.float32)
    return tuple(t.to(dtype) if t is not None and t.dtype in castable else t for t in operands)


def is_recorded(operands: Tensors) -> bool:
    """Return whether reverse or forward mode tracks one of these operands."""
    # within a transform, `forward_ad` does not report tangents
    return _is_within_transform() or is_followed("torch", operands)


def _is_within_transform() -> bool:
    """Return whether the dispatcher is running a custom op within a transform of torch.func."""
    if not _is_transformed():  # nearly always, and on the path of every call
        return False
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(_TRANSFORMS))


def is_plain(pass_: str, operands: Tensors) -> bool:
    """Return whether no subclass, mode, batching or profiler intercepts the call."""
    for tensor in operands:
        if tensor is not None and (
            type(tensor) not in _PLAIN
            # the only sign of autograd.grad(is_grads_batched=True) in a backward pass
            or (pass_ != "fprop" and torch._C._dispatch_keys(tensor).has(_BATCHED))
        ):
            return False
    return not torch._C._len_torch_dispatch_stack() and not _is_profiled()


def _through_dispatcher(config: PassConfig, operands: Tensors) -> Tensors:
    if not torch.compiler.is_dynamo_compiling() and torch.onnx.is_in_onnx_export():
        what = f"ONNX has no operator for backend={config.backend!r}, needs revert(model) first"
        raise UnsupportedError(message(config.row.where, what))
    found = getattr(torch.ops.convref, config.row.name)(*operands, *config.arguments)
    if isinstance(found, Tensor):
        return (found,)
    return tuple(r if on else None for r, on in zip(found, config.mask or (True,) * len(found)))


def _run(
    config: PassConfig, pass_: str, given: dict[str, Any], wanted: tuple[str, ...] = ()
) -> dict[str, Tensor | None]:
    """Return the results of another pass by role; `given` may hold more than it takes."""
    row = ROWS[config.row.op, pass_]
    if any(r in _KEPT and given.get(r) is None for r in row.signature.operands):
        given = {**given, **_recompute_saved(config, given)}
    mask = tuple(r in wanted for r in row.signature.results) if row.signature.maskable else ()
    sizes = tuple(given.get("input", ()))
    step = PassConfig(row, config.attributes, mask, sizes, config.backend)
    found = invoke(step, *(given.get(role) for role in row.signature.operands))
    return dict(zip(row.signature.results, found))


def _recompute_saved(config: PassConfig, given: dict[str, Any]) -> dict[str, Tensor | None]:
    """Return the saved results of the forward pass, recomputed."""
    running = {role: given["x"].new_zeros(given["x"].shape[1]) for role in ("rmean", "rvar")}
    found = _run(config, "fprop", {**running, **given})
    return {role: found[role] for role in _KEPT if role in found}


def _added(*terms: Tensor | None) -> Tensor | None:
    present = [t for t in terms if t is not None]
    return sum(present[1:], present[0]) if present else None


def _check_differentiable(config: PassConfig, roles: Iterable[str], what: str) -> None:
    known = {"dy"} | {r[1:] for r in ROWS[config.row.op, "backward"].signature.results}
    bases = (role.removesuffix("_dot") for role in roles)
    if names := " and ".join(argument(role) for role in bases if role not in known):
        raise UnsupportedError(message(config.row.where, f"{names} has no {what}, needs none"))


def _one_or_tuple(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


class _Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The base of all passes: saves operands; a batch of calls is one call or a loop."""

    @staticmethod
    def forward(config: PassConfig, *operands: Tensor | None) -> Any:
        return _one_or_tuple([r for r in apply_unrecorded(config, operands) if r is not None])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        config, *operands = inputs
        roles = config.row.signature.operands
        ctx.config = config
        ctx.set_materialize_grads(False)
        ctx.save_for_forward(*operands)
        ctx.save_for_backward(*operands)
        ctx.roles = roles
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.forms = [(t.shape, t.dtype) for t in outputs]
        ctx.mark_non_differentiable(*(t for r, t in zip(config.wanted, outputs) if r in OWN_TYPE))

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], config: PassConfig, *operands: Tensor | None
    ) -> Any:
        found = batched(invoke, config, operands, in_dims[1:], info.batch_size)
        present = [r for r in found if r is not None]
        return _one_or_tuple(present), _one_or_tuple([0] * len(present))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        what = "third derivatives are not implemented; a Hessian-vector product needs vhp, not hvp"
        raise UnsupportedError(message(ctx.config.row.where, what))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        what = "its tangent is not implemented, needs forward mode over reverse (jacfwd of jacrev)"
        raise UnsupportedError(message(ctx.config.row.where, what))


# Function.apply reads the signature at every call; computing it costs more than the call itself
_Recorded.forward.__signature__ = signature(_Recorded.forward)  # type: ignore[attr-defined]


def _saved_operands(ctx: Any, forward: bool = False) -> dict[str, Tensor | None]:
    saved = ctx.saved_for_forward if forward else ctx.saved_tensors
    return dict(zip(ctx.roles, saved))


def _roles_needing_grad(ctx: Any) -> list[str]:
    return [role for role, on in zip(ctx.roles, ctx.needs_input_grad[1:]) if on]


def _in_order(ctx: Any, found: dict[str, Tensor | None]) -> tuple[Any, ...]:
    """Return the gradients in the order of autograd: one for each argument."""
    return (None, *(found.get(role) for role in ctx.roles))


class _Fprop(_Recorded):
    """y = f(x, w, b): its gradient is backward, its tangent jvp."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _Recorded.setup_context(ctx, inputs, output)
        config, *operands = inputs
        outputs = output if isinstance(output, tuple) else (output,)
        known = dict(zip(ctx.roles, operands)) | dict(zip(config.row.signature.results, outputs))
        backward = ROWS[config.row.op, "backward"].signature
        ctx.kept = [role for role in backward.operands if role in known]
        tangent = ROWS[config.row.op, "jvp"].signature.operands
        ctx.save_for_forward(  # operands that no derivative reads are not kept
            *(t if role in tangent else None for role, t in zip(ctx.roles, operands))
        )
        ctx.input = tuple(known["x"].shape[2:])
        ctx.save_for_backward(*(known[role] for role in ctx.kept))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        needed = _roles_needing_grad(ctx)
        _check_differentiable(ctx.config, needed, "gradient")
        results = zip(grads[1:], ctx.config.row.signature.results[1:])  # no sum of these is lost
        _check_differentiable(ctx.config, [r for g, r in results if g is not None], "gradient")
        if grads[0] is None:
            return (None,) * (1 + len(ctx.roles))
        given: dict[str, Any] = dict(zip(ctx.kept, ctx.saved_tensors))
        given |= {"dy": grads[0], "input": ctx.input}
        found = _run(ctx.config, "backward", given, tuple(f"d{r}" for r in needed))
        return _in_order(ctx, {r: found.get(f"d{r}") for r in needed})

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Tensor | None) -> Any:
        given: dict[str, Any] = _saved_operands(ctx, forward=True)
        moved = {r: t for r, t in zip(ctx.roles, tangents) if t is not None}
        _check_differentiable(ctx.config, moved, "tangent")
        given |= {f"{r}_dot": t for r, t in moved.items()} | {"input": ctx.input}
        y_dot: Any = _run(ctx.config, "jvp", given)["y_dot"]
        others = zip(ctx.config.row.signature.results[1:], ctx.forms[1:])
        zeros = [None if r in OWN_TYPE else y_dot.new_zeros(n, dtype=d) for r, (n, d) in others]
        return _one_or_tuple([y_dot, *zeros])


class _Backward(_Recorded):
    """(dx, dw, db): the gradient is double_backward, the tangent its mirror."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        config, given = ctx.config, dict[str, Any](_saved_operands(ctx))
        _check_differentiable(
            config, [r for r in _roles_needing_grad(ctx) if r not in _KEPT], "gradient"
        )
        outer = {f"d{r}": g for r, g in zip(config.wanted, grads) if g is not None}
        if not outer:
            return (None,) * (1 + len(ctx.roles))
        second = ROWS[config.row.op, "double_backward"].signature
        results = {"dy": "ddy", **{role: f"d{role}" for role in _PRIMALS}}
        needed = {
            r: results[r] for r in _roles_needing_grad(ctx) if results.get(r) in second.results
        }
        found = _run(config, "double_backward", {**given, **outer}, tuple(needed.values()))
        return _in_order(ctx, {role: found.get(result) for role, result in needed.items()})

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Tensor | None) -> Any:
        config, given = ctx.config, dict[str, Any](_saved_operands(ctx, forward=True))
        given["input"] = config.input
        moved = dict(zip(ctx.roles, tangents))
        linear, curved = {}, {}
        if moved.get("dy") is not None:
            linear = _run(config, "backward", {**given, "dy": moved["dy"]}, config.wanted)
        outer = {f"dd{r}": moved.get(r) for r in _PRIMALS if moved.get(r) is not None}
        second = ROWS[config.row.op, "double_backward"].signature
        if outer and "dx" in second.results:
            rows = tuple(r for r in config.wanted if r in second.results)
            curved = _run(config, "double_backward", {**given, **outer}, rows)
        template = next(t for t in tangents if t is not None)
        sums = [_added(linear.get(r), curved.get(r)) for r in config.wanted]
        filled = [
            template.new_zeros(n, dtype=d) if t is None else t for t, (n, d) in zip(sums, ctx.forms)
        ]
        return _one_or_tuple(filled)


class _Jvp(_Recorded):
    """y_dot: linear in the tangents; its gradients in x and w are double_backward's."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        config, given, needed = (
            ctx.config,
            dict[str, Any](_saved_operands(ctx)),
            _roles_needing_grad(ctx),
        )
        _check_differentiable(config, needed, "gradient")
        dots = {r: f"d{r.removesuffix('_dot')}" for r in needed if r.endswith("_dot")}
        rows = {r: f"d{r}" for r in needed if r in _PRIMALS}
        if given.get("x_dot") is not None:
            given["input"] = tuple(given["x_dot"].shape[2:])
            given.setdefault("x", given["x_dot"])  # a linear op reads its shape
        linear: dict[str, Any] = {}
        curved: dict[str, Any] = {}
        below: dict[str, Any] = {}
        dy = grads[-1]
        if dy is not None and dots:
            linear = _run(config, "backward", {**given, "dy": dy}, tuple(dots.values()))
        second = ROWS[config.row.op, "double_backward"].signature.results
        if dy is not None and (wanted := tuple(r for r in rows.values() if r in second)):
            outer = {f"dd{r}": given.get(f"{r}_dot") for r in _PRIMALS}
            operands = {**given, **outer, "dy": dy}
            curved = _run(config, "double_backward", operands, wanted)
        if len(grads) > 1 and grads[0] is not None and rows:
            below = _run(config, "backward", {**given, "dy": grads[0]}, tuple(rows.values()))
        found = {role: linear[result] for role, result in dots.items() if linear}
        found |= {role: _added(curved.get(r), below.get(r)) for role, r in rows.items()}
        return _in_order(ctx, found)


FUNCTIONS: dict[str, Any] = {
    "fprop": _Fprop,
    "backward": _Backward,
    "jvp": _Jvp,
    "double_backward": _Recorded,
}
# what a transform of torch.func uses in place of each
OF_ONE_LEVEL: dict[str, Any] = {
    pass_: type(
        function.__name__,
        (_SingleLevelFunction,),
        {
            name: staticmethod(getattr(function, name))
            for name in ("forward", "setup_context", "backward", "jvp")
        },
    )
    for pass_, function in FUNCTIONS.items()
}
