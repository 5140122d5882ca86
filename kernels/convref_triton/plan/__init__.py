"""Choose the kernels and tiles of a call."""
