"""What the record as a whole can say about a window, in words: empty, of one worker alone, or nowhere without gaps.

Invariant: where an answer rests on little or nothing it says so; an empty list is never all that is told.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from engine.ledger.gaps import Gap
from engine.ledger.reader import Ledger
from forensics.foreign_reads import Window

ROLES = ("gateway", "prefill", "decode")


def record_words(ledger: Ledger, window: Window | None) -> list[str]:
    """Lines for people; none where the record is an ordinary one."""
    span = _span(ledger)
    if span is None:
        return ["the ledger holds no row: nothing can be said of anything"]
    words = [*_few_rows(ledger), *_missing_workers(ledger)]
    if window is not None:
        words += _window_words(ledger, window, span)
    return words


def _span(ledger: Ledger) -> tuple[int, int] | None:
    """The times of the first and the last row (us); None where there is none."""
    bounds = [pc.min_max(rows["t"].cast(pa.int64())).as_py() for rows in ledger.tables.values() if rows.num_rows]
    return (min(bound["min"] for bound in bounds), max(bound["max"] for bound in bounds)) if bounds else None


def _few_rows(ledger: Ledger) -> list[str]:
    if ledger.tables["requests"].num_rows:
        return []
    rows = sum(table.num_rows for table in ledger.tables.values())
    return [
        f"the ledger holds {rows} {'row' if rows == 1 else 'rows'}, and none of a request: no response can be judged"
    ]


def _missing_workers(ledger: Ledger) -> list[str]:
    """Workers that rows name as peers and that left no row themselves, and roles of which there is no record."""
    here = {writer.worker for writer in ledger.writers if writer.last_seq}
    named = set()
    for table in ("workers", "transfers"):
        named |= {peer for peer in ledger.tables[table]["peer"].unique().to_pylist() if peer is not None}
    absent = sorted(named - here)
    words = [f"no record of {', '.join(absent)}, which others name: what rests on it is unknown"] if absent else []
    roles = {role for role in ledger.tables["workers"]["role"].unique().to_pylist() if role is not None}
    lacking = [role for role in ROLES if role not in roles]
    if lacking and roles and not absent:
        words.append(f"no record of any {' or '.join(lacking)} worker: responses are judged by the others' alone")
    return words


def _window_words(ledger: Ledger, window: Window, span: tuple[int, int]) -> list[str]:
    lo = window.start_us if window.start_us is not None else span[0]
    hi = window.end_us if window.end_us is not None else span[1] + 1
    requests = ledger.tables["requests"]
    received = requests.filter(pc.equal(requests["op"], "receive"))["t"].cast(pa.int64())
    inside = pc.sum(pc.and_(pc.greater_equal(received, lo), pc.less(received, hi)).cast(pa.int64())).as_py()
    if not inside:
        return [f"no response began in this window; the record goes from {_shown(span[0])} to {_shown(span[1])}"]
    return (
        ["no part of this window is free of gaps"] if _all_gaps(ledger.gaps, max(lo, span[0]), min(hi, span[1])) else []
    )


def _all_gaps(gaps: tuple[Gap, ...], lo: int, hi: int) -> bool:
    """Whether gaps together cover all of [lo, hi]."""
    covered = lo
    bounds = [
        (gap.after_t if gap.after_t is not None else lo, gap.before_t if gap.before_t is not None else hi)
        for gap in gaps
        if "alive" not in gap.reason
    ]
    for begin, end in sorted(bounds):
        if begin > covered:
            return False
        covered = max(covered, end)
    return bool(bounds) and covered >= hi


def _shown(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
