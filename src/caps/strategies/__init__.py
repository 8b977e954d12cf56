"""One generator per file, importing the core only; shared: `dedup`, `pairings`, `belief`, `verdicts`."""
