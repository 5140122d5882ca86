"""YOLO11n in PyTensor, layer by layer: functions of an image and of parameters by their names.

The names are those of the torch module of yolo11n.py; sizes are read from the parameters. Channels,
height and width of the image are known, its batch need not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from convref.integrations import pytensor as cp


class Parameters:
    """Arrays by name as shared variables.

    After a network is built, `updates` has the new values of the running statistics.
    """

    def __init__(self, arrays: Mapping[str, Any], backend: str = "auto") -> None:
        self.backend = backend
        self.variables = {n: pytensor.shared(a, n, shape=a.shape) for n, a in arrays.items()}
        self.updates: list[tuple[Any, Any]] = []

    def __getitem__(self, name: str) -> Any:
        """Return a parameter."""
        return self.variables[name]

    def __contains__(self, name: str) -> bool:
        """Return whether there is a parameter of this name."""
        return name in self.variables

    def width(self, name: str) -> int:
        """Return the channels of the result of a `conv_bn_silu`."""
        return int(self[f"{name}.0.weight"].type.shape[0])


def conv_bn_silu(
    x: Any, net: Parameters, name: str, stride: int = 1, depthwise: bool = False, act: bool = True
) -> Any:
    """Convolution without bias, batch norm in training, silu (or nothing)."""
    w = net[f"{name}.0.weight"]
    groups = net.width(name) if depthwise else 1
    y = cp.conv2d(x, w, None, stride, w.type.shape[-1] // 2, 1, groups, backend=net.backend)
    keys = "running_mean", "running_var", "weight", "bias"
    given = [net[f"{name}.1.{key}"] for key in keys]
    y, *statistics = cp.batch_norm(y, *given, True, 0.03, 1e-3, backend=net.backend)
    net.updates += zip(given[:2], statistics)
    return cp.silu(y) if act else y


def halves(x: Any, channels: int) -> Any:
    """Return the first and the last half of the channels."""
    return pt.split(x, [channels // 2] * 2, n_splits=2, axis=1)


def upsample(x: Any) -> Any:
    """Each pixel becomes 2 x 2."""
    return cp.interpolate(x, scale_factor=2.0, mode="nearest")


def bottleneck(x: Any, net: Parameters, name: str) -> Any:
    """Two 3 x 3 convolutions, around which the input is added."""
    return x + conv_bn_silu(conv_bn_silu(x, net, f"{name}.cv1"), net, f"{name}.cv2")


def c3k(x: Any, net: Parameters, name: str) -> Any:
    """Two bottlenecks beside a 1 x 1 convolution."""
    y = conv_bn_silu(x, net, f"{name}.cv1")
    for i in range(2):
        y = bottleneck(y, net, f"{name}.m.{i}")
    return conv_bn_silu(cp.concat([y, conv_bn_silu(x, net, f"{name}.cv2")], 1), net, f"{name}.cv3")


def c3k2(x: Any, net: Parameters, name: str) -> Any:
    """Half of the channels goes through a block; both halves and its result are joined."""
    a, b = halves(conv_bn_silu(x, net, f"{name}.cv1"), net.width(f"{name}.cv1"))
    block = c3k if f"{name}.m.cv3.0.weight" in net else bottleneck
    return conv_bn_silu(cp.concat([a, b, block(b, net, f"{name}.m")], 1), net, f"{name}.cv2")


def sppf(x: Any, net: Parameters, name: str) -> Any:
    """Maxima of 5 x 5, 9 x 9 and 13 x 13 windows: three pools, one after the other."""
    y = [conv_bn_silu(x, net, f"{name}.cv1")]
    for _ in range(3):
        y.append(cp.max_pool2d(y[-1], 5, 1, 2, backend=net.backend))
    return conv_bn_silu(cp.concat(y, 1), net, f"{name}.cv2")


def attention(x: Any, net: Parameters, name: str) -> Any:
    """Attention over positions, with heads of 64 channels."""
    value, key = 64, 32
    c, h, w = x.type.shape[1:]
    qkv = conv_bn_silu(x, net, f"{name}.qkv", act=False)
    qkv = qkv.reshape((-1, c // value, 2 * key + value, h * w))
    q, k, v = pt.split(qkv, [key, key, value], n_splits=3, axis=2)
    scale = np.array(key**-0.5, x.dtype)  # else float32 times a Python float is float64
    weights = cp.softmax(q.mT @ k * scale, -1)  # (N, heads, H W, H W)
    y = (v @ weights.mT).reshape((-1, c, h, w))
    place = conv_bn_silu(v.reshape((-1, c, h, w)), net, f"{name}.pe", depthwise=True, act=False)
    return conv_bn_silu(y + place, net, f"{name}.proj", act=False)


def c2psa(x: Any, net: Parameters, name: str) -> Any:
    """Half of the channels goes through attention and a small network, added to each input."""
    a, b = halves(conv_bn_silu(x, net, f"{name}.cv1"), net.width(f"{name}.cv1"))
    b = b + attention(b, net, f"{name}.attn")
    y = conv_bn_silu(b, net, f"{name}.ffn.0")
    b = b + conv_bn_silu(y, net, f"{name}.ffn.1", act=False)
    return conv_bn_silu(cp.concat([a, b], 1), net, f"{name}.cv2")


def backbone(x: Any, net: Parameters, name: str) -> tuple[Any, Any, Any]:
    """Return maps of an eighth, a sixteenth and a 32nd of the image's size."""
    for i in range(2):
        x = conv_bn_silu(x, net, f"{name}.p3.{i}", 2)
    x = conv_bn_silu(c3k2(x, net, f"{name}.p3.2"), net, f"{name}.p3.3", 2)
    p3 = c3k2(x, net, f"{name}.p3.4")
    p4 = c3k2(conv_bn_silu(p3, net, f"{name}.p4.0", 2), net, f"{name}.p4.1")
    p5 = c3k2(conv_bn_silu(p4, net, f"{name}.p5.0", 2), net, f"{name}.p5.1")
    return p3, p4, c2psa(sppf(p5, net, f"{name}.p5.2"), net, f"{name}.p5.3")


def neck(p3: Any, p4: Any, p5: Any, net: Parameters, name: str) -> tuple[Any, Any, Any]:
    """Down the pyramid (FPN), where small maps are enlarged, and up again (PAN)."""
    middle = c3k2(cp.concat([upsample(p5), p4], 1), net, f"{name}.down4")
    n3 = c3k2(cp.concat([upsample(middle), p3], 1), net, f"{name}.down3")
    to4 = conv_bn_silu(n3, net, f"{name}.to4", 2)
    n4 = c3k2(cp.concat([to4, middle], 1), net, f"{name}.up4")
    to5 = conv_bn_silu(n4, net, f"{name}.to5", 2)
    return n3, n4, c3k2(cp.concat([to5, p5], 1), net, f"{name}.up5")


def head(x: Any, net: Parameters, name: str) -> Any:
    """Numbers for a box and for each class, at each position of one map."""
    box = label = x
    for i in range(2):
        box = conv_bn_silu(box, net, f"{name}.box.{i}")
    for i in range(4):
        label = conv_bn_silu(label, net, f"{name}.label.{i}", depthwise=i % 2 == 0)
    ends = (box, f"{name}.box.2"), (label, f"{name}.label.4")
    return cp.concat(
        [cp.conv2d(y, net[f"{n}.weight"], net[f"{n}.bias"], backend=net.backend) for y, n in ends],
        1,
    )


def yolo11n(x: Any, net: Parameters) -> list[Any]:
    """Return the whole network: three maps of (N, 64 + classes, H, W)."""
    maps = neck(*backbone(x, net, "backbone"), net, "neck")
    return [head(one, net, f"heads.{i}") for i, one in enumerate(maps)]
