"""Foreign reads: both engines on one evidence, compared row for row, and the verdict of every response.

Invariant: a result leaves this module only if every engine that was asked agrees with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from engine.ledger.reader import Ledger
from forensics.evidence import Evidence, prepare
from forensics.progress import Counted, Tell, silent
from forensics.replay import run as run_replay
from forensics.responses import counts, responses
from forensics.rows import rows_of
from forensics.sql_engine import run as run_sql
from forensics.verdict import Verdict

ENGINES = {"duckdb": ("SQL",), "replay": ("replay",), "both": ("SQL", "replay")}


class NotJudged(Exception):
    """An engine ran into its limit of memory; says what to do."""


class EnginesDisagree(Exception):
    """The two engines gave different findings for one ledger: no verdict can be trusted."""


@dataclass(frozen=True)
class Window:
    """Responses that started in [start_us, end_us), times in microseconds UTC."""

    start_us: int | None = None
    end_us: int | None = None


@dataclass(frozen=True)
class ForeignReads:
    """Findings (FINDING_COLUMNS), one verdict per response (RESPONSE_COLUMNS), counts by verdict.

    `unattributed` counts lost `requests` rows (None where a tail is open): responses that may be missing here.
    """

    findings: pa.Table
    responses: pa.Table
    counts: dict[Verdict, int]
    unattributed: int | None


def foreign_reads(
    ledger: Ledger, *, engine: str = "both", tell: Tell = silent, threads: int = 2, memory: str = "4GB"
) -> ForeignReads:
    """Judge every response of a ledger; SQL may use `threads`, and `memory` as DuckDB writes it.

    Raises EnginesDisagree, NotJudged; ValueError for an unknown engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    tell("preparing the evidence")
    evidence = prepare(ledger)
    run: dict[str, Callable[[Evidence, Counted], pa.Table]] = {
        "SQL": partial(_run_sql, threads=threads, memory=memory),
        "replay": run_replay,
    }
    results = [run[by](evidence, partial(tell, f"judging every response by {by}")) for by in ENGINES[engine]]
    for other in results[1:]:
        _compare(results[0], other)
    judged = responses(evidence, results[0])
    return ForeignReads(results[0], judged, counts(judged), _unattributed(evidence))


def _run_sql(evidence: Evidence, counted: Counted, *, threads: int, memory: str) -> pa.Table:
    try:
        return run_sql(evidence, counted, threads=threads, memory_limit=memory)
    except duckdb.OutOfMemoryException:
        words = f"judging by SQL needs more than {memory} of memory; give more (--memory), or judge by --engine replay"
        raise NotJudged(words) from None


def _compare(one: pa.Table, other: pa.Table) -> None:
    if one.equals(other):
        return
    left, right = rows_of(one), rows_of(other)
    for index in range(max(len(left), len(right))):
        a = left[index] if index < len(left) else None
        b = right[index] if index < len(right) else None
        if a != b:
            raise EnginesDisagree(f"the engines differ from finding {index} on: duckdb {a}, replay {b}")
    raise EnginesDisagree("the engines' findings differ in their column types")


def inside(reads: ForeignReads, window: Window | None) -> ForeignReads:
    """Only the responses of the window; one whose start is not known stays, since it cannot be ruled out."""
    if window is None:
        return reads
    findings, judged = reads.findings, reads.responses
    started = judged["started"].cast(pa.int64())
    keep = pc.is_null(started)
    within = pa.chunked_array([pa.array([True] * len(judged))]) if len(judged) else pa.chunked_array([[]], pa.bool_())
    if window.start_us is not None:
        within = pc.and_(within, pc.greater_equal(started, window.start_us))
    if window.end_us is not None:
        within = pc.and_(within, pc.less(started, window.end_us))
    kept = judged.filter(pc.or_(keep, pc.fill_null(within, True)))
    theirs = findings.filter(pc.is_in(findings["rid"], kept["rid"].combine_chunks()))
    return ForeignReads(theirs, kept, counts(kept), reads.unattributed)


def _unattributed(evidence: Evidence) -> int | None:
    lost = 0
    for missing in evidence.missing:
        if missing.table == "requests" and not missing.alive:
            if missing.hi >= 1 << 62:
                return None
            lost += missing.hi - missing.lo - 1
    return lost
