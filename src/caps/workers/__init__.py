"""Worker processes that can be killed, for what may take long, need much memory or crash on hostile data."""
