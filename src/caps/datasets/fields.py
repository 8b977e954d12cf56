"""Which fields of a row hold the problem, the candidates and the id: common names, or what `--map` says.

The first row of a file decides for all of it. A row with two fields that could be meant is refused with both
readings; one line says how the fields were read before anything is spent.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.datasets.reading import Row, decode_list, kind_of

#: Names under which other tools write the problem and the list of candidates.
PROBLEMS = (
    "prompt",
    "question",
    "instruction",
    "query",
    "input",
    "messages",
    "request.messages",
    "request.prompt",
)
CANDIDATES = (
    "responses", "completions", "outputs", "generations", "answers", "samples", "predictions", "choices",
    "response.choices",
)  # fmt: skip
#: One candidate per row: names of its text, and names of what rows of one problem have in common.
SAMPLES = ("candidate", "response", "completion", "output", "generation", "sample", "prediction")
GROUPS = ("problem_id", "question_id", "task_id", "prompt_id", "doc_id", "example_id", "group_id")
TEXTS = ("text", "content", "message.content", *SAMPLES, "generated_text")
NUMBERED = re.compile(
    rf"(?P<name>{'|'.join((*SAMPLES, 'answer'))})s?[ _-]?(?P<number>\d{{1,4}})", re.IGNORECASE
)
#: What a row of one candidate says of the candidate, not of the case.
OF_A_CANDIDATE = ("code", "logprob", "score", "correct", "passed_public_tests", "grade")
#: Names under which other tools write the known answer of a problem, and whether a candidate is right.
ANSWERS = ("ground_truth", "gold")
RIGHT = "is_correct"
TARGETS = ("problem", "candidates", "candidate", "id", "domain", "answer")
NUMBERS = ("logprob", "score", "grade")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
MOST_NAMED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMap:
    """Where a case is found in the rows of a file.

    Several `problem` fields are joined by a blank line. `candidates` is one field with a list, or several
    with a text each; where it is empty, `candidate` holds the one candidate of a row, and rows are grouped by
    `group` or, without it, by their problem. `renamed` are other fields of a case or (`candidates.score`) of
    its candidates.
    """

    problem: tuple[str, ...]
    candidates: tuple[str, ...] = ()
    candidate: str | None = None
    id: str | None = None
    group: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """How the fields are read, in words."""
        said = [f"problem from {' and '.join(self.problem)}"]
        if self.candidates:
            many = len(self.candidates) > 2
            names = (
                f"{self.candidates[0]} to {self.candidates[-1]}" if many else " and ".join(self.candidates)
            )
            said.append(f"candidates from {names}")
        elif self.candidate is not None:
            said.append(
                f"one candidate per row from {self.candidate}, grouped by {self.group or 'the problem'}"
            )
        said += [f"{name} from {path}" for name, path in self.renamed.items()]
        if self.id not in (None, "id"):
            said.append(f"id from {self.id}")
        return ", ".join(said)

    def case_row(self, row: Row) -> Row:
        """The row of a case under the names of caps; other fields are kept."""
        used = {*self.problem, *self.candidates, self.candidate, self.id, *self.renamed.values()}
        case = {name: value for name, value in row.items() if name not in used and name not in TARGETS[:3]}
        case["problem"] = self._problem(row)
        if self.id is not None and (name := find(row, self.id)) is not None:
            case["id"] = name
        for name, path in self.renamed.items():
            if "." not in name and (value := find(row, path)) is not None:
                case[name] = value
        if self.candidates:
            listed = [self._candidate(item) for item in self._listed(row)]
            for name, (path, values) in self._values_beside(row, len(listed)).items():
                case.pop(path, None)
                listed = [_with_value(*pair, name) for pair in zip(listed, values, strict=True)]
            case["candidates"] = listed
        elif self.candidate is not None:
            case["candidates"] = [self._sample(row)]
            case = {name: value for name, value in case.items() if name not in OF_A_CANDIDATE}
        return case

    def group_of(self, row: Row) -> str:
        """What rows of the same problem have in common."""
        value = self._problem(row) if self.group is None else find(row, self.group)
        if value is None:
            raise InputError(f"{self.group}: is missing; rows are grouped by it")
        return repr(value)

    def _problem(self, row: Row) -> Any:
        values = [value for path in self.problem if (value := find(row, path)) not in (None, "")]
        if not values:
            raise InputError(f"{' and '.join(self.problem)}: missing or empty; it holds the problem")
        if len(values) == 1:
            return values[0]
        return "\n\n".join(value if isinstance(value, str) else str(value) for value in values)

    def _listed(self, row: Row) -> list[Any]:
        if len(self.candidates) > 1:
            return [value for path in self.candidates if (value := find(row, path)) not in (None, "")]
        path = self.candidates[0]
        value = find(row, path)
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = decode_list(value, path)
        if value is None:
            raise InputError(f"{path}: is missing; it holds the candidates")
        if not isinstance(value, list):
            raise InputError(f"{path}: must be a list of candidates, not {kind_of(value)}")
        return value

    def _values_beside(self, row: Row, count: int) -> dict[str, tuple[str, list[Any]]]:
        """The fields with a list of something about each candidate, such as its score, and the lists."""
        lists = {}
        for name, path in self._of_candidates().items():
            values = find(row, path)
            if _is_list(values):
                values = decode_list(values, path) if isinstance(values, str) else values
                if len(values) == count:
                    lists[name] = path, values
                elif path in self.renamed.values():
                    raise InputError(f"{path}: has {len(values)} values for {count} candidates")
        return lists

    def _of_candidates(self) -> dict[str, str]:
        """Where a row says something of its candidates, by what it says."""
        paths = {name: name for name in OF_A_CANDIDATE}
        return paths | {name.partition(".")[2]: path for name, path in self.renamed.items() if "." in name}

    def _candidate(self, item: object) -> object:
        """A candidate as caps reads it: a text, or an object with a text."""
        if not isinstance(item, dict):
            return item
        paths = {name.partition(".")[2]: path for name, path in self.renamed.items() if "." in name}
        fields = {name: value for name, value in item.items() if name != "text"}
        text = find(item, paths.pop("text", "text"))
        if text is None:
            text = next((value for path in TEXTS if (value := find(item, path)) is not None), None)
        fields |= {name: value for name, path in paths.items() if (value := find(item, path)) is not None}
        return fields if text is None else fields | {"text": text}

    def _sample(self, row: Row) -> object:
        """The candidate of a row that holds one, with what the row says of it."""
        value = find(row, self.candidate or "")
        if value is None:
            raise InputError(f"{self.candidate}: is missing; it holds the candidate")
        candidate = self._candidate(value) if isinstance(value, dict) else {"text": value}
        said = {
            name: _typed(name, told)
            for name, path in self._of_candidates().items()
            if (told := find(row, path)) is not None
        }
        return candidate | said if isinstance(candidate, dict) else candidate


def _with_value(candidate: Any, value: object, name: str) -> Any:
    if value is None:
        return candidate
    return (candidate if isinstance(candidate, dict) else {"text": candidate}) | {name: _typed(name, value)}


def _typed(name: str, value: object) -> object:
    """A value of a table, where truths are numbers or everything is text, as caps reads it."""
    if name in ("correct", "passed_public_tests") and value in (0, 1):
        return bool(value)
    if not isinstance(value, str):
        return value
    if name in NUMBERS:
        try:
            return float(value)
        except ValueError:
            raise InputError(f"{name}: must be a number, not {value[:40]!r}") from None
    if name in ("correct", "passed_public_tests"):
        if value.strip().lower() not in TRUTHS:
            raise InputError(f"{name}: must be true or false, not {value[:40]!r}")
        return TRUTHS[value.strip().lower()]
    return value


def find(row: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as `request.messages`; a field of that very name comes first."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def parse_map(words: str | Mapping[str, str]) -> dict[str, str]:
    """Read `problem=prompt,candidates=outputs`, or the same as a mapping, or raise a `SettingError`."""
    if isinstance(words, Mapping):
        words = ",".join(f"{name}={path}" for name, path in words.items())
    paths: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in words.split(","))):
        name, equals, path = (one.strip() for one in part.partition("="))
        of_candidate = name.startswith("candidates.") and name.count(".") == 1
        if not equals or not path:
            raise SettingError(f"--map {part!r}: write NAME=FIELD, such as problem=prompt")
        if name not in TARGETS and not of_candidate:
            raise SettingError(
                f"--map {part!r}: {name!r} is no part of a case: {nearest(name, TARGETS)}there are "
                f"{', '.join(TARGETS)}, and candidates.score, candidates.correct and the like"
            )
        paths[name] = path
    if "candidates" in paths and "candidate" in paths:
        raise SettingError(
            "--map: candidates is a field with a list, candidate one of a single text: give one"
        )
    return paths


def standard_row(row: Row, paths: Mapping[str, str]) -> Row:
    """A row of one case under the names of caps; one that has them already is returned as it is."""
    if not paths and {"problem", "candidates"} & row.keys() and not has_labels_beside(row):
        return row
    fields = understand(row, paths)
    if fields.candidate is not None:
        raise InputError(f"{fields.candidate}: holds one candidate; a case needs a list of them")
    return fields.case_row(row)


def has_labels_beside(row: Row) -> bool:
    """Whether a row has a list that says of each candidate whether it is right."""
    return _is_list(row.get(RIGHT))


def understand(row: Row, paths: Mapping[str, str], *, bare: bool = False) -> FieldMap:
    """Decide from its first row how a file is read; `bare` rows need no candidates."""
    problem = tuple(paths["problem"].split("+")) if "problem" in paths else _problem_field(row)
    _check_stated(row, paths)
    candidates: tuple[str, ...] = ()
    candidate: str | None = paths.get("candidate")
    if "candidates" in paths:
        candidates = tuple(paths["candidates"].split("+"))
    elif candidate is None:
        candidates = _list_fields(row)
        if not candidates:
            candidate = _sample_field(row)
    if not candidates and candidate is None and not bare:
        raise InputError(_no_candidates(row))
    one_each = candidate is not None
    group = _first(row, (paths["id"],) if "id" in paths else GROUPS) if one_each else None
    named = paths.get("id") or group or next((name for name in ("id", *GROUPS) if name in row), None)
    others = {
        name: path for name, path in paths.items() if name not in ("problem", "candidates", "candidate", "id")
    }
    others = _usual_labels(row, one_each=one_each) | others
    return FieldMap(
        problem=problem, candidates=candidates, candidate=candidate, id=named, group=group, renamed=others
    )


def group_rows(
    rows: Iterable[tuple[int, Row | InputError]], fields: FieldMap, say: Callable[[str], None]
) -> Iterator[tuple[int, Row | InputError]]:
    """Join rows of one candidate each to rows of cases, in the order of their first rows.

    `say` is called with the columns that are dropped. A case without an id is named after its place, from 1.
    """
    cases: dict[str, tuple[int, Row]] = {}
    dropped: dict[str, None] = {}
    for number, row in rows:
        try:
            if isinstance(row, InputError):
                raise row
            key, case = fields.group_of(row), fields.case_row(row)
            if key not in cases:
                cases[key] = number, case
                continue
            earlier = cases[key][1]
            if earlier["problem"] != case["problem"]:
                raise InputError(f"{fields.group}: rows of the same value have different problems")
        except InputError as error:
            yield number, error
            continue
        earlier["candidates"] += case["candidates"]
        for name in [
            name for name, value in earlier.items() if name != "candidates" and case.get(name) != value
        ]:
            del earlier[name]  # it differs from row to row, so it is not of the case
            dropped[name] = None
        dropped |= dict.fromkeys(case.keys() - earlier.keys())
    dropped.pop("id", None)
    if dropped:
        say(
            f"left out, since rows of the same problem differ in them: {_shortened_list(list(dropped))}; "
            f"--map candidates.NAME=FIELD keeps a number of each candidate"
        )
    if not all("id" in case for _, case in cases.values()):  # it names rows, not problems
        for place, (_, case) in enumerate(cases.values(), start=1):
            case["id"] = str(place)
    yield from cases.values()


def _usual_labels(row: Row, *, one_each: bool) -> dict[str, str]:
    """Where a row holds labels whose names are not those of caps; of `one_each` it holds one candidate."""
    labels = {}
    answer = next((name for name in ANSWERS if isinstance(row.get(name), str | int | float)), None)
    if answer is not None and row.get("answer") is None:
        labels["answer"] = answer
    if "correct" not in row and (has_labels_beside(row) or (one_each and RIGHT in row)):
        labels["candidates.correct"] = RIGHT
    return labels


def _problem_field(row: Row) -> tuple[str, ...]:
    if find(row, "problem") is not None:
        return ("problem",)
    paths = [path for path in PROBLEMS if isinstance(value := find(row, path), str | list) and value]
    if len({repr(find(row, path)) for path in paths}) > 1:
        joined = f", or --map problem={'+'.join(paths[:2])} for both" if len(paths) == 2 else ""
        readings = " or ".join(f"--map problem={path}" for path in paths)
        raise InputError(f"{_quoted(paths)} may each hold the problem: say which, {readings}{joined}")
    if not paths:
        raise InputError(_missing(row, "problem", PROBLEMS))
    return (paths[0],)


def _list_fields(row: Row) -> tuple[str, ...]:
    if "candidates" in row:
        return ("candidates",)
    paths = [path for path in CANDIDATES if _is_list(find(row, path))]
    numbered = _numbered(row)
    if len(paths) + bool(numbered) > 1:
        readings = [f"--map candidates={path}" for path in paths]
        readings += [f"--map candidates={'+'.join(numbered)}"] if numbered else []
        raise InputError(
            f"{_quoted([*paths, *numbered])} may each hold the candidates: say which, {' or '.join(readings)}"
        )
    return tuple(paths) or numbered


def _numbered(row: Row) -> tuple[str, ...]:
    """Columns such as response_1, response_2: of the name that has most, in order of their numbers."""
    columns: dict[str, list[tuple[int, str]]] = {}
    for name in row:
        if match := NUMBERED.fullmatch(name):
            columns.setdefault(match["name"].lower(), []).append((int(match["number"]), name))
    best = max(columns.values(), key=len, default=[])
    return tuple(name for _, name in sorted(best)) if len(best) > 1 else ()


def _sample_field(row: Row) -> str | None:
    paths = [path for path in SAMPLES if isinstance(value := find(row, path), str | dict) and value]
    if len(paths) > 1:
        readings = " or ".join(f"--map candidate={path}" for path in paths)
        raise InputError(f"{_quoted(paths)} may each hold the candidate of a row: say which, {readings}")
    return paths[0] if paths else None


def _check_stated(row: Row, mapped: Mapping[str, str]) -> None:
    """Refuse a field of `--map` that the first row does not have; it may be misspelt."""
    for name, words in mapped.items():
        if name.startswith("candidates."):
            continue
        for path in words.split("+") if name in ("problem", "candidates") else [words]:
            if find(row, path) is None and path.partition(".")[0] not in row:
                guess = nearest(path, list(row))
                raise InputError(f"--map {name}={path}: there is no field {path!r}: {guess}{fields_of(row)}")


def _no_candidates(row: Row) -> str:
    said = _missing(row, "candidates", (*CANDIDATES, "candidates"))
    alone = next((name for name in ("answer", "text", "content") if isinstance(row.get(name), str)), None)
    return said if alone is None else f"{said}; if each row holds one candidate: --map candidate={alone}"


def _missing(row: Row, what: str, names: Sequence[str]) -> str:
    for name in names:
        if name in row:  # by its right name, but of no use
            value = row[name]
            held = "is empty" if value in ("", [], {}) else f"is {kind_of(value)}"
            wanted = "a text or a list of chat messages" if what == "problem" else "a list of candidates"
            return f"{name}: {held}; {wanted} is wanted, or --map {what}=FIELD; {fields_of(row)}"
    guesses = [name for name in row if nearest(name, [what, *names])]
    guess = f"did you mean --map {what}={guesses[0]}? " if guesses else f"name it with --map {what}=FIELD; "
    return f"no field holds the {what}: {guess}{fields_of(row)}"


def fields_of(row: Row) -> str:
    """The names of the fields of a row, in words."""
    return f"the fields are {_shortened_list(list(row))}" if row else "it has no fields"


def _shortened_list(names: Sequence[object]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(str(name)[:40] for name in names[:MOST_NAMED])}{more}"


def _is_list(value: object) -> bool:
    return bool(value) and (
        isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("["))
    )


def _first(row: Row, names: Iterable[str]) -> str | None:
    return next((name for name in names if find(row, name) is not None), None)


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)
