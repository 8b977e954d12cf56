"""`--config FILE`: options from a TOML file, under those of the command line and the environment."""

from pathlib import Path
from typing import Annotated, Any

import typer

from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.files import read_toml


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make a file's values the defaults of this command; an unknown key is an error."""
    if path is None:
        return None
    values = read_toml(path, option="--config")
    known = {option.lstrip("-"): param for param in ctx.command.params for option in param.opts}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        option = key.replace("_", "-")
        param = known.get(option)
        if param is None or param.name is None:
            raise SettingError(
                f"--config {path}: {key}: no such option; {nearest(option, list(known))}see --help"
            )
        default = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
        repeated = getattr(param, "multiple", False) and not isinstance(default, list)
        defaults[param.name] = [default] if repeated else default
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return path


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", envvar="CAPS_CONFIG", is_eager=True, callback=_load, help="Options from a TOML file."
    ),
]
