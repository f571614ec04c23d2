"""The replay: every read of every cell judged by walking the events of that cell in order.

Invariant: it shares the evidence and the words of `forensics/verdict.py` with the published SQL, and nothing else. Read
docs/verdicts.md first; the parts are replay_order (what happened before what), replay_class (what a reader finds in an
event), replay_findings (what follows for one read), replay_alike (for many that are alike), replay_exposed,
replay_derived and replay_output.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forensics.evidence import Evidence
from forensics.replay_alike import judged
from forensics.replay_class import Classifier
from forensics.replay_derived import derived, may_be_derived
from forensics.replay_exposed import exposed
from forensics.replay_facts import Facts
from forensics.replay_findings import Found, Judge, Judgement
from forensics.replay_ordinary import Cleared, Timeline, ordinary_reads
from forensics.replay_output import findings_table
from forensics.verdict import Kind, Proof

OWN_ROWS_LOST = "own rows lost"


def run(evidence: Evidence) -> pa.Table:
    """Findings of a ledger's evidence: FINDING_COLUMNS, one row per group, sorted."""
    facts = Facts(evidence)
    judge = Judge(facts, Classifier(facts))
    timeline = Timeline(facts)
    lost = _of_incomplete_requests(facts)
    cleared = ordinary_reads(facts, timeline)
    closer = ~cleared.clean & ~lost
    judgements = judged(facts, timeline, judge, closer)
    found = [finding for judgement in judgements for finding in judgement.found]
    found += _derived(facts, judge, cleared, judgements, found, lost)
    found += exposed(facts, timeline, judge)
    pages = facts.page_of_cell[facts.reads["cell"]]
    found += _own_rows_lost(facts, lost, pages)
    clean = cleared.clean & ~lost
    return findings_table(facts, found, facts.reads["rq"][clean], pages[clean])


def _derived(
    facts: Facts,
    judge: Judge,
    cleared: Cleared,
    judgements: list[Judgement],
    found: list[Found],
    lost: NDArray[np.bool_],
) -> list[Found]:
    """What follows from `found`. A cleared read is judged once its giver turns out to be contaminated."""
    seen = lost
    while True:
        second_hand = derived(facts, judge, judgements, found)
        suspect = may_be_derived(facts, cleared, [*found, *second_hand]) & ~seen
        if not suspect.any():
            return second_hand
        judgements = judgements + [judge.judge(x) for x in facts.select_reads(np.flatnonzero(suspect))]
        seen = seen | suspect


def _of_incomplete_requests(facts: Facts) -> NDArray[np.bool_]:
    """Reads of requests whose own rows are not all there."""
    incomplete = [rq for rq, request in facts.requests.items() if not request.complete]
    return np.isin(facts.reads["rq"], np.array(incomplete, np.int64))


def _own_rows_lost(facts: Facts, lost: NDArray[np.bool_], pages: NDArray[np.int64]) -> list[Found]:
    pairs = np.unique(np.stack([facts.reads["rq"][lost], pages[lost]], axis=1), axis=0)
    return [Found(rq, page, Kind.UNKNOWN, Proof.PROVED, reason=OWN_ROWS_LOST) for rq, page in pairs.tolist()]
