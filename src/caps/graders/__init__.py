"""Truth: is a candidate right? Where nobody can tell, that is said."""
