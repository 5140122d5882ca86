"""Reports of campaigns: in the terminal, as one HTML page, and the sum of several logs."""

from .summary import Summary, count, merge, save, summary

__all__ = ["Summary", "count", "merge", "save", "summary"]
