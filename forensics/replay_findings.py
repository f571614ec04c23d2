"""Findings of one read: what it found, in which step first, whether a token left after it, and by which mechanism.

Invariant: an accusation (foreign, corrupt, exposed by a share) names an event that some pass certainly found. Where
mode E decides nothing, mode C may, and then the finding is inferred; where neither does, it is unknown.
"""

from __future__ import annotations

from typing import NamedTuple

from forensics.replay_class import CORRUPT, OTHER_GEOMETRY, RIGHT, UNDECIDED_ORDER, Class, Classifier, Content
from forensics.replay_facts import Facts
from forensics.replay_mechanism import Mechanisms
from forensics.replay_order import Mode, certain, first_certain_pass, first_possible_pass
from forensics.replay_records import Event, Passes, Read, Request
from forensics.verdict import Kind, Proof


class Found(NamedTuple):
    """One finding on one page of one request. `donor`: an owner, NONE where several, None where there is none."""

    rq: int
    page: int
    kind: Kind
    proof: Proof
    derived: bool = False
    delivered: str = ""
    mechanism: str = ""
    donor: int | None = None
    first_step: int | None = None
    first_step_last: int | None = None
    first_seq: int | None = None
    reason: str = ""


class Judgement(NamedTuple):
    """A read with its findings; `borrowed` are the granted events it certainly found, in `mode`."""

    read: Read
    mode: Mode
    found: list[Found]
    borrowed: list[Event]


class Judge:
    """Judges reads one by one."""

    def __init__(self, facts: Facts, classifier: Classifier) -> None:
        self.facts = facts
        self.classifier = classifier
        self.mechanisms = Mechanisms(facts, classifier)

    def judge(self, x: Read) -> Judgement:
        """The findings of one read, at least one."""
        decided = self._decide(x, Mode.E)
        return decided if decided.found else self._unless_unknown(x, self._decide(x, Mode.C))

    def _unless_unknown(self, x: Read, decided: Judgement) -> Judgement:
        if decided.found:
            return decided
        classes = [self.classifier.classify_for(e, x) for e in self._history_of(x, Mode.C)]
        reason = min((c.reason for c in classes if c.of is Class.UNKNOWN), default=UNDECIDED_ORDER)
        found = self._plain(x, Kind.UNKNOWN, Mode.C, reason)
        return decided._replace(found=[found._replace(mechanism="M13") if reason == OTHER_GEOMETRY else found])

    def _history_of(self, x: Read, mode: Mode) -> list[Event]:
        return self.classifier.history(x.cell).possible_for(x, mode)

    def _decide(self, x: Read, mode: Mode) -> Judgement:
        """Findings in one mode; none where it leaves the read undecided."""
        possible = self._history_of(x, mode)
        passes = self.facts.passes_of(x.rq)
        classes = [self.classifier.classify_for(e, x) for e in possible]
        sure = [(e, c) for e, c in zip(possible, classes, strict=True) if certain(e, x, possible, passes, mode)]
        kinds = {c.of for c in classes}
        borrowed = [e for e, c in sure if c.of in RIGHT]
        if foreign := [(e, c) for e, c in sure if c.of is Class.FOREIGN]:
            found = [self._accuse(x, e, c, Kind.FOREIGN, mode) for e, c in foreign]
        elif not kinds or kinds & {Class.FOREIGN, Class.UNKNOWN}:
            found = []
        elif kinds & CORRUPT:
            found = [self._accuse(x, e, c, Kind.CORRUPT, mode) for e, c in sure if c.of in CORRUPT]
        elif Class.SHARED in kinds:
            found = [self._accuse(x, e, c, Kind.EXPOSED, mode) for e, c in sure if c.of is Class.SHARED]
        else:
            found = [self._plain(x, Kind.CLEAN, mode)]
        return Judgement(x, mode, found, borrowed)

    def page(self, x: Read) -> int:
        """The page that x reads."""
        return int(self.facts.page_of_cell[x.cell])

    def _plain(self, x: Read, kind: Kind, mode: Mode, reason: str = "") -> Found:
        return Found(x.rq, self.page(x), kind, mode.proof, reason=reason)

    def located(self, x: Read, e: Event, kind: Kind, proof: Proof) -> Found:
        """The finding that x certainly found e, with the steps in which it may have been first."""
        first, last = first_steps(x, e, self.facts.passes_of(x.rq))
        return Found(
            x.rq, self.page(x), kind, proof, first_step=first, first_step_last=last, first_seq=max(e.hi, x.s0)
        )  # fmt: skip

    def _accuse(self, x: Read, e: Event, content: Content, kind: Kind, mode: Mode) -> Found:
        found = self.located(x, e, kind, mode.proof)
        found = found._replace(mechanism=self.mechanisms.of(x, e, content, mode))
        if kind is not Kind.FOREIGN:
            return found
        return found._replace(donor=content.donor, delivered=self.delivered(x, e))

    def delivered(self, x: Read, e: Event) -> str:
        """'yes', 'no' or 'unknown': a token left after the first pass that found e."""
        request = self.facts.requests[x.rq]
        if request.role == "decode":
            return _delivered_by_decode(request, x, e, self.facts.passes_of(x.rq))
        if request.role == "prefill":
            return _delivered_by_rid(self.facts.requests_of_owner[request.owner])
        return "unknown"


def first_steps(x: Read, e: Event, passes: Passes) -> tuple[int | None, int | None]:
    """The first step that may have found e, and the last step that can have been the first."""
    possible, sure = first_possible_pass(e, x.s0, passes), first_certain_pass(e, x.s0, passes)
    if possible is None:
        return None, None
    last = passes.step[sure] if sure is not None else passes.step[possible] + passes.n[possible] - 1
    return passes.step[possible], last


def _delivered_by_decode(request: Request, x: Read, e: Event, passes: Passes) -> str:
    if not request.ended:
        return "yes" if request.end_certain else "unknown"
    sure, possible = first_certain_pass(e, x.s0, passes), first_possible_pass(e, x.s0, passes)
    surely_read = (passes.t[sure], passes.end_t[sure]) if sure is not None else (x.last_t_end, x.end_t)
    if request.last_token is None:
        return "no"
    if left_after(request.last_token, *surely_read):
        return "yes"
    if possible is not None and not left_after(request.last_token, passes.t[possible], passes.end_t[possible]):
        return "no"
    return "unknown"


def left_after(token: int, began: int, ended: int) -> bool:
    """A token (times in us) left in a pass or after it. What left in the very microsecond in which a pass that took
    any time began is of the pass before it."""
    return token > began or token == began == ended


def _delivered_by_rid(requests: list[Request]) -> str:
    if any((request.output_tokens or 0) >= 1 for request in requests):
        return "yes"
    # A request that still runs counts as having let tokens leave.
    return "no" if all(request.ended and request.output_tokens == 0 for request in requests) else "unknown"
