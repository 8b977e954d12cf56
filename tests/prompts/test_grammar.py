"""Every sentence of a grammar is read, as the answer it is."""

import re

import pytest

from caps.core.types import Group, Level, Pick, Rating, Verdict
from caps.prompts.grammar import grammar_for, room_for, sentences
from caps.prompts.parse import read_reply
from prompts.shown import ASKS, FULL, GROUP, RATINGS, SOLO


@pytest.mark.parametrize("ask", [*ASKS, Group(tuple(range(24)), Level.FULL)], ids=str)
@pytest.mark.parametrize("code", [None, "k7f3"])
def test_every_sentence_is_read_by_its_tags(ask, code):
    for sentence in sentences(ask, code):
        reading = read_reply(ask, sentence, truncated=False, nonce="3f9c2a", code=code)
        assert reading.how == "tags", sentence
        assert reading.bound == (code is not None)
        assert len(sentence) < room_for(ask, code)


def test_the_sentences_cover_every_answer():
    def answers(ask):
        plain = {read_reply(ask, s, truncated=False, nonce="3f9c2a").answer for s in sentences(ask)}
        bound = [
            read_reply(ask, s, truncated=False, nonce="3f9c2a", code="k7f3", bound_only=True)
            for s in sentences(ask, "k7f3")
        ]
        assert plain == {reading.answer for reading in bound}
        return plain

    assert answers(FULL) == {Verdict(9, 3), Verdict(7, 5), Verdict(3, 9), Verdict(5, 7), Verdict(5, 5)}
    assert answers(RATINGS) == {Verdict(a, b) for a in range(1, 11) for b in range(1, 11)}
    assert answers(SOLO) == {Rating(value) for value in range(1, 11)}
    assert answers(GROUP) == {Pick(4), Pick(7), Pick(2)}


def test_a_grammar_is_written_as_llama_cpp_reads_it():
    assert grammar_for(FULL) == (
        'root ::= "<winner>" ("A" | "B" | "TIE") "</winner>" "\\n" '
        '"<confidence>" ("HIGH" | "LOW") "</confidence>"'
    )
    assert grammar_for(GROUP) == 'root ::= "<best>" ("1" | "2" | "3") "</best>"'
    assert grammar_for(FULL, "k7f3") == (
        'root ::= "<winner>" ("A" | "B" | "TIE") "-k7f3</winner>" "\\n" '
        '"<confidence>" ("HIGH" | "LOW") "</confidence>"'
    )


@pytest.mark.parametrize("code", [None, "k7f3"])
@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_the_sentences_are_those_of_the_grammar(ask, code):
    """The grammar as a regular expression: literals, choices in brackets."""
    rule = grammar_for(ask, code).removeprefix("root ::= ").replace("\\n", "\n")
    form = "".join(piece.strip('"') for piece in re.findall(r'"[^"]*"|[()|]', rule))
    assert all(re.fullmatch(form, sentence) for sentence in sentences(ask, code))
