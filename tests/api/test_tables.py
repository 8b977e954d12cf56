"""Tables as people have them: data frames, Arrow tables and datasets given to `select_many` and `stream`."""

import asyncio
import logging

import pandas
import polars
import pyarrow
import pytest

import caps

WIDE = [
    {
        "question": f"{n} + 1?",
        "responses": ["no", "a longer text"],
        "gold": n + 1,
        "is_correct": [False, True],
    }
    for n in range(3)
]
LONG = [
    {"question": f"{n} + 1?", "task": f"t{n}", "response": text, "is_correct": right, "model": text[:1]}
    for n in range(3)
    for text, right in (("no", 0), ("a longer text", 1))
]
FRAMES = [pandas.DataFrame, polars.DataFrame, pyarrow.Table.from_pylist]


def longer(problem, a, b):
    return "A" if len(a) > len(b) else "B"


def chosen(table, **keywords):
    results = caps.select_many_sync(table, judge=longer, domain="general", **keywords)
    return [(result.id, result.winner, result.correct) for result in results]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_row_is_a_problem_and_its_labels_are_recognised(frame, caplog):
    caplog.set_level(logging.INFO, logger="caps")
    assert chosen(frame(WIDE)) == [("1", 1, True), ("2", 1, True), ("3", 1, True)]
    assert "problem from question, candidates from responses, answer from gold" in caplog.text


@pytest.mark.parametrize("frame", [*FRAMES, list, iter])
def test_a_row_is_a_candidate_and_what_is_left_out_is_said(frame, caplog):
    assert chosen(frame(LONG), group_by="task") == [("t0", 1, True), ("t1", 1, True), ("t2", 1, True)]
    (warned,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "rows of the same problem differ in them: model" in warned
    assert 'map={"candidates.NAME": "FIELD"}' in warned


def test_without_group_by_rows_are_grouped_by_their_problem():
    assert chosen(pandas.DataFrame(LONG).drop(columns="model")) == [
        ("1", 1, True),
        ("2", 1, True),
        ("3", 1, True),
    ]


def test_a_frame_is_streamed_and_a_client_takes_it_too():
    async def main():
        streamed = [one async for one in caps.stream(polars.DataFrame(WIDE), judge=longer)]
        async with caps.open(judge=longer) as client:
            listed = await client.select_many(pandas.DataFrame(LONG), group_by="task", map={"id": "task"})
            again = [one async for one in client.stream(pandas.DataFrame(WIDE))]
        return len(streamed), len(listed), len(again)

    assert asyncio.run(main()) == (3, 3, 3)


def test_columns_of_other_names_are_mapped():
    frame = pandas.DataFrame([{"task": "1 + 1?", "left": "no", "right": "a longer text", "rm": 0.5}])
    assert chosen(frame, map={"problem": "task", "candidates": "left+right"}) == [("1", 1, None)]


@pytest.mark.parametrize(
    ("table", "keywords", "said"),
    [
        (pandas.DataFrame(LONG), {"group_by": "tsk"}, "group_by: there is no column 'tsk': did you mean 'task'?"),
        (pandas.DataFrame(WIDE), {"group_by": "question"}, "responses holds a list"),
        (pandas.DataFrame([{"a": 1}]), {}, 'name it with map={"problem": "FIELD"}; the fields are a'),
        (pandas.DataFrame(), {}, "cases: has no rows"),
        (polars.DataFrame(WIDE).lazy(), {}, "give the result of its method collect()"),
        ([caps.Case.of("?", ["a", "b"])], {"group_by": "task"}, "group_by and map are for rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_before_anything_is_asked(table, keywords, said):
    with pytest.raises(caps.InputError) as refused:
        caps.select_many_sync(table, judge=longer, **keywords)
    assert said in str(refused.value)
    assert "--" not in str(refused.value)


def test_missing_values_and_arrays_of_numpy_are_read(tmp_path):
    frame = pandas.DataFrame([*WIDE, {"question": "4 + 1?", "responses": None}])
    frame["when"] = pandas.Timestamp("2026-01-01")
    frame.to_parquet(tmp_path / "frame.parquet")  # which gives arrays back
    results = caps.select_many_sync(
        pandas.read_parquet(tmp_path / "frame.parquet"), judge=longer, domain="general"
    )
    assert [result.winner for result in results] == [1, 1, 1, None]
    assert "cases:4: responses: is missing" in results[3].error
