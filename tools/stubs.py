"""Write the stubs of modules whose names are generated, and the list of public functions.

Usage: python tools/stubs.py [--check]. A type checker sees nothing of a generated function or
class, so its signature is written down: `convref/__init__.pyi` and those of `MODULES`. `import
convref` generates no function, so their names are written down too: `convref/api/functions.py`.
"""

import importlib
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

from convref.api.resize import ASPECTS
from convref.api.resize import MODES as INTERPOLATE_MODES
from convref.case.call import MATHS
from convref.ops import RANKS
from convref.ops.resize import NEAR
from convref.ops.resize_axis import COORDINATES
from convref.ops.sample import PADDINGS, TAPS

ROOT = Path(__file__).resolve().parent.parent
HEAD = '"""Signatures; made by tools/stubs.py."""\n\n# fmt: off\n'
NAMES = "convref.api.functions"


def literal(*words: str) -> str:
    """Return the annotation of an argument that takes one of these words."""
    return f"Literal[{', '.join(f'{chr(34)}{word}{chr(34)}' for word in words)}]"


PADS = literal("valid", "same", "same_upper", "same_lower", "half", "full")
# The types that arguments have, where their signature does not say so.
ALIASES = {
    "_Array": "AnyArray[Any]",
    "_Ints": "SupportsIndex | Sequence[SupportsIndex]",
    "_Floats": "float | Sequence[float]",
    "_Padding": f"_Ints | Sequence[Sequence[SupportsIndex]] | {PADS}",
    "_OutputSize": "int | Sequence[int | None] | None",
    "_Layout": literal(*(f for at in RANKS.values() for f in (f"NC{at}", f"N{at}C"))),
    "_Math": literal(*MATHS),
    "_Mode": literal(*INTERPOLATE_MODES),
    "_Coordinates": literal(*COORDINATES),
    "_Nearest": literal(*NEAR),
    "_Aspect": literal(*ASPECTS),
}
TYPES = {
    **dict.fromkeys(("kernel_size", "stride", "dilation", "output_padding"), "_Ints"),
    **dict.fromkeys(("normalized_shape", "size", "sizes"), "_Ints"),
    "bias_sizes": "_Ints | None",
    "weight_scale": "float | _Array",
    "weight_zero_point": "int | _Array",
    **dict.fromkeys(("scale_factor", "scales"), "_Floats"),
    "padding": "_Padding",
    "output_size": "_OutputSize",
    "output_mask": "Sequence[bool]",
    "roi": "Sequence[Sequence[float]]",
    "use_input_stats": "bool",
    "output_dtype": "Any",
    "layout": "_Layout",
    "math": "_Math",
    "reduction": literal("mean", "sum", "none"),
    "approximate": literal("none", "tanh"),
    "keep_aspect_ratio_policy": "_Aspect",
    "coordinate_transformation_mode": "_Coordinates",
    "nearest_mode": "_Nearest",
    "padding_mode": literal(*PADDINGS),
}
MODE = {  # of the argument `mode`, by the start of a function's name
    "resize": literal("nearest", "linear", "cubic"),
    "pixel": literal("CRD", "DCR"),
    "grid": literal(*TAPS),
}
# Results whose dtype is not that of an operand.
OWN_DTYPE = {"conv_integer": "np.int32", "scaled_conv": "Any"}
UNTYPED = ("Any", "str", "str | None")  # annotations of arguments that TYPES replaces
SETTINGS = {*TYPES, "dtype", "device", "mode", "weight_layout", "backend", "size_average", "reduce"}
FLAGS = ("return_indices", "return_statistics")
# Each module, and the lines of its stub for names that are not generated.
MODULES = {
    "convref": """\
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from . import api as api
from . import ops as ops
from .api.testing import assert_close as assert_close
from .api.testing import assert_correct as assert_correct
from .api.testing import case_of as case_of
from .api.testing import check_program as check_program
from .api.testing import program_data as program_data
from .arrays import AnyArray
from .case import Call as Call
from .case import Case as Case
from .case import Spec as Spec
from .case import parse as parse
from .case import parse_problem as parse_problem
from .dispatch import explain as explain
from .dispatch import plan as plan
from .dispatch import run as run
from .errors import ConvrefError as ConvrefError
from .errors import UnsupportedError as UnsupportedError
from .judge import Numerics as Numerics
from .judge import Verdict as Verdict
from .judge import judge as judge
from .ops import SIGNATURE as SIGNATURE

__version__: str
_T = TypeVar("_T")
""",
    "convref.integrations.torch.functional": """\
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ... import ALIASES
from ...api.definition import Definition
from ._kernels import PassConfig

OF_TORCH: list[Definition]
def conv_config(
    rank: int, input: Tensor, weight: Tensor, backend: str | None, *geometry: Any
) -> PassConfig: ...
""",
    "convref.integrations.torch.nn": """\
# mypy: disable-error-code="misc, override"
from typing import Any, Literal

import torch
from torch import Tensor

from ... import ALIASES
from ._blocks import ConvAct, ConvBNAct
from ._intercept import Intercepted
from ._layers import Layer

ACTIVATIONS: dict[str, type[Layer]]
""",
}


def stub(name: str) -> str:
    """Return the stub of a module."""
    module = importlib.import_module(name)
    public, written = module.__all__, MODULES[name]
    listed = [n for n in public if f" {n}\n" not in written and f"{n}:" not in written]
    if name.endswith(".nn"):
        body = "".join(layer_text(n, getattr(module, n)) for n in listed)
    else:
        body = functions_text({n: getattr(module, n) for n in sorted(listed)})
    if name == "convref":
        written += "".join(wrapped(f"{n}: TypeAlias = (", t, ")") for n, t in ALIASES.items())
    used = ", ".join(sorted(alias for alias in ALIASES if re.search(rf"{alias}\b", body)))
    ordered = sorted(public, key=lambda n: (not n.isupper(), n[0].islower(), n))
    names = wrapped("__all__ = [", ", ".join(f'"{n}"' for n in ordered), "]")
    return f"{HEAD}{written.replace('ALIASES', used)}\n{names}\n{body}"


def functions_text(functions: dict[str, Any]) -> str:
    """Return the signatures of functions, one for those that differ by rank alone."""
    first: dict[tuple[str, str], str] = {}
    lines = []
    for name, function in functions.items():
        text = function_text(name, function)
        key = re.sub(r"[123]d", "Nd", name), text.replace(f"{name}(", "(")
        same = first.setdefault(key, name)
        lines.append(text if same == name else f"{name} = {same}\n")
    return "".join(lines)


def function_text(name: str, function: Any) -> str:
    """Return the signature of a function, as overloads where a flag changes what it returns."""
    form = inspect.signature(function)
    typed = [*form.parameters.values()]
    arrays = [p.name for p in typed if p.annotation == "Any" and p.name not in SETTINGS]
    kept = next((n for n in ("grad_output", "input") if n in arrays), (arrays or [""])[0])
    typed = [p.replace(annotation=annotation(name, p, kept)) for p in typed]
    returns = re.sub(r"\bAny\b", "_T", form.return_annotation)
    if name in OWN_DTYPE:
        numpy = [p.replace(annotation="NDArray[Any]") if p.name == kept else p for p in typed]
        return overloads(name, (numpy, f"NDArray[{OWN_DTYPE[name]}]"), (typed, returns))
    flag = next((p for p in typed if p.name in FLAGS), None)
    if flag is not None:
        one, _, several = returns.partition(" | ")
        off = [p.replace(annotation="Literal[False]") if p is flag else p for p in typed]
        return overloads(name, (off, one), (required(typed, flag, "Literal[True]"), several))
    mask = next((p for p in typed if p.name == "output_mask"), None)
    if mask is not None and mask.default is not Parameter.empty:
        rest = [p for p in typed if p is not mask], returns.replace(" | None", "")
        return overloads(name, rest, (required(typed, mask, mask.annotation), returns))
    return definition(name, typed, returns)


def overloads(name: str, *forms: tuple[Sequence[Parameter], str]) -> str:
    """Return several signatures of a function."""
    return "".join(f"@overload\n{definition(name, *form)}" for form in forms)


def required(listed: Sequence[Parameter], chosen: Parameter, annotation: str) -> list[Parameter]:
    """Return parameters of which one has no default; it is a keyword after those that have one."""
    place = listed.index(chosen)
    keyword = any(p.default is not p.empty for p in listed[:place])
    kind = Parameter.KEYWORD_ONLY if keyword else chosen.kind
    rest = [p.replace(kind=p.KEYWORD_ONLY) if keyword else p for p in listed[place + 1 :]]
    made = chosen.replace(default=Parameter.empty, kind=kind, annotation=annotation)
    return [*listed[:place], made, *rest]


def annotation(name: str, p: Parameter, kept: str) -> str:
    """Return the type of a function's parameter; `kept` is the array whose type results have."""
    if p.annotation not in UNTYPED:
        return str(p.annotation)
    if p.name == "mode":
        return next((words for stem, words in MODE.items() if name.startswith(stem)), "_Mode")
    if p.name in SETTINGS:
        found = TYPES.get(p.name, p.annotation)
        return optional(found, p.default is None)
    if p.name in ("primals", "tangents"):
        return f"Sequence[{'AnyArray[_T]' if p.name == 'primals' else '_Array'} | None]"
    if p.annotation != "Any":
        return str(p.annotation)
    if p.name == kept:
        return "AnyArray[_T]"
    absent = p.default is None or p.name.startswith(("grad_grad_", "running_", "bias"))
    return optional("_Array", absent)


def optional(annotation: str, absent: bool) -> str:
    """Return the type of an argument that may be None where `absent`."""
    return f"{annotation} | None" if absent and "None" not in annotation else annotation


def layer_text(name: str, layer: Any) -> str:
    """Return a class of torch.nn's, with the parameters of its constructor."""
    bases = [
        ("", "torch.nn.")[b.__module__.startswith("torch.")] + b.__name__ for b in layer.__bases__
    ]
    head = f"class {name}({', '.join(bases)}):"
    if "Layer" not in bases and "Intercepted" not in bases:
        return f"{head} ...\n"
    form = inspect.signature(layer.replaces)
    backend = Parameter("backend", Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    listed = [p for p in form.parameters.values() if not p.name.endswith("args")]
    typed = [p.replace(annotation=of_layer(p)) for p in listed]
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD, annotation="")
    text = definition("__init__", [own, *typed, backend], "None")
    return f"{head}\n{textwrap.indent(text, '    ')}"


def of_layer(p: Parameter) -> str:
    """Return the type of a parameter that a layer of torch.nn takes."""
    if p.name == "size" or (p.name in TYPES and p.annotation not in (int, bool)):
        return optional(TYPES[p.name], p.default is None)
    if p.name == "mode":
        return "_Mode"
    if isinstance(p.annotation, type):
        return "Any" if p.annotation is p.empty else p.annotation.__name__
    return re.sub(r"\b(typing\.|torch\.(?=Tensor))", "", str(p.annotation)).replace("'", '"')


def definition(name: str, parameters: Iterable[Parameter], returns: str) -> str:
    """Return a function's signature, on as many lines as it takes."""
    listed, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            listed, starred = [*listed, "*"], True
        default = "" if p.default is p.empty else f" = {p.default!r}".replace("'", '"')
        listed.append(f"{p.name}: {p.annotation}{default}" if p.annotation else p.name)
    words = ", ".join(p.replace(" ", "\0") for p in listed)
    return wrapped(f"def {name}(", words, f") -> {returns}: ...").replace("\0", " ")


def wrapped(head: str, inner: str, tail: str) -> str:
    """Return source code, with `inner` on lines of its own if one line is too long."""
    if len(head + inner + tail) <= 96:
        return f"{head}{inner}{tail}\n"
    folded = textwrap.fill(inner, 92, break_on_hyphens=False).replace("\n", "\n    ")
    return f"{head}\n    {folded}\n{tail}\n"


def names() -> str:
    """Return the list of public functions by module."""
    rows = []
    for path in sorted((ROOT / "convref" / "api").glob("[a-z]*.py")):
        public = getattr(importlib.import_module(f"convref.api.{path.stem}"), "__all__", ())
        listed = textwrap.fill(", ".join(f'"{name}"' for name in public), 92)
        text = listed.replace("\n", "\n        ")
        rows += [f'    "{path.stem}": (\n        {text},\n    ),\n'] if public else []
    head = '"""Names of the public functions by module; made by tools/stubs.py."""\n\n# fmt: off\n'
    return f"{head}FUNCTIONS: dict[str, tuple[str, ...]] = {{\n{''.join(rows)}}}\n"


def text_of(name: str) -> str:
    """Return what the generated file of a module must contain."""
    return names() if name == NAMES else stub(name)


def path_of(name: str) -> Path:
    """Return the generated file of a module."""
    path = Path(importlib.import_module(name).__file__ or "")
    return path if name == NAMES else path.with_suffix(".pyi")


def is_stale(name: str) -> bool:
    """Return whether the generated file of a module is out of date."""
    path = path_of(name)
    return not path.exists() or path.read_text("utf-8") != text_of(name)


def main(check: bool) -> int:
    """Write the files that are out of date, or only list them; return the exit status."""
    if not check and is_stale(NAMES):
        path_of(NAMES).write_text(names(), "utf-8")
        os.execv(sys.executable, [sys.executable, *sys.argv])  # stubs have the new names too
    stale = [name for name in (NAMES, *MODULES) if is_stale(name)]
    for name in () if check else stale:
        path_of(name).write_text(text_of(name), "utf-8")
    print(*(f"{path_of(name).relative_to(ROOT)} is out of date" for name in stale), sep="\n")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
