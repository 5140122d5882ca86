"""Wrong kernels, each modelled on a bug that was shipped; the court has to find them.

A fault is the oracle with one mistake, which it makes in its region and nowhere else. Each is a
backend: ``PYTHONPATH=tests/faults convref check convref_faults:six_channels``.
"""

from . import (
    activation,
    attention,
    conv,
    data,
    matmul,
    norm,
    others,
    outputs,
    resize,
    sample,
    sizes,
    state,
)

CONV = {fault.name: fault for fault in (*conv.ROWS, *outputs.ROWS)}
FAMILIES = {
    "norm": norm.ROWS,
    "activation": activation.ROWS,
    "resize": resize.ROWS,
    "sample": sample.ROWS,
    "matmul": matmul.ROWS,
    "attention": attention.ROWS,
    "others": activation.OTHERS + norm.OTHERS + resize.OTHERS,  # ops whose examples are drawn apart
}

# Faults of whole classes, each in a wide and in a narrow form.
CLASSES = {fault.name: fault for fault in (*sizes.ROWS, *others.ROWS, *state.ROWS, *data.ROWS)}

# All of them, by name.
FAULTS = CLASSES | CONV | {fault.name: fault for rows in FAMILIES.values() for fault in rows}
globals().update(FAULTS)
