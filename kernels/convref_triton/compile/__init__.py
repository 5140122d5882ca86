"""Compile launches to machine code, and inspect the result."""
