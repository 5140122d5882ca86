"""A problem in the form of KernelBench."""

import torch
from torch import nn


class Model(nn.Module):
    """A linear layer with an activation, as a mean of each row."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.relu(self.linear(x)).mean(1)


rows, inputs, outputs = 1024, 4096, 512


def get_inputs():
    return [torch.rand(rows, inputs)]


def get_init_inputs():
    return [inputs, outputs]
