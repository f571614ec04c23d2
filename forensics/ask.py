"""One query asked of one ledger: the evidence is read, judged where the query needs it, and the result put together.

Invariant: every result carries its envelope (`provenance`), whichever query it is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

from engine.ledger.reader import Ledger, read_ledger
from forensics.catalogue import Query
from forensics.foreign_reads import ForeignReads, foreign_reads, inside
from forensics.kept_judgements import KeptJudgements
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
    """How a query is asked: parameters as written, the zone of times without one, the engines that judge, and where
    judgements are kept."""

    given: Mapping[str, str] = field(default_factory=dict)
    tz: str = "UTC"
    engine: str = "both"
    all_rows: bool = False
    fail_on_exposed: bool = False
    limits: Limits = field(default_factory=Limits)
    kept: KeptJudgements = field(default_factory=KeptJudgements)

    def judge(self, ledger: Ledger, tell: Tell) -> ForeignReads:
        """Every response of a ledger. Raises EnginesDisagree, NotJudged."""
        threads, memory = self.limits.threads, self.limits.memory
        anew = partial(foreign_reads, ledger, engine=self.engine, tell=tell, threads=threads, memory=memory)
        return self.kept.judge(ledger, self.engine, anew)


def ask(
    query: Query, path: Path, asked: Asked, *, tell: Tell = silent, read: Ledger | None = None,
    judged: ForeignReads | None = None,
) -> Result:  # fmt: skip
    """The result of a query. `read`: the ledger at `path`, `judged`: its verdicts, where they are known already.

    Raises LedgerError, BadParameter, BadWindow, QueryStopped, EnginesDisagree, NotJudged.
    """
    now, tz = datetime.now(UTC), zone(asked.tz)
    values = bound(query, asked.given, tz, now)
    between = window(asked.given.get("from"), asked.given.get("to"), tz, now)
    if read is None:
        tell("reading the ledger")
    ledger = read or read_ledger(path, counted=partial(tell, "reading the ledger"))

    @cache
    def judge() -> ForeignReads:
        return judged or asked.judge(ledger, tell)

    if query.name == FOREIGN_READS:
        reads = inside(judge(), between)
        result = foreign_reads_result(ledger, reads, all_rows=asked.all_rows, fail_on_exposed=asked.fail_on_exposed)
    elif query.name == GAPS:
        result = gaps_result(ledger)
    else:
        if query.judges:
            judge()
        tell(query.title.lower())
        rows = run_query(query, ledger, values, judge, asked.limits, partial(tell, query.title.lower()))
        result = library_result(query, ledger, rows, values, judge() if query.judges else None)
    by = {"engine": asked.engine} if query.judges or query.name == FOREIGN_READS else {}
    told = record_words(ledger, between)
    return replace(
        result,
        words=result.words + told,
        envelope=envelope(query, ledger, values) | by | result.envelope | {"record": told},
    )
