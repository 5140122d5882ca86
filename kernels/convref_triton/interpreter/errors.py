"""What strict interpretation reports."""

from __future__ import annotations

from convref.errors import message


class StrictError(AssertionError):
    """A kernel broke a rule that neither a compiler nor a GPU reports.

    Parameters
    ----------
    kind : str
        "out-of-bounds", "misaligned", "not-an-output", "written-twice", "never-written",
        "cross-program-read", "not-a-multiple", "not-contiguous", "not-constant", "assumption",
        "unaligned", "grid", "atomic".
    where : str
        The kernel, and the program within its grid.
    what : str
        What is wrong and what is required.
    """

    def __init__(self, kind: str, where: str, what: str) -> None:
        super().__init__(message(where, f"{kind}: {what}"))
        self.kind = kind
