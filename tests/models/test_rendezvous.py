from collections import Counter

from caps.models.fleet import rank

GROUPS = [f"problem {i}".encode() for i in range(4000)]


def firsts(**weights):
    entries = [(name, weight, name) for name, weight in weights.items()]
    return {group: rank(group, entries)[0] for group in GROUPS}


def test_each_comes_first_as_often_as_its_share_of_the_weights():
    counts = Counter(firsts(a=1.0, b=2.0, c=5.0).values())
    for name, share in {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}.items():
        assert abs(counts[name] / len(GROUPS) - share) < 0.02


def test_whoever_leaves_moves_only_its_own_groups():
    all_, fewer = firsts(a=1.0, b=1.0, c=1.0), firsts(a=1.0, b=1.0)
    assert all(fewer[group] == first for group, first in all_.items() if first != "c")
    moved = Counter(fewer[group] for group, first in all_.items() if first == "c")
    assert min(moved.values()) > 0.4 * moved.total(), "and spreads them over the others"


def test_the_order_is_that_of_the_names_not_of_the_list():
    entries = [("a", 1.0, "a"), ("b", 2.0, "b"), ("c", 1.0, "c")]
    assert all(rank(group, entries) == rank(group, entries[::-1]) for group in GROUPS[:100])
