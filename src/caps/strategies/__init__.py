"""One generator per file, importing the core only; `dedup` and `pairings` are what they share."""
