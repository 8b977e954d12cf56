"""Compare every published figure of the CAPS paper with the study files, from your copy of its TeX source.

    python scripts/check_published.py PAPER.tex

Prints a line for each table, and every cell that the studies lack or have otherwise; then it ends with 1.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from caps.studies.reproduction import STUDIES, load_paper

Key = tuple[str, str, str]  # table, row, column
Place = Callable[[str, int], Key]

MODELS = ("Qwen3-14B", "Qwen3-4B-Instruct", "Qwen3-4B-Thinking", "GPT-OSS-20B")
SHORT = {"AIME": "AIME 2025", "HMMT": "HMMT 2025", "CC": "CodeContests"}
ABLATIONS = ("Full CAPS", "no rescue", "no Stage 0", "all at E2", "no confidence weights", "random pairing")


def rows_of(tex: str, label: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of a table with figures: its first cells as a name, and the figures as they stand."""
    body = tex.split(rf"\label{{tab:{label}}}", 1)[1].split(r"\end{tabular}", 1)[0].split(r"\midrule", 1)[1]
    model = ""
    for line in body.split(r"\\"):
        cells = [_plain(cell) for cell in line.split("&")]
        figures = [cell for cell in cells if re.fullmatch(r"[+-]?\d+\.\d+%?|100%|---", cell)]
        if not figures:
            continue
        names = [cell for cell in cells[: len(cells) - len(figures)] if cell]
        if "multirow" in line:
            model = names[0]
        elif len(names) == 1 and model and names[0] not in ("Average (20 suites)",):
            names = [model, *names]
        yield " ".join(SHORT.get(name, name) for name in names), figures


def _plain(cell: str) -> str:
    """The text of a cell, without the commands around it."""
    text = re.sub(r"\\(?:midrule|bottomrule|toprule)", "", cell)
    text = re.sub(r"\\multirow\{[^}]*\}\{[^}]*\}|\\multicolumn\{[^}]*\}\{[^}]*\}", "", text)
    text = re.sub(r"\\phantom\{[^}]*\}", "", text)
    text = re.sub(r"\\(?:mathbf|textbf|emph)\{([^{}]*)\}", r"\1", text)
    text = text.replace(r"\%", "%").replace("~", " ")
    return re.sub(r"[${}]", "", text).strip()


def by_head(table: str, heads: Sequence[str], prefix: str = "") -> Place:
    """Where figures are whose columns have these names."""
    return lambda row, place: (table, f"{prefix}{row}", heads[place])


def scaling(heads: Sequence[str]) -> Place:
    """Where the figures of the scaling tables are; predicted ones stand in a table of their own."""

    def find(row: str, place: int) -> Key:
        table = "scaling-core" if "Eq. 6" in heads[place] else "scaling"
        return table, f"N = {row}", heads[place]

    return find


def ablation(suites: Sequence[str]) -> Place:
    """Where Pass@1 and its difference to full CAPS are."""

    def find(row: str, place: int) -> Key:
        marks = ("Full", "Rescue", "Stage 0", "E1 cascade", "Confidence", "Slaughter")
        method = next(name for mark, name in zip(marks, ABLATIONS, strict=True) if mark in row)
        return ("ablation", "ablation-gain")[place % 2], method, suites[place // 2]

    return find


MAIN = ("Vanilla", "Pointwise", "V1-Infer", "CAPS")
RANDOM = ("Vanilla", "Random", "V1-Infer", "CAPS")
ACCURACY = ("V1-Infer accuracy", "CAPS accuracy", "CAPS accuracy Δ")
BENCHMARKS = ("LCB-v6", "CodeContests")
RATES = ("V1-Infer Pass@1", "CAPS Pass@1", "CAPS Δ")
THINKING = {"V1": "V1-Infer", "default": "CAPS, first 20 lines", "thinking-aware": "CAPS, thinking-aware"}


def thinking(row: str, place: int) -> Key:
    """Where the figures of other partial views are."""
    name = next(name for mark, name in THINKING.items() if mark in row)
    return "thinking", name, ("Pass@1", "tokens (M)", "T%")[place]


TABLES: dict[str, Place] = {
    "main": by_head("main", MAIN),
    "verif-acc-main": by_head("pair-accuracy", ACCURACY),
    "difficulty": by_head("difficulty", ("easy", "medium", "hard", "overall")),
    "random-main": by_head("random", RANDOM),
    "scaling-n-main": scaling((*RATES, "CAPS T%", "CAPS-Core T% (Eq. 6)")),
    "ablation": ablation([f"Qwen3-14B {name}" for name in BENCHMARKS]),
    "random": by_head("random", RANDOM),
    "oracle": by_head("oracle", ("Pass@1", "Pass@N", "headroom", "one label")),
    "verif-acc": by_head("pair-accuracy", ACCURACY),
    "thinking-phi1": thinking,
    "scaling-n": scaling((*RATES, "V1-Infer tokens (M)", "CAPS tokens (M)", "CAPS T%")),
    "ablation-extended": ablation([f"{model} {name}" for model in MODELS for name in BENCHMARKS]),
}


def main() -> None:
    """Compare, and print what differs."""
    tex = Path(sys.argv[1]).read_text()
    ours = {
        (table.name, row, head): value
        for study in load_paper(STUDIES)
        for table in study.tables
        for row, cells in table.published.items()
        for head, value in cells.items()
    }
    checked = wrong = 0
    for label, place_of in TABLES.items():
        count = bad = 0
        for row, figures in rows_of(tex, label):
            name = "Average" if row.startswith("Average") else row
            for place, text in enumerate(figures):
                if text == "---":
                    continue
                count += 1
                key, value = place_of(name, place), float(text.rstrip("%"))
                if ours.get(key) != value:
                    bad += 1
                    print(f"{label}: {' / '.join(key)}: paper {value}, studies {ours.get(key, 'nothing')}")
        print(f"{label}: {count - bad} of {count} cells agree")
        checked, wrong = checked + count, wrong + bad
    print(f"all: {checked - wrong} of {checked} cells agree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
