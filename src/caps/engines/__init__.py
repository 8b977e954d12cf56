"""Who plays contests."""
