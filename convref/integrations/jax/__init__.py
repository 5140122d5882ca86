"""JAX arrays in `convref`'s functions: jit, vmap, and derivatives by the library's own passes.

Nothing is called here: `convref.conv2d` and all others take JAX arrays and tracers, and find this
package by its entry point.
"""

from .passes import run_recorded

__all__ = ["run_recorded"]
