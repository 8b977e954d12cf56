"""Tokens of a text when nobody has counted them: an estimate, said to be one."""

CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Four characters a token, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
