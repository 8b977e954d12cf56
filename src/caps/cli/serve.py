"""`caps serve`: an OpenAI-compatible endpoint whose answers are selected."""

import asyncio
from dataclasses import replace
from typing import Annotated

import typer

from caps.cli.config_options import configured, loaded_settings
from caps.cli.fetching import fetch_bar
from caps.config import Keys, RunConfig
from caps.core.errors import SettingError
from caps.runner import Runner

Host = Annotated[str, typer.Option("--host", envvar="CAPS_HOST", help="Address to listen on.")]
Port = Annotated[
    int, typer.Option("--port", envvar="CAPS_PORT", min=0, max=65535, help="0 takes a free one.")
]
UpstreamKey = Annotated[
    str | None,
    typer.Option(
        "--upstream-api-key", help="Key of the model server; better in CAPS_API_KEY or OPENAI_API_KEY."
    ),
]
ClientKeys = Annotated[
    list[str] | None,
    typer.Option("--api-key", envvar="CAPS_SERVER_API_KEY", help="What clients must show; may be repeated."),
]
Anyone = Annotated[bool, typer.Option("--allow-anyone", help="Listen on --host without keys all the same.")]
MaxSamples = Annotated[int, typer.Option("--max-samples", min=1, help="Most samples a client may ask for.")]
MaxBody = Annotated[int, typer.Option("--max-body", min=1, help="Bytes a body may have.")]
MaxConcurrent = Annotated[int, typer.Option("--max-concurrent", min=1, help="Requests worked on at once.")]
MaxWaiting = Annotated[int, typer.Option("--max-waiting", min=0, help="Requests that may wait for that.")]
MaxSeconds = Annotated[float, typer.Option("--max-seconds", min=0.1, help="Time of a request.")]
BodySeconds = Annotated[float, typer.Option("--body-seconds", min=0.1, help="Time to send a request in.")]
MaxJudge = Annotated[
    int, typer.Option("--max-judge-tokens", min=0, help="Tokens a request's judge may take; 0: no limit.")
]
Heartbeat = Annotated[float, typer.Option("--heartbeat", min=0.05, help="Seconds between a stream's.")]
Grace = Annotated[float, typer.Option("--grace", min=1, help="Seconds to finish in after SIGTERM.")]
LogPrompts = Annotated[bool, typer.Option("--log-prompts", help="Log what is asked and answered, too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log faults only.")]


@configured(
    "judge", "asking", "strategy", "evidence", "domain", "findings", "generation",
    "early exit", "performance",
    "embedded",
    defaults={"samples": 8, "sandbox": "off"},
    without=("judge_profile", "preset", "method", "api_key"),
    announce=False,
)  # fmt: skip
def serve(
    ctx: typer.Context,
    config: RunConfig,
    keys: Keys,
    upstream_api_key: UpstreamKey = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    api_key: ClientKeys = None,
    allow_anyone: Anyone = False,
    max_samples: MaxSamples = 32,
    max_judge_tokens: MaxJudge = 0,
    max_body: MaxBody = 16 << 20,
    max_concurrent: MaxConcurrent = 256,
    max_waiting: MaxWaiting = 1024,
    max_seconds: MaxSeconds = 600,
    body_seconds: BodySeconds = 30,
    heartbeat: Heartbeat = 10,
    grace: Grace = 60,
    log_prompts: LogPrompts = False,
    quiet: Quiet = False,
) -> None:
    """Answer OpenAI clients with the winner of n samples.

    Stands before any OpenAI-compatible server (--base-url). The model caps/NAME is the winner of n samples of
    NAME; any other model is forwarded as it is. What a client may change of this in a request stands in its
    body under "caps". Nothing is kept.
    """
    from caps.server.building import Serving, serve as run  # noqa: I001, PLC0415  (loads what only it needs)
    from caps.server.logs import Log  # noqa: PLC0415
    from caps.server.rules import Limits  # noqa: PLC0415

    log = Log(prompts=log_prompts, quiet=quiet)
    if not config.base_url and not config.model:
        raise SettingError("no model server: give --base-url http://localhost:8000/v1, or --model embedded")
    with fetch_bar(hidden=quiet) as report:
        runner = Runner(
            config,
            keys=replace(keys, api_key=upstream_api_key or keys.api_key),
            any_model=True,
            warn=lambda words: log.say("fleet", said=words),
            fetching=report,
        )
        _ = runner.endpoints  # fetches weights, and raises what is missing
    serving = Serving(
        runner=runner,
        host=host,
        port=port,
        keys=tuple(api_key or ()),
        anyone=allow_anyone,
        limits=Limits(
            n=max_samples,
            body=max_body,
            concurrent=max_concurrent,
            waiting=max_waiting,
            seconds=max_seconds,
            reading=body_seconds,
            tokens=max_judge_tokens,
        ),
        heartbeat=heartbeat,
        grace=grace,
        log=log,
        settings=None if (loaded := loaded_settings(ctx)) is None else "{}: {}".format(*loaded),
    )
    asyncio.run(run(serving))
