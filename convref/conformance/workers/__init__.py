"""Worker processes with limits, of this machine (engine) or of a cluster (fleet)."""
