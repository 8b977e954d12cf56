"""Untrusted programs run under limits, without network, files or time to spare."""
