"""The state of threads and its execution: registers, control flow, barriers, warps."""
