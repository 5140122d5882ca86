"""A watch for kernels that may hang on a card: it records the arm and ends the process."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from convref.case import Call

from ..records import Record

LIMIT_S = 60.0  # for an arm to compile, run, be captured and judged; torch.compile has 45
EVERY_S = 0.2
FATAL = "no end in", "lost the device"  # how the reasons begin


def is_fatal(row: Record) -> bool:
    """Return whether a record says that an arm hung or lost the device.

    >>> is_fatal({"what": "refused", "why": "no end in 30 s"}), is_fatal({"what": "refused"})
    (True, False)
    """
    return row.get("what") == "refused" and row.get("why", "").startswith(FATAL)


class Watch:
    """Records an arm that does not end, or that lost the device, before the process ends.

    `refuse` takes (line, arm, why), `lost` returns whether the device stopped to answer, and
    `end` ends the process with `status`.
    """

    def __init__(
        self,
        refuse: Callable[[str, str, str], None],
        lost: Callable[[], bool],
        status: int,
        limit_s: float = LIMIT_S,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._refuse, self._lost, self._limit_s = refuse, lost, limit_s
        self._status, self._end = status, end
        self._now: tuple[float, str, str] | None = None
        Thread(target=self._look, daemon=True).start()

    @contextmanager
    def __call__(self, call: Call, arm: str) -> Iterator[None]:
        line = str(call)
        self._now = time.monotonic() + self._limit_s, line, arm
        try:
            yield
        except RuntimeError as error:
            if self._lost():
                self._refuse(line, arm, f"{FATAL[1]}: {type(error).__name__}: {error}"[:300])
            raise
        finally:
            self._now = None

    def _look(self) -> None:
        while True:
            time.sleep(EVERY_S)
            if (now := self._now) is not None and time.monotonic() > now[0]:
                _, line, arm = now
                self._now = None
                why = f"{FATAL[0]} {self._limit_s:g} s"
                self._refuse(line, arm, why)
                print(f"{line} {arm}: {why}", flush=True)
                self._end(self._status)
