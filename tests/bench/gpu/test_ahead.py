"""Chunks that are prepared ahead: in order, while earlier chunks are used."""

import time
from threading import Event

import pytest

from convref_bench.gpu.ahead import prefetch


def test_chunks_are_prepared_while_others_are_used():
    prepared, second = [], Event()

    def prepare(chunk):
        time.sleep(0.02)  # a caller that does not wait is earlier
        prepared.append(chunk)
        if len(prepared) == 2:
            second.set()

    used = []
    for item in prefetch(range(7), prepare, 2):
        assert any(item in chunk for chunk in prepared)
        if item == 0:
            assert second.wait(300)  # it goes on though the first chunk is still in use
        used.append(item)
    assert used == list(range(7))
    assert [list(chunk) for chunk in prepared] == [[0, 1], [2, 3, 4, 5], [6]]


def test_items_of_a_failed_preparation_are_yielded_and_the_error_printed(capsys):
    def fails(chunk):
        raise RuntimeError(f"no {list(chunk)}")

    assert list(prefetch([1, 2, 3], fails, 2)) == [1, 2, 3]
    said = capsys.readouterr().out
    assert "RuntimeError: no [1, 2]" in said
    assert "RuntimeError: no [3]" in said


def test_preparation_stops_when_the_caller_stops():
    prepared, go_on = [], Event()

    def prepare(chunk):
        prepared.append(chunk)
        if len(prepared) == 2:
            assert go_on.wait(300)

    given = prefetch(range(60), prepare, 1)
    assert next(given) == 0
    given.close()
    go_on.set()
    time.sleep(0.2)  # a thread that was not stopped would have done all of it
    assert len(prepared) <= 3  # what had begun when it ended


def test_a_wait_ends_where_the_check_raises():
    go_on, checks = Event(), []

    def check():
        checks.append(len(checks))
        if len(checks) == 2:
            raise TimeoutError

    try:
        with pytest.raises(TimeoutError):
            next(prefetch([1, 2, 3], lambda chunk: go_on.wait(20), 2, check))
    finally:
        go_on.set()


def test_no_items():
    assert list(prefetch([], pytest.fail, 4)) == []
