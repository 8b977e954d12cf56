"""Every shipped template with an ask it belongs to, and ways to show candidates through it."""

from importlib.resources import files

from caps.core.types import Ask, Group, Level, Message, Pairing, Problem, Solo
from caps.prompts.fence import nonce_for
from caps.prompts.render import DOMAINS, render, template_name

TEMPLATES = {
    file.name: file.read_text(encoding="utf-8")
    for file in sorted(files("caps.prompts").joinpath("templates").iterdir(), key=lambda file: file.name)
}
PARTIAL = Pairing(0, 1, Level.PARTIAL)
FULL = Pairing(0, 1, Level.FULL)
RATINGS = Pairing(0, 1, Level.FULL, dialect="ratings")
SOLO = Solo(0, Level.FULL)
GROUP = Group((4, 7, 2), Level.FULL)
ASKS: tuple[Ask, ...] = (PARTIAL, FULL, RATINGS, SOLO, GROUP)
ASK_OF = {template_name(ask, domain): ask for ask in ASKS for domain in DOMAINS}
PROBLEM = Problem.of("Add two numbers.")


def show(name: str, texts: list[str], problem: Problem = PROBLEM) -> tuple[str, str]:
    """The prompt for the first candidates that fit the template, and its nonce."""
    views = texts[: len(ASK_OF[name].entrants)]
    nonce = nonce_for(problem.text, texts)
    (message,) = render(TEMPLATES[name], problem=problem, views=views, nonce=nonce)
    assert message == Message("user", message.content)
    return message.content, nonce


def good_reply(ask: Ask) -> str:
    """What a judge says that prefers the second (or rates it 4)."""
    if isinstance(ask, Solo):
        return "Fair.\n<rating>4</rating>"
    if isinstance(ask, Group):
        return "The second is right.\n<best>2</best>"
    if ask.dialect == "ratings":
        return "B is right.\n<rating_A>2</rating_A>\n<rating_B>9</rating_B>"
    return "B is right.\n<winner>B</winner>\n<confidence>HIGH</confidence>"
