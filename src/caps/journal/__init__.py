"""What was paid for, kept: an append-only SQLite file that several processes may share."""
