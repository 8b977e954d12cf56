"""POST /v1/rank: rankings in the format of the rerank APIs."""

import pytest

from caps.server.admission import Limits
from models.server import StubServer
from server.serving import inside, upstream

DOCUMENTS = ["quality=0.20 \\boxed{1}", "quality=0.90 \\boxed{2}", "quality=0.50 \\boxed{3}"]


@pytest.fixture(scope="module")
def stub():
    with StubServer(upstream, models=("m",)) as running:
        yield running


def test_documents_come_back_ranked_with_probabilities_in_every_form_of_request(stub):
    async def work(call):
        async def ranked(path="/v1/rank", **body):
            return await call(path=path, body={"model": "caps/m", **body})

        return [
            await ranked(query="vary?", documents=DOCUMENTS),
            await ranked(query="vary?", texts=DOCUMENTS),
            await ranked(problem="vary?", candidates=DOCUMENTS),
            await ranked("/v1/rerank", query="vary?", documents=[{"text": one} for one in DOCUMENTS]),
            await ranked("/v2/rerank", query="vary?", documents=DOCUMENTS),
            await ranked(query="vary?", documents=DOCUMENTS, top_n=2, return_documents=True),
            await ranked(query="vary?", documents=[*DOCUMENTS, "quality=0.10 " + "x" * 100_000], top_n=3),
            await ranked(query="vary?", documents=DOCUMENTS, caps={"strategy": "caps-r"}),
        ]

    answers = inside(stub.url, work)
    assert [one.status for one in answers] == [200] * 8, answers[0].body
    first, *alike, cut, large, caps = [one.json for one in answers]
    assert [one["index"] for one in first["results"]] == [1, 2, 0]
    scores = [one["relevance_score"] for one in first["results"]]
    assert sorted(scores, reverse=True) == scores
    assert all(0 < one < 1 for one in scores)
    assert first["caps"]["score_kind"] == "probability"
    assert first["caps"]["probability"] == pytest.approx(scores[0], abs=1e-4)
    assert all(one["results"] == first["results"] for one in alike)
    assert [one["document"]["text"] for one in cut["results"]] == [DOCUMENTS[1], DOCUMENTS[2]]
    assert "document" not in first["results"][0]
    assert [one["index"] for one in large["results"]][:2] == [1, 2]
    assert [one["index"] for one in caps["results"]] == [1, 2, 0]
    assert first["usage"]["total_tokens"] == sum(first["meta"]["tokens"].values()) > 0


def test_requests_that_cannot_be_ranked_are_refused_with_the_field_that_is_wrong(stub):
    wrong = [
        ({"documents": DOCUMENTS}, "query: is missing"),
        ({"query": "?"}, "documents: is missing"),
        ({"query": "?", "problem": "?", "documents": DOCUMENTS}, "problem is given too"),
        ({"query": "?", "documents": DOCUMENTS, "texts": DOCUMENTS}, "texts is given too"),
        ({"query": "?", "documents": []}, "candidates: is empty"),
        ({"query": "?", "documents": [1]}, "candidates[0]"),
        ({"query": 3, "documents": DOCUMENTS}, "problem: must be"),
        ({"query": "?", "documents": DOCUMENTS, "top_n": 0}, "top_n: must be"),
        ({"query": "?", "documents": DOCUMENTS, "return_documents": "yes"}, "return_documents: must be"),
        ({"query": "?", "documents": DOCUMENTS * 2}, "at most 4"),
        ({"query": "?", "documents": DOCUMENTS, "repository": "/"}, "may not name files"),
    ]

    async def work(call):
        return [await call(path="/v1/rank", body={"model": "caps/m", **body}) for body, _ in wrong]

    answers = inside(stub.url, work, limits=Limits(max_samples=4))
    for answer, (body, message) in zip(answers, wrong, strict=True):
        assert answer.status == 400, body
        assert message in answer.json["error"]["message"], body


def test_other_models_are_ranked_by_the_upstream_itself(stub):
    async def work(call):
        return [
            await call(path="/v1/rerank", body={"model": "bge", "query": "?", "documents": ["a"]}),
            await call(path="/v1/rank", body={"model": "caps", "query": "?", "documents": ["a"]}),
        ]

    forwarded, unnamed = inside(stub.url, work)
    assert (forwarded.status, b"caps" in forwarded.body) == (404, False), "the stub has no such path"
    assert unnamed.status == 400
    assert "names no model" in unnamed.json["error"]["message"]
