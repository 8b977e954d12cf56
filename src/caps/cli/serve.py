"""`caps serve`: an OpenAI-compatible endpoint whose answers are selected."""

import asyncio
from typing import Annotated

import typer
from platformdirs import user_cache_path

from caps.assemble import Endpoint, Setup, reply_for
from caps.cli import given, options
from caps.cli.config_file import ConfigFile
from caps.cli.output import SetOption
from caps.config import parse_assignments
from caps.core.errors import SettingError
from caps.judges.llm import JudgeSettings
from caps.models.fleet_addresses import join_addresses
from caps.models.locate import EMBEDDED
from caps.registry import DEFAULT_STRATEGY
from caps.solving import judge_endpoint

Host = Annotated[str, typer.Option("--host", envvar="CAPS_HOST", help="Address to listen on.")]
Port = Annotated[
    int, typer.Option("--port", envvar="CAPS_PORT", min=0, max=65535, help="0 takes a free one.")
]
Model = Annotated[
    str | None,
    typer.Option("--model", envvar="CAPS_MODEL", help="What the model caps means; or embedded, FILE.gguf."),
]
UpstreamKey = Annotated[
    str | None,
    typer.Option(
        "--upstream-api-key", envvar=["CAPS_API_KEY", "OPENAI_API_KEY"], help="Key of the model server."
    ),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--api-key", envvar="CAPS_SERVER_API_KEY", help="What clients must show; may be repeated."),
]
Anyone = Annotated[bool, typer.Option("--allow-anyone", help="Listen on --host without keys all the same.")]
EarlyExit = Annotated[
    bool, typer.Option("--early-exit/--no-early-exit", help="Stop sampling once the answers have settled.")
]
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


def serve(
    base_url: options.SampleBaseUrl = None,
    model: Model = None,
    upstream_api_key: UpstreamKey = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    api_key: Keys = None,
    allow_anyone: Anyone = False,
    judge_model: options.JudgeModel = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key: options.JudgeApiKey = None,
    samples: options.Samples = 8,
    strategy: options.Strategy = DEFAULT_STRATEGY,
    set_: SetOption = None,
    seed: options.Seed = 1234,
    early_exit: EarlyExit = False,
    profile: options.Profile = None,
    view: options.View = None,
    prompts: options.Prompts = None,
    confidence: options.Confidence = "verbal",
    max_tokens: options.MaxTokens = 4096,
    reply: options.Reply = None,
    extra: options.Extra = None,
    max_samples: MaxSamples = 32,
    max_judge_tokens: MaxJudge = 0,
    max_body: MaxBody = 16 << 20,
    max_concurrent: MaxConcurrent = 256,
    max_waiting: MaxWaiting = 1024,
    max_seconds: MaxSeconds = 600,
    body_seconds: BodySeconds = 30,
    max_connections: options.Connections = "auto",
    timeout: options.Timeout = 600,
    heartbeat: Heartbeat = 10,
    grace: Grace = 60,
    log_prompts: LogPrompts = False,
    quiet: Quiet = False,
    config: ConfigFile = None,
) -> None:
    """Answer OpenAI clients with the winner of n samples.

    Stands before any OpenAI-compatible server (--base-url). The model caps/NAME is the winner of n samples of
    NAME; any other model is forwarded as it is. What a client may change of this in a request stands in its
    body under "caps". Nothing is kept.
    """
    from caps.server.building import Serving, serve as run  # noqa: I001, PLC0415  (loads what only it needs)
    from caps.server.logs import Log  # noqa: PLC0415
    from caps.server.rules import Defaults, Limits  # noqa: PLC0415

    log = Log(prompts=log_prompts, quiet=quiet)
    upstream = _upstream(model, join_addresses(base_url), upstream_api_key, quiet=quiet)
    judging = join_addresses(judge_base_url)
    judge = judge_endpoint(upstream, judge_model, judging, judge_api_key, cache=user_cache_path("caps"))
    serving = Serving(
        upstream=upstream,
        judging=Setup(
            endpoint=judge,
            judge=JudgeSettings(
                max_tokens=max_tokens, confidence=confidence, reply=reply or reply_for(judge)
            ),
            extra=given.parse_extra(extra or []),
            profile=profile,
            views=parse_assignments(view or [], option="--view"),
            prompts=prompts,
            connections=given.parse_connections(max_connections),
            timeout=timeout,
            tell=lambda words: log.say("fleet", said=words),
        ),
        judge=judge.model if judge_model or judging else None,
        host=host,
        port=port,
        keys=tuple(api_key or ()),
        anyone=allow_anyone,
        defaults=Defaults(
            n=samples,
            strategy=strategy,
            changes=parse_assignments(set_ or []),
            seed=seed,
            early_exit=early_exit,
        ),
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
    )
    asyncio.run(run(serving))


def _upstream(model: str | None, base_url: str | None, api_key: str | None, *, quiet: bool) -> Endpoint:
    """The model server behind; requests name the model, so none need be given."""
    if base_url and EMBEDDED not in (base_url, model):
        return Endpoint(base_url, model or "", api_key or None)
    if not base_url and not model:
        raise SettingError("no model server: give --base-url http://localhost:8000/v1, or --model embedded")
    return given.endpoint_of(model, base_url, api_key, quiet=quiet)
