"""What is kept beside a run for its findings."""
