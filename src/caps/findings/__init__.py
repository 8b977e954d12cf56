"""Facts about candidates that need I/O, found before a contest and kept: no judge token is spent on them."""
