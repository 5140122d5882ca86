"""Docstring examples may use np without importing it, as numpydoc has it."""

import gc
import sys
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _numpy(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["np"] = np


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what is loaded from garbage collection, which costs a fifth of the time otherwise."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Forget a module that wants what is not installed: it stays behind half made otherwise."""
    if report.skipped:
        sys.modules.pop(report.nodeid.removesuffix(".py").replace("/", "."), None)
