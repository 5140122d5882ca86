"""One run of a reference in which every operation is evaluated on pairs."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from inspect import unwrap
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ...errors import UnsupportedError
from ..numerics import Numerics
from .pair import Op, Pair, Tensor, store
from .pieces import ELEMENTWISE, InPieces, Later, boxes
from .rules import AMBIGUOUS, RULES
from .shadow import Shadows

_aten = torch.ops.aten
_VIEWS = {_aten._unsafe_view, _aten.lift_fresh, _aten._reshape_alias}
_OF_SHAPES = {_aten._has_same_storage_numel, _aten.is_same_size}
# Results that depend on the shapes and dtypes of operands only; unwritten memory may hold anything.
LIKE = {_aten.ones_like, _aten.zeros_like, _aten.full_like}
LIKE |= {_aten.new_zeros, _aten.new_ones, _aten.new_full}
UNWRITTEN = {_aten.empty, _aten.empty_like, _aten.new_empty, _aten.empty_strided}
UNWRITTEN |= {_aten.new_empty_strided, _aten.empty_permuted}
# Operations that write running statistics, arguments 3 and 4, though their schema does not say so.
_UPDATES = {_aten.native_batch_norm}
# Operations that PyTorch's kernels of 16-bit types evaluate in that type, unlike decompositions.
_ROUNDED = {_aten.glu_backward, _aten.mse_loss_backward, _aten.huber_loss_backward}
_PLACEMENT = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "out")
# Operations that convert their operands to one dtype.
_PROMOTING = ELEMENTWISE - {_aten._to_copy, _aten.logical_and, _aten.logical_or, _aten.logical_not}
_DECOMPOSITIONS = {**decomposition_table, **core_aten_decompositions()}
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

# Returns the pairs of an operation's results, given its number, the Op, the operands, their pairs
# and the rule.
Change = Callable[[int, Op, tuple[Any, ...], Any, Callable[..., Any]], Any]


class Trace(TorchDispatchMode):  # type: ignore[misc]
    """Evaluates the operations of a reference on pairs while it runs.

    Parameters
    ----------
    numerics : Numerics
    rounding : str, optional
        The label of the operations that round; by default all do.
    change : callable, optional
        Replaces the results of operations, for mutations of the reference.

    Attributes
    ----------
    labels : dict
        "aten.mm to bfloat16" and so on, in the order of the first operation of each.
    count : int
        How many operations were evaluated.
    """

    supports_higher_order_operators = True  # so that they can be refused by name

    def __init__(
        self, numerics: Numerics, rounding: str | None = None, change: Change | None = None
    ) -> None:
        super().__init__()
        self.numerics = numerics.held_to("f32")
        self._rounding, self._change = rounding, change
        self.shadows = Shadows(self.numerics)
        self.labels: dict[str, None] = {}
        self.count = 0
        self.written: list[tuple[Tensor, Tensor]] = []  # not by the reference's own tensors

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would load PyTorch's compiler at the first operation

    def run(self, reference: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the results of the reference; tensors of others that it wrote to are restored."""
        try:
            with self, _uncompiled():
                return reference(*args, **kwargs)
        finally:
            with torch.no_grad():
                for tensor, before in reversed(self.written):
                    tensor.copy_(before)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Evaluate one operation."""
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            raise _unknown_operation(func.name())
        packet = functional(func)
        if is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        if is_view(func) or packet in _OF_SHAPES:
            return func(*args, **kwargs)
        operands = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        _refuse(func, operands)
        if packet in UNWRITTEN:
            return self._unwritten(func(*args, **kwargs))
        written = written_by(func, args, kwargs)
        if packet in RULES:
            return self._evaluate(RULES[packet], packet, func, args, kwargs, written)
        if not written and (packet in LIKE or not operands):
            return func(*args, **kwargs)
        if not written and all(_is_certain(self.shadows.read(t)) for t in operands):
            out = func(*args, **kwargs)
            if not _floats(out):
                return out
        return self._decomposed(func, packet, args, kwargs, written)

    def _evaluate(
        self, rule: Any, packet: Any, func: Any, args: Any, kwargs: Any, written: list[Tensor]
    ) -> Any:
        settings = {key: value for key, value in kwargs.items() if key not in _PLACEMENT}
        leaves, form = tree_flatten((tuple(args), settings))
        hidden = updated_by(func, args)
        for target in (*written, *hidden):
            self._expect(target)
        read = {i: self.shadows.unrounded(t) for i, t in enumerate(leaves) if _is_tensor(t)}
        dtypes = {i: leaves[i].dtype for i in read}
        out = func(*args, **kwargs)
        results = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        exact = all(pair.error is None and pair.stored for pair in read.values())
        exact &= not any(isinstance(number, float) for number in leaves)  # may be rounded
        if exact and not _floats(out) and packet not in AMBIGUOUS:
            for target in written:
                if target in self.shadows:
                    self.shadows.write(target, Pair(target.clone()))
            return out
        op = self._op(packet, results, _computed_in([leaves[i] for i in read]))

        def operands(select: Callable[[int, Pair], Pair]) -> Any:
            taken = list(leaves)
            for i, pair in read.items():
                taken[i] = self._operand(op, packet in _PROMOTING, select(i, pair), dtypes[i])
            return tree_unflatten(taken, form)

        def evaluate(select: Callable[[int, Pair], Pair], is_read: bool = True) -> Any:
            pairs, named = operands(select)
            now = op if is_read else replace(op, is_read=False)
            found = rule(now, *pairs, **named)
            if self._change is not None:
                found = self._change(self.count, op, pairs, found, partial(rule, op, **named))
            found = (found,) if _is_pair(found) else tuple(found)
            return tuple(map(_typed, (*results, *hidden), found))

        whole = self._change is not None or results[0] is None
        cuts = [] if whole else boxes(packet, args, results[0])
        if cuts:
            pieces = InPieces(evaluate, packet, cuts, tuple(results[0].shape))
            later = [Later(pieces, place) for place in range(len(results))]
            pairs: Any = pieces.evaluate() if written else later
        else:
            pairs = evaluate(_whole)
        self.count += 1
        for tensor, pair in zip(results, pairs):
            if pair is not None:
                (self.shadows.write if written else self.shadows.make)(tensor, pair)
        for tensor, pair in zip(hidden, pairs[len(results) :]):
            self.shadows.write(tensor, pair)
        return out

    def _operand(self, op: Op, is_promoted: bool, pair: Pair, dtype: torch.dtype) -> Pair:
        """Return an operand of a dtype as it is read: converted, if the operation promotes it."""
        stored, own = store(pair, dtype, self.numerics), op.numbers or op.dtype
        if not is_promoted or dtype in (own, torch.bool):
            return stored
        return store(stored._replace(stored=False), own, self.numerics)

    def _op(self, packet: Any, results: tuple[Tensor, ...], operand: Any) -> Op:
        """Return the operation; `operand` is the dtype to which comparisons round numbers."""
        dtype = next(t.dtype for t in results if t is not None)
        numbers = None if dtype.is_floating_point else operand
        label = f"{packet} to {str(dtype).removeprefix('torch.')}"
        self.labels[label] = None
        rounds = self._rounding in (None, label)
        return Op(str(packet), dtype, self.numerics, rounds, results, numbers)

    def _expect(self, target: Tensor) -> None:
        if target not in self.shadows:
            self.written.append((target.detach(), target.detach().clone()))
        self.shadows.expect(target)

    def _unwritten(self, out: Tensor) -> Tensor:
        zero = torch.zeros_like(out, dtype=torch.float64)
        self.shadows.make(out, Pair(zero, torch.full_like(zero, torch.inf)))
        return out

    def _decomposed(
        self, func: Any, packet: Any, args: Any, kwargs: Any, written: list[Tensor]
    ) -> Any:
        """Evaluate what PyTorch decomposes an operation into."""
        in_place = func._schema.name.endswith("_")
        name = func._overloadname
        same = getattr(packet, name, None) if in_place else func
        found = _DECOMPOSITIONS.get(same)
        if func.namespace == "prims":
            raise _UnknownPrimitiveError(str(_unknown_operation(packet)))
        if found is None or (written and not in_place):
            raise _unknown_operation(packet)
        found = unwrap(found) if packet in _ROUNDED else found
        try:
            with self:
                out = found(*args, **kwargs)
                if out is NotImplemented:
                    raise _unknown_operation(packet)
                return args[0].copy_(out) if in_place else out
        except _UnknownPrimitiveError:
            raise _unknown_operation(packet) from None


class _UnknownPrimitiveError(UnsupportedError):
    """A decomposition goes beyond ATen."""


def functional(func: Any) -> Any:
    """Return what an operation computes, out of place."""
    name = func._schema.name.removeprefix("aten::")
    if name.endswith("_") and not name.endswith("__"):
        return getattr(_aten, name[:-1], func.overloadpacket)
    return func.overloadpacket


def is_view(func: Any) -> bool:
    """Return whether an operation gives memory other sizes or strides alone."""
    packet = func.overloadpacket
    in_place = torch.Tag.inplace_view in func.tags and packet is not _aten.resize_
    return func.is_view or in_place or packet in _VIEWS


def is_composite(func: Any) -> bool:
    """Return whether an operation without a rule only calls others."""
    return functional(func) not in RULES and func.has_kernel_for_dispatch_key(_COMPOSITE)


def updated_by(func: Any, args: Any) -> list[Tensor]:
    """Return the running statistics that an operation writes to."""
    updates = func.overloadpacket in _UPDATES and args[5] is True
    return [t for t in args[3:5] if t is not None] if updates else []


def written_by(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation writes to."""
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [t for t in tree_leaves(given) if t is not None]
    return found


def _whole(place: int, pair: Pair) -> Pair:
    return pair


def _typed(result: Tensor, pair: Pair | None) -> Pair | None:
    """Return a pair whose value has the dtype of the result, if that is one of integers."""
    if pair is None or result.dtype.is_floating_point:
        return pair
    return pair._replace(value=pair.value.to(result.dtype))


def _is_certain(pair: Pair) -> bool:
    return pair.error is None or not bool((pair.error > 0).any())


def _computed_in(operands: list[Tensor]) -> Any:
    """Return the dtype to which an operation of elements converts operands; None of integers."""
    floats = [t for t in operands if t.is_floating_point()]
    dtypes = [t.dtype for t in floats if t.ndim] or [t.dtype for t in floats]
    return reduce(torch.promote_types, dtypes) if dtypes else None


def _is_tensor(given: Any) -> bool:
    return isinstance(given, torch.Tensor)


def _is_pair(given: Any) -> bool:
    return isinstance(given, Pair)


def _floats(out: Any) -> bool:
    """Return whether there are floating-point tensors among the results."""
    results = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
    return any(t.is_floating_point() or t.is_complex() for t in results)


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled functions as they are written: PyTorch would compile the rules with them."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and its import takes long
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def _refuse(func: Any, operands: list[Tensor]) -> None:
    """Raise if no rule can be right about this operation."""
    what = None
    if torch.Tag.nondeterministic_seeded in func.tags and functional(func) not in RULES:
        what = "draws random numbers; draw them before and give them as an argument"
    elif any(t.is_complex() for t in operands):
        what = "computes with complex numbers, which have no rules"
    elif any(t.layout != torch.strided or t.is_quantized for t in operands):
        what = "computes with sparse or quantized tensors, which have no rules"
    if what is not None:
        raise UnsupportedError(f"the reference calls {func.overloadpacket}, which {what}")


def _unknown_operation(packet: Any) -> UnsupportedError:
    if packet is _aten._local_scalar_dense:
        what = "depends on a rounded number that it reads into Python; keep it in a tensor"
        return UnsupportedError(f"the reference {what}")
    what = "write it with operations of docs/programs.md, or add a rule to convref.judge.programs"
    return UnsupportedError(f"the reference calls {packet}, which has no rule; {what}")
