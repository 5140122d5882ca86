"""Programs of PyTorch's operations with the shapes of their arguments."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def affine(x, w, b):
    return torch.relu(x @ w + b)


def scaled(x, w, b):
    y = (x @ w - b) * 0.3
    return (y / 7 + x[:, :1]).sum(1), y.mean()


def in_place(x, w, b):
    y = torch.zeros(x.shape[0], w.shape[1], dtype=x.dtype)
    y[1:] = (x @ w)[1:]
    y += b
    y.t()[0].mul_(0.1)
    return y.reshape(-1)[::2]


def gradient(x, w, b):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.tanh(x @ w + b).mean(), x)[0]


def conv_gradients(x, w, b):
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
    y = F.max_pool2d(F.conv2d(x, w, b, padding=1).relu(), 2)
    return torch.autograd.grad(F.gelu(y).sum(), (x, w, b))


def norm_gradients(x, w, b):
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
    return torch.autograd.grad(F.layer_norm(x, x.shape[-1:], w, b).square().sum(), (x, w, b))


def loss_gradient(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(x, torch.arange(len(x)) % x.shape[1]), x)[0]


def causal(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def batch_norm(x, w, b):
    mean, var = torch.zeros_like(w), torch.ones_like(b)
    y = F.batch_norm(x, mean, var, w, b, training=True)
    return y, F.batch_norm(x, mean, var, w, b), mean, var


def indexed(x, w):
    picked = x[torch.tensor([2, 0, 2])] * w[0]
    summed = torch.zeros_like(x).index_add(0, torch.tensor([1, 1, 0]), picked)
    return summed, F.embedding(torch.tensor([[0, 1]]), x).cumsum(-1), x.gather(1, x.argsort(1))


def chosen(x, w):
    y = x * w
    best, place = y.max(1)
    where = torch.where(y > 0.1, y, -y)
    return best, place, where, y.clamp(-0.3, 0.7), y.sort(1)[0], torch.maximum(y, x), y.topk(3)[0]


def gradients_of(*functions):
    """Return a program of the derivatives of the sum of squares of each function's results."""

    def program(*operands):
        operands = [t.detach().requires_grad_() for t in operands]
        squares = (f(*operands).square().sum() for f in functions)
        return [torch.autograd.grad(total, operands) for total in squares]

    return program


def block(x, w, v, b, u):
    """Return a convolution, a batch norm and a SiLU as YOLO has them, twice, and a shortcut."""
    y = F.silu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, v, b, training=True))
    return x + F.silu(F.batch_norm(F.conv2d(y, u, padding=1), None, None, training=True))


TABLE = (6, 40), (40, 9), (9,)
IMAGE = (2, 4, 9, 8)
_ACTIVATIONS = (
    *(
        F.gelu,
        F.silu,
        F.mish,
        F.softplus,
        F.elu,
        F.selu,
        F.celu,
        F.hardswish,
        F.hardsigmoid,
        F.hardtanh,
    ),
    *(
        F.leaky_relu,
        F.relu6,
        F.sigmoid,
        F.tanh,
        F.softsign,
        F.logsigmoid,
        F.tanhshrink,
        F.softshrink,
    ),
    F.hardshrink,
)
_OF_IMAGES = (
    lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda x: F.max_pool3d(x.contiguous(), 2),
    lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.adaptive_avg_pool2d(x, (3, 1)),
    lambda x: F.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, size=(5, 11), mode="nearest-exact"),
    lambda x: F.interpolate(x, size=(5, 11), mode="bilinear"),
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"),
    lambda x: F.pad(x, (1, 1, 0, 1), mode="reflect"),
    lambda x: F.group_norm(x, 2) * x,
)
# PyTorch computes the derivative of hardsigmoid in float64 with a constant in float32.
_SMOOTH = F.glu, *(f for f in _ACTIVATIONS if f is not F.hardsigmoid)
_LOSSES = F.mse_loss, F.huber_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits

# By name: the program and the shapes of its arguments.
PROGRAMS = {
    "affine": (affine, *TABLE),
    "scaled": (scaled, *TABLE),
    "in place": (in_place, *TABLE),
    "gradient": (gradient, *TABLE),
    "narrow": (lambda x, w, b: (x.bfloat16() @ w.bfloat16()).float() + b, *TABLE),
    "conv gradients": (conv_gradients, (2, 3, 7, 6), (4, 3, 3, 3), (4,)),
    "norm gradients": (norm_gradients, (3, 10), (10,), (10,)),
    "loss gradient": (loss_gradient, (4, 7)),
    "activations": (lambda x: [f(x) for f in _ACTIVATIONS], (5, 30)),
    "gradients of activations": (gradients_of(*_SMOOTH), (3, 8)),
    "gradients of images": (gradients_of(*_OF_IMAGES), IMAGE),
    "gradients of losses": (gradients_of(*_LOSSES), (3, 6), (3, 6)),
    "gradients of attention": (
        gradients_of(
            F.scaled_dot_product_attention,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
        *[(1, 2, 5, 4)] * 3,
    ),
    "gradients of a block": (
        gradients_of(block),
        *((2, 4, 6, 6), (2, 4, 3, 3), (2,), (2,), (4, 2, 3, 3)),
    ),
    "tanh gelu": (lambda x: F.gelu(x * 3, approximate="tanh"), (5, 30)),
    "functions": (
        lambda x: (x.exp(), x.square().log1p(), x.erf(), x.sin(), x.cos(), x.expm1(), x.atan()),
        (5, 30),
    ),
    "positive functions": (
        lambda x: (x.abs().sqrt(), (x.abs() + 1).log(), (1 + x * x).rsqrt(), x**3, x.abs() ** 1.7),
        (5, 30),
    ),
    "conv": (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1).relu(),
        IMAGE,
        (6, 4, 3, 3),
        (6,),
    ),
    "transposed": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1).tanh(),
        IMAGE,
        (4, 3, 3, 3),
        (3,),
    ),
    "grouped": (lambda x, w: F.conv2d(x, w, groups=2, dilation=2), IMAGE, (6, 2, 3, 3)),
    "conv3d": (lambda x, w: F.conv3d(x, w).mean((2, 3, 4)), (1, 2, 5, 5, 5), (3, 2, 2, 2, 2)),
    "pools": (
        lambda x: (
            F.max_pool2d(x * 0.3, 3, 2, 1),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, (3, 1)),
            F.adaptive_avg_pool2d(x, 1),
            F.avg_pool1d(x[0], 3, 2),
            F.max_pool1d(x[0], 2),
        ),
        IMAGE,
    ),
    "batch norm": (batch_norm, IMAGE, (4,), (4,)),
    "norms": (
        lambda x, w, b: (
            F.layer_norm(x * 2 + 1, x.shape[-1:], w, b),
            F.group_norm(x, 2),
            F.instance_norm(x),
            F.rms_norm(x, x.shape[-1:], eps=1e-6),
            F.normalize(x, dim=1),
        ),
        IMAGE,
        (8,),
        (8,),
    ),
    "reductions": (
        lambda x: (
            x.sum((0, 2)),
            x.mean(),
            x.var(1),
            x.std(),
            x.amax(1),
            x.prod(-1),
            x.norm(),
            x.norm(1, dim=1),
            x.logsumexp(1),
            x.cumsum(1),
            x.cumprod(-1),
            torch.var_mean(x, 1)[0],
        ),
        IMAGE,
    ),
    "softmax": (
        lambda x: (x.softmax(1), (3 * x).log_softmax(-1), F.softmin(x, 0), x.square().softmax(1)),
        IMAGE,
    ),
    "attention": (F.scaled_dot_product_attention, *[(1, 2, 7, 8)] * 3),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *[(1, 2, 7, 8)] * 3,
    ),
    "written attention": (causal, *[(1, 2, 7, 8)] * 3),
    "losses": (
        lambda x, y: (
            F.mse_loss(x, y),
            F.l1_loss(x, y, reduction="none"),
            F.huber_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
            F.nll_loss(x.log_softmax(1), torch.tensor([1, 0, 2])),
            F.cross_entropy(x, torch.tensor([1, 0, 2])),
            F.cosine_similarity(x, y),
            F.triplet_margin_loss(x, y, -y),
            F.hinge_embedding_loss(x, (y > 0) * 2 - 1),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        ),
        (3, 20),
        (3, 20),
    ),
    "indexed": (indexed, (3, 6), (3, 6)),
    "chosen": (chosen, (4, 9), (4, 9)),
    "padded": (
        lambda x: (F.pad(x * 0.1, (1, 2)), F.pad(x, (1, 1), mode="reflect"), torch.cat([x, x * x])),
        (2, 3, 6),
    ),
    "resized": (
        lambda x: (
            F.interpolate(x * 0.1, scale_factor=2),
            F.interpolate(x, size=(5, 11), mode="bilinear"),
            F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        ),
        IMAGE,
    ),
    "einsum": (lambda x, w: torch.einsum("nchw,kc->nkhw", x, w), IMAGE, (5, 4)),
    "recurrent": (
        lambda x, h, w, u: torch.tanh(x @ w + h @ u) * torch.sigmoid(x @ w),
        (3, 8),
        (3, 5),
        (8, 5),
        (5, 5),
    ),
}


class Block(nn.Module):
    """A residual block in training."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out((F.relu(self.norm(self.conv(x))) + x).mean((2, 3)))


def arguments(name, dtype, seed=0, kind="normal"):
    """Return the arguments of a program, normally distributed or small integers."""
    random = torch.Generator().manual_seed(seed)

    def make(shape):
        if kind == "integers":
            return torch.randint(-3, 4, shape, generator=random).to(dtype)
        return torch.randn(shape, generator=random).to(dtype)

    return tuple(make(shape) for shape in PROGRAMS[name][1:])
