"""What a query of the library hands out: its rows, the words about them, and the exit code they deserve.

Invariant: rows of a query whose rows are findings are exit 1, unless the evidence is broken (3); rows that do not count
are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from engine.ledger.reader import Ledger
from forensics.catalogue import Query
from forensics.foreign_reads import ForeignReads
from forensics.parameters import Value
from forensics.provenance import skew_us
from forensics.results import EXIT_BROKEN, EXIT_FOUND, EXIT_OK, EXIT_UNKNOWN, Result, loss_words

COUNTED = "counted"
"""A column of this name says of each row `yes`, or why it does not count."""


def library_result(
    query: Query, ledger: Ledger, rows: pa.Table, values: Mapping[str, Value], reads: ForeignReads | None
) -> Result:
    """`reads`: the verdicts, where the query read them."""
    counts = Counter(rows[COUNTED].to_pylist() if COUNTED in rows.column_names else ["yes"] * len(rows))
    envelope: dict[str, Any] = {"rows_counted": counts["yes"]}
    words = [f"{query.title}: {len(rows)} {'row' if len(rows) == 1 else 'rows'}"]
    left_out = {why: number for why, number in sorted(counts.items()) if why != "yes"}
    if COUNTED in rows.column_names:
        envelope["left_out"] = left_out
        words = [_counted_words(query, counts["yes"], left_out)]
        least, most = _edges(rows, values, skew_us(ledger))
        envelope["at_window_borders"] = {"least": least, "most": most}
        if (least, most) != (counts["yes"], counts["yes"]):
            words.append(
                f"{least} to {most} allowing {skew_us(ledger) / 1000:g} ms of clock skew at the window's borders"
            )
    unattributed: int | None = 0
    if reads is not None:
        envelope["counts"] = {verdict.value: count for verdict, count in reads.counts.items()}
        envelope["unattributed"] = unattributed = reads.unattributed
    words += loss_words(ledger, unattributed)
    shown = [name for name, column in query.columns.items() if column.shown]
    return Result(rows, shown, words, _exit(query, ledger, counts["yes"], unattributed), envelope)


def _counted_words(query: Query, count: int, left_out: Mapping[str, int]) -> str:
    told = f"{query.title}: {count}"
    return told + (
        "; left out: " + ", ".join(f"{why} {number}" for why, number in left_out.items()) if left_out else ""
    )


def _edges(rows: pa.Table, values: Mapping[str, Value], skew: int) -> tuple[int, int]:
    """How many rows count at least and at most, where clocks may be `skew` us apart."""
    start, end, by = values.get("from"), values.get("to"), timedelta(microseconds=skew)
    least = most = 0
    for row in rows.select([COUNTED, "started"]).to_pylist():
        if row[COUNTED] not in ("yes", "before the window", "after the window"):
            continue
        began: datetime | None = row["started"].replace(tzinfo=None) if row["started"] is not None else None
        if began is None:
            most += 1
            continue
        most += _inside(began, start, end, by)
        least += _inside(began, start, end, -by)
    return least, most


def _inside(began: datetime, start: Value, end: Value, by: timedelta) -> bool:
    """Whether it lies in the window, widened by `by` on both sides."""
    after = not isinstance(start, datetime) or began >= start - by
    return after and (not isinstance(end, datetime) or began < end + by)


def _exit(query: Query, ledger: Ledger, found: int, unattributed: int | None) -> int:
    if any(problem.severity == "broken" for problem in ledger.problems):
        return EXIT_BROKEN
    if query.rows == "finding" and found:
        return EXIT_FOUND
    lost = bool(ledger.problems) or any("alive" not in gap.reason for gap in ledger.gaps)
    return EXIT_UNKNOWN if lost or unattributed != 0 else EXIT_OK
