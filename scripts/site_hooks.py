"""Hooks of mkdocs: the site is made from the files of the repository as they are.

README, CHANGELOG, CONTRIBUTING and SECURITY become pages, programs of `examples/` and files of `deploy/`
come along, and links are moved accordingly. `FOLDER/*` in the nav stands for the pages of a folder that
the nav does not name. Three comments in a page are replaced: `<!-- other names -->` by the exported names
that the page does not document, `<!-- fields of NAME -->` by the settings of a strategy, `<!-- settings
-->` by those of a run.
"""

import dataclasses
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
SHIPPED = ("examples/*.py", "deploy/*", "studies/**/*.toml", "LICENSE", "NOTICE", "CITATION.cff")
OTHER_NAMES, SETTINGS = "<!-- other names -->", "<!-- settings -->"
FIELDS = re.compile(r"<!-- fields of (\w+) -->")
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Expand `FOLDER/*` in the nav."""
    named = set(_named(config.nav))
    config.nav = [_expanded(entry, named) for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what stands outside docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for pattern in SHIPPED:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Move links to where their targets stand in the site."""
    if OTHER_NAMES in markdown:
        markdown = markdown.replace(OTHER_NAMES, other_names(markdown))
    if SETTINGS in markdown:
        markdown = markdown.replace(SETTINGS, settings())
    markdown = FIELDS.sub(lambda match: fields_of(match[1]), markdown)
    here = page.file.src_uri
    source = next((path for path, name in PAGES.items() if name == here), f"docs/{here}")
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda match: _moved(match, source, here), part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(html: str, **_: Any) -> str:
    """Make corners of tables plain cells: a header without a text has no name."""
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)


def on_post_page(output: str, **_: Any) -> str:
    """Give the search of the theme a name."""
    return output.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )


def other_names(markdown: str) -> str:
    """Directives for the exported names that have none."""
    import caps  # noqa: PLC0415

    documented = set(re.findall(r"^::: caps\.(\w+)$", markdown, re.MULTILINE))
    names = [name for name in caps.__all__ if name not in documented]
    return "\n\n".join(["## Other names", *(f"::: caps.{name}" for name in names)]) if names else ""


def fields_of(name: str) -> str:
    """A table of the settings of a strategy."""
    import caps  # noqa: PLC0415

    rows = [
        (f"`{spec.name}`", f"`{spec.default!r}`", spec.metadata.get("about", ""))
        for spec in dataclasses.fields(getattr(caps, name))
    ]
    return _table(("setting", "default", "meaning"), rows)


def settings() -> str:
    """A table of the settings of a run."""
    from caps.config import options  # noqa: PLC0415

    rows = [
        (
            f"`{option.name}`",
            option.help,
            "" if option.default in (None, "", ()) else f"`{option.default}`",
            ", ".join(f"`{name}`" for name in option.env),
            "yes" if option.per_request else "",
            "yes" if option.guarded else "plug-ins" if option.plugin else "",
        )
        for option in options().values()
    ]
    return _table(("setting", "meaning", "default", "variable", "request", "guarded"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", r"\|") for cell in line] for line in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *cells])


def _moved(match: re.Match[str], source: str, here: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
    if not (ROOT / target).exists() and target not in {f"docs/{page}" for page in PAGES.values()}:
        return match[0]  # mkdocs names it
    target = PAGES.get(target, target.removeprefix("docs/"))
    return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}{match[3] or ''}{match[4]}"


def _named(entry: Any) -> list[str]:
    """The pages the nav names."""
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [name for child in children for name in _named(child)]


def _expanded(entry: Any, named: set[str]) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(child, named) for title, child in entry.items()}
    if isinstance(entry, list):
        return [child for part in entry for child in _pages(part, named)]
    return entry


def _pages(entry: Any, named: set[str]) -> list[Any]:
    if not (isinstance(entry, str) and entry.endswith("/*")):
        return [_expanded(entry, named)]
    pages = sorted((ROOT / "docs" / entry[:-2]).glob("*.md"))
    names = [path.relative_to(ROOT / "docs").as_posix() for path in pages]
    return [name for name in names if name not in named]
