"""What every domain of the registry keeps to: parts that exist, fields it may read, and cases of its own kind."""

import pytest

from caps.core.domains import PROMPT_KINDS, TEMPLATES, Resources
from caps.core.types import Candidate, Case, Found, Problem
from caps.evidence.domains import domain_named
from caps.registry import DOMAINS, FINDERS, GRADERS, PAIR_VIEWS, SIGNATURES, VIEWS, resolve
from caps.session.parts import make_prepare

TEXTS = [
    "",
    "x",
    "\0\ud800\u202e",
    "```python\nprint(1)\n```",
    "It is \\boxed{4}",
    "[" * 500,
    "--- a/x\n+++ b/x\n",
]
TRUTH = {"answer", "tests", "correct", "label", "solution", "canonical_solution", "hidden_tests"}


@pytest.fixture(params=DOMAINS.table)
def domain(request):
    return domain_named(request.param)


def test_it_is_called_what_the_registry_calls_it_and_names_parts_that_exist(domain):
    assert domain.name in DOMAINS.table
    for registry, named in (
        (SIGNATURES, domain.signature), (VIEWS, domain.partial), (VIEWS, domain.full), (PAIR_VIEWS, domain.pair),
        (FINDERS, domain.finder), (GRADERS, domain.grader),
    ):  # fmt: skip
        assert named is None or callable(resolve(registry, named) if isinstance(named, str) else named)
    assert domain.prompts in PROMPT_KINDS
    assert set(domain.templates) <= set(TEMPLATES)


def test_every_candidate_can_be_prepared_and_equal_ones_have_one_signature(domain):
    candidates = tuple(Candidate(text) for text in (*TEXTS, *TEXTS))
    prepared = make_prepare()(Case("1", Problem.of("What is it?"), candidates, domain.name))
    signatures = [entrant.signature for entrant in prepared.evidence.entrants]
    half = len(TEXTS)
    for first, second in zip(signatures[:half], signatures[half:], strict=True):
        assert first == second
    for entrant in prepared.evidence.entrants:
        assert all(size >= 0 for size in entrant.sizes)


def test_its_finder_may_not_read_the_truth_of_a_case(domain):
    assert not TRUTH & set(domain.fields) - {"tests"}, "tests are passed without the hidden ones"
    assert set(domain.local_fields) <= set(domain.fields)


async def test_its_finder_says_something_about_every_candidate_or_nothing(domain):
    if domain.finder is None:
        return
    make = resolve(FINDERS, domain.finder) if isinstance(domain.finder, str) else domain.finder
    finder = make(Resources(sandbox="off"))
    if finder is None:
        return
    case = Case("1", Problem.of("What is it?"), tuple(map(Candidate, TEXTS)), domain.name)
    try:
        found = await finder.find(case)
    finally:
        await finder.close()
    assert len(found) in (0, len(TEXTS))
    assert all(isinstance(fact, Found) for fact in found)
    assert finder.version.isprintable()
