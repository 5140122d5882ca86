"""Fold batch norms into the convolutions before them, and let these compute the activation."""

from collections import Counter
from collections.abc import Iterator
from copy import copy, deepcopy
from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx

from ...errors import invalid, shorten
from ...ops import RANKS
from . import _blocks
from ._blocks import OWN, ConvAct, ConvBNAct
from ._folding import folded
from ._layers import ACTIVATIONS, LAYERS, Layer, uses_batch
from .convert import ConversionReport, LayerRow, check_module, convert, why_left

_CONVS = ("Conv", "ConvTranspose")
_RANKED = {getattr(torch.nn, f"{kind}{rank}d"): (kind, rank) for kind in _CONVS for rank in RANKS}
_NORMS = tuple(getattr(torch.nn, f"BatchNorm{rank}d") for rank in RANKS)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_NO_CHANGE = (torch.nn.Identity, torch.nn.modules.dropout._DropoutNd)  # in evaluation
_POINTWISE = tuple(getattr(torch.nn, layer.__name__) for layer in ACTIVATIONS.values())


class _Chain(NamedTuple):
    """Layers that follow each other, by name: a convolution first; and why they must stay."""

    names: tuple[str, ...]
    why: str


class _Tracer(fx.Tracer):  # type: ignore[misc]
    """Traces a model down to its layers, and around modules that do not trace."""

    def __init__(self, opaque: dict[Any, str]) -> None:
        super().__init__()
        self.opaque = opaque

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Return whether to look no further into `m`."""
        layer = isinstance(m, (Layer, ConvBNAct, *_RANKED, *_NORMS))
        return layer or m in self.opaque or super().is_leaf_module(m, module_qualified_name)


def fuse(model: Any, backend: str | None = None) -> ConversionReport:
    """Replace each convolution, its batch norm and its activation by one layer, in place.

    For evaluation: the parameters of the norm become part of the filter, once and for all. Where a
    backend fuses the activation too, the new layer is one kernel. Chains are found by
    `torch.fx`; around modules that it cannot trace, inside of each. Copy the model before
    (`copy.deepcopy`) to keep the parts.

    Parameters
    ----------
    model : Module
        In evaluation: ``model.eval()``.
    backend : str, optional
        Which backend the new layers name; None for that of the convolution.

    Returns
    -------
    ConversionReport
        What was fused; and each convolution or norm that was left, and why.

    Raises
    ------
    ConvrefError
        If the model is training.

    Examples
    --------
    >>> from torch.nn import BatchNorm2d, Conv2d, ReLU, Sequential
    >>> model = Sequential(Conv2d(1, 2, 3), BatchNorm2d(2), ReLU()).eval()
    >>> print(fuse(model))
    fused: 1, left: 0
    class      count  what
    ConvAct2d  1      Conv2d + BatchNorm2d + ReLU
    """
    check_module("fuse", model)
    if model.training:
        raise invalid("fuse", "the model is training, needs eval()")
    opaque: dict[Any, str] = {}
    changed: list[LayerRow] = []
    reasons: dict[str, str] = {}
    names = _names(model)
    for path, graph in _graphs(model, "", opaque):
        inside = _names(model.get_submodule(path.rstrip(".")))
        for chain in _chains(model, path, graph):
            parts = [(name, model.get_submodule(name)) for name in chain.names]
            why = _why_left(chain.why, parts, inside, names)
            if not why:
                changed.append(_replace(model, parts, backend))
            else:
                reasons |= dict.fromkeys(chain.names, why)
    for name, module in list(model.named_modules()):
        if isinstance(module, ConvBNAct):
            why = _why_kept(module, names) or _why_kept(module.bn, names)
            why = why or ("" if name else "it is the model itself")
            if why:
                reasons |= {f"{name}.{part}".lstrip("."): why for part in ("conv", "bn")}
            else:
                changed.append(_merge(model, name, module, backend))
    done = {row.name for row in changed}
    left = (row for row in _unfused_rows(model, reasons, opaque) if row.name not in done)
    return ConversionReport("fused", tuple(changed), tuple(left))


def _names(model: Any) -> Counter[int]:
    return Counter(id(m) for _, m in model.named_modules(remove_duplicate=False))


def _graphs(module: Any, path: str, opaque: dict[Any, str]) -> Iterator[tuple[str, Any]]:
    """Yield the graphs that trace: of the module, or of its children and then around them."""
    try:
        yield path, _Tracer(opaque).trace(module)
        return
    except Exception as error:  # a third-party forward may raise anything on a proxy
        why = f"does not trace: {shorten(str(error).splitlines()[0])}"
    for name, child in module.named_children():
        if not isinstance(child, ConvBNAct) and next(child.children(), None) is not None:
            yield from _graphs(child, f"{path}{name}.", opaque)
    try:
        yield path, _Tracer(opaque).trace(module)
    except Exception:  # its own forward, then
        opaque[module] = why


def _chains(model: Any, path: str, graph: Any) -> Iterator[_Chain]:
    """Yield each convolution of a graph with the norm and the activation that alone use it."""
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    read = {n.target.rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}

    def module_of(node: Any) -> Any:
        return model.get_submodule(path + node.target)

    def only_user(node: Any) -> Any:
        users = [n for n in node.users if n.op == "call_module" and calls[n.target] == 1]
        return users[0] if len(users) == len(node.users) == 1 else None

    for node in graph.nodes:
        conv = module_of(node) if node.op == "call_module" else None
        inherits = _runs(conv, tuple(_RANKED))
        if not (inherits or _is_affine(conv)):
            continue
        nodes, after = [node], only_user(node)
        activated = not inherits
        if after and (found := _activation_in(module_of(after))):
            activated = activated or not isinstance(found, torch.nn.Identity)
            nodes.append(after)
            after = only_user(after)
        if not inherits and len(nodes) == 1:
            continue
        if after and not activated and _runs(module_of(after), _POINTWISE):
            nodes.append(after)
        targets = [n.target for n in nodes]
        why = ""
        if calls[node.target] > 1:
            why = "called more than once"
        elif read & set(targets):
            why = "its parameters are used elsewhere too"
        elif len(nodes) == 1:
            why = "no batch norm and no activation of its own right after it"
        yield _Chain(tuple(path + target for target in targets), why)


def _runs(module: Any, kinds: tuple[Any, ...]) -> bool:
    """Return whether a layer runs the forward of one of these classes of torch.nn."""
    kind = type(module)
    kind = vars(kind).get("replaces", kind)
    for base in kind.__mro__:
        if base in kinds:
            return True
        if {"forward", "_conv_forward"} & vars(base).keys():
            break
    return False


def _is_affine(conv: Any) -> bool:
    """Return whether a convolution with its own forward is linear in filter and bias of a channel.

    On one input, scales that are powers of two must scale its result exactly, and its result
    without a filter must be the bias.
    """
    kinds: Any = tuple(_RANKED)
    if not isinstance(conv, kinds) or conv.transposed:
        return False
    kind = vars(type(conv)).get("replaces", type(conv))
    sizes = [d * (k - 1) + 3 for k, d in zip(conv.kernel_size, conv.dilation)]
    x = torch.linspace(-3, 3, 2 * conv.in_channels * prod(sizes), dtype=conv.weight.dtype)
    x = x.view(2, conv.in_channels, *sizes).to(conv.weight.device)
    scale = (-2.0) ** (torch.arange(conv.out_channels, device=x.device) % 3).to(x.dtype)
    of_filter, of_image = (scale.view(-1, *(1,) * n) for n in (x.ndim - 1, x.ndim - 2))
    try:
        with torch.no_grad():
            found = []
            for factor, bias in ((1, None), (of_filter, None), (0, scale)):
                probe = deepcopy(conv)
                probe.weight.mul_(factor)
                probe.bias = None if bias is None else torch.nn.Parameter(bias)
                found.append(kind.forward(probe, x))
            y, scaled, alone = found
            wanted = of_image.expand_as(y)
            return torch.equal(scaled, y * of_image) and torch.equal(alone, wanted)
    except Exception:  # a third-party forward may raise anything
        return False


def _activation_in(norm: Any) -> Any:
    """Return the activation that a batch norm applies itself, Identity if there is none.

    None for any other module, and for a norm whose forward computes something else: on one input,
    the results of both must be equal.
    """
    if _runs(norm, _NORMS):
        return torch.nn.Identity()
    if not isinstance(norm, _NORMS) or norm.running_mean is None:
        return None
    parts = [part for part in norm.children() if not isinstance(part, _NO_CHANGE)]
    activation = parts[0] if parts else torch.nn.Identity()
    kind = vars(type(norm)).get("replaces", type(norm))
    rank = next(rank for rank, base in zip(RANKS, _NORMS) if isinstance(norm, base))
    shape = (2, norm.num_features, *(2,) * rank)
    values = torch.linspace(-3, 3, prod(shape), dtype=norm.running_mean.dtype)
    x = values.view(shape).to(norm.running_mean.device)
    state = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    try:
        with torch.no_grad():
            found = kind.forward(norm, x)
            wanted = activation(torch.nn.functional.batch_norm(x, *state, eps=norm.eps))
            return activation if len(parts) < 2 and torch.equal(found, wanted) else None
    except Exception:  # a third-party forward may raise anything
        return None


def _why_left(
    why: str, parts: list[tuple[str, Any]], inside: Counter[int], names: Counter[int]
) -> str:
    """Return why a chain is left; an activation may be shared with modules outside of the graph."""
    for _, part in parts:
        why = why or _why_kept(part, inside if _runs(part, _POINTWISE) else names)
    return why


def _why_kept(module: Any, names: Counter[int]) -> str:
    """Return why a module cannot be replaced by another that computes the same, if it cannot."""
    if names[id(module)] > 1:
        return "it is registered under several names"
    if any(getattr(module, hooks) for hooks in _HOOKS):
        return "it has hooks"
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and uses_batch(module):
        return "it normalises with batch statistics"
    return "" if isinstance(module, OWN) else why_left(module) or ""


def _replace(model: Any, parts: list[tuple[str, Any]], backend: str | None) -> LayerRow:
    """Put one layer where the convolution is, and nothing where the others are.

    A convolution with a forward of its own stays, with other parameters.
    """
    norm = next((m for _, m in parts if isinstance(m, _NORMS)), None)
    activation = next((m for _, m in parts[1:] if m is not norm), _activation_in(norm))
    (name, conv), *others = parts
    after: Any = torch.nn.Identity()
    if _runs(conv, tuple(_RANKED)):
        made = _merged(conv, norm, activation, backend)
        _set_submodule(model, name, made)
    else:
        made, after = conv, activation
        with torch.no_grad():
            conv.weight, conv.bias = map(torch.nn.Parameter, folded(conv, norm))
        for part in (conv, after):
            convert(part, getattr(conv, "backend", None) if backend is None else backend)
    for other, _ in others:
        _set_submodule(model, other, after)
    what = " + ".join(type(module).__name__ for _, module in parts)
    return LayerRow(name, type(made).__name__, what)


def _merge(model: Any, name: str, block: Any, backend: str | None) -> LayerRow:
    made = _merged(block.conv, block.bn, block.act, backend)
    _set_submodule(model, name, made)
    return LayerRow(name, type(made).__name__, f"{type(block).__name__}, with the norm folded in")


def _set_submodule(model: Any, name: str, module: Any) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def _merged(conv: Any, norm: Any, activation: Any, backend: str | None) -> Any:
    """Return the one layer that computes the same as the three."""
    kind, rank = next(found for base, found in _RANKED.items() if isinstance(conv, base))
    extra = {"output_padding": conv.output_padding} if conv.transposed else {}
    with torch.no_grad():
        weight, bias = (conv.weight, conv.bias) if norm is None else folded(conv, norm)
    made = getattr(_blocks, f"{kind}Act{rank}d")(
        *(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding),
        dilation=conv.dilation,
        groups=conv.groups,
        bias=bias is not None,
        padding_mode=conv.padding_mode,
        device="meta",  # initialises nothing, draws no random number
        backend=getattr(conv, "backend", None) if backend is None else backend,
        **extra,
    )
    made.weight = torch.nn.Parameter(weight, conv.weight.requires_grad)
    made.bias = None if bias is None else torch.nn.Parameter(bias, conv.weight.requires_grad)
    made.act = torch.nn.Identity() if activation is None else copy(activation)
    if type(made.act) in LAYERS:
        convert(made.act, made.backend)
    return made.eval()


def _unfused_rows(
    model: Any, reasons: dict[str, str], opaque: dict[Any, str]
) -> Iterator[LayerRow]:
    """Yield the convolutions and norms that stayed."""
    around = {name: opaque[module] for name, module in model.named_modules() if module in opaque}
    for name, module in model.named_modules():
        norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        if isinstance(module, ConvAct) or not (norm or isinstance(module, tuple(_RANKED))):
            continue
        inside = (why for outer, why in around.items() if not outer or name.startswith(f"{outer}."))
        none = "no convolution of its own right before it" if norm else "nothing to fold into it"
        if not (_runs(module, (*_RANKED, *_NORMS)) or _activation_in(module)):
            none = "it has a forward of its own"
        yield LayerRow(name, type(module).__name__, reasons.get(name) or next(inside, none))
