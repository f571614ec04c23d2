"""Derived findings: what a contaminated request wrote afterwards, and who was entitled to read it.

Invariant: findings are only ever added. Taint rests on a foreign finding of a request and on its writes that may have
come after it; a reader of tainted content is contaminated by that request's donors.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.replay_class import Classifier
from forensics.replay_facts import Facts
from forensics.replay_findings import Found, Judge, Judgement
from forensics.replay_ordinary import Cleared
from forensics.replay_records import NONE, WRITTEN, Event
from forensics.verdict import Kind, Proof


class Taint(NamedTuple):
    """A contaminated request: what it wrote at `worker` after `since` is tainted by `donors`."""

    owner: int
    worker: tuple[str, int]
    since: int
    mechanism: str
    proof: Proof
    donors: tuple[int, ...]


def may_be_derived(facts: Facts, cleared: Cleared, findings: list[Found]) -> NDArray[np.bool_]:
    """Cleared reads of what a contaminated request, or one contaminated by it in turn, may have written."""
    owner = facts.reads["owner"]
    giver = np.where(cleared.borrowed, facts.events["owner"][cleared.root], NONE) if len(owner) else owner
    contaminated = {facts.requests[found.rq].owner for found in findings if found.kind is Kind.FOREIGN}
    while True:
        suspect = np.isin(giver, list(contaminated))
        more = set(owner[suspect].tolist()) - contaminated
        if not more:
            return suspect
        contaminated |= more


def derived(facts: Facts, judge: Judge, judgements: list[Judgement], first_hand: list[Found]) -> list[Found]:
    """Everything that follows from the first-hand foreign findings, to the end."""
    borrowing = [j for j in judgements if j.borrowed]
    known: dict[Found, None] = {}
    while borrowing:
        taints = _taints(facts, [*first_hand, *known])
        added = [f for j in borrowing for f in _of_one_read(judge, j, taints) if f not in known]
        if not added:
            break
        known.update(dict.fromkeys(added))
    return list(known)


def _taints(facts: Facts, findings: list[Found]) -> dict[tuple[int, tuple[str, int]], list[Taint]]:
    by_request: dict[int, list[Found]] = defaultdict(list)
    for found in findings:
        if found.kind is Kind.FOREIGN:
            by_request[found.rq].append(found)
    taints: dict[tuple[int, tuple[str, int]], list[Taint]] = defaultdict(list)
    for rq, of_request in by_request.items():
        request = facts.requests[rq]
        first = min(of_request, key=lambda f: (f.first_seq, f.mechanism, f.proof is Proof.INFERRED))
        place = (request.worker, request.epoch)
        donors = tuple(sorted({f.donor for f in of_request if f.donor is not None}))
        taint = Taint(request.owner, place, first.first_seq or 0, first.mechanism, first.proof, donors)
        taints[request.owner, place].append(taint)
    return taints


def _of_one_read(
    judge: Judge, judgement: Judgement, taints: dict[tuple[int, tuple[str, int]], list[Taint]]
) -> list[Found]:
    x, mode = judgement.read, judgement.mode
    found = []
    for e in judgement.borrowed:
        for taint in _tainting(judge.facts, judge.classifier, e, taints):
            if taint.owner == x.owner:
                continue
            proof = mode.proof if taint.proof is Proof.PROVED else taint.proof
            accused = judge.located(x, e, Kind.FOREIGN, proof)
            accused = accused._replace(derived=True, delivered=judge.delivered(x, e), mechanism=taint.mechanism)
            found += [accused._replace(donor=donor) for donor in taint.donors]
    return found


def _tainting(
    facts: Facts, classifier: Classifier, e: Event, taints: dict[tuple[int, tuple[str, int]], list[Taint]]
) -> set[Taint]:
    """The taints on an event; a landing is tainted where all its roots are."""
    of_roots = [
        {
            taint
            for taint in taints.get((root.owner, facts.worker_of(int(facts.page_of_cell[root.cell]))), ())
            if root.kind in WRITTEN and root.hi > taint.since
        }
        for root in classifier.roots(e)
    ]
    return set().union(*of_roots) if all(of_roots) else set()
