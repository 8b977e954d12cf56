"""The algebra worker: reads pairs of answers, one JSON list per line, and writes whether they are equal.

This module alone uses math-verify, and `expressions` SymPy. Both may run forever or exhaust memory on a
hostile answer, so this runs in a separate process (`caps.workers`) that limits itself and can be killed from
outside.
"""

import json
import re
import sys
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

from caps.graders.answer_forms import parse_number
from caps.graders.answers import MIN_DIGITS, Decision, decide
from caps.workers.child import limit_cpu, limit_memory

CACHE_SIZE = 256  # parsed expressions
_RECURSION_LIMIT = 3000
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_DEGREES = re.compile(r"(\d+(?:/\d+)?|\\frac\{\d+\}\{\d+\}|[a-zA-Z]|\([^()]*\))\s*\\text\{ degrees\}")


def serve(seconds: float, memory: int) -> None:
    """Answer until the input ends; a timer ends the process if a request exceeds its processor time."""
    limit_memory(memory)
    sys.setrecursionlimit(_RECURSION_LIMIT)
    compare = _Comparison()
    send_reply({"ready": True})
    for line in sys.stdin:
        limit_cpu(seconds)
        before = time.process_time()
        try:
            a, b = json.loads(line)
            reply: dict[str, Any] = decide(a, b, compare)._asdict()
        except Exception as error:  # a failure of the library does not prove a difference
            reply = {"equal": None, "why": f"algebra failed on it ({type(error).__name__})"}
        limit_cpu(0)
        send_reply({**reply, "seconds": time.process_time() - before})


def send_reply(reply: object) -> None:
    """Write one JSON value as a line to standard output."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


class _Comparison:
    """Compares two expressions in normalized LaTeX; one that does not parse equals nothing else."""

    def __init__(self) -> None:
        import math_verify  # noqa: PLC0415  # takes a second

        from caps.graders import expressions  # noqa: PLC0415

        self._verify, self._sympy, self._expressions = math_verify.verify, expressions.sympy, expressions
        latex = math_verify.LatexExtractionConfig()
        ours = replace(latex.normalization_config, units=False)  # it takes the s of x + 2 s for seconds
        self._parse, self._latex = math_verify.parse, [replace(latex, normalization_config=ours)]
        self._read = lru_cache(maxsize=CACHE_SIZE)(self._parse_latex)
        self(
            r"\sqrt{8} + x", r"2\sqrt{2} + x"
        )  # warm up: the first comparison takes longer than a request may

    def __call__(self, a: str, b: str) -> Decision:
        for decimal, other in ((a, b), (b, a)):
            number = parse_number(decimal)
            if number is not None and number.digits >= MIN_DIGITS:
                return self._rounded(other, self._rational(number.value), self._rational(number.last))
        first, second = self._read(a), self._read(b)
        if first is None or second is None:
            return Decision(equal=False, layer="symbolic")
        if isinstance(first, self._sympy.Expr) and isinstance(second, self._sympy.Expr):
            return self._expressions.compare_expressions(first, second)
        relations = self._sympy.core.relational.Relational
        if isinstance(first, relations) and isinstance(second, relations):
            found = self._expressions.compare_relations(first, second)
            return found if found.equal is not None else self._solve(first, second)
        return self._same_matrix(first, second) or self._solve(first, second)

    def _parse_latex(self, text: str) -> Any:
        """Parse LaTeX; decimals become exact fractions, and degrees fractions of π."""
        text = _DECIMAL.sub(_fraction, text)
        if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text):
            text = _DEGREES.sub(r"(\1*\\frac{\\pi}{180})", text)
        parsed = self._parse(
            f"${text}$", self._latex, fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True
        )
        return parsed[0] if parsed else None

    def _rational(self, value: Any) -> Any:
        return self._sympy.Rational(value.numerator, value.denominator)

    def _rounded(self, other: str, written: Any, last: Any) -> Decision:
        exact = self._read(other)
        if not isinstance(exact, self._sympy.Expr) or not self._expressions.prepare(exact)[0].is_number:
            return Decision(equal=False, layer="symbolic")
        return self._expressions.compare_rounded(exact, written, last)

    def _same_matrix(self, first: Any, second: Any) -> Decision | None:
        """Compare two matrices by their entries; None if one is none."""
        kinds = (self._sympy.MatrixBase, self._sympy.MatrixExpr)
        if not isinstance(first, kinds) or not isinstance(second, kinds):
            return None
        a, b = (one.doit() for one in (first, second))
        if not isinstance(a, self._sympy.MatrixBase) or not isinstance(b, self._sympy.MatrixBase):
            return None
        if a.shape != b.shape:
            return Decision(equal=False, layer="symbolic")
        found = [self._expressions.compare_expressions(*pair) for pair in zip(a, b, strict=True)]
        different = next((one for one in found if not one.equal), None)
        numeric = any(one.layer == "numeric" for one in found)
        return different or Decision(equal=True, layer="numeric" if numeric else "symbolic")

    def _solve(self, first: Any, second: Any) -> Decision:
        """Compare sets, and relations that have to be solved."""
        equal = any(
            self._verify(one, other, timeout_seconds=None, raise_on_error=True)
            for one, other in ((first, second), (second, first))
        )
        return Decision(equal, "symbolic")


def _fraction(decimal: re.Match[str]) -> str:
    whole, part = decimal.groups()
    return rf"\frac{{{int(whole + part)}}}{{{10 ** len(part)}}}"
