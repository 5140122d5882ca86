"""Draw how each Triton kernel cuts its sum into tiles: python docs/figures/tilings.py [folder]."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from draw import INK, PAD, REAL, STYLE, cells, plain, plt

LEFT, RIGHT = "#fdd0a2", "#a1d99b"  # light enough to be written on


class Block(NamedTuple):
    """A matrix of which one tile is chosen: its size, what runs along it, and the tile."""

    width: float
    height: float
    across: str
    down: str
    text: str
    tile: tuple[float, float, float, float]  # x, y, width, height as shares of the matrix


def product(*blocks: Block, between: str = "×=+") -> Any:
    """Show matrices side by side with a sign between each two, the tile of one program coloured."""
    fig, ax = plt.subplots(figsize=(2.4 * len(blocks) + 0.6, 2.8))
    x = 0.0
    for sign, block in zip(("", *between), blocks, strict=False):
        if sign:
            ax.text(x + 0.7, 0, sign, ha="center", va="center", fontsize=13)
            x += 1.9
        low = -block.height / 2
        ax.add_patch(plt.Rectangle((x, low), block.width, block.height, fc="white", ec=INK, lw=0.8))
        left, bottom, width, height = block.tile
        corner = (x + left * block.width, low + bottom * block.height)
        size = (width * block.width, height * block.height)
        ax.add_patch(plt.Rectangle(corner, *size, fc=REAL, ec=INK, lw=0.8))
        center = (corner[0] + size[0] / 2, corner[1] + size[1] / 2)
        ax.text(*center, block.text, ha="center", va="center", fontsize=7.5)
        ax.text(x + block.width / 2, block.height / 2 + 0.12, block.across, ha="center", fontsize=8)
        ax.text(x - 0.12, 0, block.down, ha="right", va="center", rotation=90, fontsize=8)
        x += block.width
    plain(ax)
    return fig


ROWS, DEPTH, COLUMNS = "pixels p", "channels c of tap r", "channels k"
ROW, COLUMN, BOTH = (0.0, 0.4, 1.0, 0.3), (0.3, 0.0, 0.35, 1.0), (0.3, 0.4, 0.35, 0.3)
STEP_ROW, STEP_COLUMN = (0.3, 0.4, 0.25, 0.3), (0.3, 0.45, 0.35, 0.25)


def gather() -> Any:
    """Show a tile of pixels by channels and the block that one step of its loop multiplies."""
    return product(
        Block(3.4, 2.6, "taps r, in each all channels c", ROWS, "x\nBM×BK", STEP_ROW),
        Block(2.0, 3.4, COLUMNS, "taps r, channels c", "w  BK×BN", STEP_COLUMN),
        Block(2.0, 2.6, COLUMNS, ROWS, "y\nBM×BN", BOTH),
    )


def flat() -> Any:
    """Show one reduction axis whose blocks span taps."""
    fig, ax = plt.subplots(figsize=(7.8, 1.5))
    names = [f"$r_{u // 3}c_{u % 3}$" for u in range(16)]
    colors = [(REAL, LEFT, RIGHT)[u // 8] for u in range(15)] + [PAD]
    cells(ax, 0, [*names[:15], "0"], colors)
    for start in (0, 8):
        ax.plot([start - 0.4, start + 7.4], [-0.75, -0.75], color=INK, lw=0.8)
        ax.text(start + 3.5, -1.25, f"block {start // 8} of BK = 8", ha="center", fontsize=8)
    plain(ax)
    return fig


def tma() -> Any:
    """Show the product whose right side is a box of pixels, stored transposed."""
    return product(
        Block(3.0, 2.2, "taps r, channels c", COLUMNS, "w\nBM×BK", STEP_ROW),
        Block(2.4, 3.0, "boxes of pixels", "channels c", "box of x\nBK×BN", STEP_COLUMN),
        Block(2.4, 2.2, "boxes of pixels", COLUMNS, "yᵀ\nBM×BN", BOTH),
    )


def dual() -> Any:
    """Show the two sums that share what a step has read."""
    fig, ax = plt.subplots(figsize=(6.0, 1.9))
    for y, (name, terms) in enumerate((("ẏ", ("ẋ w", "x ẇ")), ("y", ("x w",)))):
        ax.text(-0.8, y * 1.3, f"{name}  +=", ha="right", va="center")
        for i, term in enumerate(terms):
            cells(ax, y * 1.3, [f" {term[0]} ", term[2:]], [REAL, PAD], 0.2 + 3.2 * i)
    ax.text(7.2, 0.65, "x, w: read once a step", va="center", fontsize=8)
    plain(ax)
    return fig


def wgrad() -> Any:
    """Show the product over pixels, cut into splits whose sums go to a workspace."""
    return product(
        Block(3.4, 2.2, "pixels p, in splits", COLUMNS, "s\nBM×BK", (0.3, 0.4, 0.2, 0.3)),
        Block(2.6, 3.4, "taps r, channels c", "pixels p", "b  BK×BN", (0.3, 0.5, 0.35, 0.2)),
        Block(2.6, 2.2, "taps r, channels c", COLUMNS, "parts\nBM×BN", BOTH),
    )


def split() -> Any:
    """Show parts of one long reduction, added in order."""
    fig, ax = plt.subplots(figsize=(6.4, 1.7))
    for part, color in enumerate((REAL, LEFT, RIGHT)):
        cells(ax, 0, [""] * 4, [color] * 4, 4 * part)
        ax.text(4 * part + 1.5, 0.7, f"part {part}: its taps, channels", ha="center", fontsize=8)
        cells(ax, -1.7, [f"$s_{part}$"], [color], 4 * part + 1.5)
        ends = (4 * part + 1.5, -1.2), (4 * part + 1.5, -0.5)
        ax.annotate("", *ends, arrowprops={"arrowstyle": "->"})
    ax.text(13, -1.7, "→ reduce, epilogue → y", va="center", fontsize=8)
    plain(ax)
    return fig


def bgrad() -> Any:
    """Show pixels on lanes, lanes added as a tree, blocks added by `reduce`."""
    fig, ax = plt.subplots(figsize=(6.4, 1.7))
    for block in range(2):
        for row in range(2):
            names = [f"$p_{{{8 * block + 4 * row + i}}}$" for i in range(4)]
            cells(ax, -0.8 * row, names, [(REAL, PAD)[row]] * 4, 6 * block)
        ax.text(6 * block + 1.5, -1.65, f"4 lanes → block {block}", ha="center", fontsize=8)
    ax.text(11, -0.4, "→ reduce → db", va="center", fontsize=8)
    plain(ax)
    return fig


def walk() -> Any:
    """Show what a row loop reads in a row, and the output rows that the row is added to."""
    fig, ax = plt.subplots(figsize=(6.0, 2.5))
    for row in range(5):
        now = row == 3
        names = [f"$x_{{{row}{q}}}$" if now and q in (2, 3, 4) else "" for q in range(7)]
        colors = [REAL if now and q in (2, 3, 4) else "white" for q in range(7)]
        cells(ax, -row, names, colors)
        held = 1 <= row <= 3
        label = f"$y_{row}$ is stored" if row == 0 else ""
        label = f"$y_{row}$ += $w_{{{3 - row}}}$ x" if held else label
        ax.text(8, -row, label, va="center", fontsize=8)
    ax.text(3, 0.75, "the loop goes down; this row is loaded once", ha="center", fontsize=8)
    plain(ax)
    return fig


def direct() -> Any:
    """Show threads with one sum each, whatever group their channel is in."""
    fig, ax = plt.subplots(figsize=(6.0, 1.9))
    for pixel in range(3):
        names = [f"$y_{{{pixel},{k}}}$" for k in range(8)]
        cells(ax, -pixel, names, [(REAL, PAD)[k // 2 % 2] for k in range(8)])
        ax.text(-1, -pixel, f"pixel {pixel}", ha="right", va="center", fontsize=8)
    for group in range(4):
        ax.text(2 * group + 0.5, 0.65, f"group {group}", ha="center", fontsize=8)
    plain(ax)
    return fig


def unfold() -> Any:
    """Show the columns that a tile of pixels makes, tap after tap, and what fold adds up."""
    fig, ax = plt.subplots(figsize=(6.4, 2.5))
    cells(ax, 0, ["0", *(f"$x_{i}$" for i in range(6)), "0"], [PAD, *[REAL] * 6, PAD], -1)
    for r in range(3):
        names = [f"$x_{{{p + r - 1}}}$" if 0 <= p + r - 1 < 6 else "0" for p in range(6)]
        marks = [(PAD, REAL, RIGHT)[(0 <= i < 6) + (i == 2)] for i in range(r - 1, r + 5)]
        cells(ax, -1.4 - r, names, marks, 0)
        ax.text(-1.2, -1.4 - r, f"row $cR+{r}$", ha="right", va="center", fontsize=8)
    told = "fold adds what is green\ninto $x_2$, in one program"
    ax.text(7.4, -2.4, told, va="center", fontsize=8)
    plain(ax)
    return fig


FIGURES = {
    f"triton_{draw.__name__}": draw
    for draw in (gather, flat, tma, dual, wgrad, split, bgrad, walk, direct, unfold)
}


def main(folder: Path) -> None:
    """Write each figure as SVG into `folder`, the same bytes every time."""
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            fig = draw()
            fig.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(fig)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
