"""The errors of strict interpretation."""

from convref.errors import message


class StrictError(AssertionError):
    """A kernel broke a rule that neither a compiler nor a GPU reports: which `kind`, where and how.

    The kinds are listed in the package's docstring.
    """

    def __init__(self, kind: str, where: str, what: str) -> None:
        super().__init__(message(where, f"{kind}: {what}"))
        self.kind = kind
