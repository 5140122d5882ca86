"""FlagGems (pip install flag_gems): its ATen operators, on PyTorch's own samples."""

import logging
import os
from itertools import islice

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

os.environ.setdefault("GEMS_VENDOR", "nvidia")
import flag_gems

logging.disable(logging.WARNING)
SAMPLES = 24  # tried for two that the overload takes
DTYPES = (torch.float32, torch.int64, torch.bool)


def cases():
    """Yield each operator of FlagGems that PyTorch has samples for."""
    samples = {}
    for info in op_db:
        for name in (info.name, info.aten_name):
            samples.setdefault(name, info)
    seen = set()
    for name, function, *_ in flag_gems._FULL_CONFIG:
        base, _, overload = name.partition(".")
        aten = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        info = samples.get(base) or samples.get(base.strip("_"))
        if aten is not None and info is not None and name not in seen:
            seen.add(name)
            yield name, lambda f=function, aten=aten, info=info: compared(f, aten, info)


def compared(function, aten, info):
    """Return pairs of results of an operator and ATen's on two samples that both take."""
    dtype = next(d for d in DTYPES if d in info.dtypes)
    pairs, found = [], 0
    for sample in islice(info.sample_inputs("cuda", dtype), SAMPLES):
        given = (sample.input, *sample.args)
        try:
            want = aten(*_copied(given), **sample.kwargs)
        except (RuntimeError, TypeError, IndexError, ValueError):
            continue  # a sample of another overload
        got = function(*_copied(given), **sample.kwargs)
        tensors = [[t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
                   for out in (got, want)]  # fmt: skip
        pairs += zip(*tensors, strict=True)
        found += 1
        if found == 2:
            break
    return pairs


def _copied(values):
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]
