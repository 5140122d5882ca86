"""Python imports this at startup: it replaces the card in the steps of a rehearsed GPU run."""

import sys

if sys.orig_argv[1:4] == ["-m", "convref_bench", "step"]:
    import stand_in

    stand_in.install()
