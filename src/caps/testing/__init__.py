"""For tests of plug-ins, scripts and benchmarks: a scripted chat endpoint, a judge, and small cases.

    from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases

    with ScriptedEndpoint(better_quality_wins) as endpoint:
        best = caps.best_sync("?", answers, model="stub", base_url=endpoint.url)
    assert endpoint.requests == 3

The endpoint is a real HTTP server on a thread of its own, so subprocesses can use it too. Nothing here is
imported by the rest of caps.
"""

from caps.testing.cases import (
    QUALITY,
    better_quality_wins,
    case_line,
    cases,
    judge_by_quality,
    spread,
    stated_quality,
    write_cases,
)
from caps.testing.endpoint import (
    Half,
    Hang,
    Pieces,
    Raw,
    Reply,
    Reset,
    ScriptedEndpoint,
    Status,
    count_tokens,
    endpoint_process,
)
from caps.testing.serving import ManyApis, RunningServer, asked, is_judge, running, upstream

__all__ = [
    "QUALITY",
    "Half",
    "Hang",
    "ManyApis",
    "Pieces",
    "Raw",
    "Reply",
    "Reset",
    "RunningServer",
    "ScriptedEndpoint",
    "Status",
    "asked",
    "better_quality_wins",
    "case_line",
    "cases",
    "count_tokens",
    "endpoint_process",
    "is_judge",
    "judge_by_quality",
    "running",
    "spread",
    "stated_quality",
    "upstream",
    "write_cases",
]
