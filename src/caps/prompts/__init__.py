"""Prompts: rendering of templates and parsing of judges' replies; pure."""
