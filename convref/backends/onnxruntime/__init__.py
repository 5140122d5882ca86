"""ONNX Runtime as a backend."""

from .adapter import OnnxRuntimeBackend, backend

__all__ = ["OnnxRuntimeBackend", "backend"]
