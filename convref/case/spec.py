"""The memory layout of one operand."""

from dataclasses import dataclass

from ..ops import Problem, Sizes


def axis_letters(problem: Problem, role: str) -> str:
    """Return one letter per axis of the array in `role`, in logical order.

    >>> from convref.ops import ConvProblem
    >>> axis_letters(ConvProblem(n=1, c=1, k=1, input=(5, 5), filter=(3, 3)), "dw")
    'oihw'
    """
    return problem.letters(role)


def channels_last(letters: str) -> str:
    """Return the memory order with channels innermost: nchw -> nhwc, oihw -> ohwi, iohw -> ihwo."""
    return (
        letters if len(letters) < 3 or letters == "ncl" else letters[0] + letters[2:] + letters[1]
    )


@dataclass(frozen=True)
class Spec:
    """The memory layout of one operand.

    Parameters
    ----------
    dtype : str
        A short name from `convref.dtypes.CODES`.
    order : str
        Axis letters from outermost to innermost; empty for the logical order.
    step : tuple of (axis letter, int)
        The array is every step-th element of a wider buffer along that axis, from its end where
        the step is negative.
    expand : str
        Axis letters with stride 0: one slice, repeated.
    offset : int
        Elements between the start of the buffer and the first element.
    device : str
        Device kind, "cpu" or "cuda".
    """

    dtype: str = "f32"
    order: str = ""
    step: tuple[tuple[str, int], ...] = ()
    expand: str = ""
    offset: int = 0
    device: str = "cpu"

    def strides(self, shape: Sizes, letters: str) -> Sizes:
        """Return the strides, in elements, of an array of `shape` whose axes are `letters`.

        >>> Spec(order="nwc", step=(("w", -2),)).strides((4, 3, 5), "ncw")
        (30, 1, -6)
        """
        sizes, steps, found, dense = dict(zip(letters, shape)), dict(self.step), {}, 1
        for axis in reversed(self.order or letters):
            step = steps.get(axis, 1)
            found[axis] = 0 if axis in self.expand else dense * step
            dense *= 1 if axis in self.expand else max(sizes[axis], 1) * abs(step)
        return tuple(found[axis] for axis in letters)
