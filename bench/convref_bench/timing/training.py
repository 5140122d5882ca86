"""Training steps of YOLO11n, images a second.

The network is that of docs/examples, in torch.nn and after `convert`. Each arm first takes a step
on small images in which every call of convref's is judged; one that is wrong is not timed.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from convref.dtypes import short_name

from .. import options, records
from .measure import Device, Stop, measure

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
# file -> class
NETWORKS = {"yolo11n": "YOLO11n", "resnet": "ResNet50", "mobilenet": "MobileNetV3", "unet": "UNet"}
PLAIN = "torch.nn"  # the arm that is not converted; the others are backends
JUDGED = 64  # height and width of the images on which an arm is judged
STOP = Stop(samples=8, noise=0.01, timeout_s=20.0, turn=2)


@dataclass(frozen=True)
class Setting:
    """The training data of all arms: images (batch, 3, size, size) of a number type on a device."""

    where: str
    dtype: torch.dtype
    size: int
    batch: int

    def images(self, size: int) -> torch.Tensor:
        made = torch.randn(self.batch, 3, size, size, device=self.where, dtype=self.dtype)
        return made.contiguous(memory_format=torch.channels_last)


def network(name: str = "yolo11n") -> Any:
    """Return the model class, None without docs/examples in the same checkout."""
    path = EXAMPLES / f"{name}.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, NETWORKS[name])


class Training:
    """One arm: a copy of the model and its optimizer; calling it takes a step."""

    def __init__(self, model: torch.nn.Module, arm: str, images: torch.Tensor) -> None:
        from convref.integrations.torch import convert

        self.model, self.images = deepcopy(model), images
        if arm != PLAIN:
            convert(self.model, arm)
        self.descent = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def __call__(self) -> None:
        self.descent.zero_grad()
        outputs = self.model(self.images)
        torch.stack([y.float().square().mean() for y in outputs]).sum().backward()
        self.descent.step()


def refusal(model: torch.nn.Module, arm: str, setting: Setting) -> str:
    """Return why the judge refuses a step of an arm, an empty text if it passes."""
    from convref.integrations.torch.recording import Calls

    if arm == PLAIN:
        return ""
    with Calls() as calls:
        Training(model, arm, setting.images(JUDGED))()
    kinds = {str(one.call): one for one in calls.seen}
    verdicts = ((line, one.verdict()) for line, one in kinds.items())
    return next((f"{line}: {found.reason}" for line, found in verdicts if not found), "")


def rows(
    device: Device, setting: Setting, arms: Sequence[str], stop: Stop = STOP
) -> Iterator[records.Record]:
    """Yield a record for each arm: images a second, or why it is refused or absent."""
    torch.manual_seed(0)
    model = network()().to(setting.where, setting.dtype, memory_format=torch.channels_last)
    head = {"what": "training", "network": "yolo11n", "size": setting.size, "batch": setting.batch}
    head["dtype"] = short_name(str(setting.dtype).removeprefix("torch."))
    ready = {}
    for arm in (PLAIN, *arms):
        try:
            if reason := refusal(model, arm, setting):
                yield {**head, "arm": arm, "refused": reason}
                continue
        except (RuntimeError, ValueError) as error:  # NotImplementedError is a RuntimeError
            yield {**head, "arm": arm, "absent": str(error)[:300]}
            continue
        ready[arm] = Training(model, arm, setting.images(setting.size))
    timings = measure(ready, device, stop)
    for arm, took in timings.items():
        rate = setting.batch / took.median_ms * 1e3
        ratio = timings[PLAIN].median_ms / took.median_ms
        yield {**head, "arm": arm, "images_s": rate, "ratio": ratio, **took.record()}


def main(
    *,
    device: str = "cpu",
    dtype: str = "float32",
    size: int = 160,
    batch: int = 4,
    backend: str = "auto",
    out: Path | None = None,
) -> None:
    """Time training steps of YOLO11n with torch.nn and converted to each of the backends.

    --size is the height and width of the images, --out a file to which records are appended.
    """
    if device == "cpu":
        from .cpu import Cpu as Processor
    else:
        from ..gpu.cuda import Cuda as Processor
    setting = Setting(device, getattr(torch, dtype), size, batch)
    for row in rows(Processor(), setting, options.words(backend)):
        if out is not None:
            records.append(out, row)
        text = row.get("refused") or row.get("absent")
        if "images_s" in row:
            text = f"{row['images_s']:9.2f} images/s, {row['ratio']:.3f} of {PLAIN}"
        print(f"{row['arm']:<10} {text}")
