"""`make gpu`: its steps, the tuner, and what they need of a CUDA device."""
