"""Warp-specialised kernels for Hopper, in Gluon."""
