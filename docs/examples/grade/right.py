"""A right solution: it adds in another order, in blocks."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        blocks = zip(x.split(64, 1), weight.split(64, 1))
        y = sum(part @ rows.t() for part, rows in blocks) + bias
        return y.clamp(min=0).sum(1) / len(bias)
