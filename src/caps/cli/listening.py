"""What an engine tells while one waits for it."""

from caps.cli.output import say
from caps.engines.base import Engine


def listen(engine: Engine, *, quiet: bool) -> None:
    """Say what batches are doing; what goes on or goes wrong without us is said in any case."""
    from caps.engines.batch import BatchEngine  # noqa: PLC0415  (an engine is there: all of it is loaded)

    if isinstance(engine, BatchEngine):
        engine.batch_client.warned = lambda words: say(words, "yellow")
        if not quiet:
            engine.batch_client.told = say
