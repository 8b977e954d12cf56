"""Stored runs: the run folder, run file, result lines and summary."""
