"""The Gluon kernels that the installed Triton compiles, and reasons in place of the others."""

from importlib import import_module

import triton

from ..plan.spec import KernelSpec

NAMES = ("gluon_fprop", "gluon_halo", "gluon_wgrad", "gluon_halo_wgrad")
RELEASE = tuple(map(int, triton.__version__.split(".")[:2]))


def lacks(name: str, release: tuple[int, ...] = RELEASE) -> str:
    """Return why a kernel is not compiled with a release of Triton, empty if it is.

    >>> lacks("gluon_fprop", (3, 9)), lacks("gluon_fprop", (3, 10))
    ('', 'it is written for the Gluon of Triton 3.6 to 3.9')
    """
    if not (3, 6) <= release <= (3, 9):
        return "it is written for the Gluon of Triton 3.6 to 3.9"
    if release >= (3, 8) and "halo" in name:
        return "Gluon since Triton 3.8 has no view of several lines that begins at a computed one"
    return ""


def absent(name: str, reason: str) -> KernelSpec:
    """Return the entry of a kernel that refuses every task."""
    serves = ("correlate",) if name.endswith("wgrad") else ("gather", "scatter")
    return KernelSpec(
        name,
        serves,
        refusal=lambda task: reason,
        tiles=lambda task: (),
        add=lambda task, tile: None,
        unproven=True,
    )


KERNELS: tuple[KernelSpec, ...] = tuple(
    import_module(f".{name}", __package__).SPEC for name in NAMES if not lacks(name)
)
ABSENT = tuple(absent(name, why) for name in NAMES if (why := lacks(name)))
