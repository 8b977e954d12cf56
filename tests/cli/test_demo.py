import re

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins
from shell import caps


def longer_wins(body, number=0):
    prompt = body["messages"][0]["content"]
    if "<winner>" not in prompt:
        return better_quality_wins(body)
    shown = re.findall(r"<<<BEGIN CANDIDATE [AB] \w+>>>\n(.*?)\n<<<END", prompt, re.S)
    return Reply(
        f"<winner>{'A' if len(shown[0]) > len(shown[1]) else 'B'}</winner>\n<confidence>HIGH</confidence>"
    )


def test_the_tour_plans_plays_draws_and_tells_and_the_second_time_asks_nothing(tmp_path):
    with ScriptedEndpoint(longer_wins) as server:
        words = ("demo", "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "j.sqlite")
        first = caps(*words)
        assert first.returncode == 0, first.stderr
        asked = server.requests
        assert 10 <= asked <= 60
        second = caps(*words)
        assert server.requests == asked
    for said in (
        "which one is right?",
        "v1-infer",
        "├─",
        "What was chosen",
        "of what V1-Infer would read",
        "caps select",
    ):
        assert said in first.stdout
    assert re.search(r"preferred the right one in \d+ of \d+ comparisons?", first.stdout)
    assert "all of them from the journal" in second.stdout
    assert "no judge to rely on" not in first.stdout


def test_without_network_and_weights_one_sentence_says_so(tmp_path):
    done = caps(
        "demo",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PIP_NO_INDEX="1",
        HOME=str(tmp_path),
        PIP_NO_CACHE_DIR="1",
    )
    assert done.returncode == 2
    assert "is there a network?" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
