"""Write docs/reference/odd-files.md: small files with unusual or wrong fields, and how caps reads each."""

import json
import sys
import tempfile
from pathlib import Path

from caps.core.errors import CapsError, InputError
from caps.core.text import plural
from caps.datasets.imports import open_cases

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "odd-files.md"
TOP = """# How unusual files are read

What caps reads from 50 small files, or why it refuses them. Written by `scripts/odd_files.py` from the program; do
not edit.
`↵` is a line break. The rules are in
[other tools' candidates](../howto/import-export.md#candidates-you-already-have).

| | file | `--map` | what was read, or the error |
|---|---|---|---|
"""
CHAT = [{"role": "user", "content": "2+2?"}]


def rows(*lines: object) -> str:
    """The text of a file of JSON lines."""
    return "".join(json.dumps(line) + "\n" for line in lines)


#: Name, text and `--map` of each file.
FILES: tuple[tuple[str, str, str], ...] = (
    ("a.jsonl", rows({"problem": "2+2?", "candidates": ["4", "5"]}), ""),
    ("a.jsonl", rows({"prompt": "2+2?", "responses": ["4", "5"]}), ""),
    ("a.jsonl", rows({"question": "2+2?", "completions": ["4", "5"]}), ""),
    ("a.jsonl", rows({"instruction": "2+2?", "outputs": ["4", "5"]}), ""),
    ("a.jsonl", rows({"query": "2+2?", "generations": [{"generated_text": "4"}]}), ""),
    ("a.jsonl", rows({"input": "2+2?", "answers": ["4", "5"]}), ""),
    ("a.jsonl", rows({"messages": CHAT, "choices": [{"message": {"role": "assistant", "content": "4"}}]}), ""),
    ("a.jsonl", rows({"request": {"messages": CHAT}, "response": {"choices": [{"message": {"content": "4"}}]}}), ""),
    ("a.jsonl", rows({"prompt": "2+2?", "response_1": "4", "response_2": "5", "response_10": "6"}), ""),
    ("a.jsonl", rows({"task_id": "t", "prompt": "2+2?", "output": "4"}, {"task_id": "t", "prompt": "2+2?", "output": "5"}), ""),
    ("a.jsonl", rows({"prompt": "2+2?", "completion": "4"}, {"prompt": "2+2?", "completion": "5"}, {"prompt": "3?", "completion": "3"}), ""),
    ("a.json", json.dumps([{"question": "2+2?", "samples": ["4", "5"]}]), ""),
    ("a.json", json.dumps({"question": "2+2?", "samples": ["4", "5"]}), ""),
    ("a.csv", 'prompt,responses\n2+2?,"[""4"", ""5""]"\n', ""),
    ("a.csv", "question,response_1,response_2\n2+2?,4,5\n", ""),
    ("a.csv", "task,left,right\n2+2?,4,5\n", "problem=task,candidates=left+right"),
    ("a.tsv", "prompt\tresponse\n2+2?\t4\n2+2?\t5\n", ""),
    ("a.csv", "prompt;response\n2+2?;4\n", ""),
    ("a.csv", "prompt,response\n", ""),
    ("a.csv", "prompt,response\n2+2?,4,5\n", ""),
    ("a.jsonl", rows({"prompt": "2+2?", "question": "2+2?", "outputs": ["4"]}), ""),
    ("a.jsonl", rows({"prompt": "a", "question": "b", "outputs": ["4"]}), ""),
    ("a.jsonl", rows({"prompt": "a", "question": "b", "outputs": ["4"]}), "problem=prompt+question"),
    ("a.jsonl", rows({"prompt": "a", "outputs": ["4"], "answers": ["5"]}), ""),
    ("a.jsonl", rows({"prompt": "a", "response": "4", "completion": "5"}), ""),
    ("a.jsonl", rows({"promt": "a", "outputs": ["4"]}), ""),
    ("a.jsonl", rows({"prompt": "a", "respones": ["4"]}), ""),
    ("a.jsonl", rows({"Prompt": "a", "Responses": ["4"]}), ""),
    ("a.jsonl", rows({"question": "a", "answer": "4"}), ""),
    ("a.jsonl", rows({"question": "a", "answer": "4"}), "candidate=answer"),
    ("a.jsonl", rows({"x": 1, "y": 2}), ""),
    ("a.jsonl", rows({}), ""),
    ("a.jsonl", rows({"prompt": "a", "outputs": ["4"]}), "candidates=output"),
    ("a.jsonl", rows({"prompt": "a", "outputs": ["4"]}), "answers=outputs"),
    ("a.jsonl", rows({"prompt": "a", "outputs": ["4"]}), "outputs"),
    ("a.jsonl", rows({"prompt": "a", "outputs": []}), ""),
    ("a.jsonl", rows({"prompt": "a", "outputs": "4"}), "candidates=outputs"),
    ("a.jsonl", rows({"prompt": "a", "outputs": [3]}), ""),
    ("a.jsonl", rows({"prompt": "a", "outputs": [None, "4"]}), ""),
    ("a.jsonl", rows({"prompt": "", "outputs": ["4"]}), ""),
    ("a.jsonl", rows({"prompt": 3, "outputs": ["4"]}), ""),
    ("a.jsonl", rows({"prompt": {"text": "2+2?"}, "outputs": [{"body": "4"}]}), "problem=prompt.text,candidates.text=body"),
    ("a.jsonl", rows({"problem": "a", "candidates": ["4"], "domain": "mth"}), ""),
    ("a.jsonl", rows({"id": "x", "problem": "a", "candidates": ["4"]}, {"id": "x", "problem": "b", "candidates": ["5"]}), ""),
    ("a.jsonl", rows({"prompt": "a", "outputs": ["4"]}, {"prompt": "b"}, {"prompt": "c", "outputs": ["5"]}), ""),
    ("a.jsonl", '{"prompt": "a", "outputs": ["4"]}\n{"prompt": "b", "outp\n', ""),
    ("a.jsonl", "2+2?\n3+3?\n", ""),
    ("a.jsonl", "[1, 2, 3]\n", ""),
    ("a.jsonl", "", ""),
    ("a.json", "[]", ""),
)  # fmt: skip


def reading(name: str, text: str, fields: str, folder: Path) -> str:
    """What caps reads from a file, or its error."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    messages: list[str] = []
    try:
        results = list(open_cases(str(path), fields=fields, say=messages.append))
    except CapsError as error:
        return f"refused: {error}".replace(str(path), name)
    cases = [result for result in results if not isinstance(result, InputError)]
    texts = [
        f"{plural(len(cases), 'case')}, {plural(sum(len(case.candidates) for case in cases), 'candidate')}"
    ]
    texts += [f"left out: {result}" for result in results if isinstance(result, InputError)]
    return "; ".join([*messages, *texts]).replace(str(path), name)


def page() -> str:
    """The whole page."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text, fields) in enumerate(FILES, start=1):
            shown = text.rstrip("\n").replace("\n", "↵").replace("\t", "→") or "(empty)"
            cells = [
                f"`{name}`: `{shown}`",
                f"`{fields}`" if fields else "",
                reading(name, text, fields, Path(folder)),
            ]
            lines.append(f"| {number} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return TOP + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{len(FILES)} files", file=sys.stderr)
