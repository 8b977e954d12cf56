"""lm-evaluation-harness: a filter that chooses among the `repeats` of a request.

Import this module where the task is defined, and name the filter `caps`:

    repeats: 8
    filter_list:
      - name: best-of-8
        filter:
          - function: caps
            question: "{{question}}"
          - function: take_first

A filter sees responses and documents, not prompts: `question` is a field of the document, or a template as
in `doc_to_text`. The model that judges is that of `caps.select_many`: by settings of the filter, or by the
environment.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.utils import apply_template

from caps.api import ManyOptions, Selected, rows, select_many_sync
from caps.core.errors import CapsError

_log = logging.getLogger("lm_eval.caps")


@register_filter("caps")
class BestOfN(Filter):
    """Keeps the best response of each document; the others follow nowhere, as with `majority_vote`.

    `results` is a file to which a line about each choice is written: why, and what it cost.
    """

    def __init__(
        self,
        question: str = "question",
        *,
        results: str | None = None,
        **options: Unpack[ManyOptions],
    ) -> None:
        super().__init__()
        self._question, self._results = question, results
        self._options = options

    def apply(self, resps: Iterable[Iterable[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
        """The chosen response of each document, in a list of one."""
        responses = [list(one) for one in resps]
        cases = [self._case(n, texts, docs[n]) for n, texts in enumerate(responses)]
        try:
            chosen = select_many_sync(cases, **self._options)
        except CapsError as error:
            raise RuntimeError(f"caps: {error}") from error
        self._note(chosen)
        bad = [one for one in chosen if one.error is not None]
        if bad:
            raise RuntimeError(
                f"caps: {len(bad)} of {len(chosen)} documents failed, the first: {bad[0].error}"
            )
        return [[one.text] for one in chosen]

    def _case(self, number: int, texts: list[str], doc: Mapping[str, Any]) -> dict[str, Any]:
        if "{{" in self._question:
            problem = str(apply_template(self._question, dict(doc)))
        elif self._question in doc:
            problem = str(doc[self._question])
        else:
            fields = ", ".join(map(repr, doc))
            raise ValueError(f"question: the document has no field {self._question!r}; it has {fields}")
        return {"id": str(number), "problem": problem, "candidates": texts}

    def _note(self, chosen: list[Selected]) -> None:
        tokens = sum(one["tokens"] + one["output_tokens"] for one in rows(chosen))
        calls = sum(one.ledger.total().calls for one in chosen)
        _log.info("caps: %d documents, %d judge calls, %d tokens", len(chosen), calls, tokens)
        if self._results is not None:
            lines = [json.dumps(one.to_dict()) for one in chosen]
            Path(self._results).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
