"""The forms in which judges state verdicts in plain words, as patterns over a line without decoration.

Labels are capital letters here: in prose a small "a" is an article. Every pattern is limited in length. At
the end stand the same forms without what must precede and follow them, for texts that might be repeated.
"""

import re
from typing import Any

from caps.prompts.tags import NUMBER, WORDS


class Form:
    """A pattern that is compiled when it is first used: most replies need none, and compiling takes long."""

    def __init__(self, source: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        """A method of the pattern, kept for the next time."""
        found = self.__dict__[name] = getattr(re.compile(self._source, self._flags), name)
        return found


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
LEAD = (
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
CLAUSE = (
    r"(?:(?:after|having|based on|given|considering|since|because|although|even though|though|while"
    r"|looking at|all things considered)(?![^\W_])[^,.;:?]{0,120}, )?"
)
RESPECT = Form(
    r"\b(?:terms|respect|regard|style|read\w*|speed|effici\w*|perform\w*|memory|structur\w*|format\w*"
    r"|length|clarity|alone|only|far|first|glance"
    r"|if|when|whether|not|claims?|says?)\b",
    re.IGNORECASE,
)
CONCEDES = Form(r"(?:although|even though|though|while)\b", re.IGNORECASE)
OF = rf"(?:(?:the|an?|le|la|el|der|die|il|{NOUNS}|number|no) ?\.? ?){{0,3}}"
# A label stands alone; in scripts without spaces only Latin letters and digits would be part of its word.
SIDES = r"(?<![0-9A-Za-zÀ-ɏ])(?-i:([AB]))(?![0-9A-Za-zÀ-ɏ])(?! s\b)"
TIES = (
    r"(?:it (?:is|s) )?(?:an? )?(tie|draw|平局|平手|引き分け|unentschieden|empate|égalité|pareggio|ничья)"
    r"(?![^\W_])(?! or\b)"
)
NUMBERED = (
    r"(?<![\w.,-])#? ?([0-9]{1,6}|"
    + "|".join(WORDS)
    + r")(?![\w/%]|[.,][0-9])(?! ?(?:,|-|–|to|or|and|&) ?(?:candidate )?[0-9])"
)
LINK = (
    r"(?: ?(?:is|is therefore|is thus|goes to|would be|will be|ist|es|est|è|é|是|为|は)(?![^\W_])"
    r"| ?(?::|=>|=|–|—|→|⇒|-)){0,3} ?"
)
REST = r"((?: ?[.,;:–—-].*| (?:because|since|as|with|over|due to|for|is|wins|high|low|confidence)\b.*)?)$"
MODIFIED = r"(?:(?:my|the|its|el|la|le|der|die|il|o|final|overall|ultimate|correct|so|thus) ){0,4}"

KEYED_SIDE = Form(
    rf"^{LEAD}{MODIFIED}{KEYS}(?: (?:{NOUNS}|one|overall|of the two)(?![^\W_]))?{LINK}{OF}(?:{SIDES}"
    rf"|{TIES}){REST}",
    re.IGNORECASE,
)
KEY_ONLY = Form(
    rf"^(?:[0-9]{{1,2}}[.:] )?(?:step [0-9]{{1,2}}[.:] )?{MODIFIED}{KEYS}(?: (?:{NOUNS}|one"
    rf"|overall))? ?[:.–—-]?$",
    re.IGNORECASE,
)
BETTER = (
    r"(?:better|best|superior|stronger|winner|preferable|preferred|more correct|most correct"
    r"|most likely correct|more likely correct|more accurate"
    r"|more likely to be (?:correct|right)|more likely to pass(?: every test| all tests| all the tests)?)"
)
ADVERBS = (
    r"(?:(?:clearly|definitely|therefore|thus|still|slightly|much|far|overall|the|a|actually|likely) ){0,4}"
)
PRAISE_ENDS = (
    rf"(?: (?:{NOUNS}|one|choice|overall|of the two))*(?= ?(?:$|[.,;–—-]|(?:than|because|since|as|due to"
    rf"|with|here|for)\b))"
    r"(?! (?:in|at|for|as far)\b| with regard| with respect|-)"
)
SAID_OF = Form(
    rf"^{LEAD}(?P<clause>{CLAUSE}){LEAD}{OF}{SIDES} (?:(?:is|seems|appears(?: to be)?"
    rf"|looks) {ADVERBS}{BETTER}{PRAISE_ENDS}"
    r"|(?:clearly |narrowly )?wins(?= ?(?:$|[.,;–—-]|(?:because|since|as|due to|with|over|against)\b))"
    r"|(?:clearly )?(?:beats|outperforms) (?:\w+ )?[AB]\b(?= ?(?:$|[.,;–—-]|(?:because|since|as|due)\b))"
    r"|(?:ist|est|es|è|é) (?:der |die |le |la |el |il )?(?:besser|bessere|meilleure?|mejor|migliore"
    r"|melhor)(?= ?(?:$|[.,;]))"
    r"|(?:is )?more likely (?:passes|pass|correct)\b)(.*)$",
    re.IGNORECASE,
)
ONLY = Form(
    rf"^{LEAD}only {OF}{SIDES} (?:is (?:correct|right)|passes (?:every|all)(?: the)? tests?)(.{{0,2}})$",
    re.IGNORECASE,
)
AGAINST = Form(
    rf"^{LEAD}{OF}{SIDES} is (?:correct|right) ?,? ?(?:and |but |while "
    rf"|whereas )?{OF}(?-i:([AB])) (?:is (?:not|wrong|incorrect)(?: correct| right)?|fails"
    rf"|is not)(.{{0,2}})$",
    re.IGNORECASE,
)
CHOSEN = Form(
    rf"^{LEAD}(?P<clause>{CLAUSE}){LEAD}(?:i|we) (?:(?:would|d|will|ll|must|have to|therefore|thus"
    rf"|also) ){{0,2}}"
    rf"(?:choose|pick|select|prefer|go with|vote for|favou?r|opt for|declare"
    rf"|lean towards?) {OF}{SIDES}{REST}",
    re.IGNORECASE,
)
CLAUSED = Form(
    rf"^{LEAD}(?P<clause>{CLAUSE}){MODIFIED}{KEYS}(?: (?:{NOUNS}|one"
    rf"|overall))?{LINK}{OF}{SIDES}{REST}",
    re.IGNORECASE,
)
HENCE = Form(
    rf"^(?:therefore|thus|hence|so|consequently|in conclusion|conclusion|overall|finally|因此|所以"
    rf"|综上)(?![^\W_]) ?[,:，]? ?{OF}{SIDES} ?(?:(?:is|as) the (?:winner|answer))?()\.?$",
    re.IGNORECASE,
)
BETTER_CJK = r"(?:更好|更优|更佳|胜出|获胜|更正确|の方が良い|が優れている)"
CJK = Form(
    rf"^{LEAD}{OF}{SIDES} ?{BETTER_CJK}()[。.]?$"
    rf"|^{LEAD}(?:我)?(?:选择|选"
    rf"|選擇)[:：]? ?{OF}{SIDES}()[。.]?$",
    re.IGNORECASE,
)
DRAWN = Form(
    rf"^{LEAD}(?:[^.?]{{0,120}}[;,] (?:so )?)?(?:it is|it s|this is|(?:i |we )?(?:would |d )?(?:call"
    rf"|declare)(?: it| this)?|the result is|result|we have|as)(?: essentially| effectively)? ?:? a (?:tie"
    r"|draw)\b(?! or\b)(.*)$"
    r"|^[^.?]{0,160}[;,] so the (?:verdict|result|winner) is(?: a)? (?:tie|draw)\b(?! or\b)(.*)$",
    re.IGNORECASE,
)
BARE_SIDE = Form(
    rf"^(?:(?:=>|→|⇒|-|–|—|•|[.,:]) ?)*{OF}(?:{SIDES}|(?-i:(TIE"
    rf"|Tie)(?![^\W_]))) ?[.,:;/–—-]? ?((?:with )?(?:very |extremely )?(?:high|low|medium)(?: confidence)?"
    rf"|[0-9]{{1,3}} ?%)? ?[.,]{{0,2}}$",
    re.IGNORECASE,
)
COMPARED = Form(
    rf"^\W*(?:(?:ranking|verdict|result|overall|therefore|thus|so|hence|conclusion"
    rf"|final ranking)\W{{1,3}})?(?:{NOUNS} )?(?-i:([AB])) ?(>{{1,3}}|<{{1,3}}|≻"
    rf"|=) ?(?:{NOUNS} )?(?-i:([AB]))\W*$",
    re.IGNORECASE,
)
# A sentence that doubts, asks, or reports.
DOUBT = Form(
    r"\b(?:if|whether|not|t|unless|cannot|claims?|claimed|says?|said|either|neither|nor|could|might|may"
    r"|perhaps|maybe|possibly|according"
    r"|suppose|assum\w*|some|someone|so far|glance|initially|at first|seemingly|supposedly|allegedly)\b"
    r"|\?|不|吗|？",
    re.IGNORECASE,
)
RETRACTS = Form(
    r"(?:^|[.!?;:,…–—-] ?)(?:hmm+|wait|actually|correction|scratch that|on second thought|oops"
    r"|i was wrong|let me (?:re|double|correct)|no, |nope)\b"
    r"|\b(?:i am|i m) (?:lost|not sure|unsure|uncertain)\b|\bcan ?(?:not|t) (?:decide|tell)\b"
    r"|\bthat is wrong\b|\bi made (?:a|an) (?:mistake|error)\b",
    re.IGNORECASE,
)
CONTRAST = Form(
    r"^(?:however|but|yet|still|nevertheless|nonetheless|that said|on the other hand|then again"
    r"|alternatively|although|though|unless)\b"
    r"|^no\b",
    re.IGNORECASE,
)
FAULT = Form(
    r"\b(?:not|n t|t|never|wrong|incorrect|worse|fails?|failed|loses|misses|missing|breaks|crash\w*"
    r"|errors?|raises|off by|overflows?|times? out|cannot|incomplete|bug\w*|loops forever|invalid)\b",
    re.IGNORECASE,
)
SURE_KEYS = (
    r"(?:confidence|certainty|konfidenz|sicherheit|vertrauen|confianza|confiance|confiança|fiducia|置信度|信心"
    r"|把握|確信度|уверенность|pewność|güven)"
)
SURE = Form(
    rf"(?<![^\W_]){SURE_KEYS}(?: (?:level|score|rating))?(?: (?:is"
    rf"|of))? ?[:=–—-]{{0,2}} ?(?:is )?([^,;|]{{1,40}})",
    re.IGNORECASE,
)
SURE_OF = Form(
    r"\b((?:very |extremely |not |low |high |medium |moderate ){0,3}(?:high|low|medium|moderate|full"
    r"|complete)) (?:confidence|certainty)\b"
    r"|\bi am ((?:very |quite |highly |not |fairly )?(?:confident|sure|certain)"
    r"|[0-9]{1,3} ?%)(?: (?:confident|sure|certain))?\b",
    re.IGNORECASE,
)

SCALED = rf"{NUMBER}( ?%)?(?! ?(?:%|tests?|cases?|samples?|examples?|inputs?|points? (?:lower|higher))\b)"
RATING_KEYS = (
    r"(?:rating|score|grade|mark|评分|分数|得分|打分|評価|点数|bewertung|punktzahl|puntuación|calificación|nota"
    r"|pontuação|оценка|punteggio)"
)
KEYED_RATING = Form(
    rf"^{LEAD}(?:(?:my|the|final|overall|total|correctness|would be|a) ){{0,4}}{RATING_KEYS}(?: (?:for"
    rf"|of) (?:the|this) {NOUNS})?"
    rf"(?: ?(?:is|of|is a|would be|是|为|は)(?![^\W_])| ?(?::|–|—"
    rf"|→)){{1,3}} ?(?:a )?{SCALED} ?分?((?: ?[.,;–—-].*| (?:because|since|as)\b.*)?)$",
    re.IGNORECASE,
)
GIVEN_RATING = Form(
    rf"^{LEAD}(?:i|we) (?:(?:would|d|will|therefore|thus) ){{0,2}}(?:give|rate|assign|score)(?: (?:it"
    rf"|this|the|this {NOUNS}|{NOUNS}|as|an?|with|at|of|rating|score|final|overall)){{0,7}} {SCALED}"
    r"((?: ?[.,;–—-].*| (?:because|since|as|for)\b.*)?)$",
    re.IGNORECASE,
)
FRACTION_LINE = Form(
    rf"^{LEAD}(?:(?:overall|total|final|verdict|result|answer"
    rf"|correctness overall)[,:]? ?){{0,2}}([0-9]{{1,3}}(?:[.,][0-9]{{1,3}})?) ?(?:/"
    rf"|out of) ?([0-9]{{1,3}})()()[.,]{{0,2}}$",
    re.IGNORECASE,
)
RATING_ONLY = Form(rf"^(?:(?:my|the|final|overall) ){{0,2}}{RATING_KEYS} ?[:.–—-]?$", re.IGNORECASE)
NUMBER_LINE = Form(rf"^{NUMBER}( ?%)?()[.,]{{0,2}}$")
SIDE_RATED = Form(
    rf"(?:(?:rating|score|grade)s? (?:for |of )?(?:{NOUNS} )?(?-i:([ABab]))"
    rf"|(?<![^\W_])(?-i:([AB])))(?![^\W_])(?! s\b) ?(?:is|gets|deserves|receives|with|at|:|=|–|—|-|,|)"
    rf" ?:? ?(?:an? )?(?:(?:rating|score) (?:of )?)?{SCALED}",
    re.IGNORECASE,
)
RATED = Form(r"(?:rating|score|grade|\brate\b|评分|得分)", re.IGNORECASE)
SIDE_HEADING = Form(
    rf"^(?:[0-9]{{1,2}}[.:] ?)?(?:(?:analysis|evaluation|rating) (?:of|for) )?{NOUNS} ([AB]) ?:?$",
    re.IGNORECASE,
)
WHOLE = Form(r"\b(?:overall|total|final|finally|altogether|in sum)\b", re.IGNORECASE)

# "The answer is 3" may be the answer to the problem: such a word needs the noun after it.
PLACE_KEYS = (
    r"(?:(?!answer|result|conclusion|outcome|judge|antwort|respuesta|réponse|resposta|ответ|最终答案|答案|结论|結論"
    rf"|最终结论){KEYS}|{KEYS}(?=[^0-9]{{0,20}}{NOUNS} ))"
)
KEYED_PLACE = Form(
    rf"^{LEAD}{MODIFIED}{PLACE_KEYS}(?: (?:{NOUNS}|one|overall)(?![^\W_]))?(?: ?(?:is|goes to|是|为"
    rf"|は)(?![^\W_])| ?(?::|–|—|→)| {NOUNS}(?= #?[0-9])){{1,3}} ?{OF}{NUMBERED}{REST}",
    re.IGNORECASE,
)
PLACED = Form(
    rf"^{LEAD}(?:the )?{NOUNS} {NUMBERED} (?:wins|is {ADVERBS}(?:best|winner|most correct"
    rf"|most likely correct|most likely to be correct|only correct|most accurate){PRAISE_ENDS})(.*)$",
    re.IGNORECASE,
)
CHOSEN_PLACE = Form(
    rf"^{LEAD}(?:(?:i|we) (?:(?:would|d|will|ll|must|therefore|thus) ){{0,2}}(?:choose|pick|select|prefer"
    rf"|go with|vote for|opt for)|我?(?:选择|选)) ?{OF}{NOUNS} ?{NUMBERED}{REST}",
    re.IGNORECASE,
)
HENCE_PLACE = Form(
    rf"^(?:therefore|thus|hence|so|in conclusion|overall|finally)[,:]? {OF}{NOUNS} {NUMBERED}()\.?$",
    re.IGNORECASE,
)
RANKED = Form(
    rf"^\W*(?:(?:final )?ranking\W{{1,3}})?(?:{NOUNS} )?([0-9]{{1,4}})"
    rf"(?: ?>{{1,2}} ?(?:{NOUNS} )?[0-9]{{1,4}}){{1,40}}\W*$",
    re.IGNORECASE,
)
BARE_PLACE = Form(rf"^(?:(?:=>|→|⇒|-) ?)?{OF}{NUMBERED}()[.,]{{0,2}}$", re.IGNORECASE)

KEY_CELL = Form(
    rf"^{MODIFIED}(?:{KEYS}|{RATING_KEYS}|{SURE_KEYS})(?: (?:{NOUNS}|level|overall|score))?$",
    re.IGNORECASE,
)
SENTENCE_ENDS = Form(r"(?<=[.!?;。！？；]) +|(?<=[。！？；])")
SURE_LINE = Form(rf"^(?:my )?{SURE_KEYS}\b", re.IGNORECASE)
SURE_LINES = 8
BULLET = Form(r"^(?:[-+•–]|[0-9]{1,2}[.)])[ \t]{1,4}(?=[^\W_]|[*_`<])")
ENCLOSED = Form(r"\(([AB]|TIE|[0-9]{1,3})\)")
FORCED = Form(r"\bif i (?:had|have) to choose\b|\b(?:i|we) (?:would |d )?say\b", re.IGNORECASE)
EITHER_WAY = Form(
    r"^ ?(?:[,;/&|]|or|and|vs|versus) ?(?:or |and )?(?:the )?(?:candidate |solution )?(?:(?-i:[AB])|tie)\b",
    re.IGNORECASE,
)
TURN = Form(r"\b(?:but|however|although|though|unless|instead)\b", re.IGNORECASE)
QUOTES = Form(r"\b(?:contains?|includes?|wrote|writes?|comments?|injects?|tries)\b", re.IGNORECASE)

FIELD = Form(
    r"(?<![\\\w])[\"'](?:(?:final|overall)[ _-]?)?(winner|verdict|better|best|choice|answer|decision"
    r"|preferred|preference|confidence|certainty|rating|score)"
    r"(?:[ _-](?:candidate|solution|answer|choice"
    r"|verdict))?[\"'][ \t\n]{0,8}:[ \t\n]{0,8}(?:\"([^\"\\\n]{0,80})\"|'([^'\\\n]{0,80})'"
    r"|([0-9][0-9./%]{0,8}))",
    re.IGNORECASE,
)

# The same forms wherever they stand, without what must precede and follow them: no text holds one unseen.
ANYWHERE_SIDE = tuple(
    Form(form, re.IGNORECASE)
    for form in (
        rf"{KEYS}(?: (?:{NOUNS}|one|overall|of the two)(?![^\W_]))?{LINK}{OF}(?:{SIDES}|{TIES})",
        rf"{SIDES} (?:(?:is|seems|appears(?: to be)?|looks) {ADVERBS}{BETTER}|(?:clearly "
        rf"|narrowly )?(?:wins|beats|outperforms)\b|(?:is )?more likely|(?:ist|est|es|è|é) (?:der |die "
        rf"|le |la |el |il )?(?:besser|meilleur|mejor|migliore|melhor))",
        rf"only {OF}{SIDES} (?:is|passes)|{SIDES} is (?:correct|right) ?,? ?(?:and |but |while "
        rf"|whereas )?{OF}(?-i:[AB])\b",
        rf"(?:choose|pick|select|prefer|go with|vote for|favou?r|opt for|declare"
        rf"|lean towards?) {OF}{SIDES}",
        rf"(?:therefore|thus|hence|so|consequently|conclusion|overall|finally|因此|所以"
        rf"|综上)(?![^\W_]) ?[,:，]? ?{OF}{SIDES} ?(?:(?:is|as) the (?:winner|answer))?(?:\.(?= |$)|$)",
        rf"{SIDES} ?{BETTER_CJK}|(?:选择|选|選擇)[:：]? ?{OF}{SIDES}",
        r"(?<![^\W_])a (?:tie|draw)(?![^\W_])",
        rf"\? (?:{OF}{SIDES}|TIE)[^\n]{{0,20}}$",
    )
)
ANYWHERE_RATING = tuple(
    Form(form, re.IGNORECASE)
    for form in (
        rf"{RATING_KEYS}(?: (?:for|of) (?:the|this) {NOUNS})?(?: ?(?:is|of|is a|would be|是|为"
        rf"|は)(?![^\W_])| ?(?::|–|—|→)){{1,3}} ?(?:a )?{NUMBER}",
        rf"(?:give|rate|assign|score)(?: (?:it|this|the|this {NOUNS}|{NOUNS}|as|an?|with|at|of|rating"
        rf"|score|final|overall)){{0,7}} {NUMBER}",
    )
)
ANYWHERE_PLACE = tuple(
    Form(form, re.IGNORECASE)
    for form in (
        rf"{KEYS}(?: (?:{NOUNS}|one|overall)(?![^\W_]))?(?: ?(?:is|goes to|是|为|は)(?![^\W_])| ?(?::|–|—|→)"
        rf"| {NOUNS}(?= #?[0-9])){{1,3}} ?{OF}{NUMBERED}",
        rf"{NOUNS} {NUMBERED} (?:wins|is {ADVERBS}(?:best|winner|most|only))",
        rf"(?:choose|pick|select|prefer|go with|vote for|opt for|选择|选) ?{OF}{NOUNS} ?{NUMBERED}",
        rf"(?:therefore|thus|hence|so|conclusion|overall|finally)[,:]? {OF}{NOUNS} {NUMBERED}(?:\.(?= "
        rf"|$)|$)",
    )
)
# What a line must hold to be looked at more closely: a label, a word for a tie, a number.
LABELLED = Form(r"[AB](?<![0-9A-Za-zÀ-ɏ][AB])(?![0-9A-Za-zÀ-ɏ])")
TIED = Form(
    r"(?:tie|draw|unentschieden|empate|égalité|pareggio|ничья)(?![^\W_])|平局|平手|引き分け",
    re.IGNORECASE,
)
RATED_SMALL = Form(r"(?:rating|score|grade)s?[^\n]{0,24}?[ab](?![0-9A-Za-z])", re.IGNORECASE)
TIE_WORDS = ("tie", "draw", "unentschieden", "empate", "pareggio")
COUNTED = Form(rf"[0-9]|(?<![^\W_])(?:{'|'.join(WORDS)})(?![^\W_])", re.IGNORECASE)
ROW = Form(r"^[ \t]*\|[^\n]*", re.MULTILINE)
UNSEEN = Form("[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufeff]")
