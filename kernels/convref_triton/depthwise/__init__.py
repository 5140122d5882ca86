"""Kernels of depthwise convolutions and their derivatives."""
