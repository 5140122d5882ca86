"""Liger-Kernel (pip install liger-kernel): its autograd functions beside the same in PyTorch."""

import importlib

import torch
import torch.nn.functional as F

from corpora import leaf, with_gradients


def function(module, name):
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), f"Liger{name}Function")


def applied(module, name, *more):
    """Return a function that applies one of Liger's to operands of its own, then `more`."""

    def run(*given):
        # Some of them write to their operands, which may not be leaves then.
        own = [a * 1 if a.requires_grad else a.clone() for a in given]
        out = function(module, name).apply(*own, *more)
        return out[0] if isinstance(out, tuple) else out

    return run


def cases():
    """Yield functions, forward and backward."""
    x, w, b, big = leaf(6, 48), leaf(48), leaf(48), leaf(5, 70)
    rms = lambda a, weight: F.rms_norm(a, (48,), weight, 1e-6)  # noqa: E731
    rows = {
        ("rms_norm", "RMSNorm", 1e-6): (rms, x, w),
        ("layer_norm", "LayerNorm", 1e-6): (
            lambda a, *p: F.layer_norm(a, (48,), *p, 1e-6), x, w, b),
        ("group_norm", "GroupNorm", 6, 3, 1e-6): (
            lambda a, *p: F.group_norm(a, 3, *p, 1e-6), leaf(2, 6, 30), leaf(6), leaf(6)),
        ("softmax", "Softmax"): (lambda a: a.softmax(-1), big),
        ("sparsemax", "Sparsemax", -1): (sparsemax, big),
        ("swiglu", "SiLUMul"): (lambda a, c: F.silu(a) * c, big, leaf(5, 70)),
        ("geglu", "GELUMul"): (lambda a, c: F.gelu(a, approximate="tanh") * c, big, leaf(5, 70)),
        ("relu_squared", "ReLUSquared"): (lambda a: F.relu(a) ** 2, big),
        ("fused_add_rms_norm", "FusedAddRMSNorm", 1e-6): (
            lambda a, c, weight: rms(a + c, weight), x, leaf(6, 48), w),
        ("poly_norm", "PolyNorm", 1e-6): (poly_norm, x, leaf(3), leaf()),
        ("dyt", "DyT"): (lambda a, s, g, c: torch.tanh(s * a) * g + c,
                         leaf(3, 5, 70), leaf(1), leaf(70), leaf(70)),
    }  # fmt: skip
    for (module, name, *more), (reference, *given) in rows.items():
        ours = applied(module, name, *more)
        yield module, lambda f=ours, r=reference, g=given: with_gradients(f, r, *g)
    yield from ((f.__name__, f) for f in (*LOSSES, *ROTATIONS, mask_of_attention, neighborhood))


def sparsemax(a):
    ordered, k = a.sort(-1, descending=True)[0], torch.arange(1, a.shape[-1] + 1)
    sums = ordered.cumsum(-1)
    count = (1 + k * ordered > sums).sum(-1, keepdim=True)
    return (a - (sums.gather(-1, count - 1) - 1) / count).clamp(min=0)


def poly_norm(a, w, b):
    def norm(z):
        return z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)

    return w[0] * norm(a**3) + w[1] * norm(a**2) + w[2] * norm(a) + b


def cross_entropy():
    target = torch.randint(0, 90, (7,))
    ours = applied(
        "cross_entropy", "CrossEntropy", target, None, -100, 0.0, 0.1, "mean", None, False
    )
    return with_gradients(
        ours, lambda a: F.cross_entropy(a, target, label_smoothing=0.1), leaf(7, 90)
    )


def kl_div():
    target = torch.randn(7, 90).softmax(-1)
    ours = applied("kl_div", "KLDivLoss", target, "batchmean", False, 1e-10)
    return with_gradients(ours, lambda a: F.kl_div(a, target, reduction="batchmean"), leaf(7, 90))


def jsd():
    target = torch.randn(7, 90).log_softmax(-1)

    def reference(a):
        middle = ((a.exp() + target.exp()) / 2).log()
        parts = (F.kl_div(middle, t, reduction="sum", log_target=True) for t in (target, a))
        return sum(parts) / 14

    ours = applied("jsd", "JSD", target, None, 0.5, -100)
    a = torch.randn(7, 90).log_softmax(-1).requires_grad_()
    return with_gradients(ours, reference, a)


def tvd():
    p, q = torch.randn(7, 90).softmax(-1).requires_grad_(), torch.randn(7, 90).softmax(-1)
    ours = applied("tvd", "TVDLoss", q, None, "batchmean", -100)
    return with_gradients(ours, lambda a: (a - q).abs().sum() / 14, p)


def fused_linear_cross_entropy():
    target = torch.randint(0, 40, (6,))

    def ours(x, w):
        f = function("fused_linear_cross_entropy", "FusedLinearCrossEntropy")
        return f.apply(x, w, target, None, None)[0]

    return with_gradients(
        ours, lambda x, w: F.cross_entropy(x @ w.T, target), leaf(6, 16), leaf(40, 16)
    )


def turned(a, cos, sin):
    half = a.shape[-1] // 2
    return a * cos + torch.cat([-a[..., half:], a[..., :half]], -1) * sin


def rope():
    q, k, angles = leaf(2, 4, 8, 32), leaf(2, 2, 8, 32), torch.randn(1, 8, 16)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

    def ours(q, k):
        return torch.cat(function("rope", "Rope").apply(q * 1, k * 1, cos, sin), 1)

    return with_gradients(
        ours, lambda q, k: turned(torch.cat([q, k], 1), cos[:, None], sin[:, None]), q, k
    )


def qwen2vl_mrope():
    q, k = torch.randn(2, 4, 8, 32), torch.randn(2, 2, 8, 32)
    angles, sections = torch.randn(3, 2, 8, 16), [4, 6, 6]
    cos, sin = (torch.cat([part] * 2, -1) for part in (angles.cos(), angles.sin()))

    def chosen(part):
        pieces = part.split(sections * 2, -1)
        return torch.cat([piece[n % 3] for n, piece in enumerate(pieces)], -1)[:, None]

    out = function("qwen2vl_mrope", "Qwen2VLMRope").apply(q.clone(), k.clone(), cos, sin, sections)
    return [(out[n], turned(a, chosen(cos), chosen(sin))) for n, a in enumerate((q, k))]


def llama4_rope():
    q, k, angles = torch.randn(2, 8, 4, 32), torch.randn(2, 8, 2, 32), torch.randn(8, 16)
    factors = torch.polar(torch.ones_like(angles), angles)
    out = function("llama4_rope", "Llama4Rope").apply(q.clone(), k.clone(), factors)

    def wanted(a):
        pairs = torch.view_as_complex(a.reshape(*a.shape[:3], 16, 2))
        return torch.view_as_real(pairs * factors[None, :, None]).reshape(a.shape)

    return [(out[n], wanted(a)) for n, a in enumerate((q, k))]


def grpo():
    from liger_kernel.ops.grpo_loss import GrpoLossFunction

    logits, ids = leaf(2, 9, 50), torch.randint(0, 50, (2, 8))
    mask, advantages = torch.ones(2, 8, dtype=torch.int32), torch.randn(2)

    def ours(a):
        given = (a * 1, None, None, ids, advantages, mask, 0.9, 0.0, 0.2, 0.2, True)
        return GrpoLossFunction.apply(*given)[0].mean()

    def reference(a):  # of the first step: the ratio to the old policy is 1
        logp = (a[:, :-1] / 0.9).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
        return (-(logp - logp.detach()).exp() * advantages[:, None]).mean()

    return with_gradients(ours, reference, logits)


def mask_of_attention():
    scores, weight = leaf(1, 2, 16, 16), leaf(2, 2, 3, 3)
    lower = torch.ones(16, 16).tril().bool()

    def reference(s, w):
        p = s.masked_fill(~lower, -1e9).softmax(-1)
        return F.conv2d(p, w, None, 1, 1).masked_fill(~lower, 0.0)

    ours = applied("multi_token_attention", "MultiTokenAttention", None, 1, 1, 1, 1, False)
    return with_gradients(ours, reference, scores, weight)


def neighborhood():
    at = torch.arange(16)
    far = (at[:, None] - at[None]).abs() > 3

    def reference(q, k, v):
        return ((q @ k.mT) / 4).masked_fill(far, -float("inf")).softmax(-1) @ v

    ours = applied("fused_neighborhood_attention", "FusedNeighborhoodAttention", 7, 1, None)
    return with_gradients(ours, reference, *(leaf(1, 2, 16, 16) for _ in range(3)))


LOSSES = (cross_entropy, kl_div, jsd, tvd, fused_linear_cross_entropy, grpo)
ROTATIONS = (rope, qwen2vl_mrope, llama4_rope)
