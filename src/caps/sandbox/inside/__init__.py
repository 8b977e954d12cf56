"""Programs that run inside the sandbox with a candidate: standard library only, few imports."""
