"""Global, shared and local memory: their checks, and the instructions that access them."""
