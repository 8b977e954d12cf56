"""Wrong words on the command line: one sentence that names what is wrong, exit code 2, and nobody is asked."""

import pytest

from caps.testing import write_cases
from support.shell import caps

MISTAKES = [
    ("plan --strategy cap", ["no strategy is called 'cap'", "did you mean 'caps'"]),
    ("plan --strategy caps --set colour=red", ["no field 'colour'", "finalists"]),
    ("plan --strategy caps --set finalists", ["--set 'finalists'", "name=value"]),
    ("plan --set finalists=3", ["--set needs --strategy"]),
    ("plan --rho 0.01", ["rho = 0.01", "0.059 to 1"]),
    ("plan --pool 0", ["--pool"]),
    ("simulate --judge 75", ["--judge '75'", "60, 70, 80, 90"]),
    ("simulate --set accuracy=1.2", ["accuracy = 1.2", "0.999"]),
    ("simulate --strategies caps,nope", ["no strategy is called 'nope'"]),
    ("simulate --strategies ,", ["--strategies"]),
    ("simulate --kind prose", ["kind = 'prose'", "code, math"]),
    ("simulate --cases nowhere.jsonl", ["nowhere.jsonl", "No such file"]),
    ("simulate --problems 20 --strategies caps --html /nowhere/x.html", ["/nowhere/x.html"]),
    ("list strategies nope", ["no strategy is called 'nope'"]),
    ("frobnicate", ["frobnicate"]),
    ("plan missing.jsonl", ["missing.jsonl: No such file"]),
    ("plan {cases} --set finalists=3", ["--set needs --strategy"]),
    ("plan {cases} --pool 8", ["--pool is for a plan without CASES"]),
    ("plan --limit 3", ["--limit needs CASES"]),
    ("plan {cases} --price-input 1", ["both --price-input and --price-output"]),
    ("score {cases} --set colour=red", ["--set colour: caps list settings has the names"]),
    ("select missing.jsonl", ["missing.jsonl: No such file"]),
    ("select .", [".: holds no file that ends in"]),
    ("select {cases} --strategy nope", ["no strategy is called 'nope'"]),
    ("select {cases} --strategy caps --set finalists=0", ["finalists = 0"]),
    ("select {cases} --set votes=-1", ["votes = -1"]),
    ("select {cases} --budget-usd 1", ["needs a price"]),
    ("select {cases} --view partial=nope", ["nope"]),
    ("select {cases} --view middle=full", ["middle"]),
    ("select {cases} --profile nope", ["nope"]),
    ("select {cases} --confidence maybe", ["--confidence 'maybe'"]),
    ("select {cases} --max-connections 0", ["--max-connections '0'"]),
    ("select {cases} --price-input 1", ["both --price-input and --price-output"]),
    ("select {cases} --extra novalue", ["--extra 'novalue'"]),
    ("select {cases} --prompts nowhere", ["--prompts nowhere"]),
    ("select {cases} --config nowhere.toml", ["--config nowhere.toml"]),
    ("select {cases} --out {cases}/run", ["--out"]),
    ("select {cases} --journal /proc/nowhere/journal", ["/proc/nowhere"]),
    ("serve --config {models}", ["models.toml:3: models.team.generators", "at least one model"]),
    ("import", ["nothing to import"]),
    ("import x --fetch", ["--fetch needs --dataset"]),
    ("import x --format csv", ["unknown format 'csv'"]),
    ("import x --domain maths", ["--domain 'maths'"]),
    ("import --dataset aime-2025", ["give one file or folder of it, or --fetch"]),
    ("import --dataset aime x", ["no dataset is called 'aime': did you mean"]),
    ("import --dataset aime-2025 x --since 2024-01-01", ["have no dates"]),
    ("import --dataset livecodebench-v5 x --since 24.08", ["write a day as"]),
    ("import --dataset json:dumps x", ["not a data set"]),
    ("import missing.jsonl", ["missing.jsonl: No such file"]),
    ("export x --format xls", ["must be one of livecodebench, openai-batch, text, best, csv"]),
    ("export x.jsonl --format preferences", ["needs the folder of a run"]),
    ("export . --format text", ["expected a run folder written with --out"]),
]


@pytest.mark.parametrize(("command", "said"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_a_mistake_is_named_and_exits_2_before_anything_is_asked(
    server, tmp_path, monkeypatch, command, said
):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    models = tmp_path / "models.toml"
    models.write_text('base_url = "http://127.0.0.1:9/v1"\n[models.team]\ngenerators = []\n')
    words = command.format(cases=cases, models=models).split()
    if words[0] == "select":
        words += ["--base-url", server.url, "--model", "stub"]
        words += [] if "--journal" in words else ["--journal", "journal.sqlite"]
    done = caps(*words)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    sentence = " ".join(done.stderr.split())
    for part in said:
        assert part in sentence
    assert not [body for body in server.bodies if "quality=" in body["messages"][0]["content"]]
