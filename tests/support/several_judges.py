"""Runs with several servers as judges, for the tests of several judges."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, write_cases
from support.shell import caps


def opposite(body, number=0):
    """A judge that prefers the worse candidate."""
    text = better_quality_wins(body).text
    return Reply(
        text.replace("<winner>A", "<winner>_")
        .replace("<winner>B", "<winner>A")
        .replace("<winner>_", "<winner>B")
    )


class RunOfJudges:
    """Servers as judges, named j0, j1, …, whose tables stand in a file."""

    def __init__(self, folder: Path, *servers: ScriptedEndpoint) -> None:
        self.folder, self.servers = folder, servers
        self.cases = write_cases(folder / "cases.jsonl", 2, n=5)
        self.file = folder / "judges.toml"
        self.write()

    def write(self, weights: Sequence[float] = (1, 1, 1), levels: Sequence[str] = ("both",) * 3) -> None:
        """Write the tables of the judges."""
        tables = [
            f'[[judge]]\nname = "j{i}"\nmodel = "stub-{i}"\nbase_url = "{server.url}"\n'
            f'price_input = {i + 1}\nprice_output = {i + 1}\nweight = {weight}\nlevel = "{level}"\n'
            for i, (server, weight, level) in enumerate(zip(self.servers, weights, levels, strict=False))
        ]
        self.file.write_text('strategy = "caps-r"\nhard_evidence = "off"\n' + "\n".join(tables))

    def run(self, command="select", *words, out="out", journal="journal.sqlite"):
        options = ("--config", self.file, "--journal", self.folder / journal, "--out", self.folder / out)
        return caps(command, self.cases, *options, *words)

    def asked(self) -> list[int]:
        """Requests of each server that judge something."""
        return [sum("quality=" in str(body) for body in server.bodies) for server in self.servers]

    def lines(self, out="out", name="selections"):
        return [json.loads(line) for line in (self.folder / out / f"{name}.jsonl").read_text().splitlines()]


@contextmanager
def three_judges(folder: Path) -> Iterator[RunOfJudges]:
    """Two judges that agree, and one that always prefers the other candidate."""
    with (
        ScriptedEndpoint(better_quality_wins) as a,
        ScriptedEndpoint(better_quality_wins) as b,
        ScriptedEndpoint(opposite) as c,
    ):
        yield RunOfJudges(folder, a, b, c)
