"""A convolution as the kernels see it: always three spatial axes, a small side and a big side.

Windows slide over the big side (x, or y of a transposed convolution) and there is one window for
each pixel of the small side. fprop gathers and dgrad scatters, or the reverse when transposed; w is
(channels of the small side, channels of the big side / groups, T, R, S) either way.
"""

from dataclasses import dataclass
from math import gcd, prod
from typing import NamedTuple

from convref.case import Call, Spec, axis_letters
from convref.dtypes import EIGHT
from convref.ops import ConvProblem, WindowProblem

Three = tuple[int, int, int]
Four = tuple[int, int, int, int]  # images and pixels
LIMIT = 2**31  # int32 offsets must stay below
ITEMSIZE = {"f16": 2, "bf16": 2, "f32": 4, "i8": 1, "u8": 1, "i32": 4, "i64": 8}
ITEMSIZE |= dict.fromkeys(EIGHT, 1)


class Tensor(NamedTuple):
    """A tensor of a plan: name, sizes, strides in elements, dtype, 16-byte alignment."""

    role: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    aligned: bool = True

    @property
    def steps(self) -> tuple[int, int, int, int, int]:
        """Return the strides of (n, c, d, h, w).

        The stride of an axis of size 1 is arbitrary: here it is 0, or 1 for c, which allow the
        widest loads.
        """
        n, c, *spatial = (0 if size == 1 else s for size, s in zip(self.shape, self.strides))
        d, h, w = (0,) * (3 - len(spatial)) + tuple(spatial)
        return n, 1 if self.shape[1] == 1 else c, d, h, w

    @property
    def span(self) -> int:
        """Return the distance in elements between the first element and the farthest one."""
        return sum(max(size - 1, 0) * abs(step) for size, step in zip(self.shape, self.strides))

    @property
    def image_span(self) -> int:
        return self.span - max(self.shape[0] - 1, 0) * abs(self.strides[0])


@dataclass(frozen=True)
class Geometry:
    """A ConvProblem with sizes as (D, H, W) and channels by side."""

    n: int
    groups: int
    rank: int
    # Of axes that the rank lacks: 1, 1, 1, 1, 1, 0.
    big: Three
    small: Three
    filter: Three
    stride: Three
    dilation: Three
    lo: Three
    # Per group.
    big_channels: int
    small_channels: int
    flip: bool

    @property
    def pixels(self) -> Four:
        """Return (n, o, p, q) of the small side."""
        return self.n, *self.small

    @property
    def common(self) -> Three:
        """Return gcd(stride, dilation) of each axis."""
        d, h, w = map(gcd, self.stride, self.dilation)
        return d, h, w

    @property
    def step(self) -> Three:
        """Return the distance between taps at the same pixel of the big side."""
        d, h, w = (s // g for s, g in zip(self.stride, self.common))
        return d, h, w

    @property
    def inverse(self) -> Three:
        """Return the inverse of dilation / common modulo step."""
        d, h, w = (
            pow(dilation // g, -1, step) if step > 1 else 0
            for dilation, g, step in zip(self.dilation, self.common, self.step)
        )
        return d, h, w

    @property
    def taps(self) -> int:
        return prod(self.filter)

    @property
    def reads(self) -> int:
        """Return how many pairs (pixel of the small side, tap) of an image read no padding.

        >>> from convref.case import parse
        >>> geometry(parse("conv:n1c1k1_i3_f3_p1").call.conv).reads
        7
        """
        found = 1
        for big, small, taps, *moves in zip(
            self.big, self.small, self.filter, self.stride, self.dilation, self.lo
        ):
            stride, dilation, lo = moves
            starts = (lo - tap * dilation for tap in range(taps))
            found *= sum(
                max(0, min(small, -(-(big + at) // stride)) - max(0, -(-at // stride)))
                for at in starts
            )
        return found

    @property
    def inside(self) -> bool:
        """Return whether no window reaches beyond the big side."""
        return all(
            lo <= 0 and (small - 1) * stride + (taps - 1) * dilation - lo < big
            for big, small, taps, stride, dilation, lo in zip(
                self.big, self.small, self.filter, self.stride, self.dilation, self.lo
            )
        )

    def overhang(self, *tensors: Tensor) -> int:
        """Return how far from an image windows begin at most, in elements of the tensors.

        A load adds the offset of a window, which is negative in padding, to that of a tap or of a
        row below it. Padding may be wider than a filter.
        """
        axes = zip(self.filter, self.dilation, self.lo)
        reach = [max((taps - 1) * step, lo) for taps, step, lo in axes]
        return max(sum(n * abs(s) for n, s in zip(reach, t.steps[2:])) for t in tensors)

    @property
    def pointwise(self) -> bool:
        """Return whether each pixel of one side has one tap, at the same pixel of the other."""
        unit = (1, 1, 1)
        return (
            self.filter == self.stride == unit and self.lo == (0, 0, 0) and self.big == self.small
        )


def operands(call: Call) -> dict[str, Tensor]:
    return {
        role: layout_of(role, call.problem.shape(role), axis_letters(call.problem, role), spec)
        for role, spec in zip(call.roles, call.specs)
        if call.is_present(role)
    }


def layout_of(role: str, shape: tuple[int, ...], letters: str, spec: Spec) -> Tensor:
    """Return the tensor of `shape`, of axes `letters`, with the memory layout of `spec`."""
    aligned = spec.offset * ITEMSIZE[spec.dtype] % 16 == 0
    return Tensor(role, shape, spec.strides(shape, letters), spec.dtype, aligned)


def geometry(problem: WindowProblem) -> Geometry:
    """Return the Geometry of a problem.

    The columns of an unfold are the output of a depthwise convolution with one filter per tap:
    each channel is a group, with as many channels of the small side as there are taps.
    """

    def three(values: tuple[int, ...], missing: int = 1) -> Three:
        d, h, w = (missing,) * (3 - problem.rank) + tuple(values)
        return d, h, w

    big, small = problem.input, problem.output
    groups, channels, flip = problem.c, (1, prod(problem.filter)), False
    if isinstance(problem, ConvProblem):
        groups, flip = problem.groups, problem.flip
        channels = problem.c // groups, problem.k // groups
        if problem.transposed:
            big, small, channels = small, big, channels[::-1]
    return Geometry(
        problem.n,
        groups,
        problem.rank,
        three(big),
        three(small),
        three(problem.filter),
        three(problem.stride),
        three(problem.dilation),
        three(tuple(lo for lo, _ in problem.padding), 0),
        *channels,
        flip,
    )


def filter_steps(geometry: Geometry, w: Tensor, scatter: bool) -> tuple[int, ...]:
    """Return (first, group, t, r, s, reduced channel, result channel): offset and strides of w."""
    k, c, t, r, s = w.steps
    k = 1 if w.shape[0] == 1 else k
    group, first = k * geometry.small_channels, 0
    if geometry.flip:
        first = sum((taps - 1) * step for taps, step in zip(geometry.filter, (t, r, s)))
        t, r, s = -t, -r, -s
    return first, group, t, r, s, *((k, c) if scatter else (c, k))


def merge(*tensors: Tensor) -> tuple[int, int, Three, tuple[int, ...]] | None:
    """Return (images, rank, pixels, strides) with as many axes merged as the tensors allow.

    The tensors have the same pixels; `strides` are (n, w) of each tensor in turn. With rank 0 every
    pixel is an image. Return None if no axes can be merged.
    """
    n, _, *spatial = tensors[0].shape
    for images, rank, axes in ((prod((n, *spatial)), 0, (0, 2, 3, 4)), (n, 1, (2, 3, 4))):
        inner = [_merged(tensor, axes) for tensor in tensors]
        if None not in inner:
            pixels = (1, 1, 1 if rank == 0 else prod(spatial))
            steps = [s if rank == 0 else t.steps[0] for t, s in zip(tensors, inner)]
            return images, rank, pixels, tuple(v for pair in zip(steps, inner) for v in pair)
    return None


def _merged(tensor: Tensor, axes: tuple[int, ...]) -> int | None:
    """Return the stride of the axes merged into one, None if they cannot be merged."""
    sizes = (tensor.shape[0], 1, *(1,) * (5 - len(tensor.shape)), *tensor.shape[2:])
    steps = (tensor.steps[0], 0, *tensor.steps[2:])
    inner, size = 0, 1
    for axis in reversed(axes):
        if sizes[axis] > 1:
            if size > 1 and steps[axis] != inner * size:
                return None
            inner = inner or steps[axis]
            size *= sizes[axis]
    return inner
