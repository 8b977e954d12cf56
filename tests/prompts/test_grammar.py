"""Every sentence of a grammar is read, as the answer it is."""

import re

import pytest

from caps.core.types import Group, Level, Pick, Rating, Verdict
from caps.prompts.grammar import grammar_for, room_for, sentences
from caps.prompts.parse import read_reply
from prompts.shown import ASKS, FULL, GROUP, RATINGS, SOLO


@pytest.mark.parametrize("ask", [*ASKS, Group(tuple(range(24)), Level.FULL)], ids=str)
def test_every_sentence_is_read_by_its_tags(ask):
    for sentence in sentences(ask):
        reading = read_reply(ask, sentence, truncated=False, nonce="3f9c2a")
        assert reading.how == "tags", sentence
        assert len(sentence) < room_for(ask)


def test_the_sentences_cover_every_answer():
    def answers(ask):
        return {read_reply(ask, s, truncated=False, nonce="3f9c2a").answer for s in sentences(ask)}

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


@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_the_sentences_are_those_of_the_grammar(ask):
    """The grammar as a regular expression: literals, choices in brackets."""
    rule = grammar_for(ask).removeprefix("root ::= ").replace("\\n", "\n")
    form = re.sub(r'"([^"]*)"', r"\1", re.sub(r'(?<=["()|]) | (?=["()|])', "", rule))
    assert all(re.fullmatch(form, sentence) for sentence in sentences(ask))
