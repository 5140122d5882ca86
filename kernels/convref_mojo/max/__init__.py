"""Custom ops of MAX graphs, computed by the library of CPU kernels."""
