"""Suites of real layers, honest timing, rooflines and reports; `python -m convref_bench --help`."""
