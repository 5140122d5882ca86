"""Models of convref's layers in PyTorch's own machinery: compilers, transforms, AMP, threads."""

from __future__ import annotations

import copy
import gc
import re
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
psutil = pytest.importorskip("psutil", reason="psutil is not installed")

from torch.func import functional_call, grad, jvp, vmap  # noqa: E402

from convref.errors import ConvrefError, UnsupportedError  # noqa: E402
from convref.integrations.torch import convert, nn, revert, use_backend  # noqa: E402
from convref.integrations.torch._autograd import AUTOCAST  # noqa: E402
from convref.integrations.torch.nn import ACTIVATIONS  # noqa: E402

# torch scripts its own rules of forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


class Net(torch.nn.Module):
    """Every kind of layer once, small."""

    def __init__(self, **made):
        super().__init__()
        self.stem = nn.ConvBNAct2d(3, 8, 3, 2, 1, activation="silu", **made)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=4, **made)
        self.norm, self.act = nn.BatchNorm2d(8, **made), nn.Hardswish(inplace=True)
        self.wide = nn.ConvTranspose2d(8, 6, 2, 2, **made)
        self.group, self.up = nn.GroupNorm(2, 6, **made), nn.Upsample(scale_factor=2)
        self.mean, self.flat = nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        self.head = torch.nn.Linear(6, 5, **made)

    def features(self, x):
        y = self.act(self.norm(self.deep(self.pool(self.stem(x)))))
        return self.up(self.group(self.wide(y)))

    def forward(self, x):
        return self.head(self.flat(self.mean(self.features(x))))


def batch(n=2, size=16, **made):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 3, size, size, generator=generator, **made)


def network(training=False, **made):
    torch.manual_seed(0)
    return Net(**made).train(training)


def gradients(model, y):
    loss = nn.CrossEntropyLoss()(y, torch.arange(len(y)) % 5)
    return torch.autograd.grad(loss, tuple(model.parameters()))


@pytest.fixture
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("training", [False, True])
def test_compiled_whole_for_any_batch_size(training, fresh):
    plain, model = (network(training, dtype=torch.float64) for _ in range(2))
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (2, 3, 5):
        x = batch(n, dtype=torch.float64)
        with torch._dynamo.config.patch(error_on_recompile=n > 2):
            y, wanted = compiled(x), plain(x)
        assert torch.equal(y, wanted)
        assert all(map(torch.equal, gradients(model, y), gradients(plain, wanted)))
    assert all(map(torch.equal, model.buffers(), plain.buffers()))


@pytest.mark.parametrize("training", [False, True])
def test_compiled_graph_has_the_ops_of_torch_nn(training, fresh):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.InstanceNorm2d(4), nn.MaxPool2d(2)
    model = torch.nn.Sequential(*layers, nn.Hardsigmoid(), nn.Upsample(scale_factor=2))
    plain = copy.deepcopy(model)
    revert(plain)
    graphs = []

    def kept(graph, inputs):
        graphs[-1] += [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
        return make_boxed_func(graph.forward)

    for one in (model, plain):
        torch.compiler.reset()
        graphs.append([])
        compiled = torch.compile(
            one.train(training), backend=aot_autograd(fw_compiler=kept), fullgraph=True
        )
        with torch.set_grad_enabled(training):
            y = compiled(batch())
        if training:
            y.sum().backward()
    ours, theirs = map(sorted, graphs)
    assert not [name for name in ours if name.startswith("convref")]
    assert [*filter(_computes, ours)] == [*filter(_computes, theirs)]


def _computes(name):
    return name.startswith("aten.") and not re.search("detach|clone|as_strided", name)


def test_compiled_with_a_running_mean_of_all_batches(fresh):
    plain = nn.BatchNorm2d(3, momentum=None)
    compiled = torch.compile(copy.deepcopy(plain), fullgraph=True, backend="aot_eager")
    for n in (2, 3):
        assert torch.equal(compiled(batch(n)), plain(batch(n)))
    assert all(map(torch.equal, compiled.buffers(), plain.buffers()))


def test_exported_with_a_batch_size_left_open():
    model = network()
    dynamic = {"x": {0: torch.export.Dim("n", min=2, max=64)}}
    exported = torch.export.export(model, (batch(),), dynamic_shapes=dynamic)
    ops = {str(node.target) for node in exported.graph.nodes}
    assert {"aten.conv2d.default", "aten.max_pool2d.default"} <= ops
    assert not any("convref" in op for op in ops)
    for n in (2, 7):
        assert torch.equal(exported.module()(batch(n)), model(batch(n)))


def integers(n, size=8):
    return batch(n, size, dtype=torch.float64).mul(3).round()


@pytest.fixture
def exact():
    """Return a model whose sums and products of small integers are exact in any order."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(nn.ConvBNAct2d(3, 4, 3, 2, 1), nn.MaxPool2d(3, 2, 1)),
        *(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.ReLU(inplace=True)),
        *(nn.ConvTranspose2d(4, 2, 2, 2), nn.Upsample(scale_factor=2), nn.AvgPool2d(4)),
    ).double()
    for parameter in model.parameters():
        parameter.data.mul_(4).round_()
    norm = model[0].bn
    norm.eps = 2.0**-10
    norm.running_var.fill_(4.0 - norm.eps)  # divides by 2
    return model.eval()


def test_gradients_of_a_function(exact):
    parameters = dict(exact.named_parameters())
    x = integers(3)

    def loss(parameters, x):
        return functional_call(exact, parameters, (x,)).square().sum()

    def apart(x):
        return torch.autograd.grad(loss(parameters, x), tuple(parameters.values()))

    assert all(map(torch.equal, grad(loss)(parameters, x).values(), apart(x)))
    each = vmap(grad(loss), (None, 0))(parameters, x[:, None])
    wanted = map(torch.stack, zip(*(apart(x[i : i + 1]) for i in range(len(x)))))
    assert all(map(torch.equal, each.values(), wanted))
    assert any(g.any() for g in each.values())


def test_tangents_of_a_model(exact):
    x, x_dot = integers(1), integers(2)[1:]
    y, y_dot = jvp(exact, (x,), (x_dot,))
    assert torch.equal(y, exact(x))
    assert y_dot.any()
    leaf = x.clone().requires_grad_()
    rows = [torch.autograd.grad(e, leaf, retain_graph=True)[0] for e in exact(leaf).flatten()]
    assert torch.equal(y_dot.flatten(), torch.stack([(row * x_dot).sum() for row in rows]))


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 2), nn.LayerNorm(4), nn.BatchNorm2d(2).eval()])
def test_output_of_norm_may_be_overwritten(norm):
    x = torch.arange(32.0).reshape(1, 2, 4, 4).requires_grad_()
    found = []
    for inplace in (False, True):
        model = torch.nn.Sequential(norm, nn.ReLU(inplace=inplace))
        found.append([*torch.autograd.grad(model(x).sum(), x), *jvp(model, (x,), (x,))])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("backend", [None, "numpy"])
@pytest.mark.parametrize("rank", [2, 3])
def test_channels_last_where_torch_decides_so(rank, backend):
    layout = (torch.channels_last, torch.channels_last_3d)[rank - 2]
    kinds = (f"Conv{rank}d", f"BatchNorm{rank}d", f"MaxPool{rank}d", f"ConvTranspose{rank}d")
    conv, norm, pool, wide = (getattr(torch.nn, kind) for kind in kinds)
    act, up = torch.nn.SiLU(), torch.nn.Upsample(7)
    layers = torch.nn.Sequential(conv(3, 4, 3), norm(4), act, pool(2), wide(4, 4, 2, 2), up)
    theirs = layers.to(memory_format=layout)
    ours = copy.deepcopy(theirs)
    convert(ours, backend)
    plain = torch.randn(2, 3, *(6,) * rank)
    for x in (plain, plain.to(memory_format=layout)):  # the format of the weight counts too
        x = x.requires_grad_()
        y, wanted = x, x
        for layer, like in zip(ours, theirs):
            y, wanted = layer(y), like(wanted)
            assert y.stride() == wanted.stride(), layer
        (dx,), (dx_wanted,) = (torch.autograd.grad(t.sum(), x) for t in (y, wanted))
        assert dx.stride() == dx_wanted.stride()


def output_types(model):
    """Return the type that each layer gives under autocast, in the order of the calls."""
    seen = []
    for layer in model.modules():
        layer.register_forward_hook(
            lambda module, i, o: seen.append((type(module).__name__, o.dtype))
        )
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.CrossEntropyLoss()(model(batch()), torch.arange(2))
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    return seen


def test_autocast_dtype_of_every_layer_matches_torch():
    ours = network(training=True)
    ours.stem = torch.nn.Sequential(*ours.stem.children())
    theirs = copy.deepcopy(ours)
    revert(theirs)
    assert output_types(ours) == output_types(theirs)


@pytest.mark.parametrize("op", [*sorted({*ACTIVATIONS} & {*AUTOCAST}), "prelu"])
def test_autocast_casts_the_activations_that_torch_casts(op):
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        name = f"aten::{op}"
        casts = torch._C._dispatch_has_kernel(  # an op that is none of ATen's casts nothing
            name
        ) and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
        assert (device in AUTOCAST[op]) == casts, device


def test_backend_runs_without_autocast():
    x = torch.ones(1, 1, 2, 2, 2, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        pool = nn.AdaptiveAvgPool3d(1, backend="numpy")
        assert pool(x).dtype == torch.bfloat16  # ATen's would be float32


@pytest.fixture
def one_thread():
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def resident():
    return psutil.Process().memory_info().rss


def test_a_thousand_steps_keep_no_tensor(one_thread):
    model = torch.nn.Sequential(
        nn.ConvBNAct1d(4, 8, 3, activation="silu"),
        nn.BatchNorm1d(8, momentum=None),
        nn.MaxPool1d(2),
    )
    head = nn.Conv1d(8, 2, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 1e-3)
    x, target = torch.ones(4, 4, 258), torch.ones(4, 128, dtype=torch.long)  # 16 kB an image of 4

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            nn.CrossEntropyLoss()(model(x), target).backward()
            optimizer.step()
        gc.collect()
        return len(gc.get_objects()), sys.getallocatedblocks(), resident()

    before, after = steps(100), steps(1_000)
    objects, blocks, memory = (new - old for new, old in zip(after, before))
    assert objects < 100  # of Python's: not one for ten steps
    assert blocks < 1_000  # not one a step
    assert memory < 1_000 * x.nbytes // 2  # of any kind: not one image for two steps


def test_four_threads_compute_the_same():
    model = network(dtype=torch.float64)
    images = [batch(n, dtype=torch.float64) for n in (1, 2, 3, 4)]
    backends = ("torch", "numpy", "torch", "numpy")

    def run(i):
        with use_backend(backends[i]):
            y = model(images[i])
            return [y, *torch.autograd.grad(y.sum(), tuple(model.parameters()))]

    wanted = [run(i) for i in range(4)]
    found, errors = {}, []

    def work(i):
        try:
            for _ in range(3):
                found[i] = run(i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(torch.equal(a, b) for i in range(4) for a, b in zip(found[i], wanted[i]))


def test_a_model_on_meta_has_sizes_and_no_data():
    model, images = network(training=True).to("meta"), torch.empty(4, 3, 16, 16, device="meta")
    y = model(images.requires_grad_())
    assert (y.shape, y.device.type) == ((4, 5), "meta")
    y.sum().backward()
    assert images.grad.shape == images.shape
    assert all(p.grad.shape == p.shape for p in model.parameters())


IMAGE = torch.ones(1, 2, 4, 4)
ERRORS = (
    (lambda: nn.Conv2d(2, 2, 3)(IMAGE.half()), ConvrefError, "weight has dtype f32, needs f16"),
    (lambda: nn.Conv2d(3, 2, 3)(IMAGE), ConvrefError, "needs"),
    (lambda: nn.Conv2d(2, 2, 3)(IMAGE.bool()), ConvrefError, "input has dtype bool, needs one of"),
    (lambda: nn.Conv2d(2, 2, 3)(IMAGE[0, 0]), ConvrefError, "input has 2 axes, needs 4"),
    (lambda: nn.Conv2d(2, 2, 9)(IMAGE), ConvrefError, "needs at least 1"),
    (lambda: nn.Conv2d(2, 2, 3)(IMAGE.numpy()), ConvrefError, "ndarray given, needs a tensor"),
    (lambda: nn.Conv2d(2, 2, 3)(IMAGE.to_sparse()), ConvrefError, "layout sparse_coo"),
    (lambda: nn.Conv2d(2, 2, 3)(IMAGE.to("meta")), ConvrefError, "device"),
    (lambda: nn.BatchNorm2d(2)(IMAGE[:, :, :1, :1]), ConvrefError, "needs at least 2 in training"),
    (lambda: nn.BatchNorm2d(3)(IMAGE), ConvrefError, "needs"),
    (lambda: nn.BatchNorm2d(2)(IMAGE[0]), ValueError, "expected 4D input"),
    (lambda: nn.BatchNorm2d(2)(IMAGE.double()), ConvrefError, "has dtype f32, needs f64"),
    (lambda: nn.MaxPool2d(2, stride=0)(IMAGE), ConvrefError, "stride is .* at least 1"),
    (lambda: nn.MaxUnpool2d(2)(IMAGE, IMAGE), ConvrefError, "indices has dtype f32, needs i64"),
    (
        lambda: nn.Upsample(scale_factor=2, mode="trilinear")(IMAGE),
        ConvrefError,
        "mode trilinear has 2",
    ),
    (lambda: nn.Softmax()(IMAGE), ConvrefError, "dim is None, needs an integer"),
    (lambda: nn.Softmax(4)(IMAGE), ConvrefError, "dim is 4, needs -4 to 3"),
    (lambda: nn.LayerNorm(3)(IMAGE), ConvrefError, "needs to end in normalized_shape"),
    (lambda: nn.CrossEntropyLoss()(IMAGE, IMAGE[0]), ConvrefError, "target has shape"),
    (lambda: nn.ReLU(backend="nobody")(IMAGE), ConvrefError, "'nobody' is unknown"),
    (lambda: nn.ReLU(backend=7)(IMAGE), ConvrefError, "backend is 7, needs a name"),
    (lambda: nn.Mish(backend="triton")(IMAGE), UnsupportedError, "no kernel for mish"),
)


@pytest.mark.parametrize(("call", "kind", "text"), ERRORS, ids=[text for *_, text in ERRORS])
def test_message_names_what_is_wrong(call, kind, text):
    if "mish" in text:
        pytest.importorskip("triton", reason="triton is not installed")
    with pytest.raises(kind, match=text):
        call()
