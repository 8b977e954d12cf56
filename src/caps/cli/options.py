"""Options shared by the commands that spend, each with its environment variable."""

from pathlib import Path
from typing import Annotated

import typer

from caps.assemble import ENGINES
from caps.core.settings import settings_of
from caps.engines.batch_files import BatchSettings

_FIELDS = ", ".join(settings_of(BatchSettings()))

Cases = Annotated[
    str, typer.Argument(metavar="CASES", help="Cases, one JSON object a line; - is standard input.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "--judge-model", envvar="CAPS_MODEL", help="Judge model: a name, embedded, or FILE.gguf."
    ),
]
BaseUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--base-url",
        "--judge-base-url",
        metavar="URL[=WEIGHT]",
        envvar=["CAPS_BASE_URL", "OPENAI_BASE_URL"],
        help="OpenAI-compatible endpoint; repeated, or with commas between: several servers of one model.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar=["CAPS_API_KEY", "OPENAI_API_KEY"],
        help="Its key; better left in the environment.",
    ),
]
SampleModel = Annotated[
    str | None, typer.Option("--model", envvar="CAPS_MODEL", help="Name of the model that answers.")
]
SampleBaseUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--base-url",
        metavar="URL[=WEIGHT]",
        envvar=["CAPS_BASE_URL", "OPENAI_BASE_URL"],
        help="Its endpoint; repeated, or with commas between: several servers of one model.",
    ),
]
JudgeModel = Annotated[
    str | None,
    typer.Option("--judge-model", envvar="CAPS_JUDGE_MODEL", help="Another model as the judge."),
]
JudgeBaseUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--judge-base-url",
        metavar="URL[=WEIGHT]",
        envvar="CAPS_JUDGE_BASE_URL",
        help="Its endpoint, if another.",
    ),
]
JudgeApiKey = Annotated[
    str | None, typer.Option("--judge-api-key", envvar="CAPS_JUDGE_API_KEY", help="Its key, if another.")
]
Samples = Annotated[
    int, typer.Option("--samples", "-n", envvar="CAPS_SAMPLES", min=1, help="Answers to draw for a problem.")
]
Preset = Annotated[
    str, typer.Option("--preset", envvar="CAPS_PRESET", help="How they are drawn: see caps list presets.")
]
Method = Annotated[
    str, typer.Option("--method", envvar="CAPS_METHOD", help="How they come about: see caps list methods.")
]
SampleSeed = Annotated[
    int | None,
    typer.Option("--seed", envvar="CAPS_SEED", min=0, help="Of the first sample, in place of the preset's."),
]
ModelE1 = Annotated[
    str | None,
    typer.Option("--judge-model-e1", envvar="CAPS_JUDGE_MODEL_E1", help="Another judge for partial views."),
]
BaseUrlE1 = Annotated[
    list[str] | None,
    typer.Option(
        "--judge-base-url-e1",
        metavar="URL[=WEIGHT]",
        envvar="CAPS_JUDGE_BASE_URL_E1",
        help="Its endpoint, if another.",
    ),
]
ApiKeyE1 = Annotated[
    str | None,
    typer.Option("--judge-api-key-e1", envvar="CAPS_JUDGE_API_KEY_E1", help="Its key, if another."),
]
Strategy = Annotated[
    str, typer.Option("--strategy", envvar="CAPS_STRATEGY", help="How to choose: see caps list strategies.")
]
JudgeProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--judge-profile",
        envvar="CAPS_JUDGE_PROFILE",
        help="What caps diagnose --save measured of the judge.",
    ),
]
Calibrate = Annotated[
    int | None,
    typer.Option(
        "--calibrate",
        envvar="CAPS_CALIBRATE",
        metavar="K",
        help="Fit what the judge is worth on the first K cases, then freeze it.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", envvar="CAPS_PROFILE", help="What a judge sees: see caps list profiles."),
]
View = Annotated[
    list[str] | None,
    typer.Option("--view", metavar="SLOT=VIEW", help="Replace one view: partial=thinking; may be repeated."),
]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", envvar="CAPS_PROMPTS", help="Folder with prompt templates of your own."),
]
PromptVersion = Annotated[
    str | None,
    typer.Option(
        "--prompt-version",
        envvar="CAPS_PROMPT_VERSION",
        help="Prompts to ask with: v1 or v2 (that of the run in --out, else v2).",
    ),
]
Confidence = Annotated[
    str,
    typer.Option("--confidence", envvar="CAPS_CONFIDENCE", help="verbal (HIGH/LOW), logprobs, or auto."),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", envvar="CAPS_MAX_TOKENS", min=1, help="Room for a judge's reply.")
]
Reply = Annotated[
    str | None,
    typer.Option(
        "--reply",
        envvar="CAPS_REPLY",
        help="free, or tags: bare verdicts, on llama.cpp (tags for embedded).",
    ),
]
HardEvidence = Annotated[
    str,
    typer.Option(
        "--hard-evidence",
        envvar="CAPS_HARD_EVIDENCE",
        help="Run programs on public examples and compare answers first: auto, on or off.",
    ),
]
Sandbox = Annotated[
    str,
    typer.Option("--sandbox", envvar="CAPS_SANDBOX", help="Where programs run: auto, bwrap or unsafe-local."),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context", envvar="CAPS_CONTEXT", min=256, help="Embedded models: tokens a call may take."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", envvar="CAPS_THREADS", min=1, help="Embedded models: threads (by the load)."),
]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--extra", metavar="NAME=JSON", help='More for the server: reasoning_effort="low"; may be repeated.'
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", envvar="CAPS_ENGINE", help=f"Who plays: {', '.join(ENGINES)}.")
]
Batch = Annotated[
    list[str] | None,
    typer.Option("--batch", metavar="FIELD=VALUE", help=f"Of batches: {_FIELDS}; may be repeated."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        envvar=["CAPS_RAY_ADDRESS", "RAY_ADDRESS"],
        help="Engine ray: HOST:PORT of a cluster, or auto (starts one here).",
    ),
]
RayWorkers = Annotated[
    int,
    typer.Option("--ray-workers", envvar="CAPS_RAY_WORKERS", min=1, help="Engine ray: processes that play."),
]
Seed = Annotated[int, typer.Option("--seed", envvar="CAPS_SEED", help="Same seed, same pairings.")]
Connections = Annotated[
    str,
    typer.Option(
        "--max-connections",
        envvar="CAPS_MAX_CONNECTIONS",
        help="Calls at once at a server: a number, or auto.",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", envvar="CAPS_TIMEOUT", min=0.1, help="Seconds to wait for a reply.")
]
JournalFile = Annotated[
    Path | None,
    typer.Option("--journal", envvar="CAPS_JOURNAL", help="Where replies are kept (your data folder)."),
]
NoJournal = Annotated[bool, typer.Option("--no-journal", help="Keep no replies: every run pays again.")]
Durable = Annotated[bool, typer.Option("--durable", help="Survive a power cut too, not only a kill.")]
Out = Annotated[Path | None, typer.Option("--out", envvar="CAPS_OUT", help="Folder for the run's files.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many cases.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
PriceInput = Annotated[
    float | None,
    typer.Option("--price-input", envvar="CAPS_PRICE_INPUT", min=0, help="Dollars a million tokens read."),
]
PriceOutput = Annotated[
    float | None,
    typer.Option("--price-output", envvar="CAPS_PRICE_OUTPUT", min=0, help="Dollars a million written."),
]
PriceCached = Annotated[
    float | None,
    typer.Option("--price-cached", envvar="CAPS_PRICE_CACHED", min=0, help="Dollars a million re-read."),
]
GpuHour = Annotated[
    float | None,
    typer.Option("--gpu-hour-usd", envvar="CAPS_GPU_HOUR_USD", min=0, help="Dollars an hour of your GPUs."),
]

BudgetTokens = Annotated[
    int | None,
    typer.Option("--budget-tokens", envvar="CAPS_BUDGET_TOKENS", min=0, help="Tokens a case may take."),
]
BudgetUsd = Annotated[
    float | None,
    typer.Option("--budget-usd", envvar="CAPS_BUDGET_USD", min=0, help="Dollars a case may take."),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option("--budget-seconds", envvar="CAPS_BUDGET_SECONDS", min=0, help="Seconds a case may take."),
]
BudgetTotalTokens = Annotated[
    int | None,
    typer.Option("--budget-total-tokens", envvar="CAPS_BUDGET_TOTAL_TOKENS", min=0, help="Tokens in all."),
]
BudgetTotalUsd = Annotated[
    float | None,
    typer.Option("--budget-total-usd", envvar="CAPS_BUDGET_TOTAL_USD", min=0, help="Dollars in all."),
]
BudgetTotalSeconds = Annotated[
    float | None,
    typer.Option("--budget-total-seconds", envvar="CAPS_BUDGET_TOTAL_SECONDS", min=0, help="Seconds in all."),
]

MaxUsd = Annotated[
    float | None,
    typer.Option("--max-usd", envvar="CAPS_MAX_USD", min=0, help="Do not start what surely costs more."),
]
