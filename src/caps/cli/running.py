"""A runner for a command: troubles and downloads are shown on standard error, Ctrl-C leaves some grace."""

from collections.abc import Iterator
from contextlib import contextmanager

from caps.cli.fetching import fetch_bar
from caps.cli.output import telling
from caps.config import Keys, RunConfig
from caps.core.play import Strategy
from caps.runner import Runner

GRACE_SECONDS = 3.0  # replies that come in that long after Ctrl-C are paid for, and kept


@contextmanager
def runner_for(
    config: RunConfig,
    keys: Keys,
    *,
    strategy: Strategy | None = None,
    generating: bool = False,
    quiet: bool,
) -> Iterator[Runner]:
    """The runner of a command; the model's weights are fetched first if they must be."""
    with fetch_bar(hidden=quiet) as report:
        runner = Runner(
            config,
            keys=keys,
            strategy=strategy,
            generating=generating,
            warn=telling(quiet=quiet),
            fetching=report,
            grace=GRACE_SECONDS,
        )
        if generating or runner.asks_model:
            _ = runner.endpoints  # fetches weights, and raises what is missing, before anything else happens
    yield runner
