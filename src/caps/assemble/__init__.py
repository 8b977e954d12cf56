"""The composition root: from names and settings to the objects that do the work."""

from caps.assemble.engines import cases_for, connected
from caps.assemble.parts import (
    counts_votes,
    has_setting,
    load_templates,
    make_findings,
    make_graders,
    make_prepare,
    make_strategy,
    prepare_for,
    price_for,
    templates_for,
    with_shortlist,
)
from caps.assemble.sessions import (
    Session,
    judge_over,
    open_journal,
    remembering,
    sampler,
    session,
)
from caps.assemble.setup import (
    ENGINES,
    Endpoint,
    Setup,
    find,
    reply_for,
)

__all__ = [
    "ENGINES",
    "Endpoint",
    "Session",
    "Setup",
    "cases_for",
    "connected",
    "counts_votes",
    "find",
    "has_setting",
    "judge_over",
    "load_templates",
    "make_findings",
    "make_graders",
    "make_prepare",
    "make_strategy",
    "open_journal",
    "prepare_for",
    "price_for",
    "remembering",
    "reply_for",
    "sampler",
    "session",
    "templates_for",
    "with_shortlist",
]
