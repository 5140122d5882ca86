"""Plans executed on a GPU, or interpreted on the CPU."""
