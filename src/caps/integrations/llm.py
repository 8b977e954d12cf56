"""`llm`: the command `llm caps "question"`, which answers with the best of N responses of a model of `llm`.

    llm caps "What is 17 * 23?" -m gpt-4o-mini -n 8 --judge gpt-4o

Install caps beside it (`llm install caps-select`); any model that `llm` knows can answer and judge.
"""

import asyncio
import sys
from typing import Any

import click
import llm

from caps.api import Selected, SelectOptions, select_sync
from caps.integrations.tool_models import ToolModel, reported, usage_of
from caps.models.base import Completion, Request


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Add the command `llm caps`."""
    cli.add_command(best_of_n)


@click.command(name="caps")
@click.argument("question", required=False)
@click.option("-m", "--model", help="Model that answers. Default: that of llm.")
@click.option("-n", "--samples", type=click.IntRange(1, 1000), default=8, show_default=True, help="Answers.")
@click.option("-s", "--system", help="System prompt of the answers.")
@click.option("-j", "--judge", help="Model that compares the answers. Default: the one that answers.")
@click.option("--strategy", help="How to choose, such as posterior or caps-r.")
@click.option("--journal", type=click.Path(dir_okay=False), help="File that stores replies of the judge.")
@click.option("--temperature", type=float, help="Temperature of the answers, if the model has that option.")
def best_of_n(  # noqa: PLR0917
    question: str | None,
    model: str | None,
    samples: int,
    system: str | None,
    judge: str | None,
    strategy: str | None,
    journal: str | None,
    temperature: float | None,
) -> None:
    """Answer a question with the best of several responses."""
    text = question or sys.stdin.read().strip()
    if not text:
        raise click.UsageError("there is no question: give one, or pipe it in")
    writer = _known(model or llm.get_default_model())
    wanted = {} if temperature is None else {"temperature": temperature}
    answers = asyncio.run(_answers(writer, text, system, samples, wanted))
    judging = judge_of(_known(judge) if judge else writer)
    options: SelectOptions = {"model": judging}
    if strategy is not None:
        options["strategy"] = strategy
    if journal is not None:
        options["journal"] = journal
    with reported(click.ClickException):
        chosen = select_sync({"problem": text, "candidates": answers}, **options)
    click.echo(chosen.text)
    click.echo(_summary(chosen), err=True)


def judge_of(model: Any) -> ToolModel:
    """A model of `llm` as the judge."""

    async def complete(request: Request) -> Completion:
        settings = {"temperature": request.temperature, "max_tokens": request.max_tokens}
        system = "\n\n".join(one.content for one in request.messages if one.role == "system") or None
        prompt = "\n\n".join(one.content for one in request.messages if one.role != "system")
        text, used = await asyncio.to_thread(_respond, model, prompt, system, settings)
        return Completion(text, "stop", usage_of(request, text, used.input, used.output))

    return ToolModel(model.model_id, complete)


def _known(name: str) -> Any:
    try:
        return llm.get_model(name)
    except llm.UnknownModelError as error:
        raise click.ClickException(f"{error}: see llm models") from None


def _respond(model: Any, prompt: str, system: str | None, settings: dict[str, Any]) -> tuple[str, Any]:
    """A response and its usage; settings that the model does not have are left out."""
    known = {name: value for name, value in settings.items() if name in model.Options.model_fields}
    response = model.prompt(prompt, system=system, stream=False, **known)
    return response.text(), response.usage()


async def _answers(
    model: Any, prompt: str, system: str | None, samples: int, settings: dict[str, Any]
) -> list[str]:
    """The answers of a model; those that failed are left out, unless all did."""
    asked = (asyncio.to_thread(_respond, model, prompt, system, settings) for _ in range(samples))
    found = await asyncio.gather(*asked, return_exceptions=True)
    texts = [one[0] for one in found if not isinstance(one, BaseException)]
    if not texts:
        raise click.ClickException(f"none of {samples} answers succeeded: {found[0]}")
    return texts


def _summary(chosen: Selected) -> str:
    calls, sure = chosen.ledger.total().calls, chosen.probability
    known = "" if sure is None else f", probability {sure:.2f}"
    return (
        f"answer {chosen.winner} of {len(chosen.order)}{known}, {calls} judge calls, {chosen.tokens} tokens"
    )
