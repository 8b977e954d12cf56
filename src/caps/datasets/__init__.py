"""Readers and writers of case files, data sets, evaluation logs and recorded verdicts."""
