"""The help of commands: options in panels, one line each where that is possible."""

import inspect
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

MAIN, FILES, JUDGE, STRATEGY = "Main options", "Input and output", "Judge", "Strategy and evidence"
GENERATION, BUDGET, PERFORMANCE, SERVER = "Generation", "Budget and prices", "Performance", "Server"
SIZES, ADVANCED = "Problems and sizes", "Advanced"
#: The panels of the help in the order in which they are printed.
PANELS = (MAIN, FILES, JUDGE, STRATEGY, GENERATION, SIZES, BUDGET, PERFORMANCE, SERVER, ADVANCED)

WIDTH = 100  # longer lines are hard to read
SHORTEST, LONGEST = 8, 30  # characters of the left column of a panel
ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"


def print_help(command: Any, ctx: Any) -> None:
    """Print usage, description, commands or options by panel, and the closing remark of a command."""
    console = Console(highlight=False)
    console = Console(highlight=False, width=min(console.width, WIDTH))
    console.print(Text(f"Usage: {usage(command, ctx)}", style="bold"))
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        console.print()
        console.print(Text("\n".join(_wrapped(paragraph, console.width))))
    for panel, rows in panels(command, ctx):
        console.print()
        console.print(Text(panel, style="bold"))
        width = min(max(SHORTEST, *(len(name) for name, _ in rows)), LONGEST)
        console.print(_rows(rows, width, console.width))
    if command.epilog:
        console.print()
        console.print(Text("\n".join(_wrapped(command.epilog, console.width)), style="dim"))


def panels(command: Any, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """The panels of a command in the order of its help, each with its rows: names and what they mean."""
    sections: dict[str, list[tuple[str, str]]] = {}
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None and not child.hidden:
                summary = inspect.cleandoc(child.help or "").partition("\n\n")[0]
                _add(sections, getattr(child, "rich_help_panel", None) or COMMANDS, name, summary)
    for param in command.get_params(ctx):
        if not getattr(param, "hidden", False):
            usual = ARGUMENTS if param.param_type_name == "argument" else OPTIONS
            panel = getattr(param, "rich_help_panel", None) or usual
            _add(sections, panel, _names(param), _meaning(param))
    return sorted(sections.items(), key=_panel_order)


def _panel_order(section: tuple[str, object]) -> int:
    """Where a panel stands: arguments first, then shared panels in their order."""
    return PANELS.index(section[0]) if section[0] in PANELS else -1


def usage(command: Any, ctx: Any) -> str:
    """How the command is called: arguments, then options."""
    if isinstance(command, TyperGroup):
        return f"{ctx.command_path} COMMAND [OPTIONS]"
    arguments = [param.metavar for param in command.params if param.param_type_name == "argument"]
    return " ".join([ctx.command_path, *arguments, "[OPTIONS]"])


def _add(sections: dict[str, list[tuple[str, str]]], panel: str, name: str, meaning: str) -> None:
    sections.setdefault(panel, []).append((name, " ".join(meaning.split())))


def _names(param: Any) -> str:
    """An option's names and the placeholder of its value."""
    if param.param_type_name == "argument":
        return str(param.metavar)
    names = "/".join([", ".join(sorted(param.opts, key=len)), *param.secondary_opts])
    return names if param.is_flag else f"{names} {param.metavar or 'VALUE'}"


def _meaning(param: Any) -> str:
    default = param.default
    if not param.show_default or isinstance(default, bool) or default in (None, "", [], ()):
        return str(param.help or "")
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{str(param.help).rstrip('.')} (default: {shown})."


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def _rows(rows: Iterable[tuple[str, str]], width: int, room: int) -> Text:
    """Names and meanings in two columns; a name that is too long has a line of its own."""
    lines = Text()
    for name, meaning in rows:
        words = _wrapped(meaning, room - width - 4) or [""]
        lines.append(f"  {name:<{width}}  " if len(name) <= width else f"  {name}\n{'':{width + 4}}", "cyan")
        lines.append(f"\n{'':{width + 4}}".join(words) + "\n")
    lines.rstrip()
    return lines
