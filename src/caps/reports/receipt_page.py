"""Receipts as HTML: bracket, round-robin, and every judge call with prompt and reply."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from caps.core.text import number, plural
from caps.core.types import Case
from caps.reports.html import Child, Node, TextTable, el
from caps.reports.receipt import Game, GameExchange, JudgeReply, Receipt, Stage, Standing
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
LEAF, ROW, PILL, CARD, GAP = 34, 22, 92, 148, 40  # sizes in the bracket
TOP = 34
BETWEEN = 14  # from one finalist's subtree to the next


def exchange_view(exchange: GameExchange, texts: TextTable) -> list[Node]:
    """Show what separates two candidates, if that was asked, the prompt, and each reply with its reading."""
    drawn = [*_difference(exchange.difference, texts), el("h4", "Prompt")]
    if exchange.prompt:
        note = "Rendered again from the cases. Its key equals that of the run, so this is what was sent."
        if not exchange.exact:
            note = (
                "Rendered again from the cases. Its key differs from that of the run: cases or settings have "
                "changed, or nothing was sent."
            )
        drawn += [el("p", note, class_="note"), el("pre", texts.add(exchange.prompt), tabindex=0)]
    else:
        note = "The prompt cannot be rendered: the cases or the prompt template are not available."
        drawn.append(el("p", note, class_="note"))
    for reply in exchange.replies:
        drawn += _reply(reply, texts)
    return drawn


def _difference(sides: Sequence[str], texts: TextTable) -> list[Node]:
    """Show the inputs that separate two programs with both outputs, side by side."""
    if not sides:
        return []
    heads = el("tr", *(el("th", f"Candidate {slot}", scope="col") for slot in "AB"))
    cells = el("tr", *(el("td", el("pre", texts.add([side]), tabindex=0)) for side in sides))
    table = el("table", el("thead", heads), el("tbody", cells))
    return [el("h4", "What separates them"), _scrolled(table, "the two outputs")]


def _reply(reply: JudgeReply, texts: TextTable) -> list[Node]:
    drawn = [el("h4", "Reply")]
    if reply.text is None:
        drawn.append(el("p", "The journal does not hold the reply.", class_="note"))
    else:
        if reply.reasoning:
            drawn.append(folded("Reasoning", texts, reply.reasoning))
        drawn.append(el("pre", texts.add([reply.text]), tabindex=0))
    cause = f" {CAUSES.get(reply.cause, reply.cause)}" if reply.cause else ""
    return [*drawn, el("p", HOW.get(reply.how, reply.how) + cause, class_="note")]


def folded(title: str, texts: TextTable, text: str) -> Node:
    """Show a title that expands to a long text."""
    return el("details", el("summary", title), el("pre", texts.add([text]), tabindex=0), class_="fold")


@dataclass(slots=True)
class _Canvas:
    """The elements drawn so far; boxes cover lines."""

    lines: list[Node] = field(default_factory=list)
    boxes: list[Node] = field(default_factory=list)
    at: dict[int, tuple[float, float]] = field(default_factory=dict)  # the current end of a candidate's line
    loss: dict[int, tuple[float, float]] = field(default_factory=dict)  # where a loser's line ended

    def join(self, one: int, x: float, y: float, class_: str = "line") -> None:
        """Extend a candidate's line to a point."""
        x0, y0 = self.at[one]
        bend = max(x - GAP / 2, x0)
        path = (
            f"M{x0:g} {y0:g}H{bend - 10:g}C{bend + 6:g} {y0:g} {bend - 6:g} {y:g} {bend + 10:g} {y:g}H{x:g}"
        )
        self.lines.append(el("path", d=path, class_=class_))


def bracket(receipt: Receipt) -> Node | None:
    """Draw the bracket from distinct answers to the winner; None without elimination rounds."""
    stages = receipt.bracket
    if not stages:
        return None
    canvas = _Canvas()
    height = _leaves(canvas, receipt, stages)
    heads = [el("text", "distinct answers", x=0, y=14, class_="head")]
    for index, stage in enumerate(stages):
        x = PILL + GAP + index * (CARD + GAP)
        heads.append(_head(x + CARD / 2, f"stage {stage.name} · {_levels(stage)}"))
        _round(canvas, receipt, stage, x)
    x = PILL + GAP + len(stages) * (CARD + GAP)
    heads.append(_head(x + PILL / 2, "finalists"))
    height, width = _finals(canvas, receipt, x, height), x + 2 * PILL + 2 * GAP
    heads.append(_head(width - PILL / 2 - 2, "chosen"))
    return el(
        "svg", *heads, *canvas.lines, *canvas.boxes,
        viewBox=f"-2 0 {width + 4:g} {height:g}", width=width + 4, height=height, class_="bracket",
        role="group", aria_label=f"Bracket of {receipt.case}: {receipt.winner} was chosen",
    )  # fmt: skip


def _leaves(canvas: _Canvas, receipt: Receipt, stages: tuple[Stage, ...]) -> float:
    """Draw the clusters in the order of their games, slot A above; return the height used."""
    blocks: dict[int, list[int]] = {}
    for stage in stages:
        for one in sorted(stage.players):
            blocks.setdefault(one, [one])
        merged = {bye: blocks[bye] for bye in stage.byes}
        for game in _pairs(stage):
            a, b = game.shown
            merged[a if a in stage.through else b] = blocks[a] + blocks[b]
        blocks = merged
    sizes = {head: 1 + len(others) for head, *others in receipt.clusters}
    y = TOP + LEAF / 2
    for block in blocks.values():
        for one in block:
            size = sizes.get(one, 1)
            canvas.boxes.append(_pill(receipt, one, 0, y, more=f" ×{size}" if size > 1 else ""))
            canvas.at[one] = (PILL, y)
            y += LEAF
        y += BETWEEN
    return y


def _round(canvas: _Canvas, receipt: Receipt, stage: Stage, x: float) -> None:
    for game in _pairs(stage):
        a, b = game.shown
        middle = (canvas.at[a][1] + canvas.at[b][1]) / 2
        winner = a if a in stage.through else b
        for one, y in ((a, middle - ROW / 2), (b, middle + ROW / 2)):
            canvas.join(one, x, y, "line" if one == winner else "line out")
            if one != winner:
                canvas.loss[one] = (x + CARD, y)
        canvas.boxes.append(_card(receipt, stage, game, winner=winner, x=x, middle=middle))
        canvas.at[winner] = (x + CARD, middle)
    for bye in stage.byes:
        y = canvas.at[bye][1]
        canvas.boxes.append(el("text", "bye", x=x + CARD / 2, y=y - 5, class_="note", text_anchor="middle"))


def _finals(canvas: _Canvas, receipt: Receipt, x: float, height: float) -> float:
    """Draw finalists, rescued candidates and the winner; return the height used."""
    finalists = receipt.finalists or ((receipt.winner,) if receipt.winner is not None else ())
    for one in finalists:
        if one in receipt.rescued or one not in canvas.at:
            continue
        y = canvas.at[one][1]
        canvas.join(one, x, y)
        canvas.boxes.append(_pill(receipt, one, x, y))
        canvas.at[one] = (x + PILL, y)
    for one in receipt.rescued:
        canvas.at[one] = canvas.loss.get(one, (PILL, height))
        canvas.join(one, x, height, "line rescue")
        gap = "" if receipt.rescue_gap is None else f", {receipt.rescue_gap:.2f} behind"
        canvas.boxes.append(
            el("text", f"{one} rescued{gap}", x=x - 8, y=height + 24, class_="note", text_anchor="end")
        )
        canvas.boxes.append(_pill(receipt, one, x, height, class_="pill back"))
        canvas.at[one] = (x + PILL, height)
        height += LEAF + BETWEEN
    heights = [canvas.at[one][1] for one in finalists if one in canvas.at]
    middle = sum(heights) / len(heights) if heights else height / 2
    goal = x + PILL + GAP
    for one in sorted(finalists, key=lambda one: one == receipt.winner):  # the winner's line lies on top
        canvas.join(one, goal, middle, "line" if one == receipt.winner else "line out")
    if receipt.winner is not None:
        tone = {True: "good", False: "bad", None: ""}[receipt.right(receipt.winner)]
        canvas.boxes.append(_pill(receipt, receipt.winner, goal, middle, class_=f"pill chosen {tone}"))
    return height + 8


def _pairs(stage: Stage) -> Iterator[Game]:
    """Yield each pair once, in its first order."""
    met: set[frozenset[int]] = set()
    for game in stage.games:
        if len(game.shown) == 2 and frozenset(game.shown) not in met:
            met.add(frozenset(game.shown))
            yield game


def _card(receipt: Receipt, stage: Stage, game: Game, *, winner: int, x: float, middle: float) -> Node:
    rows = []
    for slot, one, y in zip("AB", game.shown, (middle - ROW, middle), strict=True):
        state = "won" if one == winner else "lost"
        note = game.said if one == winner else f"{game.tokens:,} tok"
        rows.append(
            el(
                "g",
                el("rect", x=x, y=y, width=CARD, height=ROW, class_=f"row {state}"),
                el("text", slot, x=x + 8, y=y + 15, class_="slot"),
                el("text", f"{one}{mark(receipt.right(one))}", x=x + 26, y=y + 15, class_=f"who {state}"),
                el("text", note, x=x + CARD - 8, y=y + 15, class_="note", text_anchor="end"),
            )
        )
    frame = el("rect", x=x, y=middle - ROW, width=CARD, height=2 * ROW, rx=5, class_="frame")
    title = f"stage {stage.name}: {describe(game)}; {winner} advances"
    return el("a", el("title", title), *rows, frame, href=f"#g{game.number}", data_game=game.number)


def _panel_text(game: Game) -> str:
    return f" (panel: {game.opinions})" if game.opinions else ""


def describe(game: Game) -> str:
    """Describe a judge call in one line."""
    if len(game.shown) != 2:
        return f"{', '.join(map(str, game.shown))} at {game.level}: {game.said}{_panel_text(game)}"
    verdict = game.said if game.preferred is None else f"{game.preferred} preferred, {game.said}"
    verdict += _panel_text(game)
    return f"{game.shown[0]} (A) against {game.shown[1]} (B) at {game.level}: {verdict}"


def mark(right: bool | None) -> str:  # noqa: FBT001
    """Return a sign for right or wrong."""
    return "" if right is None else " ✓" if right else " ✗"


def _pill(receipt: Receipt, one: int, x: float, y: float, *, more: str = "", class_: str = "pill") -> Node:
    label = f"{one}{mark(receipt.right(one))}{more}"
    box = el("rect", x=x, y=y - 12, width=PILL, height=24, rx=12, class_=class_)
    return el("g", box, el("text", label, x=x + PILL / 2, y=y + 4.5, class_="who", text_anchor="middle"))


def _head(x: float, text: str) -> Node:
    return el("text", text, x=x, y=14, class_="head", text_anchor="middle")


def _levels(stage: Stage) -> str:
    return ", ".join(sorted({game.level for game in stage.games}))


def receipt_view(
    receipt: Receipt, exchanges: Sequence[GameExchange], case: Case | None, texts: TextTable
) -> Node:
    """Show a receipt; long texts are stored in `texts`."""
    picture = bracket(receipt)
    finals = [stage for stage in receipt.stages if stage.kind == "round_robin"]
    return el(
        "article",
        el("h1", "Case ", el("bdi", receipt.case)),
        el("p", *_outcome(receipt), class_="lead"),
        None if case is None else folded("Problem", texts, case.problem.text),
        _story(receipt),
        None if picture is None else section("Bracket", _HOW_TO_READ, _scrolled(picture, "the bracket")),
        *(section("Round-robin of the finalists", _CROSS, _cross(one, receipt)) for one in finals),
        _flips(receipt),
        section("Candidates", None, _candidates(receipt, case, texts)),
        section("Judge calls", _GAMES, *_games(receipt, exchanges, texts)),
        class_="receipt",
    )


_HOW_TO_READ = (
    "Read from left to right. Each box is one question to the judge: which of two answers is more likely "
    "right? The upper answer was shown first (slot A); HIGH and LOW are the confidence of the judge. ×3 "
    "means that three candidates gave the same answer. ✓ and ✗ are known labels, which the judge never sees."
)
_CROSS = (
    "The answer of the row against that of the column: + preferred, − not preferred, = tie; doubled if the "
    "judge was sure."
)
_GAMES = "Open a call to read its prompt, the reply, and how the verdict was read."


def _story(receipt: Receipt) -> Node | None:
    """The story of a question: samples and verdicts in their order, how sure, and what was spent."""
    if not receipt.story:
        return None
    heads = ("after", "what came", "samples", "leads", "probability", "generation", "judging")
    rows = [
        el(
            "tr",
            el("td", f"{step['seconds']:.1f} s"),
            el("td", step["what"]),
            el("td", str(step["samples"])),
            el("td", "–" if step["leader"] is None else str(step["leader"])),
            el("td", "–" if step["probability"] is None else f"{step['probability']:.2f}"),
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
    return section(
        "Story",
        _STORY,
        _scrolled(el("table", el("tr", *(el("th", head) for head in heads)), *rows), "the story"),
        *(el("p", words) for words in spent),
    )


_STORY = (
    "How the answer came about: each row is one event, with how likely the leading candidate was right after "
    "it, and the tokens read + written so far."
)


def _outcome(receipt: Receipt) -> list[Child]:
    if receipt.error is not None:
        return [f"No answer was chosen: {receipt.error}"]
    right = {True: ", which is right", False: ", which is wrong", None: ""}
    text: list[Child] = [
        el("strong", f"Candidate {receipt.winner} was chosen"),
        f" of {len(receipt.candidates)}" + right[receipt.right(receipt.winner)],
        f". The judge read {plural(receipt.asked, 'token')} in {plural(len(receipt.games), 'call')}",
        "." if receipt.usd is None else f", for ${receipt.usd:.4f}.",
    ]
    if not receipt.games:
        text.append(" No judge was needed.")
    if receipt.rescued:
        text.append(f" Rescued after losing narrowly: {_listed(receipt.rescued)}.")
    if receipt.provisional:
        why = f" ({receipt.stopped})" if receipt.stopped else ""
        text.append(f" The choice is provisional: not every call was answered{why}.")
    if not receipt.whole and not receipt.story:
        text.append(" The contest could not be replayed, so only its calls are shown.")
    return text


def _cross(stage: Stage, receipt: Receipt) -> Node:
    order = [one.id for one in sorted(receipt.candidates, key=lambda one: -(one.score or 0))]
    players = [one for one in order if one in stage.players]
    games: dict[tuple[int, ...], Game] = {game.shown: game for game in stage.games}
    rows = []
    for one in players:
        score = next(each.score for each in receipt.candidates if each.id == one)
        cells = [_cell(one, other, games) for other in players]
        shown = "–" if score is None else f"{score:.2f}"
        chosen = "chosen" if one == receipt.winner else None
        who = el("th", f"{one}{mark(receipt.right(one))}", scope="row")
        rows.append(el("tr", who, *cells, el("td", shown), class_=chosen))
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
    slot = el("sub", "A") if game.shown[0] == one else None
    tone = {"+": "plus", "−": "minus"}.get(sign[0])
    link = el(
        "a", sign, slot, class_=tone, href=f"#g{game.number}", data_game=game.number, title=describe(game)
    )
    return el("td", link)


def _flips(receipt: Receipt) -> Node | None:
    if receipt.flips is None or not receipt.games:
        return None
    changed = [flip for flip in receipt.flips if flip.winner is not None]
    deciding = {flip.game for flip in changed}  # a tie can be reversed in two ways
    unknown = len({flip.game for flip in receipt.flips} - deciding)
    items = [
        el(
            "li",
            el("a", f"call {flip.game + 1}", href=f"#g{flip.game}", data_game=flip.game),
            f": if {flip.preferred} had been preferred, {flip.winner}{mark(receipt.right(flip.winner))} "
            "would have won",
        )
        for flip in changed
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


def _candidates(receipt: Receipt, case: Case | None, texts: TextTable) -> Node:
    tested = any(one.passed is not None for one in receipt.candidates)
    scored = any(one.score is not None for one in receipt.candidates)
    heads = [
        "candidate",
        "result",
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
    named = (el("th", name, scope="col", class_="text" if name == "result" else None) for name in heads)
    head = el("tr", *named, el("th", "text", scope="col"))
    return _scrolled(el("table", el("thead", head), el("tbody", *rows)), "the candidates")


def _candidate_text(one: Standing, case: Case | None, texts: TextTable) -> Child:
    if case is None or one.id >= len(case.candidates):
        return "–"
    return folded("show", texts, case.candidates[one.id].text)


def _games(receipt: Receipt, exchanges: Sequence[GameExchange], texts: TextTable) -> list[Node]:
    drawn = []
    for round_number, stage in enumerate(receipt.stages, 1):
        title = f"Stage {stage.name}" if len(stage.name) == 1 else f"Round {round_number}: {stage.name}"
        byes = f" · bye: {_listed(stage.byes)}" if stage.byes else ""
        drawn.append(el("h3", title + byes))
        for game in stage.games:
            exchange = exchanges[game.number] if game.number < len(exchanges) else None
            drawn.append(_game(game, exchange, texts))
    return drawn or [el("p", "The judge was not asked.")]


def _game(game: Game, exchange: GameExchange | None, texts: TextTable) -> Node:
    cost = f"{number(game.tokens, 0)} tokens read ({number(game.cached, 0)} cached), {game.output} written"
    tries = f", {game.tries} attempts" if game.tries > 1 else ""
    unread = el("span", "unreadable", class_="tag bad") if game.malformed else None
    return el(
        "details",
        el("summary", el("b", f"{game.number + 1}"), f" {describe(game)} ", unread),
        el("p", cost + tries, class_="note"),
        *([el("p", _by_criterion(game), class_="note")] if game.criteria else []),
        *([] if exchange is None else exchange_view(exchange, texts)),
        class_="game",
        id=f"g{game.number}",
    )


def _by_criterion(game: Game) -> str:
    """What the judge said by each criterion, with candidates in place of slots and places."""
    slots = dict(zip("AB", map(str, game.shown), strict=False)) | {"TIE": "tie"}
    picked = game.said == "picked"

    def named(said: str) -> str:
        return str(game.shown[int(said) - 1]) if picked else slots.get(said, f"{said} of 10")

    return "By criterion: " + "; ".join(f"{name}: {named(said)}" for name, said in game.criteria)


def _scrolled(child: Node, name: str) -> Node:
    return el("div", child, class_="scroll", tabindex=0, role="region", aria_label=name)


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
