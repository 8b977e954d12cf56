from caps.core.types import Candidate, Case, Problem
from caps.session.parts import make_graders
from caps.studies.grading import GradeStore
from support.closing import closing


async def test_one_candidate_is_graded_and_undecided_where_its_truth_is_not_known():
    async with closing(GradeStore(make_graders("auto", 2.0))) as book:
        asked = [
            ("math", {"answer": "1/2"}, "so \\boxed{0.5}"),
            ("math", {"answer": 12}, "\\boxed{13}"),
            ("math", {}, "\\boxed{12}"),
            ("general", {"answer": "12"}, "12"),
            ("general", {"answer": "Paris"}, "The city of light."),
            ("code", {}, "print(1)"),
        ]
        assert (
            [
                (
                    await book.grade(Case("1", Problem.of("?"), (), domain, extra=extra), Candidate(text))
                ).correct
                for domain, extra, text in asked
            ]
        ) == [True, False, None, True, None, None]
