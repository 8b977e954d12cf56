"""The algebra worker: reads pairs of answers, one JSON list per line, and writes whether they are equal.

The only module that uses math-verify and SymPy. Both may run forever or exhaust memory on a hostile answer,
so this runs in a separate process (`worker_pool`) that limits itself and can be killed from outside.
"""

import json
import signal
import sys
from typing import Any

from caps.graders.answers import MIN_DIGITS, same_answer

_PRECISION = 30
_RECURSION_LIMIT = 3000


def serve(seconds: float, memory: int) -> None:
    """Answer until the input ends; a timer ends the process if a request far exceeds its time limit."""
    limit_memory(memory)
    sys.setrecursionlimit(_RECURSION_LIMIT)
    compare = _Comparison()
    send_reply({"ready": True})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)  # the parent may be gone
        try:
            a, b = json.loads(line)
            reply: dict[str, Any] = {"equal": same_answer(a, b, compare)}
        except Exception as error:  # a failure of the library does not prove a difference
            reply = {"equal": None, "why": f"algebra failed on it ({type(error).__name__})"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        send_reply(reply)


def limit_memory(size: int) -> None:
    """Limit the memory of this process to `size` bytes, where the system supports it."""
    try:
        import resource  # noqa: PLC0415  # not on Windows
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def send_reply(reply: object) -> None:
    """Write one JSON value as a line to standard output."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


class _Comparison:
    """Compares two expressions in normalized LaTeX; one that does not parse equals nothing else."""

    def __init__(self) -> None:
        import math_verify  # noqa: PLC0415  # takes a second
        import sympy  # noqa: PLC0415

        self._verify, self._parse, self._sympy = math_verify.verify, math_verify.parse, sympy
        self._latex = [math_verify.LatexExtractionConfig()]
        self(
            r"\sqrt{8} + x", r"2\sqrt{2} + x"
        )  # warm up: the first comparison takes longer than a request may

    def __call__(self, a: str, b: str) -> bool | None:
        first, second = self._read(a), self._read(b)
        if first is None or second is None:
            return False
        if isinstance(first, self._sympy.Expr) and isinstance(second, self._sympy.Expr):
            if first.is_number and second.is_number:
                return self._same_number(first, second, a, b)
            if first.is_number != second.is_number:
                first, second = self._sympy.simplify(first), self._sympy.simplify(second)
                if first.is_number != second.is_number:
                    return False
        return any(
            self._verify(one, other, timeout_seconds=None, raise_on_error=True)
            for one, other in ((first, second), (second, first))
        )

    def _read(self, text: str) -> Any:
        parsed = self._parse(
            f"${text}$", self._latex, fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True
        )
        return parsed[0] if parsed else None

    def _same_number(self, first: Any, second: Any, a: str, b: str) -> bool:
        if first.is_finite is False or second.is_finite is False:
            return bool(first == second)
        digits = [_decimal_digits(text) for text in (a, b)]
        wanted = min([count - 1 for count in digits if count] or [_PRECISION - 5])
        if wanted < MIN_DIGITS - 1:
            return bool(first == second)
        difference = self._sympy.Abs(self._sympy.N(first - second, _PRECISION, maxn=200))
        size = self._sympy.Abs(self._sympy.N(first, _PRECISION, maxn=200))
        return bool(difference <= size * self._sympy.Float(10) ** -wanted)


def _decimal_digits(text: str) -> int:
    """Significant digits of a plain decimal fraction; 0 for any other text."""
    plain = text.strip().lstrip("-")
    whole, point, part = plain.partition(".")
    return len((whole + part).lstrip("0")) if point and (whole + part).isdigit() else 0
