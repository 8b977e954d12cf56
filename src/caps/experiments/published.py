"""The paper's figures held against arithmetic."""

HALF_A_DIGIT = 0.05


def cannot_be(percent: float, problems: int | None, *, repeats: int) -> bool:
    """Whether no count of right problems, averaged over repeats, prints as this figure."""
    if problems is None:
        return False
    trials = problems * repeats
    nearest = round(percent / 100 * trials)
    around = (nearest - 1, nearest, nearest + 1)
    return all(abs(100 * count / trials - percent) > HALF_A_DIGIT + 1e-9 for count in around)
