"""What is stored about a run: its folder, run file, result lines, summary."""
