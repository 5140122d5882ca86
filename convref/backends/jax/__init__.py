"""JAX as a backend."""

from .adapter import JaxBackend, backend, quick

__all__ = ["JaxBackend", "backend", "quick"]
