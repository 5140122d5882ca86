"""How a call is timed: clocks, samples in turns, verdicts; and programs that time a CPU."""
