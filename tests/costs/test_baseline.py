"""The V1-Infer baseline: every place states the same one, and V1-Infer really reads it."""

import json
from dataclasses import replace

import pytest

from caps.cli.report import open_run
from caps.reports.report import load_report
from caps.testing import ScriptedEndpoint, better_quality_wins, spread
from support.shell import caps, caps_json


def dense(body, number):
    """A server that counts three characters a token."""
    prompt = sum(len(message["content"]) for message in body["messages"])
    return replace(
        better_quality_wins(body, number), usage={"prompt_tokens": prompt // 3, "completion_tokens": 9}
    )


def mixed_pools(path):
    """Long and short cases together, of many and few candidates, and a case about which nobody disagrees."""
    shapes = {"short": (16, 1), "long": (5, 900), "middling": (9, 100), "few": (2, 400), "many": (24, 3)}
    rows = []
    for start, (name, (count, words)) in enumerate(shapes.items()):
        candidates = [
            {"text": f"{'So it goes on. ' * (words + place)} quality={quality} \\boxed{{{place}}}"}
            for place, quality in enumerate(spread(count, start))
        ]
        rows.append({"id": name, "candidates": candidates})
    rows.append({"id": "alike", "candidates": [{"text": f"{word}: \\boxed{{7}}"} for word in ("So", "Thus")]})
    path.write_text(
        "".join(json.dumps({"domain": "math", "problem": "Which?", **row}) + "\n" for row in rows)
    )
    return path


def selected(tmp_path, cases, strategy):
    out = tmp_path / strategy
    with ScriptedEndpoint(dense) as server:
        done = caps(
            "select", cases, "--strategy", strategy, "--base-url", server.url, "--model", "stub", "--no-journal",
            "--out", out,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((out / "run.json").read_text())["summary"], out


@pytest.mark.parametrize("strategy", ["caps-r", "pointwise", "posterior", "knockout"])
def test_the_stated_baseline_is_what_v1_infer_reads_of_long_and_short_cases(tmp_path, strategy):
    cases = mixed_pools(tmp_path / "cases.jsonl")
    really = selected(tmp_path, cases, "v1-infer")[0]["tokens"]["asked"]
    summary, out = selected(tmp_path, cases, strategy)
    stated = summary["tokens"]["asked"] / summary["token_share_of_v1_infer"]
    assert stated == pytest.approx(really, rel=0.01)
    with open_run(out) as run:
        figures = load_report(run).figures
        assert figures.baseline.tokens == pytest.approx(stated, rel=1e-4)
    (planned,) = caps_json("plan", cases, "--strategy", strategy)  # 4 characters per token; the server has 3
    assert planned["tokens"]["mean"] / planned["token_share"] * 4 / 3 == pytest.approx(really, rel=0.01)


def test_v1_infer_itself_reads_all_of_its_baseline(tmp_path):
    summary, _ = selected(tmp_path, mixed_pools(tmp_path / "cases.jsonl"), "v1-infer")
    assert summary["token_share_of_v1_infer"] == pytest.approx(1, rel=0.01)
