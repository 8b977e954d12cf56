"""Programs that run inside the sandbox, beside or around a candidate: standard library only, few imports."""
