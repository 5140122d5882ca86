"""Convolution kernels in Mojo for the CPU, built on first use, as the backend called "mojo"."""
