"""Device code and geometry that several families of kernels share."""
