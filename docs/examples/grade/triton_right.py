"""A right solution in Triton: one program adds the activations of 16 rows, tile by tile."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_of_relu(
    x, weight, bias, y, rows, inputs, outputs, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    m, k = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M,), tl.float32)
    for first in range(0, outputs, N):
        n = first + tl.arange(0, N)
        sums = tl.zeros((M, N), tl.float32)
        for start in range(0, inputs, K):
            at = start + k
            a = tl.load(
                x + m[:, None] * inputs + at, (m[:, None] < rows) & (at < inputs), other=0.0
            )
            b = tl.load(
                weight + n * inputs + at[:, None],
                (n < outputs) & (at[:, None] < inputs),
                other=0.0,
            )
            sums += tl.dot(a, b, input_precision="ieee")
        sums += tl.load(bias + n, n < outputs, other=0.0)
        total += tl.sum(tl.where(n < outputs, tl.maximum(sums, 0.0), 0.0), 1)
    tl.store(y + m, total / outputs, m < rows)


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        weight, bias, (rows, inputs) = self.linear.weight, self.linear.bias, x.shape
        y = torch.empty(rows, device=x.device)
        grid = (triton.cdiv(rows, 16),)
        mean_of_relu[grid](x, weight, bias, y, rows, inputs, len(bias), M=16, N=16, K=32)
        return y
