"""Facts about candidates that need I/O, found before a contest and stored; they cost no judge tokens."""
