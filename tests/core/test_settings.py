import pytest

from caps import Caps, V1Infer
from caps.core.errors import SettingError
from caps.core.settings import override
from caps.session.parts import make_strategy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finalists": 0}, "Caps.finalists = 0: must be a whole number of at least 1"),
        ({"finalists": 2.5}, "Caps.finalists = 2.5: must be a whole number"),
        ({"finalists": True}, "Caps.finalists = True"),
        ({"rescue_margin": -0.1}, "Caps.rescue_margin = -0.1: must be a number of at least 0"),
        ({"rescue_margin": float("nan")}, "Caps.rescue_margin = nan"),
        ({"weight_floor": 2}, "Caps.weight_floor = 2: must be a number from 0 to 1"),
        ({"rescue": "always"}, "Caps.rescue = 'always': must be one of none, paper, signed, screened"),
        ({"order": 3}, "Caps.order = 3: must be one of balanced, as-paired, both"),
    ],
)
def test_a_value_outside_its_limits_is_named_with_what_is_allowed(changes, message):
    with pytest.raises(SettingError, match=message.replace(".", r"\.")):
        Caps(**changes)


def test_words_become_values_of_the_fields_kind():
    changed = override(Caps(), {"finalists": "6", "rescue-margin": "0.2", "rescue": "signed"})
    assert changed == Caps(finalists=6, rescue_margin=0.2, rescue="signed")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finalist": "4"}, "strategy 'caps': Caps has no field 'finalist': did you mean 'finalists'"),
        ({"finalists": "four"}, "Caps.finalists = 'four': must be a whole number of at least 1"),
        ({"finalists": "0"}, "Caps.finalists = 0: must be"),
    ],
)
def test_a_wrong_word_is_named_with_the_strategy_and_the_way_out(changes, message):
    with pytest.raises(SettingError, match=message.replace(".", r"\.")):
        make_strategy("caps", changes)


def test_an_unknown_strategy_is_answered_with_the_known_ones():
    with pytest.raises(SettingError, match="no strategy is called 'cap-r': did you mean 'caps-r'"):
        make_strategy("cap-r")


def test_a_strategy_may_be_a_dotted_path():
    assert make_strategy("caps.strategies.v1_infer:V1Infer", {"window": "3"}) == V1Infer(window=3)


@pytest.mark.parametrize("path", ["no.such:Thing", "caps.strategies.caps:Nothing", "caps.core.types:Level"])
def test_a_path_that_leads_nowhere_or_to_something_else_is_refused(path):
    with pytest.raises(SettingError, match=path.partition(":")[0].replace(".", r"\.")):
        make_strategy(path)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("caps_r", "caps-r"), ("min_degree", "v1-infer-caps"), ("random", "random-pairs-caps")],
)
def test_the_papers_own_names_work(alias, name):
    assert make_strategy(alias) == make_strategy(name)
