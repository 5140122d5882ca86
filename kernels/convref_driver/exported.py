"""Exported kernels: binaries and a description in JSON, launched without their compiler."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from convref.errors import invalid, shorten

from .kernel import Kernel, load
from .library import Driver
from .library import driver as machines_driver
from .manifest import Manifest
from .tensormap import encode

ALIGN = 16  # bytes, where a kernel loads vectors


class Memory(NamedTuple):
    """A tensor that the caller allocates.

    Shape and strides are in elements; `align` is what its address is a multiple of, in bytes.
    """

    use: str  # "operand", "result" or "workspace"
    dtype: str  # a code of `convref.dtypes`
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    align: int

    @property
    def bytes(self) -> int:
        span = 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides))
        return span * itemsize(self.dtype) if prod(self.shape) else 0


class Address(NamedTuple):
    """An argument: the address of a tensor."""

    tensor: str


class Map(NamedTuple):
    """An argument: a tensor map, whose fields are those of `encode`."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    every: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()


class Invocation(NamedTuple):
    """A launch: a binary, how it is launched, the grid, and an argument for each parameter."""

    image: str  # of a file without its suffix: there is a cubin and its PTX
    manifest: Manifest
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]  # numbers, Address and Map


def itemsize(dtype: str) -> int:
    return int(re.sub(r"\D", "", dtype)) // 8


@dataclass(frozen=True)
class Export:
    """The launches of a call, in order, and the tensors that they read and write.

    Parameters
    ----------
    name : str
        An identifier of C; the files begin with it.
    line : str
        The call.
    arch : str
        The architecture that the cubins are for.
    made_by : str
        Kernels and tiles, and the versions of the compilers.
    tensors : mapping of str to Memory
    launches : tuple of Invocation
    """

    name: str
    line: str
    arch: str
    made_by: str
    tensors: Mapping[str, Memory]
    launches: tuple[Invocation, ...]

    @property
    def images(self) -> tuple[str, ...]:
        """Return the names of the binaries, in order of their first launch."""
        return tuple(dict.fromkeys(launch.image for launch in self.launches))

    def to_json(self) -> str:
        """Return the description, in JSON."""
        fields = {name: value for name, value in vars(self).items() if name != "launches"}
        fields["tensors"] = {name: memory._asdict() for name, memory in self.tensors.items()}
        fields["launches"] = [
            {
                "image": launch.image,
                **asdict(launch.manifest),
                "grid": launch.grid,
                "arguments": [_to_json(value) for value in launch.arguments],
            }
            for launch in self.launches
        ]
        return json.dumps(fields, indent=1) + "\n"

    @classmethod
    def read(cls, path: str | Path) -> Export:
        """Return the export that a JSON file describes; raise ConvrefError if it is not one."""
        path = Path(path)
        try:
            fields = json.loads(path.read_text("utf-8"))
            tensors = {k: Memory(**_tuples(v)) for k, v in fields.pop("tensors").items()}
            launches = tuple(map(_from_json, fields.pop("launches")))
            return cls(**fields, tensors=tensors, launches=launches)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise invalid(path.name, f"is no export: {shorten(str(error))}") from None

    def load(
        self, folder: str | Path, device: int = 0, driver: Driver | None = None, suffix: str = ""
    ) -> Loaded:
        """Return the kernels, loaded from the cubins of a folder, or from the files of `suffix`."""
        driver = driver or machines_driver()
        manifests = {launch.image: launch.manifest for launch in self.launches}
        files = {image: Path(folder, image + (suffix or ".cubin")) for image in manifests}
        kernels = {
            image: load(files[image].read_bytes(), manifest, device, driver)
            for image, manifest in manifests.items()
        }
        return Loaded(self, kernels, device, driver)


class Loaded:
    """Exported kernels in a context of the driver; made by `Export.load`."""

    def __init__(
        self, export: Export, kernels: Mapping[str, Kernel], device: int, driver: Driver
    ) -> None:
        self.export, self._kernels = export, kernels
        self._device, self._driver = device, driver

    def __call__(self, addresses: Mapping[str, int], stream: int = 0) -> None:
        """Launch every kernel on a stream, given the address of each tensor by name."""
        export = self.export
        if odd := sorted(addresses.keys() ^ export.tensors):
            what = f"{', '.join(odd)}: missing or unknown"
            raise invalid(export.name, f"{what}, needs {', '.join(export.tensors)}")
        for name, memory in export.tensors.items():
            if addresses[name] % memory.align:
                what = f"{name} is at {addresses[name]:#x}, needs a multiple of {memory.align}"
                raise invalid(export.name, what)
        for launch in export.launches:
            values = [self._value(value, addresses) for value in launch.arguments]
            self._kernels[launch.image].launch(launch.grid, values, stream)

    def _value(self, value: Any, addresses: Mapping[str, int]) -> Any:
        if isinstance(value, Address):
            return addresses[value.tensor]
        if isinstance(value, Map):
            tensor, dtype, *form = value
            return encode(self._driver, dtype, addresses[tensor], *form, device=self._device)
        return value

    def unload(self) -> None:
        for kernel in self._kernels.values():
            kernel.unload()


def _to_json(value: Any) -> Any:
    return value._asdict() if isinstance(value, Address | Map) else value


def _from_json(fields: dict[str, Any]) -> Invocation:
    fields = _tuples(fields)
    image, grid, arguments = (fields.pop(name) for name in ("image", "grid", "arguments"))
    values = tuple(
        (Map if "box" in value else Address)(**_tuples(value)) if isinstance(value, dict) else value
        for value in arguments
    )
    return Invocation(image, Manifest(**fields), grid, values)


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
