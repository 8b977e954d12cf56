"""`caps serve`: an OpenAI-compatible API that answers with the best of n samples."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from caps.cli.help import FILES, JUDGE, SERVER
from caps.cli.options import configured, loaded_settings
from caps.cli.progress import fetch_bar
from caps.config import Keys, RunConfig
from caps.core.errors import SettingError
from caps.models.endpoints import Callbacks
from caps.session.resolve import resolve


def _server_option(flag: str, about: str, metavar: str, **more: Any) -> Any:
    return typer.Option(flag, help=about, metavar=metavar, rich_help_panel=SERVER, **more)


Host = Annotated[
    str, _server_option("--host", "Address to listen on.", "HOST", envvar="CAPS_HOST", show_envvar=False)
]
Port = Annotated[
    int,
    _server_option(
        "--port", "Port to listen on; 0 takes a free one.", "N", envvar="CAPS_PORT", show_envvar=False, min=0,
        max=65535,
    ),
]  # fmt: skip
UpstreamKey = Annotated[
    str | None,
    typer.Option(
        "--upstream-api-key", metavar="KEY", rich_help_panel=JUDGE,
        help="Key of the model server; safer in CAPS_API_KEY or OPENAI_API_KEY.",
    ),
]  # fmt: skip
ClientKeys = Annotated[
    list[str] | None,
    _server_option(
        "--api-key", "Key that clients must send; safer in CAPS_SERVER_API_KEY. May be repeated.", "KEY",
        envvar="CAPS_SERVER_API_KEY", show_envvar=False,
    ),
]  # fmt: skip
Anyone = Annotated[
    bool,
    typer.Option("--allow-anyone", help="Listen on a public --host without keys.", rich_help_panel=SERVER),
]
MaxSamples = Annotated[
    int, _server_option("--max-samples", "Most samples that a client may ask for.", "N", min=1)
]
MaxBody = Annotated[int, _server_option("--max-body", "Most bytes of a request.", "BYTES", min=1)]
MaxConcurrent = Annotated[
    int, _server_option("--max-concurrent", "Most requests that are processed at once.", "N", min=1)
]
MaxWaiting = Annotated[
    int, _server_option("--max-waiting", "Most requests that wait for their turn.", "N", min=0)
]
MaxSeconds = Annotated[
    float, _server_option("--max-seconds", "Most seconds that a request may take.", "SECONDS", min=0.1)
]
BodySeconds = Annotated[
    float,
    _server_option(
        "--body-seconds", "Most seconds in which a client must send a request.", "SECONDS", min=0.1
    ),
]
MaxJudge = Annotated[
    int,
    _server_option(
        "--max-judge-tokens", "Most judge tokens of one request; 0 means no limit.", "TOKENS", min=0,
        show_default=False,
    ),
]  # fmt: skip
Heartbeat = Annotated[
    float, _server_option("--heartbeat", "Seconds between the heartbeats of a stream.", "SECONDS", min=0.05)
]
Grace = Annotated[
    float, _server_option("--grace", "Seconds in which requests may finish after SIGTERM.", "SECONDS", min=1)
]
LogPrompts = Annotated[
    bool, typer.Option("--log-prompts", help="Log questions and answers too.", rich_help_panel=SERVER)
]
Keep = Annotated[
    Path | None,
    _server_option(
        "--keep", "Keep the run of each request in a folder of its own in DIR, prompts included.", "DIR",
        envvar="CAPS_KEEP", show_envvar=False,
    ),
]  # fmt: skip
KeepLast = Annotated[
    int, _server_option("--keep-last", "With --keep: most runs; the oldest are deleted.", "N", min=1)
]
Recent = Annotated[
    int,
    _server_option(
        "--recent", "Remember the last N requests with their answers, in memory, and show them on the page "
        "at /, to every client with a key; 0 remembers none.", "N", min=0, max=1000,
    ),
]  # fmt: skip
Cors = Annotated[
    list[str] | None,
    _server_option(
        "--cors", "Origin whose web pages may use this server, such as https://app.example. May be repeated.",
        "ORIGIN",
    ),
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log errors only.", rich_help_panel=FILES)]


@configured(
    "judge", "asking", "strategy", "evidence", "domain", "findings", "generation",
    "virtual models", "performance",
    "context",
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
    keep: Keep = None,
    keep_last: KeepLast = 1000,
    recent: Recent = 0,
    cors: Cors = None,
    quiet: Quiet = False,
) -> None:
    """Serve an OpenAI-compatible API that answers with the best of n.

    Runs in front of any OpenAI-compatible server (--base-url). A request for the model caps/NAME is answered
    with the best of n samples of NAME; requests for other models are forwarded. Clients may set some options
    in the field "caps" of a request. Nothing is stored unless --keep is given. The page at / asks the server.
    """
    from caps.server.app import ServerConfig, serve as run  # noqa: I001, PLC0415  (loads what only it needs)
    from caps.server.telemetry import JsonLog  # noqa: PLC0415
    from caps.server.admission import Limits  # noqa: PLC0415
    from caps.server.virtual_models import virtual_configs  # noqa: PLC0415

    log = JsonLog(prompts=log_prompts, quiet=quiet)
    if not config.base_url and not config.model:
        raise SettingError("no model server: give --base-url http://localhost:8000/v1, or --model embedded")
    with fetch_bar(hidden=quiet) as report:
        resolved = resolve(
            config,
            replace(keys, api_key=upstream_api_key or keys.api_key),
            any_model=True,
            callbacks=Callbacks(lambda words: log.write("servers", message=words), report),
        )
    loaded = loaded_settings(ctx)
    if loaded is not None and "models" in loaded[1].split(", "):
        virtual_configs(resolved.config, loaded[0])  # names the line of a mistake
    serving = ServerConfig(
        resolved=resolved,
        host=host,
        port=port,
        keys=tuple(api_key or ()),
        allow_anyone=allow_anyone,
        limits=Limits(
            max_samples=max_samples,
            max_body=max_body,
            max_concurrent=max_concurrent,
            max_waiting=max_waiting,
            max_seconds=max_seconds,
            body_seconds=body_seconds,
            max_judge_tokens=max_judge_tokens,
        ),
        heartbeat=heartbeat,
        grace=grace,
        log=log,
        keep=keep,
        keep_last=keep_last,
        recent=recent,
        cors=tuple(cors or ()),
        settings=None if loaded is None else "{}: {}".format(*loaded),
    )
    asyncio.run(run(serving))
