"""Suites of real layers, timing, rooflines and reports; see `python -m convref_bench --help`."""
