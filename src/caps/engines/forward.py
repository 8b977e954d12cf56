"""Fast-forward: play a contest as far as what is recorded reaches, and say what is open.

Resume, replay and batch files are this one function over a judge that answers from the journal.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from caps.core.errors import NotRecordedError
from caps.engines.base import Play
from caps.judges.base import Judge

T = TypeVar("T")


def fast_forward(play: Play, judge: Judge) -> list[int]:
    """Play on with what is recorded; the places of the pending round that are open, none when it is over."""
    while round_ := play.round:
        open_places, ready = [], play.begin(judge)
        while ready:
            place = ready.pop(0)
            try:
                ruling = _at_once(judge.rule(play.bout, round_.asks[place], play.purse))
            except NotRecordedError:
                open_places.append(place)
                continue
            if play.tell(place, ruling):
                break
            ready += play.follow()
        else:
            return open_places
    return []


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what never waits without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        work.close()
    raise RuntimeError("a judge that answers from records waited for something")
