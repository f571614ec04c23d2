"""One query asked of one ledger: the evidence is read, judged where the query needs it, and the result put together.

Invariant: every result carries its envelope (`provenance`), whichever query it is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

from engine.ledger.reader import read_ledger
from forensics.catalogue import Query
from forensics.foreign_reads import ForeignReads, foreign_reads
from forensics.library import Limits, run_query
from forensics.library_result import library_result
from forensics.parameters import bound
from forensics.progress import Tell, silent
from forensics.provenance import envelope
from forensics.record_words import record_words
from forensics.results import Result, foreign_reads_result, gaps_result
from forensics.window import window, zone

FOREIGN_READS, GAPS = "foreign-reads", "gaps"


@dataclass(frozen=True)
class Asked:
    """How a query is asked: parameters as written, the zone of times without one, the engines that judge."""

    given: Mapping[str, str] = field(default_factory=dict)
    tz: str = "UTC"
    engine: str = "both"
    all_rows: bool = False
    fail_on_exposed: bool = False
    limits: Limits = field(default_factory=Limits)


def ask(query: Query, path: Path, asked: Asked, judged: ForeignReads | None = None, tell: Tell = silent) -> Result:
    """The result of a query; `judged` are its verdicts, where they are known already.

    Raises LedgerError, BadParameter, BadWindow, QueryStopped, EnginesDisagree.
    """
    now, tz = datetime.now(UTC), zone(asked.tz)
    values = bound(query, asked.given, tz, now)
    inside = window(asked.given.get("from"), asked.given.get("to"), tz, now)
    tell("reading the ledger")
    ledger = read_ledger(path, counted=partial(tell, "reading the ledger"))

    @cache
    def judge() -> ForeignReads:
        if judged is not None:
            return judged
        judged_in = inside if query.name == FOREIGN_READS else None
        return foreign_reads(ledger, engine=asked.engine, window=judged_in, tell=tell)

    if query.name == FOREIGN_READS:
        result = foreign_reads_result(ledger, judge(), all_rows=asked.all_rows, fail_on_exposed=asked.fail_on_exposed)
    elif query.name == GAPS:
        result = gaps_result(ledger)
    else:
        if query.judges:
            judge()
        tell(query.title.lower())
        rows = run_query(query, ledger, values, judge, asked.limits, partial(tell, query.title.lower()))
        result = library_result(query, ledger, rows, values, judge() if query.judges else None)
    by = {"engine": asked.engine} if query.judges or query.name == FOREIGN_READS else {}
    told = record_words(ledger, inside)
    return replace(
        result,
        words=result.words + told,
        envelope=envelope(query, ledger, values) | by | result.envelope | {"record": told},
    )
