"""The pages of a run and of its cases: accuracy, cost, the judge, groups, settings, receipts."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from caps.config import RunConfig
from caps.core.errors import InputError
from caps.core.text import number, percent, plural
from caps.core.types import Case
from caps.costs.ledger import Sums
from caps.costs.prices import Price
from caps.judging.several import JudgeTotals
from caps.reports.charts import Row as ShareRow
from caps.reports.charts import Series, Spot, curve, forest
from caps.reports.elements import card, facts, fold, head, section, table
from caps.reports.html import Child, Html, el
from caps.reports.listing import CASE, Column, Listing, Row, group_address, make_row
from caps.reports.numbers import brief, dollars, share, span
from caps.reports.page import Page
from caps.reports.receipt import GameExchange, Receipt, exchanges_of, games_of, receipt_of
from caps.reports.receipt_page import receipt_view
from caps.reports.report import UNSURE, Choices, RunReport, footer, is_unsure
from caps.runs.outcomes import Outcomes
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line
from caps.runs.run_file import RunFile
from caps.runs.summary import Figures
from caps.statistics.estimates import wilson

BASELINE = "v1-infer"
LEAST_COMPARED = 10  # labelled choices; fewer are not compared with other ways of choosing
GLOSSARY = (
    ("E1 and E2", "How much of each answer the judge sees: a short partial view (E1) or all of it (E2)."),
    (
        "Stage A, B, C",
        "Elimination on partial views; elimination on whole answers; round-robin of the finalists.",
    ),
    ("missed", "The chosen answer is wrong although a candidate is labelled right."),
    ("impossible", "No candidate is labelled right, so every choice is wrong."),
    ("ceiling", "The share of cases with a right candidate: nobody can choose better."),
    (
        "recovery",
        "The share of the possible gain over a random candidate that was reached: "
        "(right - random) / (ceiling - random).",
    ),
    ("misjudged", "The judge preferred a wrong candidate although it was shown a right one."),
    ("probability", "How likely the chosen answer is right, as the strategy computes it from all it knows."),
    ("unsure", f"The probability is below {100 * UNSURE:.0f} %, or below the limit that the run set."),
    ("votes", "Candidates that give the same final answer as the chosen one, itself included."),
    ("against the majority", "Another answer has more votes than the chosen one."),
    ("V1-Infer", "The tournament used as a baseline: three comparisons of whole answers per answer."),
    ("rescued", "An answer that lost narrowly and was still admitted to the finals."),
    (
        "provisional",
        "The budget, the time or the judge failed before the end; the best answer so far was chosen.",
    ),
    ("unreadable", "The reply of the judge contained no verdict, even after retries; it counts as a tie."),
    (
        "tokens read",
        "Tokens of all prompts, also of those that the journal answered; strategies differ in this cost.",
    ),
)


def run_page(report: RunReport, *, live: bool = False, texts: bool = True) -> Page:
    """Create the page of one run; without `texts`, no word of a problem or candidate is on it."""
    columns = run_columns(report, texts=texts)
    return Page(
        title=f"{report.name} · caps report",
        figures=run_figures(report),
        details=run_details(report),
        after=[terms_view(report.run)],
        listing=Listing(columns, FILTERS, run_rows(report, columns), group_fields(report)),
        footer=footer(live=live),
        status=report.status,
        live=live,
    )


def run_figures(report: RunReport) -> list[Html]:
    """Return the part of a page above its table; it changes while the run continues."""
    head_ = head(report.name, _lead(report), warning_view(report), cards(report))
    return [*head_, *accuracy_view(report.outcomes, report.choices)]


def run_details(report: RunReport) -> list[Html]:
    """Return the figures below the table: groups, the judge, tokens and money by stage."""
    views = (
        groups_view(report),
        judge_view(report),
        tokens_view(report),
        judges_view(report.selections.values()),
    )
    return [view for view in views if view is not None]


def _lead(report: RunReport) -> Html:
    """Explain the page to a new reader."""
    chose: list[Child] = [
        f"{plural(report.figures.cases, 'problem')} with several candidate answers each. The strategy ",
        el("b", report.strategy),
    ]
    state = "" if report.run.finished else " The run has not finished; the figures are preliminary."
    if not report.figures.total.calls:
        return el("p", *chose, f" chose among them without asking a judge.{state}", class_="lead")
    judge = el("b", report.judge)
    return el("p", *chose, " chose among them; the judge ", judge, f" compared them.{state}", class_="lead")


def warning_view(report: RunReport) -> Html | None:
    """Warn if a judge was asked and the choices are no better than simpler ones."""
    outcomes, accuracy = report.outcomes, report.outcomes.accuracy
    is_comparable = outcomes.labelled >= LEAST_COMPARED and outcomes.recovery is not None
    if accuracy is None or not is_comparable or not report.figures.total.calls:
        return None
    random = outcomes.share(outcomes.random)
    ways = (("a random candidate", random), ("a majority vote", report.choices.majority_share))
    for name, other in ways:
        if other is not None and accuracy <= other:
            text = f" {percent(accuracy)} % right against {percent(other)} %. The judge did not help here."
            strong = el("b", f"These choices are no better than {name}:")
            return el("p", strong, text, class_="simulated", id="no-better")
    return None


def cards(report: RunReport) -> Html:
    """Show the main figures; what was read is not compared with the baseline where it is the baseline."""
    figures, choices = report.figures, report.choices
    shown = [_accuracy_card(report.outcomes)]
    if choices.stated:
        shown.append(_probability_card(figures, choices))
    shown.append(_cost_card(figures))
    if figures.total.calls and report.strategy != BASELINE:
        shown.append(_reading_card(figures))
    shown.append(_trouble_card(figures))
    return el("div", *shown, class_="cards")


def filter_link(count: int, name: str) -> Child:
    """A count that leads to the rows it counts."""
    text = f"{number(count, 0)} {name}"
    return el("a", text, href=f"#filter={name}") if count else text


def _accuracy_card(outcomes: Outcomes) -> Html:
    if outcomes.accuracy is None:
        return card("–", "chosen answers right", "No candidate is labelled; caps grade adds labels.")
    reached = "" if outcomes.recovery is None else f", recovery {percent(outcomes.recovery)}\u00a0%"
    ceiling = percent(outcomes.share(outcomes.possible))
    return card(
        f"{percent(outcomes.accuracy)} %",
        "chosen answers right",
        filter_link(outcomes.right, "right"),
        ", ",
        filter_link(outcomes.missed, "missed"),
        ", ",
        filter_link(outcomes.impossible, "impossible"),
        f". Ceiling {ceiling}\u00a0%{reached}; 95\u00a0% interval {span(*outcomes.interval)}.",
    )


def _probability_card(figures: Figures, choices: Choices) -> Html:
    mean = sum(probability for probability, _ in choices.stated) / len(choices.stated)
    few = f"All but {number(figures.calibrated, 0)}" if figures.calibrated else "All"
    fitted: list[Child] = ["Fitted to such cases."]
    if figures.calibrated < figures.stated:
        fitted = [f"{few} from default assumptions; ", el("code", "--calibrate"), " fits them to your cases."]
    unsure = filter_link(choices.unsure, "unsure")
    below = f" (below {100 * UNSURE:.0f}\u00a0%). "
    return card(f"{percent(mean)} %", "mean probability of being right", unsure, below, *fitted)


def _cost_card(figures: Figures) -> Html:
    total, about = figures.total, "about " if figures.ledger.estimated else ""
    written = f"{about}{number(total.billed, 0)} tokens read anew, {number(total.output, 0)} written."
    if figures.usd is None:
        options = el("code", "--price-input"), " and ", el("code", "--price-output"), " state it."
        unknown = f"{written} The price of a token is unknown: "
        return card(brief(total.asked), "tokens read by the judge", unknown, *options)
    per_case = figures.usd / figures.cases if figures.cases else 0.0
    return card(dollars(figures.usd), "spent on the judge", f"{dollars(per_case)} a case: {written}")


def _reading_card(figures: Figures) -> Html:
    part, name = figures.baseline.share(figures.total), "of V1-Infer's tokens"
    if part is None:
        return card("–", name, "Unknown: this judge compares nothing, or counts no tokens.")
    note = (
        f"{brief(figures.total.asked)} read; the baseline tournament V1-Infer would read about "
        f"{brief(figures.baseline.tokens)}."
    )
    return card(f"{percent(part)} %", name, note)


UNREADABLE = {
    "no-tag": "without a verdict",
    "truncated": "cut off",
    "refused": "refused",
    "empty": "empty",
}  # by cause


def _trouble_card(figures: Figures) -> Html:
    unreadable, ties = figures.ledger.unreadable, figures.ledger.malformed.total()
    causes = "".join(
        f", {number(count, 0)} {UNREADABLE.get(cause, cause)}" for cause, count in sorted(unreadable.items())
    )
    counted = f"{number(unreadable.total(), 0)} of {number(figures.total.attempts, 0)} replies{causes}. "
    if ties:
        counted += f"{plural(ties, 'question')} without a readable reply, counted as ties. "
    links = [
        filter_link(figures.provisional, "provisional"), ", ", filter_link(figures.failed, "failed"), ", ",
        filter_link(figures.rescued, "rescued"), ".",
    ]  # fmt: skip
    rate = "–" if figures.unreadable_rate is None else f"{percent(figures.unreadable_rate)} %"
    return card(rate, "of replies unreadable", f"{counted}Cases: ", *links)


def accuracy_view(outcomes: Outcomes, choices: Choices) -> list[Html]:
    """Compare the choices with simpler ways of choosing, where enough labels are known."""
    accuracy = outcomes.accuracy
    if accuracy is None or outcomes.labelled < LEAST_COMPARED:
        return []
    low, high = outcomes.interval
    rows = [ShareRow(label="chosen in this run", value=accuracy, low=low, high=high)]
    for label, part in (
        ("most common answer", choices.majority_share),
        ("a candidate at random", outcomes.share(outcomes.random)),
        ("ceiling: the best candidate", outcomes.share(outcomes.possible)),
    ):
        if part is not None:
            rows.append(ShareRow(label=label, value=part, low=part, high=part, full=False))
    title = "Right answers, by how the answer is chosen"
    drawn = forest(rows, title, ["Bar: 95 % interval."]).svg()
    shown = [section("Compared with a majority vote", _majority_words(accuracy, choices), drawn)]
    labelled = [(probability, right) for probability, right in choices.stated if right is not None]
    if len(labelled) >= LEAST_COMPARED:
        shown.append(_reliability(labelled))
    return [el("div", *shown, class_="pair")]


def _majority_words(accuracy: float, choices: Choices) -> str:
    if choices.majority_share is None:
        return "The votes are unknown, as the cases of the run cannot be read."
    gain = accuracy - choices.majority_share
    against = f"{number(choices.against, 0)} of {plural(choices.counted, 'choice')} are against the majority"
    if abs(gain) < 0.0005:
        return f"As many right answers as by taking the most common one. {against}."
    more = "more" if gain > 0 else "fewer"
    points = f"{percent(abs(gain))} percentage points {more} right answers"
    return f"{points} than by taking the most common one. {against}."


BINS = 5


def _reliability(labelled: Sequence[tuple[float, bool]]) -> Html:
    """Compare stated probabilities with the share of right choices, in groups of about equal size."""
    ordered = sorted(labelled)
    count = min(BINS, len(ordered) // 5) or 1
    spots = []
    for place in range(count):
        part = ordered[place * len(ordered) // count : (place + 1) * len(ordered) // count]
        right = sum(is_right for _, is_right in part)
        low, high = wilson(right, len(part))
        mean = sum(probability for probability, _ in part) / len(part)
        spots.append(Spot(at=mean, right=right / len(part), low=low, high=high, count=len(part)))
    brier = sum((probability - is_right) ** 2 for probability, is_right in ordered) / len(ordered)
    stated_mean = sum(probability for probability, _ in ordered) / len(ordered)
    right_mean = sum(is_right for _, is_right in ordered) / len(ordered)
    drawn = curve(
        [Series(name="", spots=spots, full=True)],
        "Stated probability against the share of right choices",
        ["Groups of equal size; whiskers: 95 % intervals."],
        stated=[(step / 5, f"{20 * step} %") for step in range(6)],
        axis="stated probability",
        ideal="as stated",
        coin=False,
    )
    words = (
        f"It says {percent(stated_mean)} % on average and is right in {percent(right_mean)} %. Mean squared "
        f"error of the probabilities (Brier score): {brier:.3f}; 0 is perfect, 0.25 is always saying 50 %."
    )
    return section("Can the probability be trusted?", words, drawn.svg())


VIEWS = {"E1": "partial views (E1)", "E2": "full views (E2)"}


def judge_view(report: RunReport) -> Html | None:
    """Show how often the judge preferred the right candidate, and how steady it was; None without pairs."""
    quality = report.quality
    if not quality.pairs:
        return None
    mixed = quality.mixed
    levels = [(VIEWS[level], quality.levels[level]) for level in VIEWS if level in quality.levels]
    rows = [
        (name, number(counts.asked, 0), number(counts.right, 0), share(counts.right / counts.asked),
         number(counts.tied, 0))
        for name, counts in [*levels, *([("all", mixed)] if len(levels) > 1 else [])]
    ]  # fmt: skip
    heads = (
        "comparisons of a right with a wrong candidate",
        "asked",
        "preferred the right one",
        "share",
        "ties",
    )
    decided = quality.pairs - quality.tied
    slots = (
        f"{share(quality.slot_a / decided)} of {number(decided, 0)} decided" if decided else "none decided"
    )
    steady = (
        f"Of all {plural(quality.pairs, 'comparison')}: slot A was preferred in {slots}, "
        f"{plural(quality.tied, 'tie')}; {plural(quality.asked_again, 'reply', 'replies')} asked again. "
    )
    words = "No comparison of a right with a wrong candidate was asked."
    if mixed.asked:
        words = (
            f"It preferred the right one in {number(mixed.right, 0)} of "
            f"{plural(mixed.asked, 'mixed comparison')}."
        )
    link = filter_link(len(report.misjudged), "misjudged")
    note = el("p", steady, "Cases with a misjudged call: ", link, ".", class_="note")
    shown = table(heads, rows, "comparisons by view") if rows else None
    return section("Was the judge right?", words, shown, note)


def tokens_view(report: RunReport) -> Html | None:
    """Show tokens and money by stage and level; None if the judge was not asked."""
    figures, price = report.figures, report.run.resolved.price
    if not figures.total.calls:
        return None
    lines = sorted(figures.ledger.lines.items(), key=lambda line: (line[0][0], str(line[0][1])))
    names = ["stage", "evidence", "calls", "tokens read", "of them new", "cached", "written"]
    names += [] if price is None else ["cost"]
    body = [_stage_cells(stage, str(level), sums, price) for (stage, level), sums in lines]
    if len(body) > 1:
        body.append(_stage_cells("total", "", figures.total, price))
    about = "Prompts sent to the judge, by stage and evidence: partial views (E1) or whole answers (E2)."
    return section("What it read", about, table(names, body, "tokens by stage"))


def _stage_cells(stage: str, level: str, sums: Sums, price: Price | None) -> tuple[str, ...]:
    counts = (sums.calls, sums.asked, sums.billed, sums.cached, sums.output)
    money = () if price is None else (dollars(price.of_sums(sums)),)
    return (stage, level, *(number(value, 0) for value in counts), *money)


def settings_view(file: RunFile) -> Html:
    """Show all settings that differ from their defaults, with versions and prompt digests."""
    defaults, config = RunConfig().to_dict(), file.to_row()["config"]
    rows: list[tuple[str, str]] = [("cases", file.cases)]
    rows += [] if file.limit is None else [("limit", str(file.limit))]
    rows += [] if file.shard is None else [("shard", file.shard)]
    always = ("strategy", "seed", "model")
    for name, value in config.items():
        if isinstance(value, dict):
            rows += [(f"{name} · {key}", str(inner)) for key, inner in value.items()]
        elif value != defaults[name] or name in always:
            rows.append((name, str(", ".join(map(str, value)) if isinstance(value, list) else value)))
    for group in ("findings", "versions", "prompt_digests"):
        label = group.removesuffix("_digests")
        rows += [(f"{label} · {name}", str(value)) for name, value in getattr(file, group).items()]
    return fold("Settings, versions and prompt digests", facts(rows))


def terms_view(*runs: RebuiltRun, names: Sequence[str] = ()) -> Html:
    """Explain the terms of a page, the settings of its runs, and what of them is missing."""
    shown = [fold("Terms on this page", facts(GLOSSARY))]
    for place, run in enumerate(runs):
        shown += [el("h3", names[place])] if names else []
        shown += [settings_view(run.file), *(el("p", note, class_="note") for note in run.notes)]
    return section("Terms and settings", None, *shown)


def judges_view(lines: Iterable[Line]) -> Html | None:
    """Show what each of several judges was asked, how far it agrees with their mean, and what it cost."""
    totals: dict[str, JudgeTotals] = {}
    for line in lines:
        for name, row in line.get("judges", {}).items():
            totals.setdefault(name, JudgeTotals()).add_line(row)
    if not totals:
        return None
    rows = [
        (
            name,
            number(judge.asks, 0),
            number(judge.unanswered.total(), 0),
            number(judge.unreadable, 0),
            percent(judge.agreement),
            number(judge.billed + judge.output, 0),
            "" if judge.usd is None else dollars(judge.usd),
        )
        for name, judge in totals.items()
    ]
    about = (
        "Agreement is the share of a judge's answers that prefer the same candidate as the mean of all, "
        "over asks that at least two of them answered. The receipt of a case shows what each judge said."
    )
    columns = ("judge", "asks", "unanswered", "unreadable replies", "agreement %", "tokens billed", "cost")
    return section("Judges", about, table(columns, rows, "judges"))


# Groups of cases

MOST_GROUPS = 30


def group_fields(report: RunReport) -> list[str]:
    """The fields that part the cases into some groups."""
    values: dict[str, set[str]] = {}
    for about in report.facts.values():
        for name, value in about.fields.items():
            values.setdefault(name, set()).add(value)
    most = min(MOST_GROUPS, len(report.facts) - 1)
    return [name for name, some in values.items() if 2 <= len(some) <= most]


def groups_view(report: RunReport) -> Html | None:
    """Show accuracy and cost by each field that groups the cases; a group leads to its cases."""
    tables = [
        fold(f"By {name}", _group_table(name, report), open_=place == 0)
        for place, name in enumerate(group_fields(report))
    ]
    about = "A group leads to its cases."
    return section("By group", about, *tables) if tables else None


def _group_table(name: str, report: RunReport) -> Html:
    groups: dict[str, list[Line]] = {}
    for case, line in report.selections.items():
        about = report.facts.get(case)
        if about is not None and name in about.fields:
            groups.setdefault(about.fields[name], []).append(line)
    rows = []
    for group, held in sorted(groups.items()):
        outcomes = Outcomes()
        for line in held:
            outcomes.add(line.get("winner"), report.labels.get(line["id"], ()))
        played = [line for line in held if "winner" in line]
        tokens = sum(line["tokens"]["asked"] for line in played) / (len(played) or 1)
        money = [line["usd"] for line in played if line.get("usd") is not None]
        link = el("a", el("bdi", group), href=group_address(name, group))
        rows.append(
            (
                link,
                number(len(held), 0),
                *(number(count, 0) for count in (outcomes.right, outcomes.missed, outcomes.impossible)),
                percent(outcomes.accuracy),
                percent(outcomes.share(outcomes.possible)),
                percent(outcomes.recovery),
                number(tokens, 0),
                dollars(sum(money)) if money else "–",
            )
        )
    heads = (
        name, "cases", "right", "missed", "impossible", "right %", "ceiling %", "recovery %",
        "tokens read per case", "cost",
    )  # fmt: skip
    return table(heads, rows, f"cases by {name}")


# The table of cases

SEARCHED_CHARACTERS = 4_000_000  # of all problems on a page
LEAST_SEARCHED = 160  # of one problem
FILTERS = (
    "right", "missed", "impossible", "unsure", "misjudged", "against the majority", "rescued", "provisional",
    "unreadable", "failed",
)  # fmt: skip
NOTED = FILTERS.index("misjudged")  # filters from here on are also notes


def run_columns(report: RunReport, *, texts: bool = True) -> list[Column]:
    """The columns of the table; without `texts`, no word of a problem or candidate is in it."""
    words = [
        Column("answer", "words", "the answer of the chosen candidate"),
        Column("problem", "long", "the beginning of the problem"),
    ]
    stated = Column("probability", "share", "how likely the choice is right, as the strategy computes it")
    about = "right, missed (another candidate is right) or impossible (no candidate is), by the labels"
    priced = report.figures.usd is not None
    return [
        CASE,
        Column("result", "mark", about),
        *(words if texts else ()),
        *((stated,) if report.choices.stated else ()),
        Column("votes", "number", "candidates with the chosen answer, of all candidates"),
        Column("answers", "number", "distinct answers among the candidates", "chosen"),
        Column("calls", "number", "questions to the judge", "wide"),
        Column("tokens read", "number", "tokens of all prompts of the case", "wide"),
        *((Column("cost", "money", "dollars for the judge", "wide"),) if priced else ()),
        *(Column(name, "text", f"the field {name} of the case", "chosen") for name in group_fields(report)),
        Column("note", "text", "what else happened; the filters have the same names", "wide"),
    ]


def run_rows(report: RunReport, columns: Sequence[Column], *, start: int = 0) -> list[Row]:
    """Return a row for each case from `start` on."""
    fields = group_fields(report)
    lines = list(enumerate(report.selections.values()))[start:]
    return [_row(index, line, report, columns, fields) for index, line in lines]


def _row(index: int, line: Line, report: RunReport, columns: Sequence[Column], fields: Sequence[str]) -> Row:
    name, shown = line["id"], {column.name for column in columns}
    about, is_failed = report.facts.get(name), "winner" not in line
    outcome = report.outcome(name)
    flags = (
        outcome == "right",
        outcome == "missed",
        outcome == "impossible",
        not is_failed and is_unsure(line),
        name in report.misjudged,
        about is not None and not is_failed and not about.leads,
        not is_failed and line["rescued"] is not None,
        not is_failed and line["provisional"],
        not is_failed and bool(line["malformed"]),
        is_failed,
    )
    searched = max(LEAST_SEARCHED, SEARCHED_CHARACTERS // max(len(report.selections), 1))
    groups = ["" if about is None else about.fields.get(name, "") for name in fields]
    values = {
        "case": name,
        "result": outcome,
        "answer": "" if about is None else about.answer,
        "problem": "" if about is None else about.problem[:searched].strip(),
        "probability": line.get("probability"),
        "votes": None if about is None or is_failed else f"{about.votes} of {about.voters}",
        "answers": line.get("clusters"),
        "calls": None if is_failed else sum(line["calls"].values()),
        "tokens read": None if is_failed else line["tokens"]["asked"],
        "cost": line.get("usd"),
        **dict(zip(fields, groups, strict=True)),
        "note": ", ".join(note for note, flag in zip(FILTERS[NOTED:], flags[NOTED:], strict=True) if flag),
    }
    return make_row(
        columns,
        [values[column.name] for column in columns],
        [index],
        flags=flags,
        words=" ".join(about.others) if about is not None and "answer" in shown else "",
        groups=groups,
    )


# Receipts


def receipts(report: RunReport, *, texts: bool = True) -> Iterator[Html]:
    """Yield the receipt of every case, in the order of the rows."""
    run = report.run
    cases = map(run.with_findings, run.cases())
    gc.freeze()  # the lines of the run stay: the garbage collector need not look at them again and again
    try:
        for line in run.selections.values():
            case = next_case(cases, line["id"]) if line["id"] in report.labels else None
            receipt, exchanges = _receipt(run, line, case, texts=texts)
            yield receipt_view(receipt, exchanges, case if texts else None)
    finally:
        gc.unfreeze()


def next_case(cases: Iterator[Case], name: str) -> Case | None:
    """Advance to the case of that name; selections are in the order of the cases."""
    return next((case for case in cases if case.id == name), None)


def one_receipt(run: RebuiltRun, name: str) -> tuple[Receipt, list[GameExchange], Case | None]:
    """Return the receipt of one case."""
    line = run.selections.get(name)
    if line is None:
        some = ", ".join(map(repr, list(run.selections)[:5])) or "none yet"
        raise InputError(f"{run.path}: no case {name!r} in this run; there are {some}")
    read = next_case(run.cases(), name)
    case = None if read is None else run.with_findings(read)
    return *_receipt(run, line, case, texts=True), case


def case_page(run: RebuiltRun, name: str) -> Page:
    """Create the page of one case, readable without scripts."""
    receipt, exchanges, case = one_receipt(run, name)
    return Page(
        title=f"{name} · caps report",
        figures=[receipt_view(receipt, exchanges, case)],
        after=[terms_view(run)],
        footer=footer(),
        status=f"one case of {run.path.resolve().name}",
        rich=True,
    )


def receipt_line(run: RebuiltRun, name: str) -> dict[str, Any]:
    """Return a receipt as plain data: its result line, and every call with its prompt and replies."""
    receipt, exchanges, _ = one_receipt(run, name)
    row = asdict(receipt)
    games = [
        {
            **{name: value for name, value in game.items() if name != "opinions" or value},
            "prompt": exchange.prompt,
            "exact": exchange.exact,
            "replies": exchange.replies,
        }
        for game, exchange in zip(row.pop("games"), exchanges, strict=True)
    ]
    return {**row.pop("line"), **row, "outcome": receipt.outcome, "missed": receipt.missed, "games": games}


def _receipt(
    run: RebuiltRun, line: dict[str, Any], case: Case | None, *, texts: bool
) -> tuple[Receipt, list[GameExchange]]:
    prepared = None if case is None else run.prepare(case)
    games = games_of(run.calls.get(line["id"], []))
    receipt = receipt_of(run, line, prepared, games)
    if not texts:
        return replace(receipt, names=(), gold=""), []  # a short answer is a text too
    return receipt, list(exchanges_of(run, line["id"], prepared, games))
