"""Texts without their middle."""


def cut(text: str, characters: int) -> str:
    """A text without its middle if it is too long, with a mark that says how much is left out."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[...{len(text) - 2 * half:,} characters left out...]\n{text[-half:]}"
