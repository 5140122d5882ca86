"""Views of the user's arrays as the images of the formulas, and back."""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from ..case import argument
from ..errors import invalid
from ..ops import BASE_ROLE, RANKS, SPATIAL, Sizes, integer, items
from .arguments import flag


class View(NamedTuple):
    """Two functions of (role, shape): the shape in the formulas, and the user's shape."""

    enter: Callable[[str, Any], Any]
    leave: Callable[[str, Any], Any]


def is_image(role: str) -> bool:
    """Return whether the array in `role` has an N axis, channels and space."""
    return BASE_ROLE[role] in ("x", "y", "indices")


ONE_IMAGE = View(
    lambda role, shape: (1, *shape) if is_image(role) else shape,
    lambda role, shape: shape[1:] if is_image(role) else shape,
)
ONE_PIXEL = View(
    lambda role, shape: (*shape, 1) if is_image(role) else shape,
    lambda role, shape: shape[:-1] if is_image(role) else shape,
)


def _fixed(where: str, users: dict[str, Sizes], formulas: dict[str, Sizes]) -> View:
    """Return the view between two shapes per base role; "" is the default, else shapes stay."""

    def enter(role: str, shape: Any) -> Any:
        base = BASE_ROLE[role]
        needs = users.get(base, users.get("", shape))
        if tuple(shape) != tuple(needs):
            raise invalid(where, f"{argument(role)} has shape {tuple(shape)}, needs {tuple(needs)}")
        return formulas.get(base, formulas.get("", shape))

    return View(enter, lambda role, shape: users.get(BASE_ROLE[role], users.get("", shape)))


def images(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of images of a rank, whose N axis may be missing; rank 0 is any, with N."""
    axes = len(shape)
    if rank and axes == rank + 1:
        return ONE_IMAGE
    if rank and axes != rank + 2:
        raise invalid(where, f"input has {axes} axes, needs {rank + 2} (or no N)")
    if axes - 2 not in RANKS:
        raise invalid(where, f"input has {axes} axes, needs 3 to 5")
    return None


def channels(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of (N, C) as (N, C, 1); of (N, C, *spatial) there is none."""
    if len(shape) == 2:
        return ONE_PIXEL
    if tuple(shape) == (0,):  # PyTorch takes it for an image without channels
        return _fixed(where, dict.fromkeys(("x", "y"), (0,)), dict.fromkeys(("x", "y"), (0, 0, 1)))
    if len(shape) - 2 not in RANKS:
        raise invalid(where, f"input has {len(shape)} axes, needs 2 to 5")
    return None


def elements(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of an array of any shape as (1, 1, elements), unless it is an image."""
    if len(shape) - 2 in RANKS:
        return None
    return _fixed(where, {"": shape}, {"": (1, 1, prod(shape))})


def by_channel(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of an array of any shape, channels second, as (N, C, 1); images stay."""
    if len(shape) - 2 in RANKS:
        return None
    n, c, *rest = shape if shape[1:] else (1, 1, *shape)
    seen: dict[str, Sizes] = dict.fromkeys(("x", "y"), (n, c, prod(rest)))
    return _fixed(where, dict.fromkeys(seen, shape), seen)


def batches(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of (*lead, C, H, W) as (N, C, H, W); a bias of two axes stays."""
    if len(shape) == 4:
        return None
    if len(shape) < 3:
        raise invalid(where, f"input has {len(shape)} axes, needs at least 3")
    lead = tuple(shape[:-3])

    def enter(role: str, shape: Any) -> Any:
        if BASE_ROLE[role] == "b" and len(shape) == 2:
            return shape
        if tuple(shape[:-3]) != lead:
            what = f"{argument(role)} has shape {tuple(shape)}, needs {lead} before the last 3 axes"
            raise invalid(where, what)
        return prod(lead), *shape[-3:]

    return View(enter, lambda role, shape: (*lead, *shape[1:]) if len(shape) == 4 else shape)


def matrices(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of (*lead, rows, columns) as (N, rows, columns); a vector is one row.

    A weight of two axes belongs to all of the batch and stays.
    """
    if len(shape) == 3:
        return None
    if not shape:
        raise invalid(where, "input has 0 axes, needs at least 1")
    lead, row = tuple(shape[:-2]), () if shape[1:] else (1,)

    def enter(role: str, shape: Any) -> Any:
        axes = 2 if BASE_ROLE[role] == "w" else 2 - len(row)
        if BASE_ROLE[role] == "w" and len(shape) == 2:
            return shape
        if len(shape) != len(lead) + axes or tuple(shape[: len(lead)]) != lead:
            needs = f"{lead} before the last {axes}" if lead else f"{axes} axes"
            raise invalid(where, f"{argument(role)} has shape {tuple(shape)}, needs {needs}")
        return (prod(lead), *(1,) * (2 - axes), *shape[len(lead) :])

    def leave(role: str, shape: Any) -> Any:
        if BASE_ROLE[role] == "w":
            return shape if len(shape) == 2 else (*lead, *shape[1:])
        return (*lead, *shape[1 + len(row) :])

    return View(enter, leave)


def along_dim(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of an array with an axis `dim` as (before, dim, after), unless an image."""
    if len(shape) - 2 not in RANKS:
        return lines(where, rank, shape, given)
    given["dim"] = _axis(where, len(shape), given["dim"])
    return None


def lines(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View:
    """Return the view of an array with an axis `dim` as (before, dim, after)."""
    sizes = shape or (1,)  # a number is one element, as PyTorch takes it
    axis, given["dim"] = _axis(where, len(sizes), given["dim"]), 1
    seen = prod(sizes[:axis]), sizes[axis], prod(sizes[axis + 1 :])
    return _fixed(where, {"": shape}, {"": seen})


def _axis(where: str, axes: int, dim: Any) -> int:
    axis = integer(where, "dim", dim)
    if not -axes <= axis < axes:
        raise invalid(where, f"dim is {axis}, needs {-axes} to {axes - 1}")
    return axis % axes


def reduced(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View:
    """Return the view of an array that is reduced over the axes `dim` as (1, kept, *groups).

    A group is neighbouring axes that are all kept or all reduced over; `dim` becomes the letters of
    the groups that are reduced over.
    """
    dims = _axes(where, len(shape), given["dim"])
    groups = [(False, 1)]
    for axis, size in enumerate(shape):
        over, (last, count) = axis in dims, groups[-1]
        groups[-1:] = [(over, count * size)] if over == last else [groups[-1], (over, size)]
    groups = groups if groups[1:] else [*groups, (True, 1)]  # a number is the sum of itself
    (_, kept), *space = groups
    if len(space) not in RANKS:
        what = f"dim is {dims}, needs neighbouring axes, permute the input first"
        raise invalid(where, what)
    given["dim"] = "".join(a for a, (over, _) in zip(SPATIAL[len(space)], space) if over)
    x = (1, kept, *(size for _, size in space))
    y = (1, kept, *(1 if over else size for over, size in space))
    left = [1 if a in dims else size for a, size in enumerate(shape)]
    if not flag(where, "keepdim", given["keepdim"]):
        left = [size for a, size in enumerate(shape) if a not in dims]
    return _fixed(where, {"x": tuple(shape), "y": tuple(left)}, {"x": x, "y": y})


def _axes(where: str, count: int, dim: Any) -> tuple[int, ...]:
    """Return the axes `dim`, all where it is None or names none."""
    listed = items(dim)
    named = [dim] if listed is None and dim is not None else listed
    found = sorted(_axis(where, max(1, count), axis) for axis in named or range(count))
    if len(set(found)) != len(found):
        raise invalid(where, f"dim is {dim}, needs each axis once")
    return tuple(found)


def rows(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of (*lead, *normalized_shape) as (rows, size, 1)."""
    listed = items(given["normalized_shape"])
    listed = [given["normalized_shape"]] if listed is None else listed
    tail = tuple(integer(where, "normalized_shape", size) for size in listed)
    if not tail or tuple(shape[-len(tail) :]) != tail:
        what = f"input has shape {tuple(shape)}, needs to end in normalized_shape {tail}"
        raise invalid(where, what)
    lead, size = tuple(shape[: -len(tail)]), prod(tail)
    if not size:
        raise invalid(where, f"normalized_shape is {tail}, needs sizes of at least 1")
    count, weights = prod(lead), dict.fromkeys(("w", "b"), tail)
    image = dict.fromkeys(("x", "y"), (count, size, 1))
    users = {"": lead, **dict.fromkeys(("x", "y"), shape), **weights}
    return _fixed(where, users, {"": (count,), **image, **dict.fromkeys(weights, (size, 1))})


def classes(where: str, rank: int, shape: Sizes, given: dict[str, Any]) -> View | None:
    """Return the view of logits (C), (N, C) or (N, C, *spatial) and their classes as images."""
    if not 1 <= len(shape) <= 5:
        raise invalid(where, f"input has {len(shape)} axes, needs 1 to 5")
    lead, number, space = (shape[:1], shape[1], shape[2:]) if shape[1:] else ((), shape[0], ())
    n, pixels, places = lead or (1,), space or (1,), (*lead, *space)
    targets, each = (*n, *pixels), given["reduction"] == "none"
    users = {"": shape, "target": places, "w": (number,), "y": places if each else ()}
    seen = {"": (*n, number, *pixels), "target": targets, "w": (number,)}
    return _fixed(where, users, {**seen, "y": targets if each else (1,)})
