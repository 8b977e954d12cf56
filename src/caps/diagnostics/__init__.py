"""Statistics only; pure."""
