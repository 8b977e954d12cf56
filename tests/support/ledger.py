"""An endpoint that knows what it was asked, what it answered, and what was asked twice."""

import json

from caps.journal.store import Journal
from caps.testing import ScriptedEndpoint, better_quality_wins
from support.waiting import until


class Ledger(ScriptedEndpoint):
    """An endpoint that answers its first requests, `may_answer` in number, holds the others, and logs both.

    Each run has a key of its own, so a request is known by who asked and by its body.
    """

    def __init__(self):
        super().__init__(lambda body, _: better_quality_wins(body))
        self.may_answer = 0
        self.asked, self.answered, self.lost = [], set(), set()

    async def _reply(self, request, reply, body):
        if "quality=" not in str(body):
            return await super()._reply(request, reply, body)
        place = len(self.asked)
        self.asked.append((self.headers[-1]["Authorization"], json.dumps(body, sort_keys=True)))
        await until(lambda: place < self.may_answer)
        self.answered.add(place)
        return await super()._reply(request, reply, body)

    def holds(self, *journals):
        """Whether more is asked than it may answer, and what it answered is in the journals."""
        if len(self.asked) <= self.may_answer or {*range(self.may_answer)} - self.answered - self.lost:
            return False
        stored = 0
        for journal in {*journals}:
            with Journal.open(journal) as opened:
                stored += opened.stats().replies
        return stored >= len({self.asked[place][1] for place in self.answered})

    def give_up(self, name):
        """Note what a killed run had asked and nobody had answered."""
        places = {*range(len(self.asked))} - self.answered - self.lost
        self.lost |= {place for place in places if self.asked[place][0] == f"Bearer {name}"}

    @property
    def repeated(self):
        """What was asked again later, except what was lost."""
        last = {request: place for place, (_, request) in enumerate(self.asked)}
        return [
            place
            for place, (_, request) in enumerate(self.asked)
            if last[request] > place and place not in self.lost
        ]
