"""An endpoint that writes answers of different quality, and judges them."""

from caps.testing import Reply, better_quality_wins, is_judge

QUALITIES = (0.2, 0.9, 0.4, 0.7)


def answering(body, number=0):
    """Answers of different quality, by their seed; judges what it is asked to judge."""
    if is_judge(body):
        return better_quality_wins(body)
    which = body.get("seed", 1234) - 1234
    return Reply(f"I take quality={QUALITIES[which % 4]}, so \\boxed{{{which}}}")
