"""Graders: decide whether a candidate is correct, or report that it is undecided."""
