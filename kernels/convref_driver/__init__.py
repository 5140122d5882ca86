"""The CUDA driver, or HIP's, through ctypes: load a binary and launch it, without Triton.

>>> Manifest("axpy", ("ptr", "ptr", "f32", "i64"), threads=(128, 1, 1)).parameters
('ptr', 'ptr', 'f32', 'i64')
"""

from .kernel import VARIES, Kernel, Prepared, load
from .library import CudaError, Driver, driver
from .manifest import Manifest, Scratch
from .tensormap import encode

__all__ = [
    "VARIES",
    "CudaError",
    "Driver",
    "Kernel",
    "Manifest",
    "Prepared",
    "Scratch",
    "driver",
    "encode",
    "load",
]
