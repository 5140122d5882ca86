"""Gives the steps of a rehearsed GPU run a stand-in for a card: Python imports this by itself."""

import sys

if sys.orig_argv[1:4] == ["-m", "convref_bench", "step"]:
    import stand_in

    stand_in.install()
