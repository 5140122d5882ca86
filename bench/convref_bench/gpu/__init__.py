"""`make gpu`: its steps, the tuner, and timing on a CUDA device."""
