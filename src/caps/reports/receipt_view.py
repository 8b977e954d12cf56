"""A receipt to look at: the bracket, the round-robin, every game with what the judge saw and said."""

from collections.abc import Sequence

from caps.core.types import Case
from caps.reports.console import number
from caps.reports.games import Game, Stage
from caps.reports.heard import Heard
from caps.reports.receipt import Receipt, Standing
from caps.reports.svg import bracket, describe, mark
from caps.reports.tree import Child, Node, Texts, el
from caps.reports.words_view import folded, words_view


def receipt_view(receipt: Receipt, heard: Sequence[Heard], case: Case | None, texts: Texts) -> Node:
    """The whole receipt; long texts go into `texts`."""
    picture = bracket(receipt)
    finals = [stage for stage in receipt.stages if stage.kind == "round_robin"]
    return el(
        "article",
        el("h1", "Case ", el("bdi", receipt.case)),
        el("p", *_outcome(receipt), class_="lead"),
        None if case is None else folded("The problem", texts, case.problem.text),
        None
        if picture is None
        else _section("How it was decided", _HOW_TO_READ, _scrolled(picture, "the bracket")),
        *(
            _section("The finalists, everyone against everyone", _CROSS, _cross(one, receipt))
            for one in finals
        ),
        _flips(receipt),
        _section("The candidates", None, _candidates(receipt, case, texts)),
        _section("Every game, and what the judge saw", _GAMES, *_games(receipt, heard, texts)),
        class_="receipt",
    )


_HOW_TO_READ = (
    "Read from left to right. Each box is one question to the judge: which of two answers is more likely "
    "right? The upper one was shown first (slot A); HIGH and LOW say how sure the judge was. ×3 means that "
    "three candidates gave the same answer. ✓ and ✗ are known labels, which the judge never sees."
)
_CROSS = (
    "The row's answer against the column's: + preferred, − not, = a tie; doubled where the judge was sure."
)
_GAMES = "Open a game to read the prompt, the reply, and how the reply was read."


def _outcome(receipt: Receipt) -> list[Child]:
    if receipt.error is not None:
        return [f"No answer was chosen: {receipt.error}"]
    right = {True: ", which is right", False: ", which is wrong", None: ""}
    words: list[Child] = [
        el("strong", f"Candidate {receipt.winner} was chosen"),
        f" of {len(receipt.candidates)}"
        + right[None if receipt.winner is None else receipt.right(receipt.winner)],
        f". {len(receipt.games)} judge calls read {number(receipt.asked, 0)} tokens",
        "." if receipt.usd is None else f", for ${receipt.usd:.4f}.",
    ]
    if not receipt.games:
        words.append(" No judge was needed.")
    if receipt.rescued:
        words.append(f" Candidate {_listed(receipt.rescued)} came back after losing narrowly.")
    if receipt.provisional:
        why = f" ({receipt.stopped})" if receipt.stopped else ""
        words.append(f" The choice is provisional: not every call was answered{why}.")
    if not receipt.whole:
        words.append(" The contest could not be played again, so this is told from its calls alone.")
    return words


def _cross(stage: Stage, receipt: Receipt) -> Node:
    order = [one.id for one in sorted(receipt.candidates, key=lambda one: -(one.score or 0))]
    players = [one for one in order if one in stage.players]
    games: dict[tuple[int, ...], Game] = {game.shown: game for game in stage.games}
    rows = []
    for one in players:
        score = next(each.score for each in receipt.candidates if each.id == one)
        cells = [_cell(one, other, games) for other in players]
        rate = "–" if score is None else f"{score:.2f}"
        chosen = "chosen" if one == receipt.winner else None
        who = el("th", f"{one}{mark(receipt.right(one))}", scope="row")
        rows.append(el("tr", who, *cells, el("td", rate), class_=chosen))
    heads = [el("th", str(one), scope="col") for one in players]
    head = el("thead", el("tr", el("td"), *heads, el("th", receipt.score_kind or "score", scope="col")))
    return _scrolled(el("table", head, el("tbody", *rows), class_="cross"), "the finals")


def _cell(one: int, other: int, games: dict[tuple[int, ...], Game]) -> Node:
    game = games.get((one, other)) or games.get((other, one))
    if game is None:
        return el("td", "·")
    if game.preferred is None:
        sign = "?" if game.said.startswith("unanswered") else "="
    else:
        sign = ("+" if game.preferred == one else "−") * (1 if game.said == "LOW" else 2)
    seat = el("sub", "A") if game.shown[0] == one else None
    tone = {"+": "plus", "−": "minus"}.get(sign[0])
    link = el(
        "a", sign, seat, class_=tone, href=f"#g{game.number}", data_game=game.number, title=describe(game)
    )
    return el("td", link)


def _flips(receipt: Receipt) -> Node | None:
    if receipt.flips is None or not receipt.games:
        return None
    changed = [flip for flip in receipt.flips if flip.winner is not None]
    deciding = {flip.game for flip in changed}  # a tie can be turned two ways
    unknown = len({flip.game for flip in receipt.flips} - deciding)
    items = [
        el(
            "li",
            el("a", f"game {flip.game + 1}", href=f"#g{flip.game}", data_game=flip.game),
            f": had {flip.preferred} been preferred, {_named(receipt, flip.winner)} had won",
        )
        for flip in changed
    ]
    words = f"{len(deciding)} verdicts would each, turned around, have changed the winner."
    if len(deciding) == 1:
        words = "One verdict, turned around, would have changed the winner."
    if not changed:
        words = "No single verdict that can be followed to the end would have changed the winner."
    if unknown:
        words += f" {unknown} more would have led to games that were never played, so nobody knows."
    return _section("What it hung on", words, el("ul", *items) if items else None)


def _candidates(receipt: Receipt, case: Case | None, texts: Texts) -> Node:
    tested = any(one.passed is not None for one in receipt.candidates)
    scored = any(one.score is not None for one in receipt.candidates)
    heads = [
        "candidate",
        "came to",
        *(["examples passed"] if tested else []),
        *([receipt.score_kind or "score"] if scored else []),
    ]
    rows = []
    for one in receipt.candidates:
        cells = [el("th", f"{one.id}{mark(one.right)}", scope="row"), el("td", one.fate, class_="text")]
        if tested:
            cells.append(el("td", "–" if one.passed is None else f"{one.passed} of {receipt.examples}"))
        if scored:
            cells.append(el("td", "–" if one.score is None else f"{one.score:.2f}"))
        cells.append(el("td", _candidate_text(one, case, texts)))
        rows.append(el("tr", *cells, class_="chosen" if one.id == receipt.winner else None))
    named = (el("th", name, scope="col", class_="text" if name == "came to" else None) for name in heads)
    head = el("tr", *named, el("th", "text", scope="col"))
    return _scrolled(el("table", el("thead", head), el("tbody", *rows)), "the candidates")


def _candidate_text(one: Standing, case: Case | None, texts: Texts) -> Child:
    if case is None or one.id >= len(case.candidates):
        return "–"
    return folded("read", texts, case.candidates[one.id].text)


def _games(receipt: Receipt, heard: Sequence[Heard], texts: Texts) -> list[Node]:
    drawn = []
    for place, stage in enumerate(receipt.stages, 1):
        title = f"Stage {stage.name}" if len(stage.name) == 1 else f"Round {place}: {stage.name}"
        byes = f" · bye: {_listed(stage.byes)}" if stage.byes else ""
        drawn.append(el("h3", title + byes))
        for game in stage.games:
            words = heard[game.number] if game.number < len(heard) else None
            drawn.append(_game(game, words, texts))
    return drawn or [el("p", "The judge was not asked.")]


def _game(game: Game, heard: Heard | None, texts: Texts) -> Node:
    cost = f"{number(game.tokens, 0)} tokens read ({number(game.cached, 0)} cached), {game.output} written"
    tries = f", {game.tries} tries" if game.tries > 1 else ""
    unread = el("span", "unreadable", class_="tag bad") if game.malformed else None
    return el(
        "details",
        el("summary", el("b", f"{game.number + 1}"), f" {describe(game)} ", unread),
        el("p", cost + tries, class_="note"),
        *([] if heard is None else words_view(heard, texts)),
        class_="game",
        id=f"g{game.number}",
    )


def _section(title: str, about: str | None, *children: Child | None) -> Node:
    note = None if about is None else el("p", about, class_="note")
    return el("section", el("h2", title), note, *children)


def _scrolled(child: Node, name: str) -> Node:
    return el("div", child, class_="scroll", tabindex=0, role="region", aria_label=name)


def _named(receipt: Receipt, one: int | None) -> str:
    return "nobody" if one is None else f"{one}{mark(receipt.right(one))}"


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
