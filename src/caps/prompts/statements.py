"""Verdicts stated in plain words: only an unmistakable final statement counts.

Three kinds of statement are told apart, because they may stand in different places:

* a *keyed* line says what it is and nothing else (`**Winner:** B`, `| Winner | B |`): anywhere;
* a *bare* line is only the label (`\\boxed{B}`, `[[A]]`, `A HIGH`): at the very end;
* a *sentence* (`Therefore, B is the better solution.`): at the end, with nothing after it that turns round.

"A is better structured" states nothing, nor does a sentence that doubts, asks, or reports what others say.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from caps.prompts.said import without_marks
from caps.prompts.tags import (
    JOINER,
    NUMBER,
    WORDS,
    bare,
    canonical,
    compared,
    on_scale,
    opposed,
    plainly,
    sureness,
    unopposed,
)

_LINES = 400  # of a reply's lines, those at its end: keyed lines are looked for in them
_SENTENCES = 6  # a sentence that states the verdict is among so many at the end
_LINE = 600  # of a longer line only the end is read

NOUNS = (
    r"(?:solution|candidate|submission|response|answer|option|program|code|assistant|model|kandidat"
    r"|lösung|candidato|candidata|candidat"
    r"|solución|solução|soluzione|кандидат|решение|候选答案|候选人|候选|方案|解答|答案|候補)"
)
KEYS = (
    r"(?:winner|verdict|answer|choice|preference|preferred|selected|chosen|correct (?:solution|candidate"
    r"|one|program|response|submission)|mejor (?:candidato|solución|respuesta)|meilleure? (?:candidat"
    r"|solution|réponse)|besser(?:er|e) (?:kandidat|lösung)|miglior[e]? (?:candidato|soluzione)"
    r"|melhor (?:candidato|solução)|more correct|most correct|superior|stronger|decision|judge?ment"
    r"|conclusion|selection|pick|vote|result|better|best"
    r"|recommendation|outcome|gewinner|sieger|urteil|antwort|ganadora?|veredicto|respuesta|gagnant"
    r"|vainqueur|réponse|vincitore|verdetto"
    r"|vencedora?|resposta|winnaar|kazanan|zwycięzca|победитель|вердикт|ответ|获胜者|胜者|赢家|胜出者|最终答案|最终结论"
    r"|最佳答案|最佳候选|最佳"
    r"|结论|答案|勝者|結論|승자|우승자|الفائز|विजेता)"
)
_LEAD = (
    r"(?:(?:so|thus|therefore|hence|consequently|accordingly|overall|finally|ultimately|and|however|but"
    r"|clearly|in conclusion|to conclude"
    r"|in summary|in short|to sum up|in the end|as a result|all in all|(?:i|we) (?:think|believe|conclude"
    r"|can conclude|judge|say|would say|d say|find)(?: that)?"
    r"|i am [0-9]{1,3} ?% (?:confident|sure|certain)(?: that)?|i am (?:very |quite |highly )?(?:confident"
    r"|sure|certain)(?: that)?"
    r"|it is clear that|my conclusion is that|if i (?:had|have) to choose"
    r"|因此|所以|综上所述|综上|总之|最终|したがって|also|daher|por lo tanto|donc)(?![^\W_]) ?[,:，]? ?){0,4}"
)
# A clause before the statement; it names no respect ("in terms of style") and no stage ("at first glance").
_CLAUSE = (
    r"(?:(?:after|having|based on|given|considering|since|because|although|even though|though|while"
    r"|looking at|all things considered)(?![^\W_])[^,.;:?]{0,120}, )?"
)
_RESPECT = re.compile(
    r"\b(?:terms|respect|regard|style|read\w*|speed|effici\w*|perform\w*|memory|structur\w*|format\w*"
    r"|length|clarity|alone|only|far|first|glance"
    r"|if|when|whether|not|claims?|says?)\b",
    re.IGNORECASE,
)
_CONCEDES = re.compile(r"(?:although|even though|though|while)\b", re.IGNORECASE)
_OF = rf"(?:(?:the|an?|le|la|el|der|die|il|{NOUNS}|number|no) ?\.? ?){{0,3}}"
# A label stands alone; in scripts without spaces only Latin letters and digits would be part of its word.
_SIDES = r"(?<![0-9A-Za-zÀ-ɏ])(?-i:([AB]))(?![0-9A-Za-zÀ-ɏ])(?! s\b)"
_TIES = (
    r"(?:an? )?(tie|draw|平局|平手|引き分け|unentschieden|empate|égalité|pareggio|ничья)"
    r"(?![^\W_])(?! or\b)"
)
_NUMBERED = (
    r"(?<![\w.,-])#? ?([0-9]{1,6}|"
    + "|".join(WORDS)
    + r")(?![\w/%]|[.,][0-9])(?! ?(?:,|-|–|to|or|and|&) ?(?:candidate )?[0-9])"
)
_LINK = (
    r"(?: ?(?:is|goes to|would be|will be|ist|es|est|è|é|是|为|は)(?![^\W_])| ?(?::|=>|=|–|—|→|⇒|-)){0,3} ?"
)
_REST = r"((?: ?[.,;:–—-].*| (?:because|since|as|with|over|due to|for|is|wins|high|low|confidence)\b.*)?)$"
_MODIFIED = r"(?:(?:my|the|its|el|la|le|der|die|il|o|final|overall|ultimate|correct|so|thus) ){0,4}"

_KEYED_SIDE = re.compile(
    rf"^{_LEAD}{_MODIFIED}{KEYS}(?: (?:{NOUNS}|one|overall|of the two)(?![^\W_]))?{_LINK}{_OF}(?:{_SIDES}"
    rf"|{_TIES}){_REST}",
    re.IGNORECASE,
)
_KEY_ONLY = re.compile(
    rf"^(?:[0-9]{{1,2}}[.:] )?(?:step [0-9]{{1,2}}[.:] )?{_MODIFIED}{KEYS}(?: (?:{NOUNS}|one"
    rf"|overall))? ?[:.–—-]?$",
    re.IGNORECASE,
)
_BETTER = (
    r"(?:better|best|superior|stronger|winner|preferable|preferred|more correct|most correct"
    r"|most likely correct|more likely correct|more accurate"
    r"|more likely to be (?:correct|right)|more likely to pass(?: every test| all tests| all the tests)?)"
)
_ADVERBS = (
    r"(?:(?:clearly|definitely|therefore|thus|still|slightly|much|far|overall|the|a|actually|likely) ){0,4}"
)
_PRAISE_ENDS = (
    rf"(?: (?:{NOUNS}|one|choice|overall|of the two))*(?= ?(?:$|[.,;–—-]|(?:than|because|since|as|due to"
    rf"|with|here|for)\b))"
    r"(?! (?:in|at|for|as far)\b| with regard| with respect|-)"
)
_SAID_OF = re.compile(
    rf"^{_LEAD}(?P<clause>{_CLAUSE}){_LEAD}{_OF}{_SIDES} (?:(?:is|seems|appears(?: to be)?"
    rf"|looks) {_ADVERBS}{_BETTER}{_PRAISE_ENDS}"
    r"|(?:clearly |narrowly )?wins(?= ?(?:$|[.,;–—-]|(?:because|since|as|due to|with|over|against)\b))"
    r"|(?:clearly )?(?:beats|outperforms) (?:\w+ )?[AB]\b(?= ?(?:$|[.,;–—-]|(?:because|since|as|due)\b))"
    r"|(?:ist|est|es|è|é) (?:der |die |le |la |el |il )?(?:besser|bessere|meilleure?|mejor|migliore"
    r"|melhor)(?= ?(?:$|[.,;]))"
    r"|(?:is )?more likely (?:passes|pass|correct)\b)(.*)$",
    re.IGNORECASE,
)
_ONLY = re.compile(
    rf"^{_LEAD}only {_OF}{_SIDES} (?:is (?:correct|right)|passes (?:every|all)(?: the)? tests?)(.{{0,2}})$",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    rf"^{_LEAD}{_OF}{_SIDES} is (?:correct|right) ?,? ?(?:and |but |while "
    rf"|whereas )?{_OF}(?-i:([AB])) (?:is (?:not|wrong|incorrect)(?: correct| right)?|fails"
    rf"|is not)(.{{0,2}})$",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    rf"^{_LEAD}(?P<clause>{_CLAUSE}){_LEAD}(?:i|we) (?:(?:would|d|will|ll|must|have to|therefore|thus"
    rf"|also) ){{0,2}}"
    rf"(?:choose|pick|select|prefer|go with|vote for|favou?r|opt for|declare"
    rf"|lean towards?) {_OF}{_SIDES}{_REST}",
    re.IGNORECASE,
)
_CLAUSED = re.compile(
    rf"^{_LEAD}(?P<clause>{_CLAUSE}){_MODIFIED}{KEYS}(?: (?:{NOUNS}|one"
    rf"|overall))?{_LINK}{_OF}{_SIDES}{_REST}",
    re.IGNORECASE,
)
_HENCE = re.compile(
    rf"^(?:therefore|thus|hence|so|consequently|in conclusion|conclusion|overall|finally|因此|所以"
    rf"|综上)(?![^\W_]) ?[,:，]? ?{_OF}{_SIDES} ?(?:(?:is|as) the (?:winner|answer))?()\.?$",
    re.IGNORECASE,
)
_BETTER_CJK = r"(?:更好|更优|更佳|胜出|获胜|更正确|の方が良い|が優れている)"
_CJK = re.compile(
    rf"^{_LEAD}{_OF}{_SIDES} ?{_BETTER_CJK}()[。.]?$"
    rf"|^{_LEAD}(?:我)?(?:选择|选"
    rf"|選擇)[:：]? ?{_OF}{_SIDES}()[。.]?$",
    re.IGNORECASE,
)
_DRAWN = re.compile(
    rf"^{_LEAD}(?:[^.?]{{0,120}}[;,] (?:so )?)?(?:it is|it s|this is|(?:i |we )?(?:would |d )?(?:call"
    rf"|declare) (?:it|this)|the result is|result|we have|as)(?: essentially| effectively)? ?:? a (?:tie"
    rf"|draw)\b(?! or\b)(.*)$",
    re.IGNORECASE,
)
_BARE_SIDE = re.compile(
    rf"^(?:(?:=>|→|⇒|-|–|—|•|[.,:]) ?)*{_OF}(?:{_SIDES}|(?-i:(TIE"
    rf"|Tie))) ?[.,:;/–—-]? ?((?:with )?(?:very |extremely )?(?:high|low|medium)(?: confidence)?"
    rf"|[0-9]{{1,3}} ?%)? ?[.,]{{0,2}}$",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    rf"^\W*(?:(?:ranking|verdict|result|overall|therefore|thus|so|hence|conclusion"
    rf"|final ranking)\W{{1,3}})?(?:{NOUNS} )?(?-i:([AB])) ?(>{{1,3}}|<{{1,3}}|≻"
    rf"|=) ?(?:{NOUNS} )?(?-i:([AB]))\W*$",
    re.IGNORECASE,
)
# A sentence that doubts, asks, or reports.
_DOUBT = re.compile(
    r"\b(?:if|whether|not|t|unless|cannot|claims?|claimed|says?|said|either|neither|nor|could|might|may"
    r"|perhaps|maybe|possibly|according"
    r"|suppose|assum\w*|some|someone|so far|glance|initially|at first|seemingly|supposedly|allegedly)\b"
    r"|\?|不|吗|？",
    re.IGNORECASE,
)
_RETRACTS = re.compile(
    r"(?:^|[.!?;:,…–—-] ?)(?:hmm+|wait|actually|correction|scratch that|on second thought|oops"
    r"|i was wrong|let me (?:re|double|correct)|no, |nope)\b"
    r"|\b(?:i am|i m) (?:lost|not sure|unsure|uncertain)\b|\bcan ?(?:not|t) (?:decide|tell)\b"
    r"|\bthat is wrong\b|\bi made (?:a|an) (?:mistake|error)\b",
    re.IGNORECASE,
)
_CONTRAST = re.compile(
    r"^(?:however|but|yet|still|nevertheless|nonetheless|that said|on the other hand|then again"
    r"|alternatively|although|though|unless)\b"
    r"|^no\b",
    re.IGNORECASE,
)
_FAULT = re.compile(
    r"\b(?:not|n t|t|never|wrong|incorrect|worse|fails?|failed|loses|misses|missing|breaks|crash\w*"
    r"|errors?|raises|off by|overflows?|times? out|cannot|incomplete|bug\w*|loops forever|invalid)\b",
    re.IGNORECASE,
)
_SURE_KEYS = (
    r"(?:confidence|certainty|konfidenz|sicherheit|vertrauen|confianza|confiance|confiança|fiducia|置信度|信心"
    r"|把握|確信度|уверенность|pewność|güven)"
)
_SURE = re.compile(
    rf"(?<![^\W_]){_SURE_KEYS}(?: (?:level|score|rating))?(?: (?:is"
    rf"|of))? ?[:=–—-]{{0,2}} ?(?:is )?([^,;|]{{1,40}})",
    re.IGNORECASE,
)
_SURE_OF = re.compile(
    r"\b((?:very |extremely |not |low |high |medium |moderate ){0,3}(?:high|low|medium|moderate|full"
    r"|complete)) (?:confidence|certainty)\b"
    r"|\bi am ((?:very |quite |highly |not |fairly )?(?:confident|sure|certain)"
    r"|[0-9]{1,3} ?%)(?: (?:confident|sure|certain))?\b",
    re.IGNORECASE,
)

_SCALED = rf"{NUMBER}( ?%)?(?! ?(?:%|tests?|cases?|samples?|examples?|inputs?|points? (?:lower|higher))\b)"
_RATING_KEYS = (
    r"(?:rating|score|grade|mark|评分|分数|得分|打分|評価|点数|bewertung|punktzahl|puntuación|calificación|nota"
    r"|pontuação|оценка|punteggio)"
)
_KEYED_RATING = re.compile(
    rf"^{_LEAD}(?:(?:my|the|final|overall|total|correctness|would be|a) ){{0,4}}{_RATING_KEYS}(?: (?:for"
    rf"|of) (?:the|this) {NOUNS})?"
    rf"(?: ?(?:is|of|is a|would be|是|为|は)(?![^\W_])| ?(?::|–|—"
    rf"|→)){{1,3}} ?(?:a )?{_SCALED} ?分?((?: ?[.,;–—-].*| (?:because|since|as)\b.*)?)$",
    re.IGNORECASE,
)
_GIVEN_RATING = re.compile(
    rf"^{_LEAD}(?:i|we) (?:(?:would|d|will|therefore|thus) ){{0,2}}(?:give|rate|assign|score)(?: (?:it"
    rf"|this|the|this {NOUNS}|{NOUNS}|as|an?|with|at|of|rating|score|final|overall)){{0,7}} {_SCALED}"
    r"((?: ?[.,;–—-].*| (?:because|since|as|for)\b.*)?)$",
    re.IGNORECASE,
)
_FRACTION_LINE = re.compile(
    rf"^{_LEAD}(?:(?:overall|total|final|verdict|result|answer"
    rf"|correctness overall)[,:]? ?){{0,2}}([0-9]{{1,3}}(?:[.,][0-9]{{1,3}})?) ?(?:/"
    rf"|out of) ?([0-9]{{1,3}})()()[.,]{{0,2}}$",
    re.IGNORECASE,
)
_RATING_ONLY = re.compile(rf"^(?:(?:my|the|final|overall) ){{0,2}}{_RATING_KEYS} ?[:.–—-]?$", re.IGNORECASE)
_NUMBER_LINE = re.compile(rf"^{NUMBER}( ?%)?()[.,]{{0,2}}$")
_SIDE_RATED = re.compile(
    rf"(?:(?:rating|score|grade)s? (?:for |of )?(?:{NOUNS} )?(?-i:([ABab]))"
    rf"|(?<![^\W_])(?-i:([AB])))(?![^\W_])(?! s\b) ?(?:is|gets|deserves|receives|with|at|:|=|–|—|-|,|)"
    rf" ?:? ?(?:an? )?(?:(?:rating|score) (?:of )?)?{_SCALED}",
    re.IGNORECASE,
)
_RATED = re.compile(r"(?:rating|score|grade|\brate\b|评分|得分)", re.IGNORECASE)
_SIDE_HEADING = re.compile(
    rf"^(?:[0-9]{{1,2}}[.:] ?)?(?:(?:analysis|evaluation|rating) (?:of|for) )?{NOUNS} ([AB]) ?:?$",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"\b(?:overall|total|final|finally|altogether|in sum)\b", re.IGNORECASE)

# "The answer is 3" may be the answer to the problem: such a word needs the noun after it.
_PLACE_KEYS = (
    r"(?:(?!answer|result|conclusion|outcome|judge|antwort|respuesta|réponse|resposta|ответ|最终答案|答案|结论|結論"
    rf"|最终结论){KEYS}|{KEYS}(?=[^0-9]{{0,20}}{NOUNS} ))"
)
_KEYED_PLACE = re.compile(
    rf"^{_LEAD}{_MODIFIED}{_PLACE_KEYS}(?: (?:{NOUNS}|one|overall)(?![^\W_]))?(?: ?(?:is|goes to|是|为"
    rf"|は)(?![^\W_])| ?(?::|–|—|→)| {NOUNS}(?= #?[0-9])){{1,3}} ?{_OF}{_NUMBERED}{_REST}",
    re.IGNORECASE,
)
_PLACED = re.compile(
    rf"^{_LEAD}(?:the )?{NOUNS} {_NUMBERED} (?:wins|is {_ADVERBS}(?:best|winner|most correct"
    rf"|most likely correct|most likely to be correct|only correct|most accurate){_PRAISE_ENDS})(.*)$",
    re.IGNORECASE,
)
_CHOSEN_PLACE = re.compile(
    rf"^{_LEAD}(?:(?:i|we) (?:(?:would|d|will|must|therefore|thus) ){{0,2}}(?:choose|pick|select|prefer"
    rf"|go with|vote for|opt for)|我?(?:选择|选)) ?{_OF}{NOUNS} ?{_NUMBERED}{_REST}",
    re.IGNORECASE,
)
_HENCE_PLACE = re.compile(
    rf"^(?:therefore|thus|hence|so|in conclusion|overall|finally)[,:]? {_OF}{NOUNS} {_NUMBERED}()\.?$",
    re.IGNORECASE,
)
_RANKED = re.compile(
    rf"^\W*(?:(?:final )?ranking\W{{1,3}})?(?:{NOUNS} )?([0-9]{{1,4}})"
    rf"(?: ?>{{1,2}} ?(?:{NOUNS} )?[0-9]{{1,4}}){{1,40}}\W*$",
    re.IGNORECASE,
)
_BARE_PLACE = re.compile(rf"^(?:(?:=>|→|⇒|-) ?)?{_OF}{_NUMBERED}()[.,]{{0,2}}$", re.IGNORECASE)

_KEY_CELL = re.compile(
    rf"^{_MODIFIED}(?:{KEYS}|{_RATING_KEYS}|{_SURE_KEYS})(?: (?:{NOUNS}|level|overall|score))?$",
    re.IGNORECASE,
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?;。！？；]) +|(?<=[。！？；])")
_SURE_LINE = re.compile(rf"^(?:my )?{_SURE_KEYS}\b", re.IGNORECASE)
_SURE_LINES = 8
_BULLET = re.compile(r"^(?:[-+•–]|[0-9]{1,2}[.)])[ \t]{1,4}(?=[^\W_]|[*_`<])")
_ENCLOSED = re.compile(r"\(([AB]|TIE|[0-9]{1,3})\)")
_FORCED = re.compile(r"\bif i (?:had|have) to choose\b|\b(?:i|we) (?:would |d )?say\b", re.IGNORECASE)
_EITHER_WAY = re.compile(
    r"^ ?(?:[,;/&|]|or|and|vs|versus) ?(?:or |and )?(?:the )?(?:candidate |solution )?(?:(?-i:[AB])|tie)\b",
    re.IGNORECASE,
)
_TURN = re.compile(r"\b(?:but|however|although|though|unless|instead)\b", re.IGNORECASE)
_QUOTES = re.compile(r"\b(?:contains?|includes?|wrote|writes?|comments?|injects?|tries)\b", re.IGNORECASE)

_FIELD = re.compile(
    r"(?<![\\\w])[\"'](?:(?:final|overall)[ _-]?)?(winner|verdict|better|best|choice|answer|decision"
    r"|preferred|preference|confidence|certainty|rating|score)"
    r"(?:[ _-](?:candidate|solution|answer|choice"
    r"|verdict))?[\"'][ \t\n]{0,8}:[ \t\n]{0,8}(?:\"([^\"\\\n]{0,80})\"|'([^'\\\n]{0,80})'"
    r"|([0-9][0-9./%]{0,8}))",
    re.IGNORECASE,
)


class Line(NamedTuple):
    """A line of a reply with its place; `words` is the line without decoration."""

    raw: str
    words: str
    start: int
    length: int


def lines_of(text: str) -> list[Line]:
    """The last lines of a text that say anything; rows of tables become `key: value` lines."""
    at = len(text) - len(text.lstrip("\n"))
    lines = list[Line]()
    for raw in text[at:].split("\n"):
        # A line with a joiner in it is a candidate's, repeated: judges write none themselves.
        if raw and (stripped := raw.strip()) and JOINER not in stripped:
            lines.append(Line(_ending(stripped), "", at, len(raw)))
        at += len(raw) + 1
    return _untabled([line._replace(words=_words(line.raw)) for line in lines[-_LINES:]])


def _ending(line: str) -> str:
    """The last words of a long line."""
    return line if len(line) <= _LINE else line[-_LINE:].partition(" ")[2]


def _words(raw: str) -> str:
    """A line without decoration; in a comparison such as `B > A` the sign is none."""
    if _COMPARED.match(raw) or _RANKED.match(raw):
        return raw.strip("*_`$ ")
    return bare(_ENCLOSED.sub(r" \1 ", _BULLET.sub("", raw)))


def _untabled(lines: list[Line]) -> list[Line]:
    """The lines, with the rows of tables as keyed lines of their own."""
    plain, table = list[Line](), list[Line]()
    for line in lines:
        if line.raw.startswith("|"):
            table.append(line)
            continue
        plain += [*_cells(table), line]
        table = []
    return [line for line in [*plain, *_cells(table)] if line.words]


def _cells(table: Sequence[Line]) -> Iterator[Line]:
    """What the cells of a table say: `| Winner | B |`, or a B below a header `Winner`."""
    header, last = list[str](), list[str]()
    for row in table:
        cells = [bare(cell) for cell in row.raw.strip("|").split("|")]
        if not any(re.search(r"\w", cell) for cell in cells):
            header = last  # what stands above a rule is a header, of a further table perhaps
            continue
        said = [cell for cell in cells if ":" in cell]
        if len(cells) == 2 and _KEY_CELL.match(cells[0]) and not _KEY_CELL.match(cells[1]):
            said = [f"{cells[0]}: {cells[1]}"]
        elif header and not said:
            side = re.fullmatch(rf"(?:{NOUNS} )?([AB])", cells[0])
            said = [
                f"{key} {side[1]}: {cell}" if side and _RATED.search(key) else f"{key}: {cell}"
                for key, cell in zip(header, cells, strict=False)
                if _KEY_CELL.match(key)
            ]
        yield from (row._replace(words=one) for one in said)
        header, last = header or cells, cells


def fields(text: str) -> Iterator[tuple[str, str, int, int]]:
    """The fields of JSON and the like that say a verdict: name, value, and their place."""
    if '"' in text or "'" in text:
        for found in _FIELD.finditer(text):
            value = next((one for one in found.groups()[1:] if one is not None), "")
            yield canonical(found[1]), value, found.start(), found.end()


def sentences(line: str) -> list[str]:
    """The sentences of a line without decoration."""
    return [one for one in _SENTENCE_ENDS.split(line) if one]


class Found(NamedTuple):
    """What a line or sentence says; None as the value where it says something that counts against itself."""

    value: str | float | int | None


Reader: TypeAlias = Callable[[str], Found | None]


class Forms(NamedTuple):
    """How one kind of answer is stated: as a keyed line, below a key, as a bare last line, in a sentence.

    `below` also reads what stands in double brackets, or is all of a reply.
    """

    keyed: Reader
    key_only: re.Pattern[str]
    below: Reader
    bare: Reader
    sentence: Reader


def stated(forms: Forms, lines: Sequence[Line]) -> str | float | int | None:
    """The answer that the lines of a whole reply state at its end, if it is unmistakable."""
    keyed = list(_keyed(forms, lines))
    if keyed:
        values = {found.value for _, found in keyed}
        (last, found), (value, *others) = keyed[-1], values
        if others or value is None:
            return None
        after = [line.words for line in lines[last + 1 :]]
        if _taken_back(after, found.value) or any(one != value for one in _in_sentences(forms, after)):
            return None
        return value
    ending = [line for line in lines if not _says_sureness(line.words)][-2:]
    if len(lines) == 1 and not _heading(lines[0]) and "\\boxed" not in lines[0].raw:
        alone = forms.below(lines[0].words)
        if alone is not None:
            return alone.value
    if ending and (bare_one := _bare(forms, ending[-1])) is not None:
        before = _bare(forms, ending[0]) if len(ending) > 1 else None
        return None if before is not None and before.value != bare_one.value else bare_one.value
    return _final_sentence(forms, lines)


def statements(forms: Forms, lines: Sequence[Line]) -> set[str | float | int | None]:
    """All that keyed lines and sentences say; to see whether words go against a tag."""
    keyed = {found.value for _, found in _keyed(forms, lines)}
    return (keyed | set(_in_sentences(forms, [line.words for line in lines]))) - {None}


def retracted(lines: Sequence[Line]) -> bool:
    """Whether lines take back what was said before them."""
    return any(_RETRACTS.search(line.words) for line in lines)


def _keyed(forms: Forms, lines: Sequence[Line]) -> Iterator[tuple[int, Found]]:
    for at, line in enumerate(lines):
        found = forms.keyed(line.words)
        if found is None and at and forms.key_only.match(lines[at - 1].words):
            found = forms.below(line.words)
        if found is not None:
            yield at, found


def _bare(forms: Forms, line: Line) -> Found | None:
    if _heading(line):
        return None
    # A number in a box may be the judge's own solution of the problem; one in double brackets is not.
    return forms.below(line.words) if "[[" in line.raw else forms.bare(line.words)


def _heading(line: Line) -> bool:
    return line.raw.startswith("#") and " " in line.words


def _in_sentences(forms: Forms, lines: Iterable[str]) -> list[str | float | int | None]:
    found = [forms.sentence(sentence) for line in lines for sentence in sentences(line)]
    return [one.value for one in found if one is not None]


def _final_sentence(forms: Forms, lines: Sequence[Line]) -> str | float | int | None:
    last = [sentence for line in lines[-_SENTENCES:] for sentence in sentences(line.words)][-_SENTENCES:]
    if len(last) > 1 and last[-2].endswith("?") and (answer := forms.bare(last[-1])) is not None:
        return answer.value
    found = [(at, one) for at, one in enumerate(map(forms.sentence, last)) if one is not None]
    if not found or len({one.value for _, one in found}) > 1:
        return None
    at, one = found[-1]
    return None if _taken_back(last[at + 1 :], one.value, strictly=True) else one.value


def _taken_back(after: Sequence[str], value: object, *, strictly: bool = False) -> bool:
    """Whether what follows a statement turns against it; strictly, if it only praises the other side."""
    other = {"A": "B", "B": "A"}.get(str(value))
    for words in after:
        if _RETRACTS.search(words):
            return True
        named = other is not None and re.search(rf"(?<![^\W_]){other}(?![^\W_])", words)
        if _CONTRAST.search(words) and (strictly or named):
            return True
        if strictly and named and not _FAULT.search(words) and not _says_sureness(words):
            return True
    return False


def _says_sureness(words: str) -> bool:
    return bool(_SURE_LINE.match(words))


def stated_sureness(lines: Sequence[str]) -> str | None:
    """`HIGH` or `LOW` where one of the last lines states how sure the judge is."""
    for words in reversed(lines[-_SURE_LINES:]):
        found = [*_SURE.finditer(words)]
        of = [*_SURE_OF.finditer(words)]
        said = (of[-1][1] or of[-1][2]) if of else found[-1][1] if found else None
        bare_line = _BARE_SIDE.match(words)
        said = said or (bare_line[3] if bare_line else None)
        if said is not None and (sure := sureness(said)) is not None:
            return sure
    return None


def _label(found: re.Match[str]) -> str:
    return next((one for one in found.groups() if one in ("A", "B")), "TIE")


def _doubted(sentence: str, found: re.Match[str]) -> bool:
    label = next((at for at in range(1, 1 + len(found.groups())) if found[at] in ("A", "B")), None)
    before = sentence[: found.start(label) if label else found.end()]
    clause = found.groupdict().get("clause") or ""
    return bool(
        _DOUBT.search(_FORCED.sub("", before).replace(clause, "") if clause else _FORCED.sub("", before))
        or (_RESPECT.search(clause) and not _CONCEDES.match(clause))
        or sentence.rstrip().endswith(("?", "？"))
    )


def _keyed_side(words: str) -> Found | None:
    more = _COMPARED.match(words)
    if more:
        return Found(compared(more))
    found = _KEYED_SIDE.match(words)
    if found is None:
        return None
    if found[1] is None:
        return Found("TIE") if not _EITHER_WAY.search(found[3]) else Found(None)
    if _doubted(words, found) or _EITHER_WAY.search(found[3]) or _taken_back(sentences(found[3]), found[1]):
        return Found(None)
    return Found(found[1] if unopposed(found[1], found[3]) else None)


def _bare_side(words: str) -> Found | None:
    more = _COMPARED.match(words)
    found = _BARE_SIDE.match(words)
    if more:
        return Found(compared(more))
    return None if found is None else Found(found[1] or "TIE")


def _sentence_side(sentence: str) -> Found | None:
    for form in (_SAID_OF, _ONLY, _AGAINST, _CHOSEN, _CLAUSED, _HENCE, _CJK, _DRAWN):
        found = form.match(sentence)
        if found is None:
            continue
        label, rest = _label(found), found.groups()[-1] or ""
        if _doubted(sentence, found) or _EITHER_WAY.search(rest):
            continue
        if form in (_CHOSEN, _CLAUSED) and not unopposed(label, rest):
            return Found(None)
        if form is _AGAINST and found[1] == found[2]:
            continue
        if form is not _DRAWN and opposed(label, rest):
            return Found(None)
        return Found(label)
    return None


def _keyed_rating(words: str) -> Found | None:
    found = _KEYED_RATING.match(words)
    return None if found is None else Found(_scaled(found, 1))


def _scaled(found: re.Match[str], at: int) -> float:
    return on_scale(found[at], "100" if found[at + 2] else found[at + 1])


def _bare_rating(words: str) -> Found | None:
    found = _FRACTION_LINE.match(words)
    return None if found is None else Found(_scaled(found, 1))


def _rating_below(words: str) -> Found | None:
    found = _NUMBER_LINE.match(words)
    return Found(_scaled(found, 1)) if found else _bare_rating(words)


def _sentence_rating(sentence: str) -> Found | None:
    for form in (_KEYED_RATING, _GIVEN_RATING):
        found = form.match(sentence)
        if found and not _DOUBT.search(_FORCED.sub("", sentence[: found.start(1)])):
            return Found(_scaled(found, 1))
    return None


def _numbered(found: re.Match[str], at: int = 1) -> int:
    return WORDS.get(found[at].lower()) or int(found[at])


def _keyed_place(words: str) -> Found | None:
    ranked = _RANKED.match(words)
    if ranked:
        return Found(int(ranked[1]))
    found = _KEYED_PLACE.match(words)
    if found is None or _DOUBT.search(words[: found.start(1)]):
        return None
    also = re.match(r" ?(?:,|;|and|or|&|/) ?(?:candidate )?[0-9]", found[2])
    return Found(None if also or _TURN.search(found[2]) else _numbered(found))


def _bare_place(words: str) -> Found | None:
    return _place_below(words) if re.search(NOUNS, words, re.IGNORECASE) or ">" in words else None


def _place_below(words: str) -> Found | None:
    ranked = _RANKED.match(words)
    found = _BARE_PLACE.match(words)
    if ranked:
        return Found(int(ranked[1]))
    return Found(_numbered(found)) if found else None


def _sentence_place(sentence: str) -> Found | None:
    for form in (_KEYED_PLACE, _PLACED, _CHOSEN_PLACE, _HENCE_PLACE):
        found = form.match(sentence)
        if found and not _DOUBT.search(_FORCED.sub("", sentence[: found.start(1)])):
            return Found(_numbered(found))
    return None


SIDE = Forms(_keyed_side, _KEY_ONLY, _bare_side, _bare_side, _sentence_side)
RATING = Forms(_keyed_rating, _RATING_ONLY, _rating_below, _bare_rating, _sentence_rating)
PLACE = Forms(_keyed_place, _KEY_ONLY, _place_below, _bare_place, _sentence_place)


def stated_ratings(lines: Sequence[Line]) -> dict[str, float]:
    """The ratings of A and B that lines state; nothing where they differ from line to line."""
    rated, heading = list[tuple[str, list[tuple[str, float]]]](), None
    for line in lines:
        named = _SIDE_HEADING.match(line.words)
        heading = named[1] if named else heading
        found = _sides_rated(line.words)
        if not found and heading and (below := _keyed_rating(line.words)) is not None:
            found = [(heading, cast("float", below.value))]
        if found:
            rated.append((line.words, found))
    whole = [(words, found) for words, found in rated if _WHOLE.search(words)]
    values: dict[str, set[float]] = {}
    for _, found in whole or rated:
        for name, value in found:
            values.setdefault(name, set()).add(value)
    return (
        {}
        if any(len(one) > 1 for one in values.values())
        else {name: min(one) for name, one in values.items()}
    )


def _sides_rated(words: str) -> list[tuple[str, float]]:
    if _DOUBT.search(words) or _QUOTES.search(words):
        return []
    spoken = _RATED.search(words) is not None
    return [
        ((one[1] or one[2]).upper(), _scaled(one, 3))
        for one in _SIDE_RATED.finditer(words)
        if spoken or one[1] or one[4] or one[5]
    ]


# The same forms wherever they stand, without what must precede and follow them: no text holds one unseen.
_ANYWHERE_SIDE = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{KEYS}(?: (?:{NOUNS}|one|overall|of the two)(?![^\W_]))?{_LINK}{_OF}(?:{_SIDES}|{_TIES})",
        rf"{_SIDES} (?:(?:is|seems|appears(?: to be)?|looks) {_ADVERBS}{_BETTER}|(?:clearly "
        rf"|narrowly )?(?:wins|beats|outperforms)\b|(?:is )?more likely|(?:ist|est|es|è|é) (?:der |die "
        rf"|le |la |el |il )?(?:besser|meilleur|mejor|migliore|melhor))",
        rf"only {_OF}{_SIDES} (?:is|passes)|{_SIDES} is (?:correct|right) ?,? ?(?:and |but |while "
        rf"|whereas )?{_OF}(?-i:[AB])\b",
        rf"(?:choose|pick|select|prefer|go with|vote for|favou?r|opt for|declare"
        rf"|lean towards?) {_OF}{_SIDES}",
        rf"(?:therefore|thus|hence|so|consequently|conclusion|overall|finally|因此|所以"
        rf"|综上)(?![^\W_]) ?[,:，]? ?{_OF}{_SIDES} ?(?:(?:is|as) the (?:winner|answer))?(?:\.(?= |$)|$)",
        rf"{_SIDES} ?{_BETTER_CJK}|(?:选择|选|選擇)[:：]? ?{_OF}{_SIDES}",
        r"(?<![^\W_])a (?:tie|draw)(?![^\W_])",
        rf"\? (?:{_OF}{_SIDES}|TIE)[^\n]{{0,20}}$",
    )
)
_ANYWHERE_RATING = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_RATING_KEYS}(?: (?:for|of) (?:the|this) {NOUNS})?(?: ?(?:is|of|is a|would be|是|为"
        rf"|は)(?![^\W_])| ?(?::|–|—|→)){{1,3}} ?(?:a )?{NUMBER}",
        rf"(?:give|rate|assign|score)(?: (?:it|this|the|this {NOUNS}|{NOUNS}|as|an?|with|at|of|rating"
        rf"|score|final|overall)){{0,7}} {NUMBER}",
    )
)
_ANYWHERE_PLACE = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{KEYS}(?: (?:{NOUNS}|one|overall)(?![^\W_]))?(?: ?(?:is|goes to|是|为|は)(?![^\W_])| ?(?::|–|—|→)"
        rf"| {NOUNS}(?= #?[0-9])){{1,3}} ?{_OF}{_NUMBERED}",
        rf"{NOUNS} {_NUMBERED} (?:wins|is {_ADVERBS}(?:best|winner|most|only))",
        rf"(?:choose|pick|select|prefer|go with|vote for|opt for|选择|选) ?{_OF}{NOUNS} ?{_NUMBERED}",
        rf"(?:therefore|thus|hence|so|conclusion|overall|finally)[,:]? {_OF}{NOUNS} {_NUMBERED}(?:\.(?= "
        rf"|$)|$)",
    )
)
# What a line must hold to be looked at more closely: a label, a word for a tie, a number.
_LABELLED = re.compile(r"[AB](?<![0-9A-Za-zÀ-ɏ][AB])(?![0-9A-Za-zÀ-ɏ])")
_TIED = re.compile(
    r"(?<![^\W_])(?:tie|draw|unentschieden|empate|égalité|pareggio|ничья)(?![^\W_])|平局|平手|引き分け",
    re.IGNORECASE,
)
_RATED_SMALL = re.compile(r"(?:rating|score|grade)s?[^\n]{0,24}?[ab](?![0-9A-Za-z])", re.IGNORECASE)
_TIE_WORDS = ("tie", "draw", "unentschieden", "empate", "pareggio")
_COUNTED = re.compile(rf"[0-9]|(?<![^\W_])(?:{'|'.join(WORDS)})(?![^\W_])", re.IGNORECASE)
_ROW = re.compile(r"^[ \t]*\|[^\n]*", re.MULTILINE)
_UNSEEN = re.compile("[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufeff]")


def resembles(text: str, kinds: Collection[Forms]) -> bool:
    """Whether a line of a text, or a part of one, would state an answer if it stood in the right place."""
    text = plainly(text)
    versions = {text} if text.isascii() else {text, _UNSEEN.sub("", text)}
    return any(_resembles(without_marks(one), kinds) for one in versions)


def _resembles(text: str, kinds: Collection[Forms]) -> bool:
    hints = list[re.Pattern[str]]()
    if SIDE in kinds:
        lowered = text.lower()
        tied = any(word in lowered for word in _TIE_WORDS) or not text.isascii()
        rated = any(word in lowered for word in ("rating", "score", "grade"))
        hints += [_LABELLED, *([_TIED] if tied else []), *([_RATED_SMALL] if rated else [])]
    if RATING in kinds or PLACE in kinds:
        hints.append(_COUNTED)
    seen = set[int]()
    for hint in hints:
        at = 0
        while (found := hint.search(text, at)) is not None:
            start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
            at = len(text) if end < 0 else end
            if start not in seen and _line_resembles(text[start:at], kinds):
                return True
            seen.add(start)
    rows = _ROW.finditer(text) if "|" in text else ()
    return any(_KEY_CELL.match(bare(cell)) for row in rows for cell in row[0].split("|"))


def _line_resembles(raw: str, kinds: Collection[Forms]) -> bool:
    raw = raw.strip()
    words = _words(raw)
    if SIDE in kinds and (
        _COMPARED.match(raw)
        or _BARE_SIDE.match(words)
        or any(form.search(words) for form in _ANYWHERE_SIDE)
        or _ANYWHERE_RATING[0].search(words)
        or any(one[1] or one[4] or one[5] or _RATED.search(words) for one in _SIDE_RATED.finditer(words))
    ):
        return True
    if RATING in kinds and (
        _FRACTION_LINE.match(words)
        or _NUMBER_LINE.match(words)
        or any(form.search(words) for form in _ANYWHERE_RATING)
    ):
        return True
    return PLACE in kinds and bool(
        _RANKED.match(raw) or _BARE_PLACE.match(words) or any(form.search(words) for form in _ANYWHERE_PLACE)
    )
