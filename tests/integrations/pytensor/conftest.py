"""PyTensor never removes the source files of functions that it compiles."""

import tempfile

import pytest


@pytest.fixture(autouse=True)
def _source_files(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
