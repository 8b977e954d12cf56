import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.errors import InputError, SettingError
from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.case_files import cases_in_rows, parse_case, write_case
from caps.datasets.imports import FORMATS, count_cases, merge, open_cases
from support.logs import ASKED, archive, failure, lm_eval, reply, request, result, sample, write


def split(found):
    found = list(found)
    good = [one for one in found if isinstance(one, Case)]
    return good, [str(one) for one in found if isinstance(one, InputError)]


def texts(case):
    return [one.text for one in case.candidates]


def test_choices_and_numbered_lines_of_a_batch_become_candidates_of_one_case(tmp_path):
    asked = write(tmp_path / "in.jsonl", request("a"), request("b#0"), request("b#1"), request("b#10"))
    told = [reply("b#10", "last"), reply("b#1", "then"), reply("a", "x", "y"), reply("b#0", "first")]
    (one, two), wrong = split(open_cases(write(tmp_path / "out.jsonl", *told), requests=asked))
    assert (one.id, texts(one)) == ("a", ["x", "y"])
    assert (two.id, texts(two)) == ("b", ["first", "then", "last"])
    assert one.problem == Problem((Message("system", "Be brief."), Message("user", "1+1?")))
    assert wrong == []


def test_numbers_that_stand_for_different_problems_are_different_cases(tmp_path):
    other = [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]
    rows = [request("q#1"), request("q#2", other), reply("q#1", "2"), reply("q#2", "4")]
    cases, wrong = split(open_cases(write(tmp_path / "both.jsonl", *rows)))
    assert [(case.id, case.problem.text[-4:]) for case in cases] == [("q#1", "1+1?"), ("q#2", "2+2?")]
    assert wrong == []


def test_failed_requests_are_named_with_their_reason_and_the_rest_delivered(tmp_path):
    rows = [
        request("a"), request("b"), request("c"), request("d"), reply("a", "fine", None),
        failure("b", 400), failure("c", error={"code": "batch_expired", "message": "expired"}),
        reply("a", "again"), {"custom_id": 3, "response": {}}, reply("e", "who?"), "what?",
    ]  # fmt: skip
    path = write(tmp_path / "out.jsonl", *rows)
    cases, wrong = split(open_cases(path))
    assert [(case.id, texts(case)) for case in cases] == [("a", ["fine"])]
    told = "\n".join(wrong)
    for words in (
        f"{path}:5: request 'a': response.body.choices[1].message.content: must be a text, not null",
        f"{path}:6: request 'b' failed: too long", f"{path}:7: request 'c' failed: expired",
        f"{path}:8: custom_id: 'a' is on an earlier line", f"{path}:9: custom_id: must be a text",
        f"{path}:11: must be an object", "case 'd': no reply was received", "case 'e': its request is not in",
    ):  # fmt: skip
        assert words in told


def test_batch_output_alone_says_where_its_problems_are(tmp_path):
    path = write(tmp_path / "out.jsonl", reply("a", "x"))
    with pytest.raises(InputError, match=f"caps import {path} --requests INPUT"):
        list(open_cases(path))
    with pytest.raises(InputError, match="no requests found"):
        list(open_cases(path, requests=write(tmp_path / "in.jsonl")))
    with pytest.raises(SettingError, match="--requests applies to openai-batch only"):
        list(open_cases(write(tmp_path / "l.jsonl", lm_eval(1, "x")), requests=path))


def test_thoughts_log_probabilities_and_the_other_endpoints_are_read(tmp_path):
    thinking = reply("a", "4", reasoning_content="Two and two.")
    tokens = [{"token": "4", "logprob": -0.25}, {"token": "!", "logprob": -0.5}]
    thinking["response"]["body"]["choices"][0]["logprobs"] = {"content": tokens}
    plain = {"custom_id": "b", "response": {"status_code": 200, "body": {"choices": [{"text": "5"}]}}}
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "6"}]},
    ]
    responses = {"custom_id": "c", "response": {"status_code": 200, "body": {"output": output}}}
    rows = [
        request("a"), {"custom_id": "b", "body": {"prompt": "2+3?"}}, {"custom_id": "c", "body": {"input": "3+3?"}},
        thinking, plain, responses,
    ]  # fmt: skip
    (a, b, c), _ = split(open_cases(write(tmp_path / "all.jsonl", *rows)))
    assert a.candidates == (Candidate("<think>\nTwo and two.\n</think>\n\n4", logprob=-0.75),)
    assert (b.problem.text, texts(b)) == ("2+3?", ["5"])
    assert (c.problem.text, texts(c)) == ("3+3?", ["<think>\nHm.\n</think>\n\n6"])


def test_samples_of_lm_eval_are_cases_and_a_second_filter_is_no_second_case(tmp_path):
    chat = lm_eval(2, "4", arguments=[[json.dumps(ASKED), {}]], exact_match=0.0, target=4)
    again = lm_eval(1, "I say 4", "I say 5", filter="flexible")
    rows = [lm_eval(1, "I say 4", "I say 5"), chat, again, lm_eval(2, "4"), lm_eval(3, [-1.5, False])]
    path = write(tmp_path / "samples_gsm8k.jsonl", *rows)
    (one, two), wrong = split(open_cases(path))
    assert (one.id, one.problem.text, texts(one)) == ("1", "Q: 2+2? (1)", ["I say 4", "I say 5"])
    assert [(c.answer, c.correct) for c in one.candidates] == [("4", None)] * 2
    assert (one.extra, two.extra) == ({"answer": "4"}, {"answer": "4"})
    assert (len(two.problem.messages), two.candidates[0].correct) == (2, False)
    assert f"{path}:4: doc_id: '2' is on an earlier line" in wrong[0]
    assert "multiple-choice tasks are not supported" in wrong[1]


def test_epochs_of_inspect_are_candidates_from_both_kinds_of_logs(tmp_path):
    parts = [{"type": "reasoning", "reasoning": "Two twos."}, {"type": "text", "text": "4"}]
    kept = {"abc": "2+2?"}
    rows = [
        sample("s", 2, "5"), sample("s", 1, "so 4"), sample(7, 1, "4", input="attachment://abc", attachments=kept),
        sample("t", 1, "4", output={"choices": [{"message": {"role": "assistant", "content": parts}}]}),
        sample("u", 1, "", output={"choices": []}, error={"message": "out of memory"}), sample("s", 1, "4"),
    ]  # fmt: skip
    log = {"version": 2, "status": "success", "eval": {"task": "t"}, "samples": rows}
    (tmp_path / "log.json").write_text(
        json.dumps(log, indent=2).replace('"metadata": {}', '"metadata": {"x": NaN}', 1)
    )
    members = {f"samples/{i}_epoch_1.json": row for i, row in enumerate(rows)}
    paths = [
        archive(tmp_path / "log.eval", members),
        str(tmp_path / "log.json"),
        write(tmp_path / "l.json", log),
    ]
    for path in paths:
        (s, seven, t), wrong = split(open_cases(path))
        assert (s.id, texts(s), [c.correct for c in s.candidates]) == ("s", ["so 4", "5"], [True, False])
        assert (seven.id, seven.problem.text, seven.extra["answer"]) == ("7", "2+2?", "4")
        assert texts(t) == ["<think>\nTwo twos.\n</think>\n\n4"]
        assert "sample 'u', epoch 1: has no output (out of memory)" in wrong[0]
        assert "epoch: 1 of sample 's' must be" in wrong[1]


def test_candidates_of_best_of_n_in_inspect_are_read_with_the_label_of_the_choice(tmp_path):
    noted = {"winner": 1, "candidates": ["5", "attachment://abc"], "probability": 0.9}
    rows = [
        sample("s", 1, "4", metadata={"caps": noted, "source": "book"}, attachments={"abc": "so 4"}),
        sample("t", 1, "4", metadata={"caps": {"winner": "x", "candidates": [7]}}),  # not ours
    ]
    log = {"version": 2, "status": "success", "eval": {"task": "t"}, "samples": rows}
    (s, t), wrong = split(open_cases(write(tmp_path / "l.json", log)))
    assert (texts(s), [c.correct for c in s.candidates]) == (["5", "so 4"], [None, True])
    assert s.extra["metadata"] == {"source": "book"}
    assert (texts(t), wrong) == (["4"], [])


def test_a_cut_or_locked_archive_is_named(tmp_path):
    archive(tmp_path / "l.eval", {"samples/a.json": sample("s", 1, "4")})
    data = bytearray((tmp_path / "l.eval").read_bytes())
    (tmp_path / "cut.eval").write_bytes(data[:-30])
    with pytest.raises(InputError, match="cut.eval: the archive cannot be read"):
        list(open_cases(str(tmp_path / "cut.eval")))
    place = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    data[place + 8] |= 1  # the flag of an encrypted member
    (tmp_path / "locked.eval").write_bytes(data)
    assert "cannot be unpacked" in split(open_cases(str(tmp_path / "locked.eval")))[1][0]


def test_results_of_livecodebench_carry_code_and_labels(tmp_path):
    rows = [
        result("q1"),
        result("q2", graded_list=[True]),
        result("q1"),
        3,
        result("q3", graded_list=None, output_list=None),
    ]
    (tmp_path / "m_eval_all.json").write_text(json.dumps(rows, indent=4))
    (one, three), wrong = split(open_cases(str(tmp_path / "m_eval_all.json")))
    assert [(c.code, c.correct) for c in one.candidates] == [("print(1)", True), (None, False)]
    assert (one.domain, one.guessed, one.extra["difficulty"]) == ("code", False, "easy")
    assert (three.id, texts(three)) == ("q3", ["print(1)", ""])
    assert ["the same length" in wrong[0], "occurs earlier" in wrong[1], "must be an object" in wrong[2]] == [
        True
    ] * 3


def test_our_own_cases_are_read_as_ever_and_only_they_are_counted(tmp_path):
    path = write(
        tmp_path / "c.jsonl", {"problem": "?", "candidates": ["a"]}, {"problem": "?", "candidates": []}
    )
    (case,), wrong = split(open_cases(path))
    assert (case.id, count_cases(path)) == ("1", 2)
    assert f"{path}:2: candidates: is empty" in wrong[0]
    assert count_cases(write(tmp_path / "s.jsonl", lm_eval(1, "x"))) is None
    assert count_cases(archive(tmp_path / "l.eval", {})) is None
    assert count_cases("-") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no cases found"), ("{\n}\n", "no field holds the problem.*it has no fields"),
        ('[{"problem": "?"}]', "no field holds the candidates.*the fields are problem"), ("[", "not JSON"),
        ("{\n" + "[" * 10**5, "not JSON"), ('{"eval": {}, "samples": [3]}', r"samples\[0\]: must be an object"),
    ],
    ids=["nothing", "an empty log", "a list", "half a list", "a deep list", "samples that are none"],
)  # fmt: skip
def test_a_file_that_is_none_of_the_formats_says_so(tmp_path, content, said):
    (tmp_path / "odd").write_text(content)
    with pytest.raises(InputError, match=said):
        list(open_cases(str(tmp_path / "odd")))


def test_an_unknown_format_is_named_before_the_file_is_opened():
    with pytest.raises(SettingError, match="unknown format 'inspct'.*inspect"):
        open_cases("nowhere", "inspct")


def test_several_files_on_the_same_problems_are_put_together():
    one, two = Case.of("?", ["a"], name="x"), Case.of("?", ["b", "c"], name="x")
    other, alone = Case.of("!", ["d"], name="x"), Case.of("?", ["e"], name="y")
    merged, wrong = split(merge([[one], [two, InputError("bad")], [other, alone]]))
    assert [(case.id, texts(case)) for case in merged] == [("x", ["a", "b", "c"]), ("y", ["e"])]
    assert wrong == ["bad", "case 'x': has a different problem in an earlier file"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
CANDIDATES = st.builds(
    Candidate, st.text(), st.none() | st.text(), st.none() | st.text(), st.none() | st.floats(-1e9, 0),
    st.none() | st.floats(-5, 5), st.none() | st.booleans(),
)  # fmt: skip
PROBLEMS = st.text().map(Problem.of) | st.lists(
    st.builds(Message, st.text(), st.text()), min_size=1, max_size=3
).map(lambda messages: Problem(tuple(messages)))


@given(
    st.text(), PROBLEMS, st.lists(CANDIDATES, min_size=1, max_size=4).map(tuple),
    st.sampled_from(["code", "math", "general"]),
    st.dictionaries(st.text().filter(lambda key: key not in ("id", "problem", "candidates", "domain")), JSON, max_size=3),
)  # fmt: skip
def test_a_case_that_is_written_is_read_as_the_same_case(name, problem, candidates, domain, extra):
    case = Case(name, problem, candidates, domain, extra=extra)
    line = write_case(case)
    assert b"\n" not in line
    assert parse_case(line, default_id="1") == case
    bare = Case(name, problem, (), domain, extra=extra)
    assert "candidates" not in json.loads(write_case(bare))


def test_a_guessed_domain_is_left_to_be_guessed_again():
    case = parse_case(
        '{"id": "a", "problem": "?", "candidates": ["\\\\boxed{1}"], "more": 1}', default_id="1"
    )
    assert case.guessed
    assert parse_case(write_case(case), default_id="1") == case


SEEDS = [
    request("a"),
    reply("a", "x", "y"),
    failure("a", 500),
    lm_eval(1, "x"),
    result("q"),
    sample("s", 1, "4"),
]


@given(st.sampled_from(SEEDS), st.sampled_from(sorted(FORMATS)), st.data())
def test_any_row_is_read_or_refused_in_every_format(tmp_path_factory, row, name, data):
    row = json.loads(json.dumps(row))
    inner = row
    for _ in range(data.draw(st.integers(0, 4))):
        nested = [value for value in inner.values() if isinstance(value, dict) and value]
        inner = data.draw(st.sampled_from(nested)) if nested else inner
    for key in data.draw(st.sets(st.sampled_from(sorted(inner)), min_size=1, max_size=2)):
        inner[key] = data.draw(JSON)
    content = (
        json.dumps([row])
        if name == "livecodebench"
        else json.dumps({"samples": [row]} if name == "inspect" else row)
    )
    path = tmp_path_factory.getbasetemp() / "row.jsonl"
    path.write_text(json.dumps(request("a")) + "\n" + content if name == "openai-batch" else content)
    try:
        assert all(isinstance(one, Case | InputError) for one in open_cases(str(path), name))
    except InputError as error:
        assert str(error)


@given(st.binary(max_size=60))
def test_cases_of_any_bytes_are_counted_refused_or_not_known(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "bytes.jsonl"
    path.write_bytes(data)
    try:
        assert isinstance(count_cases(str(path)), int | None)
    except InputError as error:
        assert str(path) in str(error)


def test_a_table_row_is_read_like_a_line_and_a_wrong_one_is_named():
    row = {"id": None, "problem": "?", "candidates": [{"text": "a", "code": None}], "tests": {"public": None}}
    good, bad = cases_in_rows(enumerate([row, {"problem": "?", "candidates": None}], 1), "t.parquet")
    assert (good.id, good.candidates[0].code, good.extra) == ("1", None, {"tests": {}})
    assert isinstance(bad, InputError)
    assert str(bad).startswith("t.parquet:2: candidates:")
