"""The custom ops: where they are, and the kinds of their operands and results."""

from pathlib import Path

OPS = Path(__file__).parent / "convref_ops"
DTYPES = ("f32", "bf16")
WORDS = 24  # groups, then attributes

# By pass: kinds of its operands and results. "i" is an image or a filter, "v" a vector, "s" a
# vector of statistics, "p" positions, "f" the size of a window.
KINDS = {
    "conv_fprop": ("iiv", "i"),
    "conv_dgrad": ("ii", "i"),
    "conv_wgrad": ("ii", "i"),
    "conv_bgrad": ("i", "v"),
    "conv_jvp": ("iiiiv", "i"),
    "max_pool_fprop": ("if", "ip"),
    "max_pool_backward": ("ipf", "i"),
    "max_pool_select": ("ipf", "i"),
    "avg_pool_fprop": ("if", "i"),
    "avg_pool_backward": ("if", "i"),
    "batch_norm_fprop": ("ivvss", "issss"),
    "batch_norm_backward": ("iivss", "ivv"),
    "batch_norm_jvp": ("ivvssivv", "ii"),
}
VECTORS = "vs"
