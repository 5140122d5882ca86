"""The court: generated cases, their data, and the laws that results must satisfy."""
