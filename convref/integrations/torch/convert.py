"""Let convref compute the layers of a model that was written with torch.nn, and undo it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import a_kind, invalid
from ._backend import check_backend
from ._blocks import OWN
from ._intercept import Intercepted, functions_called, intercepting_class
from ._layers import LAYERS, Layer

_IN_MODULE = {
    "torch.ao.": "quantized: convref has no quantized layers",
    "torch.nn.quantized.": "quantized: convref has no quantized layers",
    "torch.jit.": "compiled by torch.jit: its layers cannot be swapped",
}


@dataclass(frozen=True)
class LayerRow:
    """One layer: its name in the model, its class, and why it was changed or left."""

    name: str
    layer: str
    why: str


@dataclass(frozen=True)
class ConversionReport:
    """The layers that a pass over a model changed, and those that it left.

    Parameters
    ----------
    title : str
        What was done.
    changed, left : tuple of LayerRow
        In the order of the model.
    """

    title: str
    changed: tuple[LayerRow, ...]
    left: tuple[LayerRow, ...]

    def __str__(self) -> str:
        rows = Counter((row.layer, row.why) for row in (*self.changed, *self.left))
        cells = [(layer, str(count), why) for (layer, why), count in rows.items()]
        return table(self._title(), ("class", "count", "what"), cells)

    def listing(self) -> str:
        """Return a table with a row for each layer, by name."""
        rows = [(r.name or "(the model)", r.layer, r.why) for r in (*self.changed, *self.left)]
        return table(self._title(), ("name", "class", "what"), rows)

    def _title(self) -> str:
        return f"{self.title}: {len(self.changed)}, left: {len(self.left)}"


def convert(model: Any, backend: str | None = None) -> ConversionReport:
    """Let convref compute every layer of `model` that it has, in place.

    A layer stays the object that it is, with its parameters, hooks and training flag: only its
    class changes, to the subclass in `nn` of the same name. A layer with a `forward` of its own,
    such as a subclass of torch.nn.Conv2d, keeps it; the functions of torch.nn.functional that it
    calls are computed by convref. Such calls in the forward of a module that has layers inside
    stay PyTorch's; `explain` shows them. Wrap a model in DistributedDataParallel, fully_shard or
    torch.compile after this.

    Parameters
    ----------
    model : Module
    backend : str, optional
        Which backend the layers name; None for that of `use_backend`. Layers of convref's that are
        there already are set to it too.

    Returns
    -------
    ConversionReport
        The layers that were swapped, those that were left, and why: its text is a table by class,
        `ConversionReport.listing` a table by name.

    Raises
    ------
    ConvrefError
        If there is no such backend.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.RReLU())
    >>> print(convert(model))
    converted: 1, left: 1
    class   count  what
    Conv2d  1      computed by convref
    RReLU   1      convref has no such layer
    >>> print(model)
    Sequential(
      (0): convref.Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
      (1): RReLU(lower=0.125, upper=0.3333333333333333)
    )
    """
    check_module("convert", model)
    if backend is not None:
        check_backend("convert", backend)

    on = "convref" if backend is None else f"convref on {backend}"

    def swap(module: Any) -> str:
        kind: Any = type(module)
        text = f"computed by {on}"
        if kind not in LAYERS and not isinstance(module, Layer):
            text += f": {', '.join(functions_called(module))} in its forward"
            module.__class__ = intercepting_class(kind)
        module.__class__ = LAYERS.get(kind, type(module))
        module.backend = backend
        return text

    return _swap_layers("converted", model, swap, why_left)


def revert(model: Any) -> ConversionReport:
    """Give the layers of `model` back to torch.nn, in place: the inverse of `convert`.

    Layers that only convref has, such as `nn.ConvBNAct2d`, stay.

    Returns
    -------
    ConversionReport

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3))
    >>> _ = convert(model)
    >>> print(revert(model))
    reverted: 1, left: 0
    class   count  what
    Conv2d  1      computed by PyTorch
    >>> type(model[0]) is torch.nn.Conv2d
    True
    """
    check_module("revert", model)

    def swap(module: Any) -> str:
        del module.backend
        module.__class__ = type(module).replaces
        return "computed by PyTorch"

    kept = {part for block in model.modules() if isinstance(block, OWN) for part in block.modules()}

    def why(module: Any) -> str | None:
        if module in kept:
            return "part of a layer that only convref has"
        return None if "replaces" in vars(type(module)) else "no layer of convref's"

    return _swap_layers("reverted", model, swap, why)


def check_module(where: str, model: Any) -> None:
    """Raise unless a model is a module."""
    if not isinstance(model, torch.nn.Module):
        raise invalid(where, f"model is {a_kind(model)}, needs a torch.nn.Module")


def _swap_layers(
    title: str, model: Any, swap: Callable[[Any], str], why: Callable[[Any], str | None]
) -> ConversionReport:
    changed, left = [], []
    inside: set[Any] = set()  # of layers with a forward of their own, which includes theirs
    for name, module in list(model.named_modules()):
        if module in inside:
            continue
        reason = why(module)
        layer = type(module).__name__
        if reason is None:
            covers = isinstance(module, Intercepted)
            changed.append(LayerRow(name, layer, swap(module)))
            if covers or isinstance(module, Intercepted):
                inside |= {*module.modules()} - {module}
        elif is_layer(module):
            left.append(LayerRow(name, layer, reason))
    return ConversionReport(title, tuple(changed), tuple(left))


def is_layer(module: Any) -> bool:
    """Return whether a module computes something, rather than only calling other modules."""
    alone = next(module.children(), None) is None and not isinstance(module, torch.nn.Identity)
    return alone or isinstance(module, tuple(LAYERS))


def why_left(module: Any) -> str | None:
    """Return why convref does not compute a layer, or None if it can."""
    kind = type(module)
    for prefix, reason in _IN_MODULE.items():
        if kind.__module__.startswith(prefix):
            return reason
    if "forward" in vars(module):
        return "its forward was replaced on the object"
    if kind in LAYERS or isinstance(module, Layer):
        return _refusal(module)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        return "lazy: its sizes are unknown before the first input"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "parametrized: its class is generated by torch.nn.utils.parametrize"
    if not is_layer(module):
        return "its forward calls the layers inside"
    if functions_called(module):
        return next(filter(None, map(_refusal, module.modules())), None)
    if kind.__module__.startswith("torch.nn."):
        return "convref has no such layer"
    return "its forward calls no function that convref computes"


def _refusal(module: Any) -> str | None:
    """Return which argument of a layer convref does not support, or None."""
    if isinstance(module, (torch.nn.Softmax, torch.nn.LogSoftmax)) and module.dim is None:
        return "dim is None: PyTorch guesses an axis"
    if type(module).__name__.startswith("LPPool"):
        if module.norm_type % 2:
            return "PyTorch sums powers of signed values, convref of absolute values"
        if module.ceil_mode:
            return "with ceil_mode, PyTorch scales a cut window as if it were whole"
    return None


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header as text, each column as wide as its widest cell.

    >>> print(table("two", ("name", "why"), [("a", "because"), ("bc", "so")]))
    two
    name  why
    a     because
    bc    so
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        [title]
        + ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]
    )


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the table; rich folds lines that are wider than the screen."""
    try:
        import rich.box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        print(table(title, header, rows))
        return
    made = Table(title=escape(title), title_justify="left", box=rich.box.SIMPLE)
    for name in header:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    Console().print(made)
