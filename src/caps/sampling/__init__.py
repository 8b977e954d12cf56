"""Generating candidates: independent samples, and methods that write new answers from earlier ones."""
