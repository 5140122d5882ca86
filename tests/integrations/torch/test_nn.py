"""Every layer against torch.nn's of the same name, on generated constructor arguments."""

from __future__ import annotations

import copy
import pickle
from inspect import Parameter, signature

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from convref.api import views  # noqa: E402
from convref.arrays import to_numpy  # noqa: E402
from convref.conformance.strategies import problems  # noqa: E402
from convref.errors import ConvrefError  # noqa: E402
from convref.integrations.torch import functional as F  # noqa: E402
from convref.integrations.torch import fuse, nn  # noqa: E402
from convref.integrations.torch._layers import LAYERS  # noqa: E402
from convref.integrations.torch.recording import Calls  # noqa: E402

# torch says that an even filter takes a copy
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")


RANKS = (1, 2, 3)
SMALL = settings(max_examples=max(8, settings.default.max_examples // 8), phases=[Phase.generate])


def per_axis(draw, rank, low, high):
    """Draw one integer, or one for each axis."""
    return draw(st.one_of(st.integers(low, high), st.tuples(*[st.integers(low, high)] * rank)))


def wide(value, rank):
    return value if isinstance(value, tuple) else (value,) * rank


@st.composite
def convolutions(draw, rank):
    """Draw (args, kwargs, input shape) of a ConvNd."""
    groups = draw(st.integers(1, 3))
    channels, filters = (groups * draw(st.integers(1, 3)) for _ in range(2))
    kernel, stride, dilation = (per_axis(draw, rank, 1, high) for high in (3, 3, 2))
    padding = draw(st.sampled_from(["valid", "same", None, None, None]))
    stride = 1 if padding == "same" else stride
    padding = per_axis(draw, rank, 0, 2) if padding is None else padding
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    more = {"dilation": dilation, "groups": groups, "bias": draw(st.booleans())}
    reach = [d * (k - 1) + 1 for d, k in zip(wide(dilation, rank), wide(kernel, rank))]
    space = [max(3, size) + draw(st.integers(0, 3)) for size in reach]
    shape = [draw(st.integers(1, 3)), channels, *space]
    shape = shape[1:] if mode == "zeros" and draw(st.booleans()) else shape
    args = (channels, filters, kernel, stride, padding)
    return args, {**more, "padding_mode": mode}, shape


@st.composite
def transposed(draw, rank):
    groups = draw(st.integers(1, 3))
    channels, filters = (groups * draw(st.integers(1, 3)) for _ in range(2))
    kernel, stride, dilation = (per_axis(draw, rank, 1, high) for high in (3, 3, 2))
    extra = tuple(
        draw(st.integers(0, max(s, d) - 1))
        for s, d in zip(wide(stride, rank), wide(dilation, rank))
    )
    args = (channels, filters, kernel, stride, draw(st.integers(0, 1)), extra, groups)
    shape = [draw(st.integers(1, 3)), channels, *(draw(st.integers(3, 5)) for _ in range(rank))]
    return args, {"bias": draw(st.booleans()), "dilation": dilation}, shape


def images(draw, rank, least=4):
    """Draw the shape of an image, now and then without its N."""
    space = [draw(st.integers(least, least + 3)) for _ in range(rank)]
    return [draw(st.integers(1, 3))] * draw(st.integers(0, 1)) + [draw(st.integers(1, 3)), *space]


@st.composite
def pools(draw, rank, kind):
    lp = kind == "LPPool"
    kernel = draw(st.integers(2, 3)) if lp else per_axis(draw, rank, 2, 3)
    told = {"stride": draw(st.none() | st.integers(1, 3))}
    if not lp:  # torch's norm scales a cut window as if it were whole
        told |= {"padding": draw(st.integers(0, 1)), "ceil_mode": draw(st.booleans())}
    if kind == "MaxPool":
        told["dilation"] = draw(st.integers(1, 2)) if kernel == 2 else 1
    if kind == "AvgPool":
        told["count_include_pad"] = draw(st.booleans())
        if rank > 1:
            told["divisor_override"] = draw(st.none() | st.integers(1, 5))
    lead = (float(draw(st.integers(1, 3))),) if lp else ()
    return (*lead, kernel), told, images(draw, rank)


@st.composite
def adaptive(draw, rank):
    size = st.integers(1, 5) if rank == 1 else st.none() | st.integers(1, 5)
    return (tuple(draw(size) for _ in range(rank)),), {}, images(draw, rank)


@st.composite
def samplings(draw, _):
    rank = draw(st.sampled_from(RANKS))
    mode = draw(st.sampled_from(["nearest", ("linear", "bilinear", "trilinear")[rank - 1]]))
    told = {"mode": mode}
    if mode != "nearest":
        told["align_corners"] = draw(st.booleans())
    if draw(st.booleans()):
        told["size"] = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    else:
        told["scale_factor"] = draw(st.sampled_from([0.5, 1.7, 2, 3]))
    return (), told, [draw(st.integers(1, 2)), *images(draw, rank)[-rank - 1 :]]


@st.composite
def bilinear(draw, _):
    return (), {"scale_factor": draw(st.integers(1, 3))}, [1, *images(draw, 2)[-3:]]


@st.composite
def batch_norms(draw, rank):
    channels = draw(st.integers(1, 4))
    told = {
        "eps": draw(st.sampled_from([1e-5, 0.5])),
        "momentum": draw(st.sampled_from([None, 0.1, 1.0])),
        "affine": draw(st.booleans()),
        "track_running_stats": draw(st.booleans()),
    }
    space = [draw(st.integers(2, 4)) for _ in range(rank)]
    if rank == 1 and draw(st.booleans()):
        space = []
    return (channels,), told, [draw(st.integers(2, 3)), channels, *space]


@st.composite
def group_norms(draw, _):
    groups, rank = draw(st.integers(1, 3)), draw(st.sampled_from(RANKS))
    channels = groups * draw(st.integers(1, 3))
    space = [draw(st.integers(2, 4)) for _ in range(rank)]
    return (groups, channels), {"affine": draw(st.booleans())}, [2, channels, *space]


@st.composite
def row_norms(draw, _):
    shape = [draw(st.integers(2, 4)) for _ in range(draw(st.integers(2, 4)))]
    last = shape[-draw(st.integers(1, len(shape) - 1)) :]
    return (last,), {"elementwise_affine": draw(st.booleans())}, shape


@st.composite
def pointwise(draw, _, **told):
    shape = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 6)))]
    return (), {name: draw(values) for name, values in told.items()}, shape


@st.composite
def by_channel(draw, _):
    shape = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 6)))]
    channels = shape[1] if shape[1:] else 1
    return (draw(st.sampled_from([1, channels])),), {}, shape


@st.composite
def of_problem(draw, definition):
    """Draw the fields that are positional in the definition: layers have no others."""
    problem = draw(problems(definition.op, max_elements=100, empty=False))
    names = [name for name in definition.settings if name not in definition.keywords]
    return tuple(getattr(problem, name) for name in names), {}, problem.shape("x")


def rectifiers(rank):
    return pointwise(rank, inplace=st.booleans())


def leaky(rank):
    return pointwise(rank, inplace=st.booleans(), negative_slope=st.sampled_from([0.0, 0.25]))


def gelus(rank):
    return pointwise(rank, approximate=st.sampled_from(["none", "tanh"]))


def along(rank):
    return pointwise(rank, dim=st.integers(-1, 0))


RANKED = {
    "Conv": convolutions,
    "ConvTranspose": transposed,
    **{kind: (lambda rank, kind=kind: pools(rank, kind)) for kind in ("MaxPool", "AvgPool")},
    "LPPool": lambda rank: pools(rank, "LPPool"),
    "AdaptiveAvgPool": adaptive,
    "AdaptiveMaxPool": adaptive,
    "BatchNorm": batch_norms,
}
ARGUMENTS = {f"{kind}{rank}d": drawn(rank) for kind, drawn in RANKED.items() for rank in RANKS} | {
    "GroupNorm": group_norms(0),
    **{d.layer: row_norms(0) for d in F.OF_TORCH if d.view is views.rows},
    "PReLU": by_channel(0),
    "Upsample": samplings(0),
    "UpsamplingNearest2d": bilinear(0),
    "UpsamplingBilinear2d": bilinear(0),
    "LeakyReLU": leaky(0),
    "GELU": gelus(0),
    **dict.fromkeys(("ReLU", "SiLU", "Hardswish"), rectifiers(0)),
    **dict.fromkeys(("Sigmoid", "Tanh"), pointwise(0)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), along(0)),
}
# Layers of one element without a row draw their shape alone; others the fields of their problem.
ARGUMENTS = {kind.__name__: pointwise(0) for kind in nn.ACTIVATIONS.values()} | ARGUMENTS
APART = ("MaxUnpool", "CrossEntropyLoss", "NLLLoss", "InstanceNorm")  # tested below
ARGUMENTS |= {
    d.layer: of_problem(d)
    for d in F.OF_TORCH
    if d.layer == "Threshold" or not (d.ranks or d.layer in (*ARGUMENTS, *APART))
}
# What small integers make exact, whoever computes: here the oracle. The rest has a proven bound.
EXACT = ("Conv", "MaxPool", "AdaptiveMaxPool", "ReLU", "LeakyReLU", "UpsamplingNearest")


def integers(shape, seed):
    made = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, tuple(shape), generator=made).double()


def twins(name, args, told, backend=None):
    """Return torch.nn's layer and a copy of ours, with the same integer parameters."""
    theirs = getattr(torch.nn, name)(*args, **told).double()
    for i, parameter in enumerate(theirs.parameters()):
        parameter.data.copy_(integers(parameter.shape, i))
    ours = getattr(nn, name)(*args, **told, backend=backend).double()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    copied = pickle.loads(pickle.dumps(copy.deepcopy(ours)))
    assert type(copied) is type(ours)
    assert copied.backend == backend
    assert repr(copied) == repr(ours)
    return theirs, copied


def results(layer, *inputs):
    """Return the outputs of a layer and the gradients of its input and parameters, by role."""
    x, *rest = inputs
    x = x.clone().requires_grad_()
    found = layer(x * 1, *rest)  # no leaf: some work in place
    outputs = found if isinstance(found, tuple) else (found,)
    y = outputs[0]
    sources = {"dx": x} | {f"d{n[0]}": p for n, p in layer.named_parameters()}
    grads = torch.autograd.grad(y, list(sources.values()), integers(y.shape, 9))
    running = {f"r{n[8:]}": b for n, b in layer.named_buffers() if n.startswith("running")}
    named = {"rmean": running.get("rmean"), "rvar": running.get("rvar")}
    return dict(zip(("y", "indices"), outputs)) | dict(zip(sources, grads)) | named


def assert_same(theirs, ours):
    assert ours.keys() == theirs.keys()
    for role, mine in ours.items():
        their = theirs[role]
        assert (mine is None) == (their is None)
        if mine is not None:
            assert mine.dtype == their.dtype
            assert mine.shape == their.shape
            assert torch.equal(mine, their), role


def judged(seen, results):
    """Check results, by role, against the bounds of their calls; return the roles checked."""
    held = set()
    for one in seen:
        roles = one.call.signature.results
        given = [results.get(r) if r in one.call.wanted else None for r in roles]
        held |= {r for r, t in zip(roles, given) if t is not None}
        pairs = zip(one.results, given)
        found = [o if t is None else to_numpy(t).reshape(o.shape) for o, t in pairs]
        verdict = one.verdict(tuple(found), "torch")
        assert verdict, f"{verdict.reason} ({one.call})"
    return held


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_layer_matches_torch_nn(name):
    @SMALL
    @given(ARGUMENTS[name])
    def check(drawn):
        args, told, shape = drawn
        exact = name.startswith(EXACT)
        theirs, ours = twins(name, args, told, "numpy" if exact else None)
        assert isinstance(ours, getattr(torch.nn, name))
        x = integers(shape, 5)
        x = x.abs() + 1 if name.startswith("LPPool") else x  # convref's are of absolute values
        if exact:
            assert_same(results(theirs, x), results(ours, x))
        else:
            with Calls() as calls:
                results(ours, x)
            their = results(theirs, x)
            wanted = {role for role, t in their.items() if t is not None}
            averaged = {"rmean", "rvar"} if told.get("momentum", 1) is None else set()
            averaged |= {"dx"} if name == "Hardsigmoid" else set()  # ATen's sixth is of float32
            for role in averaged:
                their[role] = None
            assert judged(calls.seen, their) >= wanted - averaged

    check()


@pytest.mark.parametrize("layer", LAYERS.values(), ids=lambda layer: layer.__name__)
def test_constructor_matches_torch_nn_with_a_backend(layer):
    ours, theirs = signature(layer), signature(getattr(torch.nn, layer.__name__))
    assert ours.parameters["backend"].kind is Parameter.KEYWORD_ONLY
    kept = [p for name, p in ours.parameters.items() if name != "backend"]
    assert kept == [*theirs.parameters.values()]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=lambda layer: layer.__name__)
def test_every_layer_is_tested(layer):
    assert layer.__name__ in ARGUMENTS or layer.__name__.startswith(APART)


def test_the_text_of_a_layer_names_its_backend():
    assert repr(nn.ReLU(backend="numpy")) == "convref.ReLU(backend='numpy')"
    assert repr(nn.ReLU()) == "convref.ReLU()"


@pytest.mark.parametrize("rank", RANKS)
def test_max_unpool(rank):
    pools, unpools = (twins(f"Max{kind}{rank}d", (2,), {}) for kind in ("Pool", "Unpool"))
    for size, told in ((4, {}), (5, {"output_size": [2, 3, *(5,) * rank]})):
        x, found = integers([2, 3, *(size,) * rank], 1), []
        for pool, unpool in zip(pools, unpools):
            pool.return_indices = True
            found.append(unpool(*pool(x), **told))
        assert torch.equal(*found)


@pytest.mark.parametrize("rank", RANKS)
def test_transposed_convolution_takes_output_size(rank):
    layers = twins(f"ConvTranspose{rank}d", (2, 3, 3, 2, 1), {}, "numpy")
    x = integers([1, 2, *(3,) * rank], 1)
    theirs, ours = (layer(x, output_size=[6] * rank) for layer in layers)
    assert torch.equal(theirs, ours)
    with pytest.raises(ValueError, match="valid sizes range"):
        layers[1](x, output_size=[9] * rank)


@SMALL
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    reduction=st.sampled_from(["none", "sum", "mean"]),
    smoothing=st.sampled_from([0.0, 0.25]),
    weighted=st.booleans(),
)
@pytest.mark.parametrize(
    ("name", "soft"), [("CrossEntropyLoss", 0), ("CrossEntropyLoss", 1), ("NLLLoss", 0)]
)
def test_loss_of_a_classifier(name, soft, shape, reduction, smoothing, weighted):
    classes = shape[min(1, len(shape) - 1)]
    weight = torch.arange(1.0, 1 + classes).double() if weighted else None
    told = {"reduction": reduction, "weight": weight}
    told |= {"label_smoothing": smoothing} if name == "CrossEntropyLoss" else {}
    lead, rest = shape[: len(shape) > 1], shape[2:]
    target = integers(shape, 3) if soft else integers([*lead, *rest], 3).long() % classes
    theirs, ours = (getattr(module, name)(**told).double() for module in (torch.nn, nn))
    with Calls() as calls:
        results(ours, integers(shape, 2), target)
    assert judged(calls.seen, results(theirs, integers(shape, 2), target)) >= {"y", "dx"}


def test_probabilities_have_a_gradient():
    x, p = (integers((2, 3, 2), seed).double().requires_grad_() for seed in (1, 2))
    loss = F.cross_entropy
    assert torch.autograd.gradcheck(loss, (x, p))
    assert torch.autograd.gradgradcheck(loss, (x, p))
    with torch.autocast("cpu"):
        assert loss(x.bfloat16(), p.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("momentum", [None, 0.25])
@pytest.mark.parametrize("tracked", [True, False])
def test_running_statistics_of_many_steps(momentum, tracked):
    theirs, ours = twins(
        "BatchNorm2d", (3,), {"momentum": momentum, "track_running_stats": tracked}
    )
    steps, count = 6, 2 * 4 * 4
    for step in range(steps):
        x = integers([2, 3, 4, 4], step)
        theirs(x)
        ours(x)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    # at most `count` additions a statistic and 5 roundings a step, of numbers below the largest
    unit, largest = 2.0**-53, 2 * 4.0**2
    for their, mine in zip(theirs.buffers(), ours.buffers()):
        assert (their - mine).abs().max() <= 2 * (count + 5) * steps * unit * largest
    x = integers([2, 3, 4, 4], 99)
    with Calls() as calls:
        ours.eval()(x)
    assert [one.call.op for one in calls.seen] == ["batch_norm_eval" if tracked else "batch_norm"]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("tracked", [True, False])
def test_instance_norm(rank, tracked):
    told = {"affine": True, "track_running_stats": tracked, "momentum": 0.25, "eps": 3.0}
    theirs, ours = twins(f"InstanceNorm{rank}d", (3,), told, "numpy")
    x = integers([2, 3, *(4,) * rank], 1)
    x[..., ::2], x[..., 1::2] = 1.0, -1.0
    x[1] += 4  # variance 1, and 1 / sqrt(1 + eps) is 1 / 2
    assert_same(results(theirs, x), results(ours, x))
    assert all(map(torch.equal, theirs.buffers(), ours.buffers()))
    theirs.eval(), ours.eval()
    for norm in (theirs, ours) if tracked else ():
        norm.running_var.fill_(1.0)
    assert_same(results(theirs, x), results(ours, x))
    assert torch.equal(ours(x[0]), ours(x)[0])


@pytest.mark.parametrize("backend", [None, "numpy"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_running_statistics_in_the_dtype_of_a_half_model(dtype, backend):
    norms = twins("BatchNorm1d", (3,), {"momentum": 0.5, "eps": 3.0}, backend)
    x = (torch.tensor([[1.0], [-1.0]]) + torch.arange(3)).to(dtype)  # 1 / sqrt(1 + eps) is 1 / 2
    for training in (True, False):
        theirs, ours = (norm.to(dtype).train(training) for norm in norms)
        for norm in norms:
            norm.running_var.fill_(1.0)
        assert torch.equal(theirs(x), ours(x))
        assert all(map(torch.equal, theirs.buffers(), ours.buffers()))


def test_untracked_statistics_do_not_change():
    theirs, ours = twins("BatchNorm1d", (2,), {})
    for norm in (theirs, ours):
        norm.track_running_stats = False
        norm(integers([4, 2], 1))
    assert all(map(torch.equal, theirs.buffers(), ours.buffers()))


BLOCKS = st.tuples(st.sampled_from(RANKS), st.sampled_from(["relu", "leaky_relu"]))


@SMALL
@given(block=BLOCKS, groups=st.integers(1, 2), mode=st.sampled_from(["zeros", "reflect"]))
def test_block_equals_its_three_layers(block, groups, mode):
    rank, activation = block
    told = {"padding": 1, "groups": groups, "padding_mode": mode, "activation": activation}
    ours = getattr(nn, f"ConvBNAct{rank}d")(2, 4, 3, **told, dtype=torch.float64, backend="numpy")
    exactly(ours)
    x = integers([2, 2, *(4,) * rank], 1)
    ours.eval()
    assert torch.equal(ours(x), ours.act(ours.bn(ours.conv(x))))
    twin = copy.deepcopy(ours)
    twin.load_state_dict(ours.state_dict())
    assert torch.equal(pickle.loads(pickle.dumps(twin))(x), ours(x))
    assert torch.equal(twin.train()(x), ours.act(ours.train().bn(ours.conv(x))))
    assert torch.equal(twin.bn.running_var, ours.bn.running_var)


def exactly(model):
    """Give every layer small integers, and every norm statistics that divide by a power of two."""
    for i, module in enumerate(model.modules()):
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eps = 2.0**-10
            module.running_var.fill_(4.0 - 2.0**-10)  # 1 / sqrt(var + eps) is 1 / 2
            module.running_mean.copy_(integers(module.running_mean.shape, i))
        if isinstance(module, torch.nn.LeakyReLU):
            module.negative_slope = 0.5
        for j, parameter in enumerate(module.parameters(recurse=False)):
            parameter.data.copy_(integers(parameter.shape, i + 100 * j) % 3 - 1)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "hardswish"])
@pytest.mark.parametrize("kind", ["ConvBNAct2d", "ConvAct2d"])
def test_block_is_one_kernel_where_the_backend_fuses(kind, activation):
    pytest.importorskip("triton", reason="triton is not installed")
    from convref_triton.backend import backend

    act = nn.ACTIVATIONS[activation]()
    asked = []
    whole = backend.fused
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "fused", lambda *a: asked.append(a[1]) or whole(*a))
        patch.setattr("convref.integrations.torch._folding._plans", {})
        block = nn.ConvBNAct2d(3, 4, 3, padding=1, activation=act, backend="triton").eval()
        exactly(block)
        x = integers([1, 3, 5, 5], 1).float()
        if kind == "ConvAct2d":
            block = torch.nn.Sequential(block).eval()
            fuse(block)
        with torch.no_grad():
            y = block(x)
    assert block(x).requires_grad
    with torch.no_grad(), Calls() as calls:
        block(x)
    assert asked == [activation]  # not while autograd or `Calls` records
    assert [one.call.op for one in calls.seen] == ["conv", activation]
    assert calls.seen[1].verdict((to_numpy(y),), "triton")  # of sums that are exact


def test_an_unknown_activation_is_named():
    with pytest.raises(ConvrefError, match="activation is 'rrelu', needs a module or relu"):
        nn.ConvBNAct1d(1, 1, 1, activation="rrelu")
