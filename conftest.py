"""Docstring examples may use np without importing it, as numpydoc has it."""

from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _numpy(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["np"] = np
