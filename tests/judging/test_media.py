"""Images and documents: shown to judges that see, refused for others, known to keys, views and pages."""

import base64
import json

import pytest

from caps import Level, Pairing, select_sync
from caps.core.errors import CapsError, InputError
from caps.datasets.case_files import case_row, parse_case, read_cases
from caps.journal.records import request_key
from caps.judging.llm import JudgingModel, LlmJudge
from caps.models.base import estimate_prompt
from caps.models.probing import BLUE
from caps.models.scripted import ScriptedModel
from caps.models.wire import encode_body
from caps.prompts.render import ask_for_answer
from caps.server.requests import chat_problem
from caps.session.parts import load_templates, make_prepare
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins
from support.shell import caps

PNG = base64.b64decode(BLUE.partition(",")[2])
PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.7 four").decode()
PAIR = Pairing(0, 1, Level.FULL)


def image(url: str = BLUE, **more: str) -> dict:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def words(text: str) -> dict:
    return {"type": "text", "text": text}


def row_of(url: str = BLUE, **more: object) -> dict:
    candidates = ["quality=0.3 A square.", {"content": [words("quality=0.9 As drawn:"), image(url)]}]
    return {"id": "1", "domain": "general", "problem": [words("What is it?"), image(url, detail="low")]} | {
        "candidates": candidates, **more
    }  # fmt: skip


def request_of(case, ask=PAIR):
    judging_model = JudgingModel(ScriptedModel([]), "m")
    return LlmJudge(judging_model, load_templates()).request(make_prepare()(case), ask)


def case_of(row):
    return parse_case(json.dumps(row), default_id="1")


def test_a_judge_is_sent_each_image_right_after_the_text_it_belongs_to():
    case = case_of(row_of())
    body = json.loads(encode_body(request_of(case)))
    parts = body["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text", "image_url", "text"]
    nonce = make_prepare()(case).nonce
    assert parts[0]["text"].endswith(
        f"<<<END PROBLEM {nonce}>>>\n<<<image {case.problem.media[0].digest[:12]} {nonce}>>>"
    )
    assert "<<<BEGIN CANDIDATE A" in parts[2]["text"]
    assert f"<<<END CANDIDATE B {nonce}>>>\n<<<image" in parts[2]["text"]
    assert parts[1]["image_url"] == {"url": BLUE, "detail": "low"}
    assert "base64" not in "".join(part.get("text", "") for part in parts)


def test_cases_with_images_and_documents_are_written_as_they_were_read():
    document = {"type": "file", "file": {"filename": "a paper.pdf", "file_data": PDF}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [document, words("Sum up.")]},
    ]
    case = case_of(row_of() | {"problem": messages})
    again = case_of(case_row(case))
    assert again == case
    assert case_row(case)["problem"] == messages
    assert "[file " in case.problem.text
    assert ": a paper.pdf]" in case.problem.text


def test_another_image_is_another_prompt_another_answer_and_another_key():
    other = "data:image/png;base64," + base64.b64encode(PNG + b"more").decode()
    one, two = case_of(row_of()), case_of(row_of(other))
    signatures = [make_prepare()(case).evidence.entrants[1].signature for case in (one, two)]
    assert signatures[0] != signatures[1]
    assert request_key(request_of(one)) != request_key(request_of(two))
    plain, seen = case_of({**row_of(), "problem": "What is it?"}), make_prepare()(one)
    assert seen.statement > 1000 > make_prepare()(plain).statement
    assert seen.evidence.entrants[1].sizes[2] > 1000 > seen.evidence.entrants[0].sizes[2]
    assert estimate_prompt(request_of(one).messages) > 2000


def test_the_model_that_answers_is_shown_the_images_of_the_problem_too():
    case = case_of(row_of())
    (question,) = ask_for_answer("Please solve this.\n{problem}\nThink.", case.problem)
    (media,) = question.media
    assert question.content[: media.at].endswith(media.label)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            image("photo.png"),
            r"problem\[0\].image_url: 'photo.png': a local file may be named only in a case file",
        ),
        (image("file:///etc/passwd"), "must be a data: address with base64, or an https: address"),
        (image("http://10.0.0.1/x.png"), "must be a data: address with base64, or an https: address"),
        (image("data:text/html;base64,AAAA"), "'text/html': must be one of image/png"),
        (image("data:image/png;base64,%%%"), "is not base64"),
        (image("data:image/png;base64," + "A" * (28 << 20)), "22,020,096 bytes; at most 20,971,520"),
        ({"type": "input_audio", "input_audio": {}}, "must be a part of type text, image_url or file"),
        ({"type": "file", "file": {"file_id": "f-1"}}, "must be an object with the text 'file_data'"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(part, said):
    with pytest.raises(InputError, match=said):
        case_of(row_of() | {"problem": [part]})


def test_local_files_are_read_from_the_folder_of_the_case_file_only(tmp_path):
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "photo.png").write_bytes(PNG)
    (folder / "notes.png").write_text("secret")
    (tmp_path / "outside.png").write_bytes(PNG)
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    names = (
        "photo.png",
        "../outside.png",
        "link.png",
        "missing.png",
        "notes.png",
        str(tmp_path / "outside.png"),
    )
    lines = [json.dumps(row_of(name, id=name)) + "\n" for name in names]
    (folder / "cases.jsonl").write_text("".join(lines))
    found = list(read_cases(str(folder / "cases.jsonl")))
    assert found[0].problem.media[0].url == BLUE
    assert "photo.png]" in found[0].problem.text
    outside = "must be in the folder of the case file, or below it"
    for case, said in zip(
        found[1:], (outside, outside, "no such file", "is not image/png", outside), strict=True
    ):
        assert isinstance(case, InputError)
        assert said in str(case)
        assert "secret" not in str(case)


def sees(body: dict, number: int):
    """A judge that sees, and tells colours."""
    content = body["messages"][0]["content"]
    if isinstance(content, list) and "Which colour" in content[0]["text"]:
        return Reply("Blue.")
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return better_quality_wins({**body, "messages": [{"role": "user", "content": text}]})


def refuses(body: dict, number: int):
    """A server without vision, as llama.cpp's answers."""
    if isinstance(body["messages"][0]["content"], list):
        return Status(500, {"error": {"message": "image input is not supported", "code": 500}})
    return better_quality_wins(body)


def guesses(body: dict, number: int):
    """A server that drops images silently: the model guesses."""
    content = body["messages"][0]["content"]
    return Reply("Red") if isinstance(content, list) else better_quality_wins(body)


def test_a_judge_that_sees_is_asked_after_one_test_call():
    with ScriptedEndpoint(sees) as server:
        chosen = select_sync(row_of(), model="stub", base_url=server.url, journal=None, strategy="caps")
        assert chosen.winner == 1
        tests = [body for body in server.bodies if "Which colour" in str(body["messages"])]
        assert len(tests) == 1
        select_sync(row_of(), model="stub", base_url=server.url, journal=None, strategy="caps", vision="yes")
        assert sum("Which colour" in str(body["messages"]) for body in server.bodies) == 1


@pytest.mark.parametrize("blind", [guesses, refuses])
def test_images_for_a_judge_without_sight_fail_their_case_alone_with_a_clear_message(tmp_path, blind):
    plain = {"id": "2", "domain": "general", "problem": "?", "candidates": ["quality=0.3", "quality=0.9"]}
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(row_of()) + "\n" + json.dumps(plain) + "\n")
    with ScriptedEndpoint(blind) as server:
        done = caps(
            "select", cases, "--model", "stub", "--base-url", server.url, "--strategy", "caps",
            "--journal", tmp_path / "j.sqlite",
        )  # fmt: skip
    (fine,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, fine["id"], fine["winner"]) == (1, "2", 1)
    assert "case '1': none of its 1 judge calls was answered: cannot see images (1)" in done.stderr
    with ScriptedEndpoint(sees) as server, pytest.raises(CapsError, match="cannot see images"):
        select_sync(row_of(), model="stub", base_url=server.url, journal=None, vision="no", strategy="caps")


def test_images_of_a_chat_request_reach_the_judge_and_local_files_never():
    content = [words("Look."), image(), image("photo.png"), {"type": "input_audio", "input_audio": {}}]
    problem = chat_problem({"messages": [{"role": "user", "content": content}]})
    assert [one.url for one in problem.media] == [BLUE]
    assert problem.text.endswith("[image_url: not shown here]\n[input_audio: not shown here]")
