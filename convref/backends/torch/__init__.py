"""PyTorch's own operators as a backend."""

from .adapter import TorchBackend, backend, without_onednn

__all__ = ["TorchBackend", "backend", "without_onednn"]
