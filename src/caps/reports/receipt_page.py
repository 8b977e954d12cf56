"""Receipts as HTML: the problem, the chosen answer, how it was chosen, candidates and judge calls.

Texts of candidates and judges are `rich`: stored as they are, shown as text without scripts, and rendered by
the page's script when they are opened (web/rich.js).
"""

from collections.abc import Sequence

from caps.core.domains import Domain
from caps.core.errors import SettingError
from caps.core.text import number, plural
from caps.core.types import Case
from caps.evidence.anatomy import final_answer
from caps.evidence.domains import GENERAL, domain_named
from caps.reports.html import Child, Element, Filled, Node, Template, TextTable, el
from caps.reports.receipt import Game, GameExchange, JudgeReply, Receipt, Standing
from caps.reports.receipt_pictures import describe, mark, name_of, picture_of, share, timeline
from caps.reports.run_page import section

HOW = {
    "tags": "The verdict was read from the tags of the reply.",
    "json": "The verdict was read from the fields of the reply, which is one JSON object.",
    "plain": "No tags: the verdict was read from the last lines of the reply.",
    "none": "The reply could not be read.",
}
CAUSES = {
    "truncated": "It was cut off before the verdict.",
    "refused": "The judge refused to judge.",
    "empty": "It was empty.",
    "no-tag": "It contains no verdict.",
}
SHORT_PROBLEM = 1200  # characters of a problem that is shown without opening it
SHORT_ANSWER = 3000
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def receipt_view(
    receipt: Receipt, exchanges: Sequence[GameExchange], case: Case | None, texts: TextTable
) -> Node:
    """Show a receipt; long texts are stored in `texts`."""
    described = [describe(game, receipt) for game in receipt.games]
    picture = picture_of(receipt, described)
    return el(
        "article",
        el("h1", "Case ", el("bdi", receipt.case)),
        None if case is None else _problem(case, texts),
        _chosen(receipt, case, texts),
        el("p", *headline(receipt), class_="lead story"),
        el("p", *_cost(receipt), class_="note"),
        None if picture is None else section(picture[0], None, _framed(picture[2], picture[0], picture[1])),
        _moves(receipt, described),
        _timeline(receipt),
        _flips(receipt),
        section("Candidates", None, *_candidates(receipt, case, texts)),
        section("Judge calls", None, *_games(receipt, described, exchanges, texts)),
        class_="receipt",
    )


def _framed(picture: Node, name: str, about: str) -> Node:
    """A picture that scrolls, with how to read it below."""
    explained = el(
        "details", el("summary", "How to read this picture"), el("p", about, class_="note"), class_="fold"
    )
    return el("div", _scrolled(picture, name), explained, class_="figure-box")


# The problem and the answer


_RICH = Template("rich", 2, lambda text, kind: el("div", text, class_="rich", data_kind=kind, tabindex=0))


def rich(texts: TextTable, text: str, kind: str = "") -> Filled:
    """A text that the page's script renders as what it is; `kind` says what it is where that is known."""
    return _RICH(texts.add([text]), kind or None)


def kind_of(case: Case | None, text: str) -> str:
    """What the texts of a case are, where the domain and the text say so."""
    form = "" if case is None else _domain_of(case).text_form
    return "" if form == "code" and ("```" in text or "~~~" in text) else form


def _domain_of(case: Case) -> Domain:
    """The domain of a case; that of any text if it belongs to a package which is not installed here."""
    try:
        return domain_named(case.domain)
    except SettingError:
        return GENERAL


def _problem(case: Case, texts: TextTable) -> Node:
    text = case.problem.text
    body = rich(texts, text)
    return el(
        "details",
        el("summary", "Problem"),
        body,
        class_="fold problem",
        open=len(text) <= SHORT_PROBLEM or None,
    )


def _chosen(receipt: Receipt, case: Case | None, texts: TextTable) -> Node | None:
    one = receipt.winner
    if one is None:
        return None
    right = receipt.right(one)
    tone = {True: "good", False: "bad", None: ""}[right]
    label = {True: "right", False: "wrong", None: ""}[right]
    known = receipt.names[one] if one < len(receipt.names) else ""
    tag = el("span", label, class_=f"tag {tone}") if label else None
    head = el("p", el("span", "Chosen answer", class_="eyebrow"), tag)
    answer = el("p", known or f"Candidate {one}", class_="answer")
    short = case is not None and _domain_of(case).short_answers
    stated = final_answer(case.candidates[one]) if known and case is not None and short else None
    if stated and "\\" in stated:  # a formula is rendered; without scripts it stays in plain signs
        answer = el("p", known, class_="answer", data_formula=stated)
    body = None
    if case is not None and one < len(case.candidates) and case.candidates[one].text.strip() != known:
        text = case.candidates[one].text
        title = f"Candidate {one} in full" if known else "In full"
        is_open = not known and len(text) <= SHORT_ANSWER
        body = el("details", el("summary", title), rich(texts, text, kind_of(case, text)), class_="fold",
                  open=is_open or None)  # fmt: skip
    return el("div", head, answer, body, class_=f"chosen-answer {tone}")


# One sentence


def _word(count: int) -> str:
    return _WORDS[count] if count < len(_WORDS) else number(count, 0)


def headline(receipt: Receipt) -> list[Child]:
    """One sentence that tells how the answer was chosen and how sure that is."""
    if receipt.error is not None:
        return [f"No answer was chosen: {receipt.error}"]
    one, count = receipt.winner, len(receipt.candidates)
    if one is None:
        return ["No answer was chosen."]
    parts = [_votes(receipt, one, count), *_tests(receipt, one), *_verdicts(receipt, one)]
    if receipt.probability is not None:
        parts.append(f"{share(receipt.probability)} sure".replace(" ", "\u00a0"))  # on one line
    text: list[Child] = [el("strong", f"{'; '.join(parts)}.")]
    if receipt.probability is not None and not receipt.calibrated:
        text.append(" The probability follows from stated defaults, not from cases with known answers.")
    if receipt.abstained:
        text.append(" That is less than the run asks for: it abstains.")
    if receipt.rescued:
        text.append(f" Rescued after losing narrowly: {_listed(receipt, receipt.rescued)}.")
    if receipt.provisional:
        why = f" ({receipt.stopped})" if receipt.stopped else ""
        said = f"not every call was answered{why}"
        if receipt.unread:
            said = "no reply of the judge could be read"
        text.append(f" The choice is provisional: {said}.")
    if not receipt.whole and not receipt.story:
        text.append(" The contest could not be replayed, so only its calls are shown.")
    return text


def _votes(receipt: Receipt, one: int, count: int) -> str:
    group = receipt.answer_of(one)
    votes = 1 if group is None else len(group.members)
    short = receipt.names[one] if one < len(receipt.names) else ""
    if count == 1:
        return f"the only candidate was chosen{f': {short}' if short else ''}".capitalize()
    if votes == count:
        return f"All {count} agreed on {short}" if short else f"All {count} candidates do the same"
    if short and votes > 1:
        return f"{votes} of {count} agreed on {short}"
    if votes > 1:
        return f"Candidate {one} and {_word(votes - 1)} like it, of {count}"
    lone = len(receipt.answers) == count
    return f"{short or f'Candidate {one}'} was chosen among {count}{' different answers' if lone else ''}"


def _tests(receipt: Receipt, one: int) -> list[str]:
    passed = next((each.passed for each in receipt.candidates if each.id == one), None)
    if passed is None or not receipt.examples:
        return []
    return [f"it passes {passed} of {plural(receipt.examples, 'public example')}"]


def _verdicts(receipt: Receipt, one: int) -> list[str]:
    """What the judge said about the chosen answer, in words."""
    if not receipt.games:
        return ["no judge was needed"]
    group = receipt.answer_of(one)
    members = {one} if group is None else set(group.members)
    won = lost = tied = 0
    for game in receipt.games:
        inside = [each in members for each in game.shown]
        if len(inside) == 2 and inside[0] != inside[1] and not game.said.startswith("unanswered"):
            won += game.preferred in members
            lost += game.preferred is not None and game.preferred not in members
            tied += game.preferred is None
    if not won + lost + tied:
        rating = next((game.said for game in receipt.games if game.shown == (one,)), "")
        if rating:
            return [f"the judge rated it {rating}"]
        picks = sum(game.preferred == one for game in receipt.games)
        return (
            [f"the judge picked it {_word(picks)} of {plural(len(receipt.games), 'time')}"] if picks else []
        )
    said = [(won, "confirmed it"), (lost, "contradicted it"), (tied, "tied")]
    (first, what), *rest = [(count, words) for count, words in said if count]
    parts = [f"{_word(first)} verdict{'s' * (first != 1)} {what}"]
    return [", ".join(parts + [f"{_word(count)} {words}" for count, words in rest])]


def _cost(receipt: Receipt) -> list[Child]:
    if receipt.error is not None:
        return []
    usd = "" if receipt.usd is None else f", for ${receipt.usd:.4f}"
    return [
        f"Strategy {receipt.strategy}. The judge read {plural(receipt.asked, 'token')} in "
        f"{plural(len(receipt.games), 'call')}{usd}."
    ]


# Step by step

INFLUENCES = {
    "nothing known": "before anything is known",
    "votes": "votes: how many candidates agree",
    "parses": "whether programs parse",
    "tests_passed": "public examples passed",
    "agreement": "agreement with other programs on further inputs",
    "score": "scores of the candidates",
    "logprob": "log-probabilities of the candidates",
    "written tests": "agreement with written tests",
}


_MOVE = Template(
    "move",
    3,
    lambda what, chance, change: el("tr", el("td", what, class_="text"), el("td", chance), el("td", change)),
)
_CALL_MOVE = Template(
    "call-move",
    6,
    lambda call, place, name, what, chance, change: el(
        "tr",
        el("td", el("a", name, href=place, data_game=call), ": ", what, class_="text"),
        el("td", chance),
        el("td", change),
    ),
)


def _moves(receipt: Receipt, described: Sequence[str]) -> Node | None:
    """The probability of the chosen answer step by step, as a table."""
    group = receipt.answer_of(receipt.winner)
    if group is None or not group.chances:
        return None
    rows: list[Element] = []
    before = 0.0
    for one in receipt.influences:
        change = _points(one.probability - before) if rows else ""
        rows.append(_MOVE(INFLUENCES.get(one.what, one.what), share(one.probability), change))
        before = one.probability
    if not receipt.influences:
        before = group.chances[0]
        rows.append(_MOVE("votes and findings", share(before), ""))
    answered = [game for stage in receipt.stages if stage.name != "not answered" for game in stage.games]
    for game, chance in zip(answered, group.chances[1:], strict=True):
        call = game.number + 1
        rows.append(
            _CALL_MOVE(
                call,
                f"#g{call}",
                f"call {call}",
                described[game.number],
                share(chance),
                _points(chance - before),
            )
        )
        before = chance
    head = el("tr", *(el("th", name, scope="col", class_="text" if name == "step" else None)
                      for name in ("step", "probability", "change in points")))  # fmt: skip
    table = el("table", el("thead", head), el("tbody", *rows))
    title = f"Step by step: what moved {receipt.name(receipt.winner)}"
    return el("details", el("summary", title), _scrolled(table, "the steps"), class_="fold")


def _points(change: float) -> str:
    """A change of a probability in points of a hundred."""
    return f"{100 * change:+.1f}".replace("-", "−")


def _timeline(receipt: Receipt) -> Node | None:
    """The story of a question with adaptive sampling: samples, probability and tokens over time."""
    drawn = timeline(receipt)
    if drawn is None:
        return None
    heads = ("after", "what came", "samples", "leads", "probability", "generation", "judging")
    rows = [
        el(
            "tr",
            el("td", f"{step['seconds']:.1f} s"),
            el("td", step["what"], class_="text"),
            el("td", str(step["samples"])),
            el("td", "–" if step["leader"] is None else receipt.name(step["leader"])),
            el("td", "–" if step["probability"] is None else share(step["probability"])),
            *(el("td", "{:,} + {:,}".format(*step[name])) for name in ("generation", "judging")),
        )
        for step in receipt.story
    ]
    spent = [
        f"{one['model']}: {plural(one['samples'], 'sample')}, {one['cancelled']} cancelled, "
        f"{one['tokens']['output']:,} tokens written"
        + ("" if one["usd"] is None else f", ${one['usd']:.4f}")
        + (" (estimated)" if one["tokens"]["estimated"] else "")
        for one in receipt.generators
    ]
    fixed = receipt.fixed_16
    if fixed is not None:
        cost = "" if fixed["usd"] is None else f", ${fixed['usd']:.4f}"
        spent.append(f"16 samples would have written about {fixed['output']:,} tokens{cost}")
    head = el(
        "tr", *(el("th", one, scope="col", class_="text" if one == "what came" else None) for one in heads)
    )
    table = el("table", el("thead", head), el("tbody", *rows))
    return section(
        "Timeline",
        None,
        _framed(drawn, "the timeline", _TIMELINE),
        *(el("p", words, class_="note") for words in spent),
        el("details", el("summary", "All steps"), _scrolled(table, "the steps"), class_="fold"),
    )


_TIMELINE = (
    "The steps are samples, the line with dots is the probability that the leading candidate is right, both "
    "over time. Below: tokens read and written so far by generation and by the judge."
)


# Decisive verdicts


def _flips(receipt: Receipt) -> Node | None:
    if receipt.flips is None or all(len(game.shown) != 2 for game in receipt.games):
        return None
    changed = [flip for flip in receipt.flips if flip.winner is not None]
    deciding = {flip.game for flip in changed}  # a tie can be reversed in two ways
    unknown = len({flip.game for flip in receipt.flips} - deciding)
    items = [
        el(
            "li",
            el("a", f"call {flip.game + 1}", href=f"#g{flip.game + 1}", data_game=flip.game + 1),
            f": if {name_of(receipt, flip.preferred)} had been preferred, "
            f"{name_of(receipt, flip.winner)}{mark(receipt.right(flip.winner))} would have won",
        )
        for flip in changed
        if flip.winner is not None
    ]
    text = f"Reversing any one of these {len(deciding)} verdicts would have changed the winner."
    if len(deciding) == 1:
        text = "Reversing this verdict would have changed the winner."
    if not changed:
        text = (
            "As far as the recorded answers show, no single reversed verdict would have changed the winner."
        )
    if unknown:
        text += (
            f" For {plural(unknown, 'more verdict')} this is unknown: the judge was never asked what follows."
        )
    return section("Decisive verdicts", text, el("ul", *items) if items else None)


# Candidates


_CANDIDATE = Template(
    "candidate",
    6,
    lambda id_, class_, title, name, facts, text: el(
        "details",
        el("summary", el("b", title), name, el("span", facts, class_="facts")),
        text,
        class_=class_,
        id=id_,
    ),
)
_NAME = Template("name", 1, lambda name: el("span", name, class_="name"))


def _candidates(receipt: Receipt, case: Case | None, texts: TextTable) -> list[Filled]:
    """Every candidate in a row of full width that opens to its text, the best first."""
    rank = {one: place for place, one in enumerate(_order(receipt))}
    drawn = []
    for one in sorted(receipt.candidates, key=lambda one: rank.get(one.id, len(rank))):
        facts = [one.fate]
        if one.passed is not None:
            facts.append(f"examples passed: {one.passed} of {receipt.examples}")
        if one.score is not None:
            value = share(one.score) if receipt.score_kind == "probability" else number(one.score)
            facts.append(f"{receipt.score_kind or 'score'} {value}")
        name, number_of_it = receipt.name(one.id), f"#{one.id}"
        drawn.append(
            _CANDIDATE(
                f"c{one.id}",
                "candidate chosen" if one.id == receipt.winner else "candidate",
                f"{number_of_it}{mark(one.right)} ",
                None if name == number_of_it else _NAME(name),
                " · ".join([fact for fact in facts if fact]),
                _candidate_text(one, case, texts),
            )
        )
    return drawn


def _order(receipt: Receipt) -> list[int]:
    ranked = [one for group in receipt.answers for one in group.members]
    return [one for one in ranked if one == receipt.winner] + [one for one in ranked if one != receipt.winner]


def _candidate_text(one: Standing, case: Case | None, texts: TextTable) -> Element:
    if case is None or one.id >= len(case.candidates):
        return el("p", "The text is not available.", class_="note")
    text = case.candidates[one.id].text
    return rich(texts, text, kind_of(case, text))


# Judge calls


_GAME = Template(
    "game",
    7,
    lambda id_, number_, what, unread, criteria, exchange, cost: el(
        "details",
        el("summary", el("b", number_), what, unread),
        criteria,
        exchange,
        el("p", cost, class_="note"),
        class_="game",
        id=id_,
    ),
)
_UNREAD = Template("unread", 0, lambda: el("span", "unreadable", class_="tag bad"))
_WORDS_ONLY = Template("words", 1, lambda text: el("p", text, class_="note"))
_SIDES = Template(
    "sides",
    5,
    lambda title, a, a_text, b, b_text: el(
        "div",
        el("h3", title),
        el(
            "div",
            el("div", el("h4", "A: ", a), el("pre", a_text, tabindex=0)),
            el("div", el("h4", "B: ", b), el("pre", b_text, tabindex=0)),
            class_="versus",
        ),
    ),
)
_PROMPT = Template(
    "prompt",
    2,
    lambda text, note: el(
        "details",
        el("summary", "Prompt"),
        el("p", "Rendered again from the cases. ", note, class_="note"),
        el("pre", text, tabindex=0),
        class_="fold",
    ),
)
_EXACT = "Its key equals that of the run, so this is what was sent."
_NOT_EXACT = "Its key differs from that of the run: cases or settings have changed, or nothing was sent."
_NO_PROMPT = "The prompt cannot be rendered: the cases or the prompt template are not available."
_REPLY = Template(
    "reply",
    3,
    lambda reasoning, text, how: el(
        "div", el("h3", "The judge's reason"), reasoning, text, el("p", how, class_="note")
    ),
)
_REASONING = Template(
    "reasoning",
    1,
    lambda text: el("details", el("summary", "Reasoning"), el("pre", text, tabindex=0), class_="fold"),
)
_REPLY_TEXT = Template("said", 1, lambda text: el("div", text, class_="rich reply", tabindex=0))


def _games(
    receipt: Receipt, described: Sequence[str], exchanges: Sequence[GameExchange], texts: TextTable
) -> list[Element]:
    drawn, before = list[Element](), ""
    for round_number, stage in enumerate(receipt.stages, 1):
        title = f"Stage {stage.name}" if len(stage.name) == 1 else stage.name.capitalize()
        if stage.kind == "elimination" and len(stage.name) > 1:
            title = f"Round {round_number}: {stage.name}"
        title += f" · bye: {_listed(receipt, stage.byes)}" if stage.byes else ""
        if title != before and len(receipt.stages) > 1:
            drawn.append(el("h3", title))
        before = title
        for game in stage.games:
            exchange = exchanges[game.number] if game.number < len(exchanges) else None
            drawn.append(_game(game, described[game.number], receipt, exchange, texts))
    return drawn or [el("p", "The judge was not asked.")]


def _game(
    game: Game, described: str, receipt: Receipt, exchange: GameExchange | None, texts: TextTable
) -> Filled:
    """One judge call, folded."""
    cost = f"{game.tokens:,} tokens read ({game.cached:,} cached), {game.output} written"
    tries = f", {game.tries} attempts" if game.tries > 1 else ""
    return _GAME(
        f"g{game.number + 1}",
        str(game.number + 1),
        f" {described} ",
        _UNREAD() if game.malformed else None,
        _WORDS_ONLY(_by_criterion(game)) if game.criteria else None,
        None if exchange is None else _exchange(game, receipt, exchange, texts),
        cost + tries,
    )


def _exchange(game: Game, receipt: Receipt, exchange: GameExchange, texts: TextTable) -> list[Element]:
    """Show a call: the judge's reason, what separates two programs, both sides, and the prompt folded."""
    drawn: list[Element] = [_reply(reply, texts) for reply in exchange.replies]
    if len(game.shown) == 2:
        a, b = (f"{name_of(receipt, one)}{mark(receipt.right(one))}" for one in game.shown)
        pairs = [("What separates them", exchange.difference)]
        if exchange.shown != exchange.difference:
            pairs.append(("What the judge compared", exchange.shown))
        for title, sides in pairs:
            if len(sides) == 2:
                drawn.append(_SIDES(title, a, texts.add(sides[:1]), b, texts.add(sides[1:])))
    if exchange.prompt:
        drawn.append(_PROMPT(texts.add(exchange.prompt), _EXACT if exchange.exact else _NOT_EXACT))
    else:
        drawn.append(_WORDS_ONLY(_NO_PROMPT))
    return drawn


def _reply(reply: JudgeReply, texts: TextTable) -> Filled:
    cause = f" {CAUSES.get(reply.cause, reply.cause)}" if reply.cause else ""
    how = HOW.get(reply.how, reply.how) + cause
    if reply.text is None:
        return _REPLY(None, _WORDS_ONLY("The journal does not hold the reply."), how)
    reasoning = _REASONING(texts.add([reply.reasoning])) if reply.reasoning else None
    return _REPLY(reasoning, _REPLY_TEXT(texts.add([reply.text])), how)


def _by_criterion(game: Game) -> str:
    """What the judge said by each criterion, with candidates in place of slots and places."""
    slots = dict(zip("AB", map(str, game.shown), strict=False)) | {"TIE": "tie"}
    picked = game.said == "picked"

    def named(said: str) -> str:
        return str(game.shown[int(said) - 1]) if picked else slots.get(said, f"{said} of 10")

    return "By criterion: " + "; ".join(f"{name}: {named(said)}" for name, said in game.criteria)


def _scrolled(child: Node, name: str) -> Node:
    return el("div", child, class_="scroll", tabindex=0, role="region", aria_label=name)


def _listed(receipt: Receipt, ids: Sequence[int]) -> str:
    return ", ".join(name_of(receipt, one) for one in ids)
