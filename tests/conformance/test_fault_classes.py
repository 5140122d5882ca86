"""Faults of whole classes are found: from a line each here, and in campaigns in the nightly run."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from convref.case import parse
from convref.conformance.causes import run_lines
from convref.conformance.examine import HARMLESS, examine
from convref.conformance.workers.engine import Engine, available_jobs
from convref.dispatch import load
from convref_faults import CLASSES, campaign

SEEDS = int(os.environ.get("CONVREF_FAULT_SEEDS", "1"))
ENDS = [name for name, fault in CLASSES.items() if getattr(fault, "ends_process", False)]


def test_each_line_fails_its_fault_and_passes_the_oracle():
    oracle = load("numpy")
    for name in set(CLASSES) - set(ENDS):
        fault = CLASSES[name]
        case = parse(fault.minimal)
        assert fault.reaches(case.call), name
        getattr(fault, "kept", {}).clear()
        assert examine(case, fault, repeat=True).verdict not in HARMLESS, name
        assert examine(case, oracle, repeat=True).verdict == "pass", name


@pytest.mark.parametrize("name", ENDS[::2])
def test_writes_and_reads_beyond_an_operand_end_the_process(name):
    with Engine(f"convref_faults:{name}") as engine:
        engine.start()
        found = run_lines(engine, [CLASSES[name].minimal])
    assert [finding.verdict for finding in found] == ["crash"]


def test_there_are_150_faults_with_names_of_their_own():
    assert len(campaign.FAULTS) >= 150
    assert all(name == fault.name for name, fault in campaign.FAULTS.items())
    assert all(load(f"convref_faults:{name}") is fault for name, fault in CLASSES.items())


EARLY = ("filter_found_by_address", "order_of_the_first_call", "shared_scratch")


@pytest.mark.parametrize("name", EARLY)
def test_history_and_threads_show_in_the_first_chunk(name):
    found = campaign.search([name], 0, examples=1000)
    shrunk = campaign.shrunk(name, found[name].finding)
    assert campaign.is_minimal(shrunk, CLASSES[name]), shrunk


@pytest.mark.nightly(reason="minutes in all")
def test_98_of_100_are_found_in_as_many_examples_as_a_minute_has():
    names = list(campaign.FAULTS)
    with ProcessPoolExecutor(available_jobs()) as pool:
        found = campaign.searches(pool, names, SEEDS, campaign.MINUTE)
    missed = {name: SEEDS - len(found[name]) for name in names if len(found[name]) < SEEDS}
    assert sum(missed.values()) <= len(names) * SEEDS // 50, missed
    assert not [name for name in missed if name in CLASSES and not name.endswith("_narrow")]
