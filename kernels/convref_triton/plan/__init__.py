"""Which kernels compute a call, on which tiles."""
