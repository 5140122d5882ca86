"""The layers of real networks as lines, and the timing of a whole network."""
