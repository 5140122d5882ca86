"""The tests that `convref.conformance.plugin` runs on a backend: one for each op, pass, dtype."""

import pytest

from .plugin import Court, outcome, try_cell


def test_court(
    convref_cell: tuple[str, str, str], convref_court: Court, request: pytest.FixtureRequest
) -> None:
    """Check generated cases of one op, pass and dtype against the oracle."""
    found = try_cell(convref_court, convref_cell)
    request.node.user_properties.append(("convref", found))
    outcome(found)
