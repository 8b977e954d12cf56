"""What a judge saw and said in a game, to read."""

from caps.reports.heard import Heard, Said
from caps.reports.tree import Node, Texts, el

HOW = {
    "tags": "Read from the tags of the reply.",
    "plain": "No tags: read from plain words on its last lines.",
    "none": "Could not be read.",
}
CAUSES = {
    "truncated": "It was cut off before the verdict.",
    "refused": "The judge declined to judge.",
    "empty": "It was empty.",
    "no-tag": "It holds no verdict.",
}


def words_view(heard: Heard, texts: Texts) -> list[Node]:
    """The prompt, each reply, and how it was read."""
    drawn = [el("h4", "What the judge saw")]
    if heard.prompt:
        sure = (
            "Rendered again from the cases; its key is the one in the run, so this is what was sent."
            if heard.exact
            else "Rendered again from the cases. Its key is not the run's: cases or settings have changed, "
            "or nothing was sent."
        )
        drawn += [el("p", sure, class_="note"), el("pre", texts.passage(heard.prompt), tabindex=0)]
    else:
        drawn.append(
            el(
                "p",
                "The prompt cannot be rendered: the cases or its template are not at hand.",
                class_="note",
            )
        )
    for said in heard.replies:
        drawn += _reply(said, texts)
    return drawn


def _reply(said: Said, texts: Texts) -> list[Node]:
    drawn = [el("h4", "What it answered")]
    if said.text is None:
        drawn.append(el("p", "The journal does not hold the reply.", class_="note"))
    else:
        if said.reasoning:
            drawn.append(folded("Its reasoning", texts, said.reasoning))
        drawn.append(el("pre", texts.passage([said.text]), tabindex=0))
    cause = f" {CAUSES.get(said.cause, said.cause)}" if said.cause else ""
    return [*drawn, el("p", HOW.get(said.how, said.how) + cause, class_="note")]


def folded(title: str, texts: Texts, words: str) -> Node:
    """A long text behind its title."""
    return el("details", el("summary", title), el("pre", texts.passage([words]), tabindex=0), class_="fold")
