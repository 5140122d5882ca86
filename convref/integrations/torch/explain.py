"""Which backend computes each layer of a model, and why, without computing anything."""

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

from ... import dispatch
from ...errors import ConvrefError, UnsupportedError
from ._blocks import OWN, epilogue_of
from ._kernels import PassConfig, call_of
from ._library import NAMESPACE
from ._native import Observer
from ._table import BY_NAME, ROWS
from .convert import check_module, is_layer, show, table, why_left

_HEADER = ("layer", "class", "line", "backend", "why")


@dataclass(frozen=True)
class CallRow:
    """One call that a model makes.

    Parameters
    ----------
    layer, kind : str
        Name of the module that makes it, and its class.
    line : str
        The call as a case line; empty for ops that are not convref's.
    backend : str
        The backend that computes it, or "torch.nn".
    why : str
        The candidates and the reason; for kernels, the chosen one and its tile.
    """

    layer: str
    kind: str
    line: str
    backend: str
    why: str


class Explanation(tuple[CallRow, ...]):
    """The rows in the order of the calls; its text is a table."""

    def __str__(self) -> str:
        return table(_title(self), _HEADER, _cells(self))


def _title(rows: tuple[CallRow, ...]) -> str:
    return f"{len(rows)} calls, {sum(bool(row.line) for row in rows)} of them convref's"


def _cells(rows: tuple[CallRow, ...]) -> list[tuple[str, ...]]:
    return [(r.layer or "(the model)", r.kind, r.line, r.backend, r.why) for r in rows]


def explain(model: Any, *inputs: Any, verbose: bool = True) -> Explanation:
    """Print and return the backend of each layer of `model` for such inputs, and the reason.

    The model runs on tensors without data: nothing is computed, no statistics move, no memory is
    taken. A `forward` that reads values cannot be explained.

    Parameters
    ----------
    model : Module
    *inputs
        What the model is called with.
    verbose : bool
        Print the table, with rich where it is installed.

    Returns
    -------
    Explanation
        A tuple of `CallRow`.

    Examples
    --------
    >>> from convref.integrations.torch import nn
    >>> model = torch.nn.Sequential(nn.Conv2d(1, 2, 3, backend="numpy"), torch.nn.RReLU())
    >>> for row in explain(model, torch.ones(1, 1, 5, 5), verbose=False):
    ...     print(row.layer, row.line, row.backend, row.why, sep=" | ")
    0 | conv.fprop:n1c1k2_i5x5_f3x3 | numpy | selected by the caller
    1 |  | torch.nn | convref has no such layer
    """
    check_module("explain", model)
    watched = _Watched(model)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        fakes = {name: mode.from_tensor(t) for name, t in state.items()}
        given = _pytree.tree_map_only(torch.Tensor, mode.from_tensor, inputs)
        with torch.no_grad(), watched:
            torch.func.functional_call(model, fakes, given)
    found = Explanation(watched.rows)
    if verbose:
        show(_title(found), _HEADER, _cells(found))
    return found


class _Watched(Observer):
    """Records the ops that the modules of a model call, each under the innermost module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.rows: list[CallRow] = []
        self.inside: list[tuple[str, Any]] = []
        self.calls = self.before = 0  # since the last module was entered

    def __enter__(self) -> Any:
        self.hooks = [
            hook
            for name, module in self.model.named_modules()
            for hook in (
                module.register_forward_pre_hook(self._entering(name)),
                module.register_forward_hook(self._leaving, always_call=True),
            )
        ]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self.hooks:
            hook.remove()

    def _entering(self, name: str) -> Any:
        def enter(module: Any, _: Any) -> None:
            self.inside.append((name, module))
            self.calls, self.before = 0, len(self.rows)

        return enter

    def _leaving(self, module: Any, *_: Any) -> None:
        name, _ = self.inside.pop()
        if self.calls and is_layer(module) and len(self.rows) == self.before:
            why = why_left(module) or "a layer of torch.nn: convert(model) replaces it"
            self.rows.append(CallRow(name, type(module).__name__, "", "torch.nn", why))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record a call, and run it."""
        self.calls += 1
        name, module = self.inside[-1] if self.inside else ("", self.model)
        namespace, _, op = func._schema.name.partition("::")
        if namespace == NAMESPACE:
            row = BY_NAME[op]
            count = len(row.signature.operands)
            self.rows.append(
                _call_row(name, module, PassConfig.of(row, args[count:]), args[:count])
            )
        elif op.strip("_").removeprefix("native_").startswith(_STEMS) and not is_layer(module):
            why = "called as a function in a forward: convert(model) replaces layers only"
            self.rows.append(CallRow(name, type(module).__name__, "", f"torch: {op}", why))
        return func(*args, **(kwargs or {}))


# How ATen's ops of a CNN begin, below autograd; its resize_ is about memory.
_STEMS = ("upsample", *(op for op, _ in ROWS if op != "resize"))


def _call_row(name: str, module: Any, config: PassConfig, operands: Any) -> CallRow:
    kind = type(module).__name__
    try:
        call = call_of(config, tuple(operands))
    except ConvrefError as error:
        return CallRow(name, kind, config.row.name, "none", str(error))
    try:
        made = dispatch.choose(call, config.backend, "torch")
    except UnsupportedError as error:
        return CallRow(name, kind, str(call), "none", str(error))
    place = next(i for i, c in enumerate(made.candidates) if c.chosen)
    reasons = [f"{c.name}: {c.reason}" for c in made.candidates[:place]]
    reasons.append(made.candidates[place].reason)
    if describe := getattr(made.backend, "describe", None):
        reasons.append(describe(call))
    fused = getattr(made.backend, "fused", None)
    if fused and isinstance(module, OWN) and (epilogue := epilogue_of(module.act)):
        reasons.append(f"{epilogue} in the same kernel if no gradient is recorded")
    return CallRow(name, kind, str(call), made.backend.name, "; ".join(reasons))
