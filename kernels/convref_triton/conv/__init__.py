"""Kernels of convolutions, their derivatives, unfold and fold."""
