"""The examples in the docstrings of the bench."""

import doctest
from pkgutil import walk_packages

import pytest

import convref_bench

NAMES = [module.name for module in walk_packages(convref_bench.__path__, "convref_bench.")]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("__main__")])
def test_examples_in_docstrings(name):
    module = pytest.importorskip(name, reason="needs torch or triton", exc_type=ImportError)
    assert doctest.testmod(module).failed == 0
