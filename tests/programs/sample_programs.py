"""Programs of PyTorch's operations with arguments, and wrong versions of them."""

from __future__ import annotations

import torch


def _affine(x, w, b):
    return torch.relu(x @ w + b)


def _scaled(x, w, b):
    y = (x @ w - b) * 0.3
    return (y / 7 + x[:, :1]).sum(1), y.mean()


def _in_place(x, w, b):
    y = torch.zeros(x.shape[0], w.shape[1], dtype=x.dtype)
    y[1:] = (x @ w)[1:]
    y += b
    y.t()[0].mul_(0.1)
    return y.reshape(-1)[::2]


def _gradient(x, w, b):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.tanh(x @ w + b).mean(), x)[0]


def _narrow(x, w, b):
    return (x.bfloat16() @ w.bfloat16()).float() + b


def _three(make):
    return make(6, 40), make(40, 9), make(9)


PROGRAMS = {
    "affine": (_affine, _three),
    "scaled": (_scaled, _three),
    "in place": (_in_place, _three),
    "gradient": (_gradient, _three),
    "narrow": (_narrow, _three),
}


def arguments(name, dtype, seed=0, kind="normal"):
    """Return the arguments of a program, normally distributed or small integers."""
    random = torch.Generator().manual_seed(seed)

    def make(*shape):
        if kind == "integers":
            return torch.randint(-3, 4, shape, generator=random).to(dtype)
        return torch.randn(*shape, generator=random).to(dtype)

    return PROGRAMS[name][1](make)
