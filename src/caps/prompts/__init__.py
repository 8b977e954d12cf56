"""Words in, words out; pure."""
