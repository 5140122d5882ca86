"""Reference formulas, kernels and a court for convolutional networks."""
