"""A terminal obeys nobody but us: no text of candidates, cases, endpoints or file names reaches it as a command."""

import io
import json
import os
import pty
import threading
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.text import printable, printable_json, printable_line
from caps.datasets.case_files import parse_case, write_case
from caps.reports.console import table
from caps.server.telemetry import JsonLog
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins
from support.sandboxing import needs_bubblewrap
from support.shell import caps, json_lines
from support.waiting import PATIENCE

ESCAPES = {
    "colour": "\x1b[31mred",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "clear": "\x1b[2J\x1b[H",
    "c1 csi": "\x9b31mred",
    "c1 osc": "\x9d0;owned\x9c",
    "direction": "abc\u202edcba\u202c",
    "isolate": "\u2066abc\u2069",
    "return": "wrong\rright",
    "backspace": "wrong\b\b\b\b\bright",
    "bell": "\x07",
    "delete": "\x7f",
    "null": "a\x00b",
    "line separator": "a\u2028b\u2029c\x85d",
    "invisible": "a\u200b\u200d\ufeff\U000e0041b",
    "vertical": "a\x0b\x0cb",
}
ALL = "".join(ESCAPES.values())


def is_harmless(text):
    """Whether a terminal would only show this: every character is printable, or ends a line."""
    return all(letter.isprintable() or letter == "\n" for letter in text)


def harmless(*texts):
    for text in texts:
        assert is_harmless(text), [hex(ord(one)) for one in text if not (one.isprintable() or one == "\n")]


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_no_escape_survives_as_text_or_as_json(text):
    harmless(
        printable(text),
        printable_line(f"a\n{text}"),
        printable_json(json.dumps([text], ensure_ascii=False).encode()).decode(),
    )
    assert json.loads(printable_json(json.dumps([text], ensure_ascii=False).encode())) == [text]
    assert "\n" not in printable_line(f"a\n{text}")


@given(st.text())
def test_whatever_is_written_is_shown_harmlessly_and_read_back_the_same(text):
    assert is_harmless(printable(text))
    data = json.dumps({text: [text]}, ensure_ascii=False).encode("utf-8", "replace")
    shown = printable_json(data)
    assert json.loads(shown) == json.loads(data)
    odd = {one for one in shown.decode() if not one.isprintable() and unicodedata.category(one) != "Zs"}
    assert odd <= {"\t", "\n"}


def test_letters_of_all_scripts_and_emoji_stay_as_they_are():
    words = "Ärger, naïve, Ελληνικά, русский, עברית, العربية, 中文, 日本語, हिन्दी, 😀, ∑ ≤ √2\nnext"
    assert printable(words) == words
    assert printable("a\tb\u00a0c\u3000d") == "a    b c d"
    assert (
        printable_json(json.dumps(words, ensure_ascii=False).encode())
        == json.dumps(words, ensure_ascii=False).encode()
    )


def test_cases_are_written_without_raw_controls_and_read_back_the_same():
    case = parse_case(
        json.dumps({"id": ALL, "problem": ALL, "candidates": [ALL, {"text": ALL, "answer": ALL}]}),
        default_id="",
    )
    line = write_case(case)
    harmless(line.decode())
    assert parse_case(line, default_id="") == case


def test_a_table_shows_no_escape_in_any_cell_column_or_title():
    from rich.console import Console  # noqa: PLC0415

    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, width=2_000, record=True)
        console.print(table(ALL, (ALL, "x"), [(ALL, "1")]))
    harmless(console.export_text())


# Commands


@pytest.fixture
def cases(tmp_path):
    """Math and code whose every text is hostile."""
    path = tmp_path / "cases.jsonl"
    code = f"```python\ndef f(x):\n    raise ValueError({ALL!r})\n```"
    loud = f"```python\nimport sys\nsys.stderr.write({ALL!r})\nprint({ALL!r})\n```"
    rows = [
        {"id": ALL, "domain": "math", "problem": ALL, "answer": "2", "candidates": [f"quality=0.9 \\boxed{{{ALL}}}", f"{ALL} quality=0.1 \\boxed{{2}}"]},
        {"id": "code", "domain": "code", "problem": f"quality {ALL}", "tests": {"hidden": [{"input": "1", "output": ALL}]}, "candidates": [f"quality=0.2 {code}", f"quality=0.3 {loud}"]},
        {"id": f"bad {ALL}", "domain": ALL, "problem": "?", "candidates": ["x"]},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def server():
    def answer(body, number):
        prompt = body["messages"][-1]["content"]
        asked = "winner" in prompt or "rating" in prompt
        return better_quality_wins(body) if asked else Reply(f"code {ALL} \\boxed{{{ALL}}}")

    with ScriptedEndpoint(answer, models=("stub", f"evil{ALL}")) as running:
        yield running


@needs_bubblewrap
def test_caps_grade_prints_nothing_a_terminal_would_obey(cases):
    done = caps("grade", cases, "--no-journal", "--explain")
    assert done.returncode == 1
    harmless(done.stdout, done.stderr)
    first, _ = json_lines(done)
    assert first["id"] == ALL
    assert first["candidates"][1]["text"].startswith(ALL)


def test_no_command_prints_what_a_terminal_would_obey(cases, server, tmp_path):
    where = ("--base-url", server.url, "--model", "stub", "--no-journal")
    run = tmp_path / "run"
    commands = [
        ("select", cases, *where, "--out", run, "--bracket"),
        ("select", cases, *where, "--dry-run"),
        ("export", run, "--format", "preferences"),
        ("export", cases, "--format", "livecodebench"),
        ("import", cases),
        ("sample", cases, "-n", 2, *where),
        ("sample", cases, "--dry-run"),
        ("sample", cases, "--dry-run", "--json"),
        ("plan", cases),
        ("report", run, "--case", ALL, "--json"),
        ("report", run, "--case", f"none {ALL}"),
        ("diagnose", cases, "--simulate", 80, "--contests", 5),
        ("simulate", "--cases", cases),
        ("list", "models", "--base-url", server.url),
        ("list", "models", "--base-url", server.url, "--json"),
    ]
    for words in commands:
        done = caps(*(word.replace("\x00", "") if isinstance(word, str) else word for word in words))
        assert done.stdout + done.stderr, words
        assert "Traceback" not in done.stderr, words
        assert is_harmless(done.stdout), words
        assert is_harmless(done.stderr), words


@pytest.mark.parametrize("status", [200, 400, 401, 404, 500])
def test_what_an_endpoint_says_is_printed_harmlessly(status, tmp_path):
    behaviour = (
        Reply(f"{ALL} \\boxed{{1}} {ALL}")
        if status == 200
        else Status(status, {"error": {"message": ALL, "type": ALL}})
    )
    with ScriptedEndpoint([behaviour] * 40, models=(f"m{ALL}",)) as server:
        where = ("--base-url", server.url, "--model", "stub", "--no-journal", "--timeout", 1)
        for words in (
            ("solve", "?", "-n", 2, *where, "--json"),
            ("list", "models", "--base-url", server.url),
        ):
            done = caps(*words)
            assert "Traceback" not in done.stderr
            harmless(done.stdout, done.stderr)


def test_the_log_of_a_server_is_printed_harmlessly():
    said = io.StringIO()
    log = JsonLog(prompts=True, file=said)
    log.write(f"event {ALL}", path=ALL)
    log.write_content("run", prompt=ALL)
    harmless(said.getvalue())
    first, second = map(json.loads, said.getvalue().splitlines())
    assert (first["path"], second["prompt"]) == (ALL, ALL)


def test_names_of_files_and_words_of_the_command_line_are_printed_harmlessly(tmp_path):
    name = ALL.replace("\x00", "").replace("/", "")
    good = tmp_path / f"{name[:60]}.jsonl"
    good.write_text('{"problem": "?", "answer": "1", "candidates": ["\\\\boxed{1}"]}\nnot json\n')
    for words in (
        ("grade", good, "--no-journal"),
        ("grade", tmp_path / name[:60], "--no-journal"),
        ("grade", good, "--no-journal", "-o", tmp_path / name[:60] / "x"),
        ("import", good, "-o", tmp_path / f"out{name[:60]}"),
        ("select", good, "--strategy", name),
        ("select", good, "--set", name),
        ("select", good, f"--{name}"),
        ("select", good, "--limit", name),
        (name,),
        ("journal", "stats", "--journal", tmp_path / name[:60]),
        ("bench", tmp_path / name[:60]),
        ("report", tmp_path / name[:60]),
        ("list", name),
    ):
        done = caps(*words)
        assert "Traceback" not in done.stderr, words
        assert done.stderr, words
        harmless(done.stderr)


def on_a_terminal(*words):
    """What a command writes to a terminal that is its standard output."""
    ours, theirs = pty.openpty()
    heard = []

    def listen():
        with suppress(OSError):  # the terminal is gone
            while chunk := os.read(ours, 65536):
                heard.append(chunk)

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    with os.fdopen(theirs, "wb") as terminal:
        done = caps(*words, stdout=terminal, TERM="xterm", COLUMNS="200")
    reader.join(PATIENCE)
    os.close(ours)
    assert "Traceback" not in done.stderr
    return b"".join(heard).decode()


SAFE_STYLES = (
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\r",
)  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [pytest.param("grade", marks=needs_bubblewrap), "text", "import", "select", "solve", "report"],
)
def test_on_a_real_terminal_only_our_own_styles_are_sent(cases, server, tmp_path, command):
    where = ("--base-url", server.url, "--model", "stub", "--no-journal", "--quiet")
    odd = tmp_path / f"code {ESCAPES['colour']}{ESCAPES['direction']}"
    if command == "report":
        assert caps("select", cases, *where, "--out", odd).returncode == 1
    words = {
        "grade": ("grade", cases, "--no-journal", "--explain", "--quiet"),
        "text": ("export", cases, "--format", "text"),
        "import": ("import", cases),
        "select": ("select", cases, *where),
        "solve": ("solve", f"code {ALL.replace(chr(0), '')}", "-n", 2, *where),
        "report": ("report", odd),
    }[command]
    said = on_a_terminal(*words)
    assert "code" in said
    for style in SAFE_STYLES:
        said = said.replace(style, "")
    harmless(said.replace("\t", ""))
