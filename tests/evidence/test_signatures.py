import ast
import bisect
import heapq
import inspect
import json
import json.decoder
import sys
import textwrap
import threading
import warnings
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caps.core.types import Candidate
from caps.evidence.entrants import read_candidates
from caps.evidence.profiles import profile_for
from caps.evidence.signatures import code_ast, code_text, general_answer, math_answer, same_text, shape

LOOP = "total = 0\nfor x in data:\n    total += x\n    seen.add(x)\nprint(total)\n"


def fenced(code):
    return Candidate(f"Here it is:\n```python\n{code}\n```\n")


@pytest.mark.parametrize(
    "other",
    [
        LOOP.replace("    ", "  "),
        LOOP.replace("\n", "  # why\n"),
        LOOP.replace(" = ", "=").replace("print(total)", "print( total )"),
        '"""What it does."""\n' + LOOP,
        LOOP.replace("for x", "\n\n# a loop\nfor x"),
        "".join(f"    {line}\n" for line in LOOP.splitlines()),
    ],
)
def test_layout_comments_and_docstrings_do_not_tell_programs_apart(other):
    assert code_ast(fenced(other)) == code_ast(fenced(LOOP))


def test_programs_that_differ_in_indentation_differ():
    other = LOOP.replace("    seen", "seen")
    assert code_ast(fenced(other)) != code_ast(fenced(LOOP))
    assert code_text(fenced(other)) == code_text(fenced(LOOP)), "the paper's hash cannot see it"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f(1)", "f(True)"),
        ("f(1)", "f(1.0)"),
        ("f('1')", "f(1)"),
        ("f('a', 'b')", "f('a' 'b')"),
        ("f(a, *b)", "f(*a, b)"),
        ("x = None", "x = ()"),
        ("{**a, b: c}", "{b: c, **a}"),
        ("def f(a, /): pass", "def f(a): pass"),
        ("def f(*, a=1): pass", "def f(a=1): pass"),
        ("lambda *, a, b=1: 0", "lambda *, a=1, b: 0"),
        ("a < b < c", "(a < b) < c"),
        ("import a", "import b"),
        ("#define N 10\nint x;", "#define N 20\nint x;"),
    ],
)
def test_programs_that_mean_something_else_differ(one, other):
    assert code_ast(fenced(one)) != code_ast(fenced(other))


def test_where_the_code_stands_does_not_matter():
    assert len({code_ast(fenced(LOOP)), code_ast(Candidate(LOOP)), code_ast(Candidate("…", code=LOOP))}) == 1
    assert code_ast(Candidate(f"<think>hm</think>{LOOP}")) == code_ast(Candidate(LOOP))


@pytest.mark.parametrize("text", ["", " \n", "I cannot do it, sorry.", "<think>still at it", "# to do"])
def test_without_code_there_is_no_code_signature(text):
    assert code_ast(Candidate(text)) is None
    assert code_text(Candidate(text)) is None


def test_a_bare_literal_is_a_program_too():
    assert code_ast(Candidate("'ab'")) == code_ast(Candidate('"ab"')) is not None
    assert code_ast(Candidate("'ab'")) != code_ast(Candidate("'cd'"))


def test_code_that_does_not_parse_goes_by_its_lines():
    broken = "int main() {\n  return 0;\n}"
    assert code_ast(fenced(broken)) == code_ast(fenced(broken.replace("\n", "  \n\n")))
    assert code_ast(fenced(broken)) != code_ast(fenced(broken.replace("0", "1")))
    assert code_ast(fenced(broken)) != code_ast(fenced(broken.replace("  return", "return")))


def test_the_papers_hash_drops_imports_comments_blank_lines_and_indentation():
    one = "import os\nfrom a import b\n\ndef f():\n    return '#1'  # one\n"
    assert code_text(fenced(one)) == code_text(fenced("def f():\nreturn '#1'"))
    assert code_text(fenced(one)) != code_text(fenced("def f():\nreturn '#2'"))
    assert len(code_text(fenced(one))) == 16


def test_what_the_parser_warns_of_changes_nothing():
    program = r"x = '\d' + 1or 2"
    quiet = code_ast(fenced(program))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert code_ast(fenced(program)) == quiet
    assert quiet != code_ast(fenced("x = 3"))


def test_signatures_made_in_threads_leave_other_warnings_alone():
    with warnings.catch_warnings():
        threads = [
            threading.Thread(target=lambda: [code_ast(fenced(rf"x{i} = '\d'")) for i in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(UserWarning):
            warnings.warn("still an error", UserWarning, stacklevel=1)


@pytest.mark.parametrize("depth", [20, 600])
def test_a_signature_does_not_depend_on_how_deep_its_caller_is(depth):
    program = "+".join("a" * 700)

    def deep(levels):
        return code_ast(fenced(program)) if levels == 0 else deep(levels - 1)

    assert sys.getrecursionlimit() >= 1000
    assert deep(depth) == code_ast(fenced(program))


@pytest.mark.parametrize(("nodes", "compared_by"), [(997, "tree"), (998, "lines")])
def test_a_program_too_deep_to_spell_is_compared_by_its_lines(nodes, compared_by):
    program = "a" + ".b" * nodes
    same_tree, same_lines = fenced(f"({program})"), fenced(f"{program}\n\n# why")
    signature = code_ast(fenced(program))
    assert (signature == code_ast(same_tree)) == (compared_by == "tree")
    assert signature == code_ast(same_lines)


def test_a_signature_stays_what_it_was():
    program = (
        "def f(a, *, b=None):\n    'Why.'\n    return {a: b, **{}} if not a else [x for x in (1, 2.5) if x]\n"
    )
    assert code_ast(fenced(program)) == "3387aed7110ea509", "simulated judges go by its order among others"


NAMES = st.sampled_from("abc")
EXPRESSIONS = st.recursive(
    NAMES | st.integers(0, 9).map(str) | st.sampled_from(["'x'", "None"]),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "<", "and"]), inner).map(
        lambda t: f"({' '.join(t)})"
    ),
    max_leaves=6,
)
STATEMENTS = st.recursive(
    st.tuples(NAMES, EXPRESSIONS).map(" = ".join),
    lambda inner: st.tuples(EXPRESSIONS, st.lists(inner, min_size=1, max_size=3)).map(
        lambda t: f"if {t[0]}:\n" + "\n".join("    " + line for part in t[1] for line in part.split("\n"))
    ),
    max_leaves=6,
)
PROGRAMS = st.lists(STATEMENTS, min_size=1, max_size=4).map("\n".join)


@given(PROGRAMS, st.text("ab #'\"", max_size=10))
def test_a_program_equals_itself_reformatted_and_commented(program, remark):
    commented = "\n\n".join(f"{line}  # {remark}" for line in program.split("\n"))
    assert code_ast(fenced(commented)) == code_ast(fenced(program))
    assert code_ast(fenced(ast.unparse(ast.parse(program)))) == code_ast(fenced(program))
    assert code_text(fenced(commented)) == code_text(fenced(program))


@given(PROGRAMS, PROGRAMS)
def test_signatures_are_equal_exactly_when_the_trees_are(one, other):
    same = ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    assert (code_ast(fenced(one)) == code_ast(fenced(other))) == same


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        (r"so \boxed{\dfrac{1}{2}}", r"\frac{1}{2}"),
        (r"so \boxed{ 1{,}000\, }", "1{,}000"),
        (r"so $\boxed{\left(1,\ 2\right)}$", "(1,2)"),
        (r"\boxed{X = 3.}", "x=3"),
        ("no box at all", None),
        (r"\boxed{\,}", None),
        ("", None),
    ],
)
def test_math_answers_are_compared_without_layout(text, signature):
    assert math_answer(Candidate(text)) == signature


def test_a_long_or_unprintable_answer_is_hashed():
    assert len(math_answer(Candidate("", answer="9" * 5000))) == 16
    assert math_answer(Candidate("", answer="\ud800")).isascii()


CALL = '{"name": "look", "arguments": {"at": "sky", "n": 1}}'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}'),
        ('{"a": 1.0}', '{"a": 1}'),
        ('{"a": 1}', '```json\n{"a": 1}\n```'),
        ('{"a": 1}', 'Here you are:\n```\n{ "a": 1 }\n```\nEnjoy.'),
        ('{"a": 1}', '<think>which?</think>{"a": 1}'),
        (CALL, '{"arguments": "{\\"n\\": 1, \\"at\\": \\"sky\\"}", "name": "look"}'),
        (CALL, f"I shall look.\n<tool_call>\n{CALL}\n</tool_call>"),
        (CALL, f'{{"tool_calls": [{{"id": "x7", "type": "function", "function": {CALL}}}]}}'),
        (CALL, '[{"type": "tool_use", "id": "x8", "name": "look", "input": {"n": 1, "at": "sky"}}]'),
        (CALL, CALL.replace("arguments", "parameters")),
    ],
)
def test_values_that_are_the_same_merge(one, other):
    assert general_answer(Candidate(one)) == general_answer(Candidate(other)) is not None


@pytest.mark.parametrize(
    "text", ["Paris.", "I cannot help with that.", "One essay. " * 20 + "\n```\n{}\n```"]
)
def test_text_is_no_answer_but_its_copies_are_recognised(text):
    assert general_answer(Candidate(text)) is None
    copy = Candidate(f"<think>Hm.</think>{text.upper()} \n")
    assert same_text(Candidate(text)) == same_text(copy) != same_text(Candidate("Lyon."))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": true}', '{"a": 1}'),
        ('{"a": "X"}', '{"a": "x"}'),
        ('{"a": 1e400}', '{"a": 1e500}'),
        ("[1, 2]", "[2, 1]"),
        (CALL, CALL.replace("sky", "sea")),
        (CALL, f"[{CALL}, {CALL}]"),
        ('{"id": 1, "name": "Ann", "input": 3}', '{"id": 2, "name": "Ann", "input": 3}'),
        ('{"name": "Ann", "arguments": 3, "age": 1}', '{"name": "Ann", "arguments": 3, "age": 2}'),
    ],
)
def test_values_that_differ_do_not(one, other):
    assert general_answer(Candidate(one)) != general_answer(Candidate(other))


@pytest.mark.parametrize("text", ["", " \n\t", "<think>and so", "<think>a</think> "])
def test_saying_nothing_is_no_answer(text):
    assert general_answer(Candidate(text)) is None


def test_a_stated_answer_is_what_a_reply_goes_by():
    rome = Candidate("It is Rome.", answer="Rome")
    assert general_answer(rome) == general_answer(Candidate("Rome, I think.", answer="rome ")) is not None
    assert general_answer(rome) != general_answer(Candidate("It is Rome.", answer="Paris"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.integers(0, 4))
@example({"<THINK>": None}, 0)
def test_json_merges_whatever_its_key_order_and_spacing(value, indent):
    backwards = dict(reversed(value.items()))
    one, other = json.dumps(value, ensure_ascii=False), json.dumps(backwards, indent=indent)
    assert general_answer(Candidate(one)) == general_answer(Candidate(other))


def test_a_mark_of_thoughts_inside_json_hides_nothing():
    one, other = Candidate('{"<think>": 1}'), Candidate('{"<think>": 2}')
    assert general_answer(one) != general_answer(other)
    assert general_answer(Candidate('<think>{"a": 2}</think>{"a": 1}')) == general_answer(
        Candidate('{"a": 1}')
    )


def test_equal_programs_are_found_and_obviously_different_ones_not_parsed():
    written = [inspect.getsource(module) for module in (bisect, heapq, textwrap)]
    functions = [
        ast.get_source_segment(text, node)
        for text in written
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    ]
    again = [ast.unparse(ast.parse(one)) for one in functions]  # no comments, other quotes and brackets
    odd = [
        "x = 1if y else 2", "x = (1) if (y) else 0b10", "x = .5e1", "x = 5.0", "f'{d[0]}'", 'f"{d[0]}"', "((",
        "",
    ]  # fmt: skip
    candidates = [fenced(one) for one in [*functions, *again, *odd]]
    signatures = [one[0] for one in read_candidates(candidates, profile_for("code"))]
    trees = [code_ast(one) for one in candidates]
    for a, b in combinations(range(len(candidates)), 2):
        assert (signatures[a] == signatures[b]) == (trees[a] is not None and trees[a] == trees[b])
    assert signatures[0] == signatures[len(functions)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1_000.5e1_0", "x = 1000.5e10"),
        ("x = 0xFF + .5 + 1.", "x = 255 + 0.5 + 1.0"),
        ("y = 1if x else 2.", "y = (1 if x else 2.0)"),
        ("a = rb'x' + b'''y'''  # twice", 'a = b"x" + b"y"'),
        ("if a:\n  pass\nelif b1: c = 1..real", "if a: pass\nelse:\n    if b1:\n        c = (1.0).real"),
        ("def f():\n    'About 3 things.'\n    return 3", "def f(): return 3"),
        ("s = 'unclosed? no: \\' it is'\nt = 1", 's = "unclosed? no: \' it is"\nt = 1'),
    ],
)
def test_equal_programs_have_the_same_tree_however_they_are_written(one, other):
    assert shape(one) == shape(other) is not None
