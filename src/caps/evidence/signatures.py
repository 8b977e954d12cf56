"""Level E0: signatures that are equal where two candidates give the same answer; none where there is none."""

import ast
import re
import textwrap
import warnings
from hashlib import sha256

from caps.core.types import Candidate
from caps.evidence.anatomy import last_boxed, last_code_block

LONGEST_PARSED = 200_000
_SPACING = re.compile(r"\\[,!;: ]|\\q?quad(?![a-z])|\\(?:left|right)(?![a-z])|[\s~$]")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")


def math_answer(candidate: Candidate) -> str | None:
    """The stated or last boxed answer, lowercase, without white space and LaTeX spacing."""
    answer = candidate.answer if candidate.answer is not None else last_boxed(candidate.text)
    if answer is None:
        return None
    return _SPACING.sub("", _FRACTION.sub(r"\\frac", answer)).lower().rstrip(".") or None


def code_ast(candidate: Candidate) -> str | None:
    """A hash of the parsed program without docstrings and layout; of its lines where it does not parse."""
    code = candidate.code if candidate.code is not None else last_code_block(candidate.text)
    fenced = code is not None
    program = textwrap.dedent(candidate.text if code is None else code)
    if not program.strip():
        return None
    shape = _shape(program)
    if shape is None and not fenced:
        return None
    return sha256((shape or _lines(program)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


SIGNATURES = {"code": code_ast, "math": math_answer}


def signature_of(candidate: Candidate, domain: str) -> str | None:
    """The signature a domain goes by; other domains than code and math have none."""
    find = SIGNATURES.get(domain)
    return None if find is None else find(candidate)


def _shape(program: str) -> str | None:
    """The syntax tree as text, or nothing for what is not Python."""
    if len(program) > LONGEST_PARSED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(program)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = [part for part in node.body if not _is_docstring(part)]
        return ast.dump(tree, annotate_fields=False)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lines(program: str) -> str:
    lines = (line.rstrip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
