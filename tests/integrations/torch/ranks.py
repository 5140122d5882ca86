"""The checks of each of several processes, which test_distributed.py starts and reads.

    python ranks.py FOLDER SIZE[,CHECK ...] ...

Data are small integers, so that sums come out the same in any order: every comparison is exact.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from datetime import timedelta
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from convref.integrations.torch import convert
from convref.integrations.torch import functional as F

SHARDING = "convref.integrations.torch.sharding"
LOADED = SHARDING in sys.modules

from convref.integrations.torch.sharding import register_shardings  # noqa: E402

KNOWN = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
REGISTERED = [op for op in KNOWN if op.namespace == "convref"]

TIMEOUT = timedelta(seconds=600)
WHOLE, BATCH, CHANNEL = Replicate(), Shard(0), Shard(1)


def integers(*shape, seed=0):
    """Return the same small integers on every rank."""
    made = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(-3, 4, shape, generator=made).float()


def sharded(function, tensors, placements, mesh, local=True):
    """Compare `function` and its gradients on shards with whole tensors, bit for bit.

    `local`: the result must be computed without communication.
    """
    shares = [
        distribute_tensor(t, mesh, p if isinstance(p, list) else [p]).requires_grad_()
        for t, p in zip(tensors, placements, strict=True)
    ]
    whole = [t.clone().requires_grad_() for t in tensors]
    with CommDebugMode() as messages:
        found = function(*shares)
    assert not local or not messages.get_total_counts(), messages.get_comm_counts()
    wanted = function(*whole)
    check_same(found, wanted)
    dy = integers(*wanted.shape, seed=1)
    grads = torch.autograd.grad(found, shares, distribute_tensor(dy, mesh, [WHOLE] * mesh.ndim))
    for got, want in zip(grads, torch.autograd.grad(wanted, whole, dy), strict=True):
        check_same(got, want)
    return found


def check_same(found, wanted):
    """Compare a tensor in shares with a whole one."""
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    whole = found.full_tensor()
    assert torch.equal(whole, wanted), f"{(whole != wanted).sum()} of {wanted.numel()} differ"


def no_rule_is_registered_by_an_import(mesh):
    assert not LOADED
    assert REGISTERED == []


def convolutions(mesh):
    """Cut by images, by channels out, by channels in: every rank, transposed or not."""
    functions = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d)}
    functions[3] = (F.conv3d, F.conv_transpose3d)
    for (rank, stride), transposed in product(((1, 2), (2, 1), (2, 2), (3, 2)), (False, True)):
        x, w = integers(8, 4, *[6] * rank), integers(4, 4, *[3] * rank)
        out, into = (Shard(1), Shard(0)) if transposed else (Shard(0), Shard(1))

        def function(x, w, b=None, rank=rank, stride=stride, transposed=transposed):
            return functions[rank][transposed](x, w, b, stride, 1)

        for placements, expected in (
            ((BATCH, WHOLE), BATCH),
            ((WHOLE, out), CHANNEL),
            ((CHANNEL, into), Partial()),
        ):
            assert sharded(function, (x, w), placements, mesh).placements == (expected,)
        b = integers(4)
        assert sharded(function, (x, w, b), (BATCH, WHOLE, WHOLE), mesh).placements == (BATCH,)
        assert sharded(function, (x, w, b), (WHOLE, out, Shard(0)), mesh).placements == (CHANNEL,)


def convolutions_that_must_move(mesh):
    """With groups, or a bias that partial sums would add too often, something is moved first."""
    x, w, b = integers(4, 8, 5, 5), integers(8, 8, 3, 3), integers(8)
    sharded(lambda x, w, b: F.conv2d(x, w, b), (x, w, b), (CHANNEL, CHANNEL, WHOLE), mesh, False)
    for placements in ((BATCH, WHOLE), (CHANNEL, Shard(0)), (WHOLE, Shard(0))):
        narrow = (x, w[:, :4].contiguous())
        sharded(lambda x, w: F.conv2d(x, w, groups=2), narrow, placements, mesh, False)
    for count in (1, 3, 5):  # too few images for all, and not the same number for each
        sharded(
            lambda x, w: F.conv2d(x, w),
            (x[:1].expand(count, -1, -1, -1), w),
            (BATCH, WHOLE),
            mesh,
            False,
        )


def second_derivatives(mesh):
    """The gradient of a gradient, which is convolution_double_backward."""
    x, w = integers(4, 4, 5, 5), integers(4, 4, 3, 3)
    for placements in ((BATCH, WHOLE), (WHOLE, Shard(0)), (CHANNEL, CHANNEL)):

        def penalty(x, w):
            (dx,) = torch.autograd.grad(F.conv2d(x, w).square().sum(), x, create_graph=True)
            return dx

        sharded(penalty, (x, w), placements, mesh, local=False)


def channelwise(mesh):
    """Pools, resizing and activations: by images and by channels, nothing moves."""
    x = integers(4, 8, 8, 8)
    functions = (
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 4),
        lambda x: F.adaptive_max_pool2d(x, 3),
        lambda x: F.lp_pool2d(x, 2.0, 2),
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        lambda x: F.interpolate(x, scale_factor=2.0),
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        F.relu,
        F.leaky_relu,
        F.silu,
        F.gelu,
        F.hardswish,
        F.sigmoid,
        F.tanh,
    )
    for function, placement in product(functions, (BATCH, CHANNEL)):
        assert sharded(function, (x,), (placement,), mesh).placements == (placement,)


def norms(mesh):
    """Batch norm by channels, and by images where its statistics are given."""
    x, channel = integers(4, 8, 4, 4), Shard(0)
    w, b, mean = (integers(8, seed=i) for i in range(3))
    var = torch.full((8,), 4.0)

    def training(x, w, b):
        return F.batch_norm(x, None, None, w, b, training=True, eps=0.0)

    sharded(training, (x, w, b), (CHANNEL, channel, channel), mesh)
    sharded(training, (x, w, b), (BATCH, WHOLE, WHOLE), mesh, False)  # in shares, but one batch
    running = mean.clone(), var.clone()
    shares = [distribute_tensor(t, mesh, [channel]) for t in running]
    F.batch_norm(x, *running, training=True)
    F.batch_norm(distribute_tensor(x, mesh, [CHANNEL]), *shares, training=True)
    for found, wanted in zip(shares, running, strict=True):
        check_same(found, wanted)

    def evaluation(where):
        shares = [distribute_tensor(t, mesh, [where]) for t in (mean, var)]

        def function(x, w, b):
            given = shares if hasattr(x, "placements") else (mean, var)
            return F.batch_norm(x, *given, w, b, eps=0.0)

        return function

    sharded(evaluation(channel), (x, w, b), (CHANNEL, channel, channel), mesh)
    sharded(evaluation(WHOLE), (x, w, b), (BATCH, WHOLE, WHOLE), mesh)
    x = x.sign() + 0.5  # the sums below are exact if each group has mean 0 and variance 1
    x = torch.cat((x.sign(), -x.sign()), 3)
    for groups in (2, 8):

        def grouped(x, w, b, groups=groups):
            return F.group_norm(x, groups, w, b, eps=0.0)

        sharded(grouped, (x, w, b), (BATCH, WHOLE, WHOLE), mesh)


def image_by_image(mesh):
    """What mixes the channels of an image: by images; a loss is computed from all of them."""
    x = integers(4, 8, 4, 4)
    for function in (
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x, 1),
        lambda x: F.layer_norm(x, (8, 4, 4)),
    ):
        assert sharded(function, (x,), (BATCH,), mesh).placements == (BATCH,)
    classes = torch.arange(4) % 3

    def loss(logits):
        given = classes
        if hasattr(logits, "placements"):
            given = distribute_tensor(classes, mesh, [BATCH])
        return F.cross_entropy(logits, given, reduction="none")

    sharded(loss, (integers(4, 3),), (BATCH,), mesh, local=False)


def a_pair_of_layers(mesh):
    """Channels out of one layer are channels in of the next: one sum at the end is all."""
    x, w1, w2 = integers(2, 3, 6, 6), integers(8, 3, 3, 3), integers(4, 8, 3, 3)

    def network(x, w1, w2):
        return F.conv2d(F.relu(F.conv2d(x, w1)), w2)

    found = sharded(network, (x, w1, w2), (WHOLE, Shard(0), Shard(1)), mesh)
    assert found.placements == (Partial(),)
    with CommDebugMode() as messages:
        found.redistribute(placements=[WHOLE])
    assert messages.get_total_counts() == 1


def a_mesh_of_two_axes(mesh):
    """Images along one axis, channels along the other."""
    size = mesh.size()
    wide = init_device_mesh("cpu", (2, size // 2))
    x, w = integers(4, 4, 5, 5), integers(4, 4, 3, 3)
    found = sharded(F.conv2d, (x, w), ([BATCH, WHOLE], [WHOLE, BATCH]), wide)
    assert found.placements == (BATCH, CHANNEL)


def network():
    """Return a model that was written with torch.nn and converted; its numbers are integers."""
    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Upsample(scale_factor=2.0),
        torch.nn.Conv2d(8, 4, 3, padding="same", bias=False),
    ).double()
    for parameter in made.parameters():
        parameter.data.copy_(integers(*parameter.shape))
    assert len(convert(made).changed) == len(made)
    return made


def trained(model, x, steps=2):
    """Take steps of descent; the rate is a power of two, so that float64 rounds nothing."""
    descent = torch.optim.SGD(model.parameters(), lr=2.0**-10)
    for _ in range(steps):
        descent.zero_grad()
        y = model(x)
        y.backward(y.detach().floor().remainder(8))
        descent.step()
    return dict(model.named_parameters())


def _expected(x, size):
    """Return the parameters after the same steps on all images at once, gradients averaged."""
    model = network()
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad / size)
    return trained(model, x)


def data_parallel(mesh):
    """DistributedDataParallel: each rank its images, gradients averaged."""
    rank, size = mesh.get_rank(), mesh.size()
    x = integers(2 * size, 3, 8, 8).double()
    ours = torch.nn.parallel.DistributedDataParallel(network())
    found = trained(ours, x.chunk(size)[rank])
    for name, want in _expected(x, size).items():
        assert torch.equal(found[f"module.{name}"], want), name


def fully_sharded(mesh):
    """FSDP2: each rank a share of the parameters besides."""
    from torch.distributed.fsdp import fully_shard

    rank, size = mesh.get_rank(), mesh.size()
    x = integers(2 * size, 3, 8, 8).double()
    model = network()
    for part in (model[0], model[-1], model):
        fully_shard(part, mesh=mesh)
    found = trained(model, x.chunk(size)[rank])
    for name, want in _expected(x, size).items():
        assert torch.equal(found[name].full_tensor(), want), name


CHECKS = {
    check.__name__: check
    for check in (
        no_rule_is_registered_by_an_import,
        convolutions,
        convolutions_that_must_move,
        second_derivatives,
        channelwise,
        norms,
        image_by_image,
        a_pair_of_layers,
        a_mesh_of_two_axes,
        data_parallel,
        fully_sharded,
    )
}


def run_checks(rank: int, size: int, folder: Path, names: list[str]) -> None:
    """Run these checks and write the failures, by name."""
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=TIMEOUT)
    register_shardings()
    mesh = init_device_mesh("cpu", (size,))
    said = dict.fromkeys(names, "not reached")
    for name in names:
        try:
            CHECKS[name](mesh)
            said[name] = ""
        except Exception:
            said[name] = traceback.format_exc()
            break  # the others may be waiting for a message that never comes
        finally:
            (folder / f"{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


def main(folder: Path, *groups: str) -> None:
    """Fork a process for each rank: importing torch takes longer than all the checks."""
    fork = multiprocessing.get_context("fork")
    for group in groups:
        size, *names = group.split(",")
        place = folder / size
        place.mkdir()
        ranks = [
            fork.Process(target=run_checks, args=(rank, int(size), place, names or list(CHECKS)))
            for rank in range(int(size))
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
