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
from caps.server.admission import Limits
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
Cors = Annotated[
    list[str] | None,
    _server_option(
        "--cors", "Origin whose web pages may use this server, such as https://app.example. May be repeated.",
        "ORIGIN",
    ),
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log errors only.", rich_help_panel=FILES)]


@configured(
    "judge", "asking", "strategy", "evidence", "domain", "findings", "generation", "virtual models",
    "performance", "context",
    defaults={"samples": 8, "sandbox": "off"},
    without=("judge_profile", "preset", "method", "api_key"),
    announce=False,
)  # fmt: skip
def serve(
    ctx: typer.Context,
    config: RunConfig,
    keys: Keys,
    limits: Limits,
    upstream_api_key: UpstreamKey = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    api_key: ClientKeys = None,
    allow_anyone: Anyone = False,
    log_prompts: LogPrompts = False,
    keep: Keep = None,
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
        limits=limits,
        log=log,
        keep=keep,
        cors=tuple(cors or ()),
        settings=None if loaded is None else "{}: {}".format(*loaded),
    )
    asyncio.run(run(serving))
