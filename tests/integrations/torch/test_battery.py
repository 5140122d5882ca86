"""Models of other packages under `convert`: what works, and which layers are computed.

`python tests/integrations/torch/test_battery.py [NAME ...]` runs the models with one of these words
in their names, all without any. Results are kept in build/models; from all that are there it writes
the tables of docs/models.md. A check compares the converted model with the model as it was; where
both fail, the limit is PyTorch's or the model's.
"""

from __future__ import annotations

import copy
import importlib
import io
import json
import re
import sys
import tempfile
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils import _pytree  # noqa: E402

from convref.errors import ConvrefError  # noqa: E402
from convref.integrations.torch import convert, fuse  # noqa: E402
from convref.integrations.torch._intercept import Intercepted  # noqa: E402
from convref.integrations.torch._layers import LAYERS, Layer  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PAGE, RESULTS = ROOT / "docs" / "models.md", ROOT / "build" / "models"
PACKAGES = {  # the first word of a model's name -> the package, and the version that the page is of
    "torchvision": ("torchvision", "0.28.0"),
    "timm": ("timm", "1.0.31"),
    "segmentation_models": ("segmentation_models_pytorch", "0.6.0"),
    "ultralytics": ("ultralytics", "8.4.190"),
    "monai": ("monai", "1.6.1"),
    "efficientnet_pytorch": ("efficientnet_pytorch", "0.7.1"),
}
SLOW = {"ONNX (dynamo)", "compile"}  # a minute for each model: only those of these names
SAMPLE = {"resnet18", "regnety_002", "yolo11n", "UNet", "b0"}

_VISION = (
    *("resnet18", "googlenet", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5"),
    *("squeezenet1_1", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny"),
    *("densenet121", "lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "r3d_18"),
)
_TIMM = (
    *("regnety_002", "repvgg_a0", "tf_efficientnetv2_b0", "nf_regnet_b0", "resnetv2_50x1_bit"),
    *("vit_tiny_patch16_224", "convnext_atto", "convnextv2_atto", "mobilenetv3_small_050"),
    *(
        "mobilenetv4_conv_small",
        "ghostnet_100",
        "edgenext_xx_small",
        "poolformer_s12",
        "skresnet18",
    ),
    *("lcnet_050", "ese_vovnet19b_dw", "gernet_s", "inception_next_atto", "fastvit_t8"),
)
_SEGMENTERS = ("Unet", "FPN", "DeepLabV3Plus", "PSPNet", "Linknet")
_YOLO = ("yolov8n", "yolo11n", "yolo11n-cls")
_MONAI: dict[str, dict[str, Any]] = {
    "UNet": {"channels": (4, 8, 16), "strides": (2, 2), "num_res_units": 1},
    "BasicUNet": {"features": (8, 8, 16, 16, 16, 8)},
    "SegResNet": {"init_filters": 8},
    "DynUNet": {"kernel_size": (3,) * 3, "strides": (1, 2, 2), "upsample_kernel_size": (2, 2)},
    "AttentionUnet": {"channels": (4, 8, 16), "strides": (2, 2)},
}


def _vision(name: str) -> Any:
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    options |= {"weights_backbone": None} if name.startswith(("lraspp", "deeplab")) else {}
    return importlib.import_module("torchvision.models").get_model(name, weights=None, **options)


def _yolo(name: str) -> Any:
    tasks = importlib.import_module("ultralytics.nn.tasks")
    kind = {"seg": "SegmentationModel", "cls": "ClassificationModel"}.get(name.partition("-")[2])
    return getattr(tasks, kind or "DetectionModel")(f"{name}.yaml", verbose=False)


def _segmenter(name: str) -> Any:
    package = importlib.import_module("segmentation_models_pytorch")
    return getattr(package, name)("resnet18", encoder_weights=None)


def _monai(name: str) -> Any:
    nets = importlib.import_module("monai.networks.nets")
    return getattr(nets, name)(3, in_channels=1, out_channels=2, **_MONAI[name])


MODELS: dict[str, Callable[[], Any]] = {
    **{f"torchvision {n}": lambda n=n: _vision(n) for n in _VISION},
    **{f"timm {n}": lambda n=n: importlib.import_module("timm").create_model(n) for n in _TIMM},
    **{f"segmentation_models {n}": lambda n=n: _segmenter(n) for n in _SEGMENTERS},
    **{f"ultralytics {n}": lambda n=n: _yolo(n) for n in _YOLO},
    **{f"monai {n}": lambda n=n: _monai(n) for n in _MONAI},
    "efficientnet_pytorch b0": lambda: importlib.import_module(
        "efficientnet_pytorch"
    ).EfficientNet.from_name("efficientnet-b0"),
}


def inputs_of(name: str) -> tuple[Any, ...]:
    """Return the smallest inputs that a model takes, of two images."""
    package, name = name.split()
    shape = (2, 3, 64, 64)
    if package == "monai":
        shape = (2, 1, 32, 32, 32) if name == "BasicUNet" else (2, 1, 16, 16, 16)
    elif name == "vit_tiny_patch16_224":
        shape = (2, 3, 224, 224)
    elif name == "r3d_18":
        shape = (2, 3, 4, 32, 32)
    return (torch.rand(shape),)


def has(package: str, pinned: str) -> bool:
    try:
        return version(package) == pinned
    except PackageNotFoundError:
        return False


def prepare() -> None:
    """Let torchvision be imported where its build does not fit that of torch.

    The models here call none of its operators, but importing it names two of them.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for module in [n for n in sys.modules if n.startswith("torchvision")]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        prepare.library = library
        importlib.import_module("torchvision")


# The checks: what a model computes in some way, as tensors.


def _tensors(found: Any) -> list[Any]:
    return [t for t in _pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]


def forward(model: Any, inputs: Any) -> list[Any]:
    with torch.no_grad():
        return _tensors(model(*inputs))


def _loss(model: Any, inputs: Any) -> Any:
    torch.manual_seed(0)  # for dropout
    return sum(t.float().square().mean() for t in _tensors(model(*inputs)) if t.requires_grad)


def backward(model: Any, inputs: Any) -> list[Any]:
    model = copy.deepcopy(model).train()
    _loss(model, inputs).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def steps(model: Any, inputs: Any) -> list[Any]:
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        _loss(model, inputs).backward()
        optimizer.step()
    return [*model.state_dict().values()]


def in_dtype(dtype: Any, model: Any, inputs: Any) -> list[Any]:
    return forward(copy.deepcopy(model).to(dtype), [x.to(dtype) for x in inputs])


def channels_last(model: Any, inputs: Any) -> list[Any]:
    layout = torch.channels_last if inputs[0].ndim == 4 else torch.channels_last_3d
    model = copy.deepcopy(model).to(memory_format=layout)
    return forward(model, [x.to(memory_format=layout) for x in inputs])


def fx(model: Any, inputs: Any) -> list[Any]:
    return forward(torch.fx.symbolic_trace(copy.deepcopy(model)), inputs)


def trace(model: Any, inputs: Any) -> list[Any]:
    return forward(torch.jit.trace(model, inputs, check_trace=False, strict=False), inputs)


@lru_cache(1)
def exported(model: Any, inputs: Any) -> Any:
    return torch.export.export(model, inputs)


def export(model: Any, inputs: Any) -> list[Any]:
    return forward(exported(model, inputs).module(), inputs)


def onnx(model: Any, inputs: Any, dynamo: bool) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        source = (exported(model, inputs),) if dynamo else (model, inputs)
        torch.onnx.export(*source, f=f"{folder}/m.onnx", dynamo=dynamo, verbose=False)
    return forward(model, inputs)


def compiled(model: Any, inputs: Any) -> list[Any]:
    torch._dynamo.reset()
    return forward(torch.compile(model, backend="aot_eager"), inputs)


def pickled(model: Any, inputs: Any) -> list[Any]:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return forward(torch.load(file, weights_only=False), inputs)


def loaded(model: Any, inputs: Any) -> list[Any]:
    into = copy.deepcopy(model)
    for tensor in into.state_dict().values():
        tensor.zero_()
    into.load_state_dict(model.state_dict())
    return forward(into, inputs)


CHECKS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "forward": forward,
    "backward": backward,
    "3 steps": steps,
    "half": partial(in_dtype, torch.float16),
    "bfloat16": partial(in_dtype, torch.bfloat16),
    "channels-last": channels_last,
    "fx": fx,
    "trace": trace,
    "export": export,
    "ONNX": partial(onnx, dynamo=False),
    "ONNX (dynamo)": partial(onnx, dynamo=True),
    "compile": compiled,
    "deepcopy": lambda model, inputs: forward(copy.deepcopy(model), inputs),
    "pickle": pickled,
    "state_dict": loaded,
}
ROUNDS = "rounds elsewhere: at most twice as far from the results in float64 as without convref"
OTHER_BITS = ("backward", "3 steps", "half", "bfloat16", "channels-last")  # than forward's

# Layers by what they compute, whoever wrote them; as the names of classes end.
_KNOWN = re.compile(
    r"(conv|norm|pool)(transpose)?[1-3]?d?\w{0,24}$|^(conv|batchnorm|groupnorm|layernorm)|"
    r"^(relu6?|leakyrelu|prelu|elu|celu|selu|silu|swish|memoryefficientswish|gelu\w*|mish|"
    r"(hard)?(sigmoid|swish|tanh)\w*|softplus|softmax|logsoftmax|upsample\w*|sigmoid)$",
    re.IGNORECASE,
)


def layers_of(model: Any, report: Any) -> dict[str, Any]:
    """Return how many known layers there are, and those that stay PyTorch's, by class."""
    inside = {m for own in model.modules() if isinstance(own, Intercepted) for m in own.modules()}
    why = {row.name: row.why for row in report.left}
    known, left = 0, Counter[tuple[str, str]]()
    for name, module in model.named_modules():
        alone = next(module.children(), None) is None and _KNOWN.search(type(module).__name__)
        if not (alone or isinstance(module, (Layer, *LAYERS))):
            continue
        known += 1
        if not isinstance(module, Layer) and module not in inside:
            left[type(module).__name__, why.get(name, "")] += 1
    return {"known": known, "left": [[*key, count] for key, count in left.items()]}


def folded(plain: Any, inputs: Any) -> str:
    """Return how many batch norms `fuse` folds, and how far this moves the results in float64."""
    model = copy.deepcopy(plain).double()
    inputs = [x.double() for x in inputs]
    wanted = forward(model, inputs)
    norms = torch.nn.modules.batchnorm._BatchNorm
    before = sum(isinstance(m, norms) for m in model.modules())
    try:
        fuse(model)
        found = forward(model, inputs)
    except Exception as error:
        return f"FAILS {type(error).__name__}: {_line(error)}"
    after = sum(isinstance(m, norms) for m in model.modules())
    return f"{before - after} of {before}, {_distance(found, wanted):.0e}" if before else "-"


def _distance(found: Any, wanted: Any) -> float:
    """Return the largest difference of all tensors, divided by the largest number of all."""
    pairs = [(a.double(), b.double()) for a, b in zip(found, wanted, strict=True) if b.numel()]
    return max((a - b).abs().max() for a, b in pairs) / max(b.abs().max() for _, b in pairs)


def _line(error: Any) -> str:
    line = re.sub(r"\x1b\[\d*m", "", str(error)).strip().partition("\n")[0]
    return textwrap.shorten(line, 120, placeholder=" ...")


def outcome(name: str, model: Any, plain: Any, inputs: Any, wanted: list[Any]) -> str:
    """Return "yes", a distance, or what fails; with "PyTorch: " if it fails without convref too."""
    check = CHECKS[name]
    try:
        found = check(model, inputs)
    except Exception as error:
        try:
            check(plain, inputs)
        except Exception as theirs:
            return f"PyTorch: {type(theirs).__name__}: {_line(theirs)}"
        refused = isinstance(error, ConvrefError)
        return _line(error) if refused else f"FAILS {type(error).__name__}: {_line(error)}"
    if name in OTHER_BITS:
        wanted = check(plain, inputs)
    if len(found) == len(wanted) and all(map(_is_same, found, wanted)):
        return "yes"
    exact = check(copy.deepcopy(plain).double(), [x.double() for x in inputs])
    ours, theirs = (_distance(each, exact) for each in (found, wanted))
    return ROUNDS if ours <= 2 * theirs else f"FAILS: {ours} from float64, and before {theirs}"


def _is_same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def run(name: str) -> dict[str, Any]:
    """Return the outcome of each check of a model."""
    torch.manual_seed(0)
    plain, inputs = MODELS[name]().eval(), inputs_of(name)
    for norm in plain.modules():
        if getattr(norm, "momentum", None):
            norm.momentum = 1.0  # take the statistics of one batch
    forward(plain.train(), inputs)  # with others, results would hardly depend on the inputs
    wanted = forward(plain.eval(), inputs)
    model = copy.deepcopy(plain)
    row: dict[str, Any] = {"name": name, "layers": layers_of(model, convert(model))}
    row["fuse"] = folded(plain, inputs)
    for check in CHECKS:
        start = time.perf_counter()
        if check not in SLOW or name.split()[1] in SAMPLE:
            row[check] = outcome(check, model, plain, inputs, wanted)
            print(f"{name}: {check}: {row[check]} ({time.perf_counter() - start:.1f} s)")
    exported.cache_clear()
    return row


# The page.


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shares(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the counts of layers by package, and in total."""
    packages = [[n, [*found]] for n, found in groupby(rows, lambda row: row["name"].split()[0])]
    cells = []
    for package, found in [*packages, ["total", rows]]:
        known = sum(row["layers"]["known"] for row in found)
        left = sum(count for row in found for *_, count in row["layers"]["left"])
        cells.append([package, str(len(found)), str(known), str(known - left)])
        cells[-1].append(f"{100 * (known - left) / known:.1f} %")
    return cells


def tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tables of the page by name."""
    notes: dict[str, int] = {}

    def cell(text: str) -> str:
        if text in ("yes", "-"):
            return {"yes": "✓"}.get(text, text)
        return str(notes.setdefault(text, len(notes) + 1))

    cells = [
        [row["name"], *(cell(row.get(check, "-")) for check in CHECKS), row["fuse"]] for row in rows
    ]
    left = Counter[tuple[str, str]]()
    for row in rows:
        for layer, why, count in row["layers"]["left"]:
            left[layer, why] += count
    pinned = [["torch", torch.__version__.partition("+")[0]], *map(list, PACKAGES.values())]
    return {
        "versions": _table(["package", "version"], pinned),
        "shares": _table(
            ["package", "models", "layers", "computed by convref", "share"], shares(rows)
        ),
        "left": _table(["class", "count", "why"], [[a, str(n), b] for (a, b), n in left.items()]),
        "checks": _table(["model", *CHECKS, "fuse"], cells),
        "notes": "\n".join(f"{number}. {text}" for text, number in notes.items()),
    }


def main(names: list[str]) -> None:
    """Run models and write the page."""
    missing = [" ".join(pair) for pair in PACKAGES.values() if not has(*pair)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    prepare()
    RESULTS.mkdir(parents=True, exist_ok=True)
    files = {name: RESULTS / f"{name.replace(' ', '_')}.json" for name in MODELS}
    for name, file in files.items():
        if any(word in name for word in names) or not (names or file.exists()):
            file.write_text(json.dumps(run(name)))
    rows = [json.loads(file.read_text()) for file in files.values() if file.exists()]
    text = PAGE.read_text("utf-8")
    for name, table in tables(rows).items():  # up to the next empty line
        text = re.sub(rf"(?<=<!-- {name} -->\n\n)(.+\n)*", lambda _, new=table: f"{new}\n", text)
    PAGE.write_text(text, "utf-8")


# The tests.


def test_page_has_every_model():
    text = PAGE.read_text("utf-8")
    first = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()]
    assert [name for name in first if name in MODELS] == [*MODELS]
    assert "FAILS" not in text


@pytest.mark.nightly(reason="a minute each")
@pytest.mark.parametrize("name", MODELS)
def test_model_works_after_convert(name):
    package, pinned = PACKAGES[name.split()[0]]
    if not has(package, pinned):
        pytest.skip(f"{package} {pinned} is not installed")
    prepare()
    row = run(name)
    assert not [f"{check}: {text}" for check, text in row.items() if str(text).startswith("FAILS")]


if __name__ == "__main__":
    main(sys.argv[1:])
