"""Warp-specialized kernels for Hopper, in Gluon."""
