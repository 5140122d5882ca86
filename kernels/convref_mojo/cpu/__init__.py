"""Convolutions, pools and batch norm on the CPU: Mojo kernels and the code that calls them."""
