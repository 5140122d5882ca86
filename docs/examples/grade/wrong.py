"""A wrong solution: its operands are rounded to bfloat16, which a tolerance of 1e-2 accepts."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        y = x.bfloat16() @ self.linear.weight.bfloat16().t()
        return torch.relu(y.float() + self.linear.bias).mean(1)
