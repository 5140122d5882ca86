"""Convolutions and pools on the GPU: Mojo kernels and the launches that a call consists of."""
