"""Kernels in Mojo: the backend "mojo" for the CPU, built on first use, and PTX for the GPU."""
