"""Options that several commands share and that are no settings of a run, and single settings by name."""

from pathlib import Path
from typing import Annotated

import typer

from caps.cli.config_options import setting_option

Cases = Annotated[
    str, typer.Argument(metavar="CASES", help="Cases, one JSON object a line; - is standard input.")
]
Out = Annotated[Path | None, typer.Option("--out", envvar="CAPS_OUT", help="Folder for the run's files.")]
Force = Annotated[
    bool, typer.Option("--force", help="Write into --out even if it holds another run or other files.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N cases.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        envvar="CAPS_MAX_USD",
        min=0,
        help="Refuse to start if the run would surely cost more than this many USD.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key", help="The endpoint's key; better in the environment: CAPS_API_KEY or OPENAI_API_KEY."
    ),
]
NoJournal = Annotated[bool, typer.Option("--no-journal", help="Keep no replies: every run pays again.")]

# Settings of a run, for commands that take only a few of them.
Model = Annotated[str | None, setting_option("model")]
BaseUrl = Annotated[list[str] | None, setting_option("base_url")]
Profile = Annotated[str | None, setting_option("profile")]
View = Annotated[list[str] | None, setting_option("views")]
Prompts = Annotated[Path | None, setting_option("prompts")]
Tokenizer = Annotated[Path | None, setting_option("tokenizer")]
Seed = Annotated[int, setting_option("seed")]
Sandbox = Annotated[str, setting_option("sandbox")]
PriceInput = Annotated[float | None, setting_option("price_input")]
PriceOutput = Annotated[float | None, setting_option("price_output")]
PriceCached = Annotated[float | None, setting_option("price_cached")]
GpuHour = Annotated[float | None, setting_option("gpu_hour_usd")]
JournalFile = Annotated[Path | None, setting_option("journal")]
JudgeProfileFile = Annotated[Path | None, setting_option("judge_profile")]
