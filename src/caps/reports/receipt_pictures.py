"""Pictures of contests: brackets, who beat whom, answers with their bars, probabilities step by step.

Brackets and bars are elements that wrap and stack where the window is narrow; lines are SVG that scales with
its box. Answers stand for candidates where they are short, else the numbers of candidates. Everything that
shows a judge call links to it, and has a title in words. Green and red are kept for labels and tests: what
the judge prefers is blue.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import pairwise

from caps.core.text import number
from caps.reports.charts import SHARES, WIDTH, Scale, axes, fitted, joined, label, line
from caps.reports.elements import scrolled
from caps.reports.html import Child, Html, el, join
from caps.reports.numbers import share
from caps.reports.receipt import Game, Receipt, Stage

SURE_GAP = 4  # least difference of two ratings of a sure judge
TONES = {True: "good", False: "bad", None: ""}


def mark(right: bool | None) -> str:  # noqa: FBT001
    """Return a sign for right or wrong."""
    return "" if right is None else " ✓" if right else " ✗"


def name_of(receipt: Receipt, candidate: int) -> str:
    """The answer of a candidate with its number: 204 (#3)."""
    short = receipt.name(candidate)
    return short if short == f"#{candidate}" else f"{short} (#{candidate})"


def marked(receipt: Receipt, candidate: int) -> Html:
    """The answer of a candidate with its label; a right-to-left answer keeps what follows it in place."""
    return join([el("bdi", receipt.name(candidate)), mark(receipt.right(candidate))])


def describe(game: Game, receipt: Receipt) -> str:
    """Describe a judge call in one line."""
    name = partial(name_of, receipt)
    opinions = f" ({game.opinions})" if game.opinions else ""
    if len(game.shown) != 2:
        return f"{', '.join(map(name, game.shown))} at {game.level}: {game.said}{opinions}"
    verdict = game.said if game.preferred is None else f"{name(game.preferred)} preferred, {game.said}"
    return f"{name(game.shown[0])} in A, {name(game.shown[1])} in B, at {game.level}: {verdict}{opinions}"


def game_link(game: Game, *children: Child, title: str | None = None, class_: str | None = None) -> Html:
    """A link that opens a judge call."""
    return el(
        "a", *children, href=f"#g{game.number + 1}", data_game=game.number + 1, title=title, class_=class_
    )


def level(value: float, *, before: float | None = None, class_: str = "") -> Html:
    """A bar on a rail from 0 to 1; a pale bar shows where it was before."""
    pale = None if before is None else line(f"M0 5h{100 * before:.1f}", "before")
    filled = line(f"M0 5h{max(0.6, 100 * value):.1f}", f"bar {class_}".strip())
    return el(
        "svg",
        pale,
        filled,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        class_="level",
        aria_hidden="true",
    )


# Brackets

BRACKET = (
    "Each box is one question to the judge: which of two answers is more likely right? The upper answer was "
    "shown first (slot A); HIGH and LOW are the confidence of the judge. ✓ and ✗ are known labels, which the "
    "judge never sees. In the finals, + is a comparison that the answer of the row won, − one that it lost, "
    "= a tie; doubled if the judge was sure."
)


def bracket(receipt: Receipt) -> Html | None:
    """Draw the rounds from left to right, games beside those that follow; None without elimination."""
    stages = receipt.bracket
    if not stages:
        return None
    numbered = len({stage.name for stage in stages}) < len(stages)
    orders = _orders(receipt, stages)
    rounds = []
    for place, (stage, order) in enumerate(zip(stages, orders, strict=True), 1):
        name = f"stage {stage.name}" if len(stage.name) == 1 else stage.name
        title = f"{f'round {place}' if numbered else name} · {_levels(stage.games)}"
        games = {_winner(game, stage): game for game in _pairs(stage)}
        boxes = [
            _box(receipt, games[candidate], candidate)
            if candidate in games
            else el("p", marked(receipt, candidate), " has a bye", class_="note bye")
            for candidate in order
        ]
        rounds.append(el("div", el("h3", title), el("div", *boxes, class_="boxes"), class_="round"))
    rounds.append(_finals(receipt))
    about = f"Bracket of {receipt.case}: {receipt.name(receipt.winner)} was chosen"
    return el("div", *rounds, class_="bracket drawing", role="group", aria_label=about)


def _orders(receipt: Receipt, stages: Sequence[Stage]) -> list[list[int]]:
    """Who advances from each stage, in an order that keeps a game beside those before it."""
    orders: list[list[int]] = []
    following = list(receipt.finalists) or ([] if receipt.winner is None else [receipt.winner])
    for stage in reversed(stages):
        through = [_winner(game, stage) for game in _pairs(stage)] + list(stage.byes)
        places = {candidate: place for place, candidate in enumerate(following)}
        through.sort(key=lambda candidate: places.get(candidate, len(places)))
        orders.insert(0, through)
        pairs = {_winner(game, stage): game.shown for game in _pairs(stage)}
        following = [player for candidate in through for player in pairs.get(candidate, (candidate,))]
    return orders


def _winner(game: Game, stage: Stage) -> int:
    first, second = game.shown
    return first if first in stage.through else second


def _pairs(stage: Stage) -> list[Game]:
    """Each pair of a stage once, in its first order."""
    pairs: dict[frozenset[int], Game] = {}
    for game in stage.games:
        if len(game.shown) == 2:
            pairs.setdefault(frozenset(game.shown), game)
    return list(pairs.values())


def _box(receipt: Receipt, game: Game, winner: int) -> Html:
    sides = []
    for slot, candidate in zip("AB", game.shown, strict=True):
        is_winner = candidate == winner
        note = game.said if is_winner else f"{game.tokens:,} tok"
        sides.append(
            el(
                "span",
                el("span", slot, class_="slot"),
                el("span", marked(receipt, candidate), class_="who"),
                el("span", note, class_="said"),
                class_="side won" if is_winner else "side",
            )
        )
    title = f"{describe(game, receipt)}; {name_of(receipt, winner)} advances"
    return game_link(game, *sides, title=title, class_="box misjudged" if receipt.misjudged(game) else "box")


def _finals(receipt: Receipt) -> Html:
    """The finalists with their games, those that were rescued, and the winner."""
    games = [game for stage in receipt.stages if stage.kind == "round_robin" for game in stage.games]
    gap = "" if receipt.rescue_gap is None else f", {receipt.rescue_gap:.2f} behind"
    rescued = [
        el("p", f"rescued{gap}: ", marked(receipt, candidate), class_="note") for candidate in receipt.rescued
    ]
    chosen = None
    if receipt.winner is not None:
        tone = TONES[receipt.right(receipt.winner)]
        chosen = el("p", "Chosen: ", el("b", marked(receipt, receipt.winner)), class_=f"chosen-end {tone}")
    title = f"finals · {_levels(games)}" if games else "chosen"
    played = _matrix_table(receipt, receipt.finalists, games) if games else None
    return el("div", el("h3", title), played, *rescued, chosen, class_="round finals")


def _levels(games: Iterable[Game]) -> str:
    return ", ".join(sorted({game.level for game in games}))


# Who beat whom

MATRIX = (
    "The best answer first. Each cell is the answer of the row against that of the column: + won, − lost, = "
    "tie; doubled if the judge was sure. Several signs are several comparisons. A cell opens its call."
)


def matrix(receipt: Receipt) -> Html | None:
    """Draw all comparisons of pairs in the order of the ranking; None without comparisons."""
    met = {candidate for game in receipt.games if len(game.shown) == 2 for candidate in game.shown}
    return _matrix_table(receipt, met, receipt.games) if met else None


def _matrix_table(receipt: Receipt, players: Collection[int], games: Sequence[Game]) -> Html:
    ranked = sorted(
        receipt.candidates,
        key=lambda standing: (standing.id != receipt.winner, -(standing.score or 0.0), standing.id),
    )
    players = [standing.id for standing in ranked if standing.id in players]
    met: dict[frozenset[int], list[Game]] = {}
    for game in games:
        if len(game.shown) == 2:
            met.setdefault(frozenset(game.shown), []).append(game)
    names = [el("th", marked(receipt, player), scope="col") for player in players]
    rows = []
    for player in players:
        standing = receipt.standing(player)
        score = None if standing is None else standing.score
        cells = [
            _cell(receipt, player, [] if player == other else met.get(frozenset((player, other)), []))
            for other in players
        ]
        head = el("th", marked(receipt, player), scope="row")
        kind = "chosen" if player == receipt.winner else None
        rows.append(el("tr", head, *cells, el("td", number(score)), class_=kind))
    heads = el("tr", el("th", "answer", scope="col"), *names, el("th", receipt.score_kind, scope="col"))
    drawn = el("table", el("thead", heads), el("tbody", *rows), class_="cross drawing")
    return scrolled(drawn, f"comparisons of {receipt.case}")


def sign_of(game: Game, candidate: int) -> str:
    """How a comparison ended for one of the two: ++, +, =, −, −− or ?."""
    if game.preferred is None:
        return "?" if game.said.startswith("unanswered") else "="
    sign = "+" if game.preferred == candidate else "−"
    first, dash, second = game.said.partition("-")
    try:
        sure = abs(float(first) - float(second)) >= SURE_GAP if dash else game.said != "LOW"
    except ValueError:
        sure = game.said != "LOW"
    return sign * (2 if sure else 1)


def _cell(receipt: Receipt, player: int, games: Sequence[Game]) -> Html:
    """The comparisons of two candidates from one side."""
    if not games:
        return el("td", "", class_="cell")
    signs = [sign_of(game, player) for game in games]
    total = sum(sign.count("+") - sign.count("−") for sign in signs)
    text = " ".join(signs) if len(signs) < 3 else f"{total:+d}".replace("-", "−").replace("+0", "=")
    title = "; ".join(describe(game, receipt) for game in games)
    tone = "plus" if total > 0 else "minus" if total < 0 else "tie"
    return el("td", game_link(games[-1], text, title=title), class_=f"cell {tone}")


# Verdicts about an answer


def verdicts_about(receipt: Receipt, members: Sequence[int]) -> dict[str, int]:
    """How many verdicts that compare an answer with another are for it, against it, or ties."""
    counts = {"for": 0, "against": 0, "tied": 0}
    for game in receipt.comparisons(members):
        kind = "tied" if game.preferred is None else "for" if game.preferred in members else "against"
        counts[kind] += len(game.shown) == 2
    return counts


# Probabilities step by step

STEPS = "The probability of the likeliest answers after each verdict; a dot opens the call."
SHOWN_LINES = 5
LEFT, RIGHT, TOP, BOTTOM = 48, WIDTH - 96, 10, 190
UPWARD = Scale(0, 1, BOTTOM, TOP)


def steps(receipt: Receipt, described: Sequence[str]) -> Html | None:
    """Draw the probability of the likeliest answers after each verdict; None without steps."""
    groups = [group for group in receipt.answers if group.chances][:SHOWN_LINES]
    if not groups or len(groups[0].chances) < 2:
        return None
    count = len(groups[0].chances) - 1
    across = Scale(0, count, LEFT, RIGHT)
    every = max(1, count // 10 + (count % 10 > 0))
    columns = [(step, str(step) if step else "before") for step in range(0, count + 1, every)]
    drawn = axes(across, UPWARD, SHARES, columns, "after verdict", left=LEFT, right=RIGHT)
    names = _spread([UPWARD.at(group.chances[-1]) for group in groups])
    for rank, (group, y_name) in reversed(list(enumerate(zip(groups, names, strict=True)))):
        is_chosen = receipt.winner in group.members
        kind = "chosen" if is_chosen else f"other{min(rank, 3)}"
        spots = [(across.at(step), UPWARD.at(chance)) for step, chance in enumerate(group.chances)]
        drawn.append(line(joined(spots), f"trace {kind}"))
        drawn.append(
            label(fitted(receipt.name(group.members[0]), 86, 12), RIGHT + 9, y_name + 4, f"label {kind}")
        )
        if not is_chosen:
            continue
        drawn.append(el("circle", cx=spots[0][0], cy=spots[0][1], r=4, class_="dot"))
        for step, game in enumerate(receipt.answered_games, 1):
            moved = f"{share(group.chances[step - 1])} → {share(group.chances[step])}"
            words = f"verdict {step}: {described[game.number]}; {moved}"
            dot = el("circle", cx=spots[step][0], cy=spots[step][1], r=4, class_="dot")
            drawn.append(game_link(game, el("title", words), dot))
    title = f"How the probability moved in {receipt.case}"
    ends = ", ".join(f"{receipt.name(group.members[0])} {share(group.chances[-1])}" for group in groups)
    # A group, since a picture would hide its links from screen readers.
    return el(
        "svg", *drawn, viewBox=f"0 0 {WIDTH} {BOTTOM + 40}", class_="beliefs drawing", role="group",
        aria_label=f"{title}: {ends}",
    )  # fmt: skip


def _spread(places: Sequence[float], least: float = 15) -> list[float]:
    """Move labels apart so that neighbours are at least `least` away, within bounds where possible."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    floor = float(BOTTOM)
    for place in reversed(order):
        moved[place] = min(moved[place], floor)
        floor = moved[place] - least
    return moved
