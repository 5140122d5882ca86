"""The forward-mode derivatives of both forms of convolution, of rank 1 to 3."""

from __future__ import annotations

from typing import Any

from ...errors import ConvrefError, message
from ._problems import Settings, run


def _jvp(
    rank: int, primals: Any, tangents: Any, settings: Settings, backend: str
) -> tuple[Any, ...]:
    triples = []
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            raise ConvrefError(message("conv.jvp", f"{name} needs a tuple (input, weight[, bias])"))
        triples.append((*given, None)[:3])
    return run("jvp", rank, (*triples[0], *triples[1]), settings, backend)


def conv1d_jvp(
    primals: Any,
    tangents: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `conv1d`; see `conv2d_jvp`.

    Examples
    --------
    >>> x, w = np.ones((1, 1, 2)), np.ones((1, 1, 1))
    >>> conv1d_jvp((x, w), (None, 5 * w))
    (array([[[1., 1.]]]), array([[[5., 5.]]]))
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    return _jvp(1, primals, tangents, settings, backend)


def conv2d_jvp(
    primals: Any,
    tangents: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent): the forward-mode derivative of `conv2d`.

    y_dot = conv(x_dot, w) + conv(x, w_dot) + b_dot.

    Parameters
    ----------
    primals : (input, weight) or (input, weight, bias)
        As in `conv2d`, or `conv_transpose2d` with ``transposed=True``.
    tangents : (input, weight) or (input, weight, bias)
        Shaped like the primals; None is a zero tangent and costs nothing.
    stride, padding, dilation, transposed, output_padding, groups, layout, weight_layout, math, \
    flip, backend
        As in `conv2d_backward`.

    Returns
    -------
    tuple of 2 arrays
        Each (N, K, P, Q).

    Raises
    ------
    ConvrefError
        If an argument is wrong; the text names it, what it is and what it needs.
    UnsupportedError
        If the named backend cannot do this call; with its reason.

    Examples
    --------
    >>> x, w = np.full((1, 1, 1, 1), 2.), np.full((1, 1, 1, 1), 3.)
    >>> conv2d_jvp((x, w), (w, None))
    (array([[[[6.]]]]), array([[[[9.]]]]))
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    return _jvp(2, primals, tangents, settings, backend)


def conv3d_jvp(
    primals: Any,
    tangents: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCDHW",
    weight_layout: str | None = None,
    math: str = "ieee",
    flip: bool = False,
    backend: str = "auto",
) -> tuple[Any, ...]:
    """Return (output, output tangent) of `conv3d`; see `conv2d_jvp`.

    Examples
    --------
    >>> one = np.ones((1, 1, 1, 1, 1))
    >>> [float(y.sum()) for y in conv3d_jvp((one, 2 * one), (one, one))]
    [2.0, 3.0]
    """
    settings = Settings(
        *(stride, padding, dilation, groups, transposed, output_padding),
        *(layout, weight_layout, math, flip),
    )
    return _jvp(3, primals, tangents, settings, backend)
