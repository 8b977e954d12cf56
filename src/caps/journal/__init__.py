"""The journal: an append-only SQLite file of replies and findings."""
