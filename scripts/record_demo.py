"""Record what `caps demo` replays: answers that a model wrote to our problems, and its verdicts on them.

    python scripts/record_demo.py WEIGHTS.gguf FOLDER

Every problem with both right and wrong answers is kept, whatever the verdicts are. The judge compares one
answer of each group of equal answers with one of each other group, in both orders, at full view, and reasons
for one line. Its verdict stands for all members of the two groups; members of one group are recorded as a
tie. FOLDER keeps the journals with the raw replies, so a second run continues where the first one stopped.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import ClassVar
from urllib.request import Request, urlopen

import caps
from caps.core.types import Ask, Case, Level, Pairing, Usage, Verdict
from caps.datasets.case_files import read_cases, write_case
from caps.datasets.verdicts import Answers, Recorded, read_records, text_digest, write_recorded
from caps.models.embedded import LlamaServer

PROBLEMS = Path(__file__).with_name("demo_problems.jsonl")
SHIPPED = Path(__file__).parents[1] / "src" / "caps" / "cli" / "demo_data"
JUDGE = "Qwen2.5-Coder-1.5B-Instruct"
SAMPLES = 8
MODEL_OPTIONS = ("--set", "threads=2", "--max-connections", 6)
#: A verdict behind at most 240 characters of reasoning: this model would not be brief otherwise.
BRIEF = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "reasoning": {"type": "string", "maxLength": 240},
                "winner": {"type": "string", "enum": ["A", "B", "TIE"]},
                "confidence": {"type": "string", "enum": ["HIGH", "LOW"]},
                "code": {"type": "string", "maxLength": 8},
            },
            "required": ["reasoning", "winner", "confidence", "code"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True, slots=True)
class EveryPair:
    """Compares one candidate of each group of equal answers with one of each other group, in both orders."""

    capabilities: ClassVar = caps.Capabilities(asks=("pair",))

    def play(self, entrants: Sequence[caps.Entrant], rng: Random) -> caps.Play[caps.Selection]:  # noqa: ARG002
        """One round with all pairs. The scores name the groups: minus the first member of the candidate's."""
        first: dict[str, int] = {}
        scores = {
            entrant.id: -float(first.setdefault(entrant.signature or f"#{entrant.id}", entrant.id))
            for entrant in entrants
        }
        order = tuple(sorted(scores, key=lambda place: (-scores[place], place)))
        pairs = [Pairing(a, b, caps.Level.FULL) for a, b in permutations(first.values(), 2)]
        if pairs:
            yield from caps.compare("every pair", pairs, ranking=order)
        return caps.Selection(order[0], order, scores=scores)


def run_caps(*words: object) -> None:
    """Run a command of caps in this folder, where it finds the strategy."""
    here = Path(__file__).parent
    subprocess.run([sys.executable, "-m", "caps", *map(str, words)], check=True, cwd=here)  # noqa: S603


def mixed_cases(path: Path) -> list[Case]:
    """The graded cases that have both right and wrong answers."""
    cases = [case for case in read_cases(str(path)) if isinstance(case, Case)]
    return [case for case in cases if {candidate.correct for candidate in case.candidates} >= {True, False}]


def token_counts(weights: str, texts: Sequence[str]) -> dict[str, int]:
    """How many tokens of the model each text has."""
    counts = {}
    with LlamaServer(Path(weights)) as server:
        for text in texts:
            body = json.dumps({"content": text}).encode()
            url = server.url.removesuffix("/v1") + "/tokenize"
            with urlopen(Request(url, body, {"Content-Type": "application/json"})) as reply:  # noqa: S310
                counts[text] = len(json.load(reply)["tokens"])
    return counts


def spread(
    case: Case, group: Sequence[int], verdicts: Mapping[Ask, Recorded], tokens: Mapping[str, int]
) -> Iterator[Recorded]:
    """The verdict on every ordered pair of a case, from those on the first members of its groups.

    The prompt of a pair has the tokens of the pair that was judged, with its own texts in place of those.
    """
    sizes = [tokens[candidate.text] for candidate in case.candidates]
    (some_ask, some), *_ = verdicts.items()
    for a, b in permutations(range(len(case.candidates)), 2):
        ask = Pairing(a, b, Level.FULL)
        judged_ask = Pairing(group[a], group[b], Level.FULL)
        judged = verdicts.get(judged_ask)
        shown = judged_ask if judged else some_ask
        usage = (judged or some).usage or Usage(0, 0)
        prompt = usage.prompt + sizes[a] + sizes[b] - sum(sizes[place] for place in shown.entrants)
        texts = tuple(text_digest(case.candidates[place].text) for place in (a, b))
        answer = judged.answer if judged else Verdict(5.5, 5.5)  # members of one group are equal
        cause = judged.cause if judged else None
        yield Recorded(
            case.id, JUDGE, ask, answer, texts=texts, usage=Usage(prompt, usage.output), cause=cause
        )


def report(cases: Sequence[Case], groups: Mapping[str, Sequence[int]], judged: Answers) -> None:
    """Print how often the judge chose each slot, and the right one of a right and a wrong answer."""
    slots: Counter[str] = Counter()
    right = mixed = 0
    for case in cases:
        labels = [candidate.correct for candidate in case.candidates]
        for ask, record in judged[case.id].items():
            if not isinstance(ask, Pairing) or not isinstance(record.answer, Verdict):
                continue
            ahead = record.answer.a - record.answer.b
            slots["unread" if record.cause else "tie" if not ahead else "A" if ahead > 0 else "B"] += 1
            if labels[ask.a] != labels[ask.b]:
                mixed += 1
                right += (ahead > 0) is labels[ask.a] and ahead != 0
        group_labels = {(group, label) for group, label in zip(groups[case.id], labels, strict=True)}
        print(f"{case.id}: {len(group_labels)} groups with {sum(map(bool, labels))} of {len(labels)} right")
    print(f"verdicts: {dict(slots)}; for the right one in {right} of {mixed} mixed pairs")


def main(weights: str, folder: Path) -> None:
    """Sample, grade, compare, and write the shipped files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn, graded, mixed = (folder / f"{name}.jsonl" for name in ("drawn", "graded", "mixed"))
    run_caps(
        "sample", PROBLEMS, "-n", SAMPLES, "--preset", "small", "--set", "temperature_math=0.7",
        "--set", "temperature_code=0.8", "--set", "max_tokens=400", "--model", weights,
        "--context-tokens", 1024, *MODEL_OPTIONS, "--journal", folder / "sample.sqlite", "-o", drawn,
    )  # fmt: skip
    run_caps("grade", drawn, "-o", graded, "--no-journal")
    cases = mixed_cases(graded)
    mixed.write_bytes(b"".join(write_case(case) + b"\n" for case in cases))
    run_caps(
        "select", mixed, "--strategy", "py:record_demo:EveryPair", "--model", weights,
        "--prompts", "demo_prompts", "--extra", f"response_format={json.dumps(BRIEF)}", "--max-tokens", 300,
        "--context-tokens", 2048, *MODEL_OPTIONS, "--journal", folder / "judge.sqlite",
        "--out", folder / "run",
    )  # fmt: skip
    verdicts = folder / "verdicts.jsonl"
    run_caps("export", folder / "run", "--verdicts", "--judge-name", JUDGE, "-o", verdicts)
    _, judged = read_records(str(verdicts)).of(JUDGE)
    lines = [json.loads(line) for line in (folder / "run" / "selections.jsonl").read_text().splitlines()]
    groups = {line["id"]: [-round(score) for score in line["scores"]] for line in lines}
    tokens = token_counts(weights, [candidate.text for case in cases for candidate in case.candidates])
    records = [record for case in cases for record in spread(case, groups[case.id], judged[case.id], tokens)]
    SHIPPED.mkdir(exist_ok=True)
    (SHIPPED / "cases.jsonl").write_bytes(mixed.read_bytes())
    (SHIPPED / "verdicts.jsonl").write_bytes(b"".join(map(write_recorded, records)))
    report(cases, groups, judged)


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve())
