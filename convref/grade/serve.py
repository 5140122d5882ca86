"""The worker process: loads a solution and calls it on operands that come by a socket.

It has nothing to protect: verdicts are reached elsewhere, from the bytes that it returns.
"""

import importlib.util
import math
import os
import socket
import sys
from contextlib import nullcontext, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from .isolation import enter
from .wire import pack, unpack

_BAND = 256  # bytes of NaN on each side of an operand
_STEP = 16  # bytes by which the alignment of operands differs from the allocator's
_rooms: dict[tuple[str, int, int], Any] = {}


def main() -> None:
    """Serve requests until the socket closes.

    `python -m convref.grade.serve FD FOLDER FILE ENTRY DEVICE [triton]`
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    folder, file, entry, device, *kernels = sys.argv[2:]
    send(channel, {"isolation": enter(folder)})
    torch.set_num_threads(1)
    way, context = triton_on_cpu() if kernels and device == "cpu" else ("", nullcontext())
    send(channel, {"triton": way})  # before a solution could say something else
    with context:
        if device == "cpu":
            device = torch.empty(0).device.type  # "cuda" where kernels run as PTX
        try:
            solution = load_solution(Path(folder, file), entry)
        except BaseException as error:  # a solution may raise anything
            send(channel, {"error": f"loading raises {_describe_error(error)}"})
            return
        send(channel, {"ready": True})
        _serve(channel, solution, device)


def triton_on_cpu() -> tuple[str, Any]:
    """Return how Triton kernels run on this machine, and the context in which they do."""
    for point in entry_points(group="convref.triton_devices"):
        with suppress(ImportError):
            return f"as {point.name}", point.load()()
    os.environ["TRITON_INTERPRET"] = "1"
    return "in Triton's interpreter", nullcontext()


def _serve(channel: socket.socket, solution: Any, device: str) -> None:
    number = 0
    while (request := receive(channel)) is not None:
        number += 1
        # 1 fills new memory; torch.use_deterministic_algorithms imports a compiler, 1.2 s.
        torch.set_deterministic_debug_mode(1 - number % 2)
        try:
            answer = {"output": run_solution(solution, request, device)}
            pack(answer)
        except BaseException as error:
            answer = {"error": f"raises {_describe_error(error)}"}
        send(channel, answer)


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


def load_solution(path: Path, entry: str) -> Any:
    """Return the function or class of a solution, or its module."""
    folder = str(path.parent)
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(
        "solution", path, submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["solution"] = module
    spec.loader.exec_module(module)
    return _named(module, entry) if entry else module


def _named(module: Any, entry: str) -> Any:
    if not hasattr(module, entry):
        raise AttributeError(f"the solution has no {entry}")
    return getattr(module, entry)


def run_solution(solution: Any, request: dict[str, Any], device: str) -> Any:
    """Return what the solution computes, and its gradients if cotangents are given."""
    inputs, named = _poisoned_copies("operand", (request["inputs"], request["named"]), device)
    cotangents = request.get("cotangents")
    if cotangents is not None:
        inputs, named = tree_map(_differentiable, (inputs, named))
    if "init" in request:
        call = _module(solution, request, named, device)
        own = dict(call.named_parameters())
        own = {name: own[name] for name in named} if own.keys() == named.keys() else own
        leaves, found = [*_floats(inputs), *own.values()], call(*inputs)
    else:
        call = _named(solution, request["entry"]) if "entry" in request else solution
        leaves, outputs = [*_floats(inputs), *_floats(named)], _outputs(request, device)
        for place, output in outputs:
            if isinstance(place, int):
                inputs.insert(place, output)
            else:
                named[place] = output
        found = call(*inputs, **named)
        found = _results(found, outputs, request["results"]) if "results" in request else found
    if cotangents is None:
        return found
    results = [t for t in _floats(found) if t.requires_grad]
    return torch.autograd.grad(
        results, leaves, _poisoned_copies("cotangent", cotangents, device), allow_unused=True
    )


def _outputs(request: dict[str, Any], device: str) -> list[tuple[int | str, Any]]:
    """Return unwritten results by their place among the arguments."""
    found = []
    for place, shape, dtype in request.get("outputs", ()):
        room = torch.full((math.prod(shape) * dtype.itemsize,), 255, dtype=torch.uint8)
        found.append((place, room.view(dtype).view(shape).to(device)))
    return found


def _results(found: Any, outputs: list[tuple[int | str, Any]], names: list[str]) -> list[Any]:
    """Return results in the order of their names."""
    if outputs:
        return [output for _, output in outputs]
    if isinstance(found, dict):
        return [found[name] for name in names]
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _module(solution: Any, request: dict[str, Any], named: dict[str, Any], device: str) -> Any:
    """Return the module with these parameters, by name or in the order of the reference's.

    If it may pack its parameters, they are those that it draws.
    """
    torch.manual_seed(request["seed"])
    module = solution(*request["init"]).to(device)
    if request.get("packed"):
        return module
    own = dict(module.named_parameters())
    if set(own) != set(named):
        if [tuple(t.shape) for t in own.values()] != [tuple(t.shape) for t in named.values()]:
            shapes = {name: tuple(t.shape) for name, t in named.items()}
            raise TypeError(f"parameters differ from the reference's: {shapes}")
        named = dict(zip(own, named.values()))
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(named[name])
    return module


def _floats(tree: Any) -> list[Any]:
    leaves = tree_leaves(tree)
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]


def _differentiable(leaf: Any) -> Any:
    floats = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.requires_grad_() if floats else leaf


def _poisoned_copies(kind: str, tree: Any, device: str) -> Any:
    """Return copies in poisoned memory, at addresses that earlier operands had."""
    leaves, form = tree_flatten(tree)
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[place] = _copied((kind, place), leaf, device)
    return tree_unflatten(leaves, form)


def _copied(name: tuple[str, int], leaf: Any, device: str) -> Any:
    size = leaf.numel() * leaf.itemsize
    room = _rooms.get((*name, size))
    if room is None:
        room = torch.empty(size + 2 * _BAND, dtype=torch.uint8, device=device)
        _rooms[*name, size] = room
    room.fill_(255)
    start = _BAND - room.data_ptr() % _BAND + _STEP * (1 + name[1] % 3)
    part = room[start : start + size] if size else room[:0]
    part = part.view(leaf.dtype).view(leaf.shape)
    return part.copy_(leaf)


def send(channel: socket.socket, message: Any) -> None:
    """Send a message after its length."""
    data = pack(message)
    channel.sendall(len(data).to_bytes(8, "little") + data)


def receive(channel: socket.socket) -> Any:
    """Return the next message, None at the end."""
    head = _read_exactly(channel, 8)
    size = int.from_bytes(head, "little")
    return unpack(_read_exactly(channel, size)) if len(head) == 8 else None


def _read_exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := channel.recv(min(1 << 20, size - len(data)))):
        data += part
    return bytes(data)


if __name__ == "__main__":
    main()
