"""What the benchmark against other tools is made of; `python benchmarks/peers.py` runs it."""
