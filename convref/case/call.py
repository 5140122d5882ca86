"""Call and Case: a Problem with its pass, memory and numbers, and with its data.

`str` writes either as one shell word, the line; `convref.case.parse` reads it back.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Self

from .. import dtypes
from ..errors import a_kind, invalid, needs_one, shorten
from ..ops import (
    BASE_ROLE,
    FAMILY,
    OWN_TYPE,
    SIGNATURE,
    STATISTICS,
    TERMS,
    ConvProblem,
    Problem,
    Signature,
    Terms,
    WindowProblem,
    items,
    mask_names,
    passes,
)
from ..ops.sizes import one_of
from .spec import Spec, axis_letters
from .text import memory_text, problem_keys, shape_text

_NAMES = {f"{op}.{pass_}" for op, pass_ in SIGNATURE}
MATHS = ("ieee", "tf32", "tf32x3")
FILLS = (
    *("int", "ones", "impulse", "ramp", "normal", "positive", "shifted", "wide", "ties"),
    *("nan", "inf", "negzero", "subnormal"),
)
# What may be done around a call; `convref.conformance.surroundings` does it.
AROUND = ("data", "dtype", "batch", "memory", "alias", "pages", "threads")


@dataclass(frozen=True)
class Call:
    """A Problem with its pass, mask, present tangents, memory and math; a backend computes a Call.

    Parameters
    ----------
    op, pass_ : str
        A key of `convref.ops.SIGNATURE`.
    problem : Problem
    mask : tuple of bool
        Which results are wanted; empty where the pass has no mask.
    tangents : str, optional
        Which of x, w, b carry a tangent (jvp) or a cotangent (double_backward); default all.
    specs : tuple of Spec
        One per operand role; short input (empty, or one Spec) is spread over all roles.
    math : str
        "ieee", "tf32" or "tf32x3": the precision of float32 products.
    """

    op: str
    pass_: str
    problem: Problem
    mask: tuple[bool, ...] = ()
    tangents: str | None = None
    specs: tuple[Spec, ...] = ()
    math: str = "ieee"

    def __post_init__(self) -> None:
        where = self.where
        if where not in _NAMES:
            known = tuple(f"{self.op}.{p}" for p in passes(str(self.op))) or tuple(FAMILY)
            raise invalid("call", f"pass is {shorten(where)}, {needs_one(where, known)}")
        put = object.__setattr__
        if type(self.problem) is not (family := FAMILY[self.op]):
            what = f"problem is {a_kind(self.problem)}, needs a {family.__name__}"
            raise invalid(where, what)
        if self.signature.maskable:
            put(self, "mask", self._mask(where))
        elif self.mask is not None and items(self.mask) != []:
            raise invalid(where, "mask is given, needs none for this pass")
        put(self, "tangents", self._tangents(where))
        one_of(where, "math", self.math, MATHS)
        specs = self._spread(where)
        put(self, "problem", self.problem.for_pass(self.pass_, specs[0].dtype))
        put(self, "specs", tuple(map(self._spec, self.roles, self._typed(where, specs))))
        if reason := self.problem.refuses(self.dtype, self.pass_):
            raise invalid(where, reason)

    def _spread(self, where: str) -> tuple[Spec, ...]:
        """Return a Spec for every role."""
        given = isinstance(self.specs, tuple)
        specs = self.specs if given and self.specs else (Spec(),)
        if not given or not all(isinstance(spec, Spec) for spec in specs):
            raise invalid(where, f"specs is {shorten(repr(self.specs))}, needs a tuple of Spec")
        specs = specs * len(self.roles) if len(specs) == 1 else specs
        if len(specs) != len(self.roles):
            raise invalid(where, f"specs has {len(specs)} entries, needs {len(self.roles)}")
        return specs

    def _typed(self, where: str, specs: tuple[Spec, ...]) -> list[Spec]:
        """Return the specs; indices, statistics and parameters may have types of their own."""
        main, given = specs[0].dtype, (*OWN_TYPE, *STATISTICS)
        own = [self.problem.dtype_of(role, main) for role in self.roles]
        named = zip(self.roles, specs, own)
        wrong = any(s.dtype not in (main, code) and r not in given for r, s, code in named)
        if wrong or len({spec.device for spec in specs}) != 1:
            mixed = sorted({f"{spec.dtype} on {spec.device}" for spec in specs})
            raise invalid(where, f"specs have {', '.join(mixed)}, need one dtype and one device")
        typed = zip(specs, own)
        return [s if s.dtype == code else replace(s, dtype=code) for s, code in typed]

    def _mask(self, where: str) -> tuple[bool, ...]:
        count = len(self.signature.results)
        mask = items(self.mask)
        if mask is None or len(mask) not in (0, count):
            got = f"is {shorten(repr(self.mask))}" if mask is None else f"has {len(mask)} entries"
            raise invalid(where, f"mask {got}, needs {count}")
        return tuple(map(bool, mask or (True,) * count))

    def _tangents(self, where: str) -> str:
        possible = self.possible_tangents
        if self.tangents is None:
            return possible
        if not isinstance(self.tangents, str):
            what = f"tangents is {shorten(repr(self.tangents))}, needs letters or None"
            raise invalid(where, what)
        if unknown := set(self.tangents) - set(possible):
            need = f"needs some of {possible!r}" if possible else "needs none: this pass has no"
            raise invalid(where, f"tangents has {shorten(sorted(unknown))}, {need}")
        return "".join(t for t in possible if t in self.tangents)

    def _spec(self, role: str, spec: Spec) -> Spec:
        if not self.is_present(role):
            return Spec(spec.dtype, device=spec.device)
        dtypes.code_of(dtypes.numpy_dtype(spec.dtype))
        if not (spec.order or spec.step or spec.expand or spec.offset):
            return spec
        letters = axis_letters(self.problem, role)
        where = self.where
        if spec.order and sorted(spec.order) != sorted(letters):
            what = f"order of {role} is {spec.order!r}, needs a permutation of {letters}"
            raise invalid(where, what)
        named = "".join(axis for axis, _ in spec.step) + spec.expand
        if set(named) - set(letters) or len(set(named)) != len(named):
            what = f"view of {role} names {named!r}, needs each axis of {letters} at most once"
            raise invalid(where, what)
        if spec.offset < 0 or any(k in (0, 1) for _, k in spec.step):
            what = f"view of {role} needs steps other than 0 and 1, and offset >= 0"
            raise invalid(where, what)
        return replace(
            spec,
            order="" if spec.order == letters else spec.order,
            step=tuple(sorted(spec.step, key=lambda item: letters.index(item[0]))),
            expand="".join(sorted(spec.expand, key=letters.index)),
        )

    def on(self, device: str) -> Self:
        """Return the call with its operands on a device."""
        return replace(self, specs=tuple(replace(spec, device=device) for spec in self.specs))

    @property
    def where(self) -> str:
        """Return OP.PASS, with which messages on the call begin."""
        return f"{self.op}.{self.pass_}"

    @cached_property
    def signature(self) -> Signature:
        """Return the roles of this pass."""
        return SIGNATURE[self.op, self.pass_]

    @property
    def conv(self) -> ConvProblem:
        """Return the problem of a call whose op is conv."""
        assert isinstance(self.problem, ConvProblem)
        return self.problem

    @property
    def windows(self) -> WindowProblem:
        """Return the problem of a call whose op has sliding windows."""
        assert isinstance(self.problem, WindowProblem)
        return self.problem

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Return the operand roles, absent ones too."""
        return self.signature.operands

    @property
    def possible_tangents(self) -> str:
        """Return the primals that may carry a tangent in this pass."""
        return self.problem.tangents(self.pass_)

    def is_present(self, role: str) -> bool:
        """Return whether the operand in `role` is an array (else None)."""
        return role in self._present

    @cached_property
    def _present(self) -> frozenset[str]:
        given = frozenset(filter(self.problem.has, self.roles))
        if not self.possible_tangents:
            return given
        moved = {role for role in given if role.endswith("_dot") or role.startswith("dd")}
        return given - {role for role in moved if BASE_ROLE[role] not in self.carried}

    @property
    def carried(self) -> str:
        """Return the primals that carry a tangent (jvp) or cotangent (double_backward)."""
        assert self.tangents is not None
        return self.tangents

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """Return the result roles that are computed, in order."""
        results = self.signature.results
        return tuple(r for r, on in zip(results, self.mask or (True,) * len(results)) if on)

    def results(self, of: Callable[[str], Any]) -> tuple[Any, ...]:
        """Return the results in order: `of` each role that is wanted, else None."""
        wanted = self.wanted
        return tuple(of(role) if role in wanted else None for role in self.signature.results)

    @property
    def dtype(self) -> str:
        """Return the short name of the operands' common type; that of indices is their own."""
        return self.specs[0].dtype

    def dtype_of(self, role: str) -> str:
        """Return the short name of the type that the operand or result in `role` has."""
        return self.problem.dtype_of(role, self.dtype)

    def spec(self, role: str) -> Spec:
        """Return the Spec of the operand in `role`."""
        return self.specs[self.roles.index(role)]

    def terms(self, role: str) -> Terms:
        """Return the terms of the result `role`, without absent operands."""
        row = TERMS[self.op, self.pass_, role]
        return row._replace(
            products=tuple(pair for pair in row.products if all(map(self.is_present, pair))),
            added=tuple(filter(self.is_present, row.added)),
        )

    def products(self, role: str) -> int:
        """Return the most additions on the path to one element of the result `role`."""
        return self._additions[role]

    @cached_property
    def _additions(self) -> dict[str, int]:
        return {role: self._added(role) for role in self.signature.results}

    def _added(self, role: str) -> int:
        base = self.problem.products(role)
        sums = len(TERMS[self.op, self.pass_, role].products)
        return base if sums < 2 else base * max(1, len(self.terms(role).products)) + 1

    def flop(self) -> int:
        """Return the floating-point operations, 2 a product; those with padding do not count."""
        sums = sum(len(self.terms(role).products) for role in self.wanted)
        return 2 * sums * self.problem.macs("y") if sums else 0

    def bytes_moved(self) -> int:
        """Return the compulsory bytes: each needed element read once, each result written once."""
        needed = {name for role in self.wanted for name in self.terms(role).reads}
        moved = [(role, self.problem.elements_read(role)) for role in needed]
        moved += [(role, prod(self.problem.shape(role))) for role in self.wanted]
        return sum(n * dtypes.numpy_dtype(self.dtype_of(role)).itemsize for role, n in moved)

    def memory(self) -> int:
        """Return an upper estimate, in bytes, of the memory that the oracle needs for this call."""
        wide = dtypes.numpy_dtype(dtypes.accumulator(self.dtype)).itemsize
        arrays = sum(prod(self.problem.shape(r)) for r in (*self.roles, *self.wanted))
        return 4 * wide * (arrays + self.problem.scratch())

    def least_memory(self, oracle: bool) -> int:
        """Return the bytes of the results, and those of one image that the oracle has to pad."""
        sizes = [(prod(self.problem.shape(role)), self.dtype_of(role)) for role in self.wanted]
        if oracle and any(BASE_ROLE[role] != "b" for role in self.wanted):
            sizes.append((self.problem.padded_image(), dtypes.accumulator(self.dtype)))
        return sum(count * dtypes.numpy_dtype(code).itemsize for count, code in sizes)

    def line(self, *data: tuple[str, str | None]) -> str:
        """Return the line of the call and of its `data`: (key, text or None for a default)."""
        name, mask = self.pass_, None
        if self.mask and not all(self.mask):
            names = {bits: name for name, bits in mask_names(self.op).items()}
            if self.pass_ == "backward" and self.mask in names:
                name = names[self.mask]
            else:
                mask = "".join("01"[on] for on in self.mask)
        specs = {r: s for r, s in zip(self.roles, self.specs) if self.is_present(r)}
        device, everything = self.specs[0].device, self.possible_tangents
        keys = (
            *problem_keys(self.problem),
            ("dt", self.dtype if self.dtype != "f32" else None),
            ("math", self.math if self.math != "ieee" else None),
            ("mem", memory_text(self.problem, specs)),
            ("dev", device if device != "cpu" else None),
            ("tan", (self.carried or "0") if self.carried != everything else None),
            ("mask", mask),
            *data,
        )
        tail = "".join(f":{k}={v}" for k, v in keys if v is not None)
        return f"{self.op}.{name}:{shape_text(self.problem)}{tail}"

    def __str__(self) -> str:
        return self.line()


@dataclass(frozen=True, repr=False)
class Case:
    """A Call with its data: all that is needed to repeat an experiment.

    Parameters
    ----------
    call : Call
    fill : str
        A name from `convref.case.FILLS`.
    seed : int
        0 to 2**63 - 1.
    around : tuple of str
        Names from `convref.case.AROUND`: earlier calls in their order, and how this one is made.

    Examples
    --------
    >>> from convref.case import parse
    >>> case = parse("conv.wgrad:n2c3k4_i8x8_f3x3_p1:dt=bf16:fill=normal")
    >>> case.call.dtype, case.call.mask, str(case)
    ('bf16', (False, True, False), 'conv.wgrad:n2c3k4_i8x8_f3x3_p1:dt=bf16:fill=normal')
    """

    call: Call
    fill: str = "int"
    seed: int = 0
    around: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.call, Call):
            raise invalid("case", f"call is {a_kind(self.call)}, needs a Call")
        where = self.call.where
        one_of(where, "fill", self.fill, FILLS)
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise invalid(where, f"seed is {shorten(repr(self.seed))}, needs an int in [0, 2**63)")
        for name in self.around:
            one_of(where, "around", name, AROUND)
        if len(set(self.around)) != len(self.around):
            raise invalid(where, f"around has {','.join(self.around)}, needs each name once")

    def on(self, device: str) -> Self:
        """Return the case with its operands on a device."""
        return replace(self, call=self.call.on(device))

    @cached_property
    def _line(self) -> str:
        fill = self.fill if self.fill != "int" else None
        seed = str(self.seed) if self.seed else None
        return self.call.line(
            ("fill", fill), ("seed", seed), ("around", ",".join(self.around) or None)
        )

    def __str__(self) -> str:
        return self._line

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"
