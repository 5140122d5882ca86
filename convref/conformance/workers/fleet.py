"""Work on a cluster: chunks of a campaign, solutions; each is a task of Ray, where a node is free.

A node runs them as one machine does, in a worker process with limits (`.engine`). What a lost node
had begun runs again on another; results are counted once, when a task is complete.
"""

import atexit
import contextlib
import socket
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ...errors import ConvrefError, missing_extra, shorten
from .engine import POLL_SECONDS, Engine, Limits
from .worker import ChunkReport, Task

try:
    import ray
except ImportError as error:
    raise missing_extra("ray", error) from None

Work = TypeVar("Work")
Result = TypeVar("Result")
CONNECT_SECONDS = 5.0
LOST_NODES = 16  # times that a task may lose its node
AHEAD = 2  # tasks per processor: one runs, one waits


def connect(address: str) -> None:
    """Join the cluster at an address, "auto" or HOST:PORT; "local" starts one on this machine."""
    if ray.is_initialized():
        return
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal():  # Ray tries for minutes
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(
            None if address == "local" else address, log_to_driver=False, configure_logging=False
        )
    except (OSError, OverflowError, ValueError) as error:
        what = f"no cluster of Ray answers at {shorten(address)}: {shorten(str(error))}"
        raise ConvrefError(f"ray: {what}") from None


def as_completed(
    function: Callable[[Work], Result], work: Iterator[Work], gpus: float = 0.0
) -> Generator[tuple[Work, Result] | None]:
    """Yield each piece of work with its result as they end, and None where a moment brings none.

    Parameters
    ----------
    function : callable
        Runs on the nodes, on one processor.
    work : iterator
        Taken as processors become free, those of nodes that join later too.
    gpus : float
        What a piece needs of a GPU.

    Raises
    ------
    ConvrefError
        That of `function`, or why Ray could not run it.
    """

    def call(one: Work) -> Result:  # Ray takes no partial
        return function(one)

    remote: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=LOST_NODES)(call)
    pending: dict[Any, Work] = {}
    try:
        while True:
            room = AHEAD * int(ray.cluster_resources().get("CPU", 1)) - len(pending)
            pending |= {remote.remote(one): one for one in islice(work, max(0, room))}
            if not pending:
                return
            done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL_SECONDS)
            for reference in done:
                yield pending.pop(reference), _result(reference)
            if not done:
                yield None
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ConvrefError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise ConvrefError(f"ray: the cluster lost a task: {shorten(str(error))}") from None


def run(
    engine: Engine,
    tasks: Iterator[Task],
    receive: Callable[[Task, ChunkReport], None],
    stop: Callable[[], bool] = lambda: False,
    gpus: float = 0.0,
) -> None:
    """Run tasks as `Engine.run` does, on the cluster; `engine` has the backend and the limits."""
    function = partial(_reports, engine.name, engine.limits)
    with contextlib.closing(as_completed(function, tasks, gpus)) as found:
        for one in found:
            task, reports = one or (Task(), [])
            for report in reports:
                receive(task, report)
            if stop():
                return


_ENGINES: dict[tuple[str, Limits], Engine] = {}  # of this process of a node


def _reports(name: str, limits: Limits, task: Task) -> list[ChunkReport]:
    """Return all reports of a task; the engine is kept for the next one."""
    if (name, limits) not in _ENGINES:
        _ENGINES[name, limits] = Engine(name, limits=limits)
        atexit.register(_ENGINES[name, limits].close)
    found: list[ChunkReport] = []
    engine = _ENGINES[name, limits]
    engine.start()
    engine.run(iter([task]), lambda _, report: found.append(report))
    return found
