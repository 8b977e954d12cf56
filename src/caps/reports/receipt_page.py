"""Receipts as HTML: the chosen answer and what it rests on, the problem, the answers, and the judge calls.

Texts of candidates and judges are `rich`: shown as they are, and rendered by the page's script when they are
opened (web/rich.js).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from caps.core.text import number, plural
from caps.core.types import Case
from caps.evidence.anatomy import final_answer
from caps.reports.answers import answer_text, domain_of
from caps.reports.elements import fold, section, table
from caps.reports.html import Child, Html, el, join
from caps.reports.listing import MARKS
from caps.reports.numbers import dollars, points, share
from caps.reports.receipt import AnswerGroup, Game, GameExchange, JudgeReply, Receipt
from caps.reports.receipt_pictures import (
    BRACKET,
    MATRIX,
    STEPS,
    TONES,
    bracket,
    describe,
    game_link,
    level,
    mark,
    marked,
    matrix,
    name_of,
    steps,
    verdicts_about,
)
from caps.runs.result_lines import sureness

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
SHORT_PROBLEM, SHORT_LINES = 400, 4  # characters and lines of a problem that is shown as a whole
SHORT_ANSWER = 3000  # characters of a chosen text that is shown without opening it
SHOWN_ANSWERS = 8
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_VERDICT_TAGS = re.compile(
    r"<(winner|confidence|best|rating(?:[ _-][ab])?|criterion_\d{1,2})>[^<\n]{0,80}</\1>\s*", re.IGNORECASE
)


def receipt_view(receipt: Receipt, exchanges: Sequence[GameExchange], case: Case | None) -> Html:
    """Show a receipt; without the case, it has no texts."""
    described = [describe(game, receipt) for game in receipt.games]
    return el(
        "article",
        el("h1", "Case ", el("bdi", receipt.case)),
        _chosen(receipt, case),
        _wrong(receipt, described),
        None if case is None else _problem(case),
        _answers(receipt, case),
        _picture(receipt, described),
        _influences(receipt),
        _timeline(receipt),
        _games(receipt, described, exchanges),
        class_="receipt",
    )


def _figure(title: str, about: str, picture: Html) -> Html:
    """A picture with how to read it below."""
    explained = fold("How to read this picture", el("p", about, class_="note"))
    return section(title, None, el("div", picture, explained, class_="figure-box"))


# The answer and the problem


def rich(text: str, case: Case | None = None, *, class_: str = "rich") -> Html:
    """A text that the page's script renders as what it is, which the domain of the case may say."""
    form = "" if case is None else domain_of(case).text_form
    kind = None if form == "code" and ("```" in text or "~~~" in text) else form or None
    return el("div", text, class_=class_, data_kind=kind, tabindex=0)


def _problem(case: Case) -> Html:
    """The problem in about four lines; it unfolds, without scripts too."""
    text = case.problem.text
    whole = None
    if len(text) > SHORT_PROBLEM or text.count("\n") > SHORT_LINES:
        whole = el("label", el("input", type="checkbox", class_="whole"), "whole problem", class_="note")
    title = el("p", el("span", "Problem", class_="eyebrow"), whole)
    return el("div", title, rich(text), class_="problem" if whole is None else "problem clipped")


def _chosen(receipt: Receipt, case: Case | None) -> Html:
    """The answer, how it was chosen, how sure that is and what it rests on."""
    winner = receipt.winner
    story = [el("p", *headline(receipt), class_="lead story"), el("p", _cost(receipt), class_="note")]
    if winner is None:
        return el("div", *story, class_="chosen-answer")
    tag = None
    if receipt.outcome is not None:
        text, tone = MARKS[receipt.outcome]
        tag = el("span", text.partition(" ")[2], class_=f"tag {tone}")
    name = receipt.names[winner] if winner < len(receipt.names) else ""
    chosen = case.candidates[winner] if case is not None and winner < len(case.candidates) else None
    formula = None
    if chosen is not None and case is not None and name and domain_of(case).short_answers:
        answer = final_answer(chosen) or ""
        formula = answer if "\\" in answer else None  # rendered; without scripts it stays in plain signs
    shown = name or f"Candidate {winner}"
    if not name and chosen is not None and case is not None:
        shown = f"Candidate {winner}: {answer_text(chosen, short=domain_of(case).short_answers)}"
    body = None
    if chosen is not None and chosen.text.strip() != name:
        is_open = not name and len(chosen.text) <= SHORT_ANSWER
        body = fold(f"Candidate {winner} in full", rich(chosen.text, case), open_=is_open)
    return el(
        "div",
        el("p", el("span", "Chosen answer", class_="eyebrow"), tag),
        el("p", el("bdi", shown), class_="answer", data_formula=formula),
        *story,
        body,
        class_=f"chosen-answer {TONES[receipt.right(winner)]}",
    )


def _wrong(receipt: Receipt, described: Sequence[str]) -> Html | None:
    """What went wrong: the right candidate that was missed and what removed it, or that there was none."""
    gold = el("li", "The right answer: ", el("b", el("bdi", receipt.gold)), ".") if receipt.gold else None
    if receipt.outcome == "impossible":
        text = "No candidate is labelled right, so every choice would have been wrong."
        return el(
            "section", el("h2", "What went wrong"), el("p", text), gold and el("ul", gold), class_="wrong"
        )
    missed = receipt.missed
    if missed is None:
        return None
    standing = receipt.standing(missed.candidate)
    score = "" if standing is None or standing.score is None else _score_text(receipt, standing.score)
    place = "" if standing is None or not standing.fate else f"; {standing.fate}"
    items: list[Child] = [gold]
    items.append(
        el(
            "li", "The best right candidate: ", el("b", marked(receipt, missed.candidate)),
            f" (#{missed.candidate})", f", {score}" if score else "", f"{place}.",
        )
    )  # fmt: skip
    if not missed.compared:
        items.append(el("li", "It was never compared with another answer."))
    else:
        lost = f"it lost {_word(missed.lost)} of them" if missed.lost else "it lost none of them"
        items.append(el("li", f"Its answer was compared {plural(missed.compared, 'time')}; {lost}."))
    if missed.removed_by is not None:
        game = receipt.games[missed.removed_by]
        link = game_link(game, f"call {game.number + 1}")
        items.append(el("li", "The verdict that cost it most: ", link, f", {described[game.number]}."))
    return el("section", el("h2", "What went wrong"), el("ul", *items), class_="wrong")


def _score_text(receipt: Receipt, score: float) -> str:
    if receipt.score_kind == "probability":
        return f"probability {share(score)}"
    return f"{receipt.score_kind} {number(score)}"


# One sentence


def _word(count: int) -> str:
    return _WORDS[count] if count < len(_WORDS) else number(count, 0)


def headline(receipt: Receipt) -> list[Child]:
    """One sentence that tells how the answer was chosen and how sure that is, and what else to know."""
    line, winner, count = receipt.line, receipt.winner, len(receipt.candidates)
    if "error" in line:
        return [f"No answer was chosen: {line['error']}"]
    if winner is None:
        return ["No answer was chosen."]
    parts = [_votes(receipt, winner, count), *_tests(receipt, winner), *_verdicts(receipt, winner)]
    if sure := sureness(line):
        parts.append(sure.replace(" ", "\u00a0"))  # on one line
    text: list[Child] = [el("strong", f"{'; '.join(parts)}.")]
    if line.get("basis"):
        text.append(f" That rests on {' and '.join(line['basis'])}.")
    elif "probability" in line and not line.get("calibrated"):
        text.append(" The probability follows from stated defaults, not from cases with known answers.")
    if line.get("abstain"):
        text.append(" That is less than the run asks for: it abstains.")
    if receipt.rescued:
        text.append(f" Rescued after losing narrowly: {_listed(receipt, receipt.rescued)}.")
    if line.get("provisional"):
        why = f" ({receipt.stopped})" if receipt.stopped else ""
        is_unread = line.get("cause") == "unreadable"
        reason = "no reply of the judge could be read" if is_unread else f"not every call was answered{why}"
        text.append(f" The choice is provisional: {reason}.")
    if not receipt.whole and not line.get("story"):
        text.append(" The contest could not be replayed, so only its calls are shown.")
    return text


def _votes(receipt: Receipt, winner: int, count: int) -> str:
    group = receipt.answer_of(winner)
    votes = 1 if group is None else len(group.members)
    short = receipt.names[winner] if winner < len(receipt.names) else ""
    if count == 1:
        return f"the only candidate was chosen{f': {short}' if short else ''}".capitalize()
    if votes == count:
        return f"All {count} agreed on {short}" if short else f"All {count} candidates do the same"
    if short and votes > 1:
        return f"{votes} of {count} agreed on {short}"
    if votes > 1:
        return f"Candidate {winner} and {_word(votes - 1)} like it, of {count}"
    lone = len(receipt.answers) == count
    return f"{short or f'Candidate {winner}'} was chosen among {count}{' different answers' if lone else ''}"


def _tests(receipt: Receipt, winner: int) -> list[str]:
    standing = receipt.standing(winner)
    examples = receipt.line.get("examples")
    if standing is None or standing.passed is None or not examples:
        return []
    return [f"it passes {standing.passed} of {plural(examples, 'public example')}"]


def _verdicts(receipt: Receipt, winner: int) -> list[str]:
    """What the judge said about the chosen answer, in words."""
    if not receipt.games:
        return ["no judge was needed"]
    counts = verdicts_about(receipt, (receipt.answer_of(winner) or AnswerGroup((winner,))).members)
    words = {"for": "confirmed it", "against": "contradicted it", "tied": "tied"}
    told = [(count, words[kind]) for kind, count in counts.items() if count]
    if not told:
        rating = next((game.said for game in receipt.games if game.shown == (winner,)), "")
        if rating:
            return [f"the judge rated it {rating}"]
        picks = sum(game.preferred == winner for game in receipt.games)
        times = plural(len(receipt.games), "time")
        return [f"the judge picked it {_word(picks)} of {times}"] if picks else []
    (first, what), *rest = told
    parts = [f"{_word(first)} verdict{'s' * (first != 1)} {what}"]
    return [", ".join(parts + [f"{_word(count)} {words}" for count, words in rest])]


def _cost(receipt: Receipt) -> str:
    line = receipt.line
    if "error" in line:
        return ""
    usd = "" if line.get("usd") is None else f", for {dollars(line['usd'])}"
    read = plural(sum(game.tokens for game in receipt.games), "token")
    calls = plural(len(receipt.games), "call")
    return f"Strategy {line.get('strategy')}. The judge read {read} in {calls}{usd}."


# The answers with their candidates


def _answers(receipt: Receipt, case: Case | None) -> Html:
    """Every answer in a row with its bar that opens to its candidates; right ones are never hidden."""
    groups = list(receipt.answers)
    if not groups:
        groups = [AnswerGroup((standing.id,)) for standing in receipt.candidates]
    groups.sort(key=lambda group: receipt.winner not in group.members)
    values = [_value(receipt, group) for group in groups]
    top = max([1.0, *(value for value in values if value is not None)])
    rows = [_answer(receipt, group, value, top, case) for group, value in zip(groups, values, strict=True)]
    shown = [
        place < SHOWN_ANSWERS or any(receipt.right(member) for member in group.members)
        for place, group in enumerate(groups)
    ]
    hidden = [row for row, is_shown in zip(rows, shown, strict=True) if not is_shown]
    rest = fold(plural(len(hidden), "more answer"), *hidden) if hidden else None
    about = (
        f"Bars: {receipt.score_kind}, from 0 to {number(top)}."
        if any(value is not None for value in values)
        else None
    )
    if about and receipt.score_kind == "probability":
        about = "Bars: probability, from 0 to 100 %; pale: before the judge was asked."
    visible_rows = [row for row, is_shown in zip(rows, shown, strict=True) if is_shown]
    return section("Answers", about, *visible_rows, rest)


def _value(receipt: Receipt, group: AnswerGroup) -> float | None:
    """The probability or the best score of an answer."""
    if group.chances:
        return group.chances[-1]
    standings = [receipt.standing(member) for member in group.members]
    scores = [standing.score for standing in standings if standing is not None and standing.score is not None]
    return max(scores, default=None)


def _answer(receipt: Receipt, group: AnswerGroup, value: float | None, top: float, case: Case | None) -> Html:
    first = (
        receipt.winner if receipt.winner in group.members and receipt.winner is not None else group.members[0]
    )
    is_chosen = first == receipt.winner
    count = f" × {len(group.members)}" if len(group.members) > 1 else ""
    bar, words = None, ""
    if value is not None:
        before = group.chances[0] if len(group.chances) > 1 else None
        bar = level(max(value, 0.0) / top, before=before, class_="chosen" if is_chosen else "")
        words = share(value) if receipt.score_kind == "probability" else number(value)
        words = words if before is None else f"{share(before)} → {words}"
    summary = el(
        "summary",
        el(
            "span",
            el("b", _answer_name(receipt, first, case)),
            count,
            mark(receipt.right(first)),
            class_="who",
        ),
        bar,
        el("span", words, class_="value"),
        el("span", _answer_facts(receipt, group, first, case), class_="facts"),
    )
    kind = f"answer-row chosen {TONES[receipt.right(first)]}" if is_chosen else "answer-row"
    if len(group.members) == 1:
        return el("details", summary, _text(first, case), class_=kind, id=f"c{first}")
    members = [_candidate(receipt, member, case) for member in group.members]
    return el("details", summary, *members, class_=kind)


def _answer_name(receipt: Receipt, candidate: int, case: Case | None) -> Html:
    """The answer, or for a text or program what is known of it."""
    name = receipt.name(candidate)
    if name != f"#{candidate}" or case is None or candidate >= len(case.candidates):
        return el("bdi", name)
    text = answer_text(case.candidates[candidate], short=domain_of(case).short_answers)
    return join([f"{name} ", el("bdi", text)])


def _answer_facts(receipt: Receipt, group: AnswerGroup, first: int, case: Case | None) -> Html:
    """How an answer did: its tests, unless they stand for it, its verdicts, and how far it came."""
    standing = receipt.standing(first)
    parts: list[Child] = []
    is_named_by_tests = case is not None and receipt.name(first) == f"#{first}"
    if standing is not None and standing.passed is not None and not is_named_by_tests:
        parts.append(f"passes {standing.passed} of {receipt.line['examples']} examples")
    counts = verdicts_about(receipt, group.members)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    if told:
        squares = el("span", "■" * counts["for"] + "□" * counts["against"] + "·" * counts["tied"],
                     class_="squares", aria_hidden="true")  # fmt: skip
        parts.append(join([squares, f" verdicts: {told}"]))
    if standing is not None and standing.fate:
        parts.append(standing.fate)
    return join([" · " if place % 2 else parts[place // 2] for place in range(2 * len(parts) - 1)])


def _candidate(receipt: Receipt, candidate: int, case: Case | None) -> Html:
    """A candidate of several with the same answer: what is known of it, and its text."""
    standing = receipt.standing(candidate)
    facts = [] if standing is None or not standing.fate else [standing.fate]
    if standing is not None and standing.passed is not None:
        facts.append(f"passes {standing.passed} of {receipt.line['examples']} examples")
    if standing is not None and standing.score is not None:
        facts.append(_score_text(receipt, standing.score))
    about = el("span", " · ".join(facts), class_="facts")
    summary = el("summary", el("b", f"#{candidate}"), f"{mark(receipt.right(candidate))} ", about)
    return el("details", summary, _text(candidate, case), class_="candidate", id=f"c{candidate}")


def _text(candidate: int, case: Case | None) -> Html:
    if case is None or candidate >= len(case.candidates):
        return _note("The text is not available.")
    return rich(case.candidates[candidate].text, case)


# How it was decided


def _picture(receipt: Receipt, described: Sequence[str]) -> Html | None:
    drawn = steps(receipt, described)
    if drawn is not None:
        return _figure("How the probability moved", STEPS, drawn)
    drawn = bracket(receipt)
    if drawn is not None:
        return _figure("Bracket", BRACKET, drawn)
    drawn = None if "probability" in receipt.line else matrix(receipt)
    return None if drawn is None else _figure("Who beat whom", MATRIX, drawn)


INFLUENCES = {
    "nothing known": "before anything is known",
    "votes": "votes: how many candidates agree",
    "parses": "whether programs parse",
    "tests_passed": "public examples passed",
    "agreement": "agreement with other programs on further inputs",
    "score": "scores of the candidates",
    "logprob": "log-probabilities of the candidates",
}


def _influences(receipt: Receipt) -> Html | None:
    """What the probability of the chosen answer was made of before the judge was asked."""
    if not receipt.influences:
        return None
    rows, before = list[tuple[str, str, str]](), None
    for influence in receipt.influences:
        change = "" if before is None else points(influence.probability - before)
        before = influence.probability
        rows.append((INFLUENCES.get(influence.what, influence.what), share(before), change))
    title = join(["Before the judge was asked: what moved ", el("bdi", receipt.name(receipt.winner))])
    return fold(title, table(("what", "probability", "change in points"), rows, "the steps"))


def _timeline(receipt: Receipt) -> Html | None:
    """The story of a question with adaptive sampling: samples, probability and tokens over time."""
    story, fixed = receipt.line.get("story"), receipt.line.get("fixed_16")
    if not story:
        return None
    heads = ("after", "what came", "samples", "leads", "probability", "generation", "judging")
    rows = [
        (
            f"{step['seconds']:.1f} s",
            step["what"],
            str(step["samples"]),
            "–" if step["leader"] is None else receipt.name(step["leader"]),
            "–" if step["probability"] is None else share(step["probability"]),
            *("{:,} + {:,}".format(*step[name]) for name in ("generation", "judging")),
        )
        for step in story
    ]
    spent = [
        f"{generator['model']}: {plural(generator['samples'], 'sample')}, "
        f"{generator['cancelled']} cancelled, {generator['tokens']['output']:,} tokens written"
        + ("" if generator["usd"] is None else f", {dollars(generator['usd'])}")
        + (" (estimated)" if generator["tokens"]["estimated"] else "")
        for generator in receipt.line.get("generators") or ()
    ]
    if fixed is not None:
        cost = "" if fixed["usd"] is None else f", {dollars(fixed['usd'])}"
        spent.append(f"16 samples would have written about {fixed['output']:,} tokens{cost}")
    return section("Timeline", None, *map(_note, spent), table(heads, rows, "the steps"))


# Judge calls


def _note(text: str) -> Html:
    return el("p", text, class_="note")


# Elements that stand in every call are made once.
_EXACT = _note("Rendered again from the cases. Its key equals that of the run, so this is what was sent.")
_NOT_EXACT = _note(
    "Rendered again from the cases. Its key differs from that of the run: cases or settings have changed, or "
    "nothing was sent."
)
_NO_PROMPT = _note("The prompt cannot be rendered: the cases or the prompt template are not available.")
_REASON = el("h3", "The judge's reason")
_NO_REASON = _note("It gave none.")
_NO_REPLY = _note("The journal does not hold the reply.")
_UNREADABLE = el("span", "unreadable", class_="tag bad")
_MISJUDGED = el("span", "misjudged", class_="tag bad")


def _games(receipt: Receipt, described: Sequence[str], exchanges: Sequence[GameExchange]) -> Html:
    drawn, before, moved = list[Html](), "", _moved(receipt)
    for place, stage in enumerate(receipt.stages, 1):
        title = f"Stage {stage.name}" if len(stage.name) == 1 else stage.name.capitalize()
        if stage.kind == "elimination" and len(stage.name) > 1:
            title = f"Round {place}: {stage.name}"
        title += f" · bye: {_listed(receipt, stage.byes)}" if stage.byes else ""
        if title != before and len(receipt.stages) > 1:
            drawn.append(el("h3", title))
        before = title
        for game in stage.games:
            exchange = exchanges[game.number] if game.number < len(exchanges) else None
            words = f" {described[game.number]}{moved.get(game.number, '')} "
            drawn.append(_game(game, words, receipt, exchange))
    if not drawn:
        return section("Judge calls", "The judge was not asked.")
    misjudged = sum(receipt.misjudged(game) for game in receipt.games)
    only = None
    if misjudged:
        words = f"only misjudged calls ({misjudged} of {len(receipt.games)})"
        only = el(
            "p", el("label", el("input", type="checkbox", class_="only-misjudged"), words), class_="note"
        )
    return section("Judge calls", None, only, *drawn)


def _moved(receipt: Receipt) -> dict[int, str]:
    """How each call moved the probability of the chosen answer."""
    group = receipt.answer_of(receipt.winner)
    chances = () if group is None else group.chances
    steps = zip(receipt.answered_games, pairwise(chances), strict=False)
    return {game.number: f" · {share(before)} → {share(after)}" for game, (before, after) in steps}


def _game(game: Game, described: str, receipt: Receipt, exchange: GameExchange | None) -> Html:
    """One judge call, folded."""
    cost = f"{game.tokens:,} tokens read ({game.cached:,} cached), {game.output} written"
    tries = f", {game.tries} attempts" if game.tries > 1 else ""
    misjudged = receipt.misjudged(game)
    tags = [_UNREADABLE] if game.malformed else []
    tags += [_MISJUDGED] if misjudged else []
    return el(
        "details",
        el("summary", el("b", str(game.number + 1)), described, *tags),
        _note(_by_criterion(game)) if game.criteria else None,
        *(() if exchange is None else _exchange(game, receipt, exchange)),
        _note(cost + tries),
        class_="game misjudged" if misjudged else "game",
        id=f"g{game.number + 1}",
    )


def _exchange(game: Game, receipt: Receipt, exchange: GameExchange) -> list[Html]:
    """Show a call: the judge's reason, what separates two programs, both sides, and the prompt folded."""
    drawn = [_reply(reply) for reply in exchange.replies]
    if len(game.shown) == 2:
        pairs = [("What separates them", exchange.difference)]
        if exchange.shown != exchange.difference:
            pairs.append(("What the judge compared", exchange.shown))
        for title, sides in pairs:
            if len(sides) == 2:
                drawn += [el("h3", title), el("div", *_halves(game, receipt, sides), class_="versus")]
    if not exchange.prompt:
        return [*drawn, _NO_PROMPT]
    replies = [el("pre", reply.text, tabindex=0) for reply in exchange.replies if reply.text]
    note = _EXACT if exchange.exact else _NOT_EXACT
    return [*drawn, fold("Prompt and reply", note, el("pre", exchange.prompt, tabindex=0), *replies)]


def _halves(game: Game, receipt: Receipt, sides: Sequence[str]) -> Iterator[Html]:
    """What the judge saw of each of two candidates, below their names."""
    for slot, candidate, side in zip("AB", game.shown, sides, strict=True):
        yield el("h4", f"{slot}: {name_of(receipt, candidate)}{mark(receipt.right(candidate))}")
        yield el("pre", side, tabindex=0)


def _reply(reply: JudgeReply) -> Html:
    cause = f" {CAUSES.get(reply.cause, reply.cause)}" if reply.cause else ""
    how = _note(HOW.get(reply.how, reply.how) + cause)
    if reply.text is None:
        return join([_REASON, _NO_REPLY, how])
    reasoning = fold("Reasoning", el("pre", reply.reasoning, tabindex=0)) if reply.reasoning else None
    reason = _VERDICT_TAGS.sub("", reply.text).strip() if reply.how == "tags" else reply.text
    return join([_REASON, reasoning, rich(reason, class_="rich reply") if reason else _NO_REASON, how])


def _by_criterion(game: Game) -> str:
    """What the judge said by each criterion, with candidates in place of slots and places."""
    slots = dict(zip("AB", map(str, game.shown), strict=False)) | {"TIE": "tie"}
    picked = game.said == "picked"

    def named(said: str) -> str:
        return str(game.shown[int(said) - 1]) if picked else slots.get(said, f"{said} of 10")

    return "By criterion: " + "; ".join(f"{name}: {named(said)}" for name, said in game.criteria)


def _listed(receipt: Receipt, ids: Sequence[int]) -> str:
    return ", ".join(name_of(receipt, candidate) for candidate in ids)
