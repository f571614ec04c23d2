"""What a query hands out: rows, the words about them, and the exit code they deserve.

Invariant: exit codes are those of every command of the project, the first that applies: 3 evidence broken or engines
disagree; 1 contaminated or corrupt; 2 unknown remains, or a file of the ledger does not hold; 0 otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.ledger.reader import Ledger
from forensics.foreign_reads import ForeignReads
from forensics.rows import Row, rows_of
from forensics.verdict import FINDING_COLUMNS, RESPONSE_COLUMNS, Kind, Verdict

EXIT_OK, EXIT_FOUND, EXIT_UNKNOWN, EXIT_BROKEN, EXIT_USAGE = 0, 1, 2, 3, 64

_RESPONSE_PART = (
    "rid",
    "tenant",
    "purpose",
    "verdict",
    "proof",
    "mechanism",
    "started",
    "finished",
    "status",
    "reason",
)
_FINDING_PART = (
    "kind", "derived", "delivered", "donor_rid", "donor_tenant", "pages", "page_list", "worker", "epoch", "pool", "req",
    "first_step", "first_step_last", "first_step_proof", "first_seq",
)  # fmt: skip
FOREIGN_READS_SCHEMA = pa.schema(
    [RESPONSE_COLUMNS.field(name) for name in _RESPONSE_PART] + [FINDING_COLUMNS.field(name) for name in _FINDING_PART]
)
FOREIGN_READS_TABLE = [
    "rid", "tenant", "verdict", "proof", "mechanism", "pages", "page_list", "donor_rid", "donor_tenant", "worker",
    "first_step", "status", "reason",
]  # fmt: skip
GAP_SCHEMA = pa.schema(
    [
        ("worker", pa.string()), ("epoch", pa.int32()), ("table", pa.string()), ("pool", pa.string()),
        ("after_seq", pa.int64()), ("before_seq", pa.int64()), ("after_t", pa.timestamp("us", tz="UTC")),
        ("before_t", pa.timestamp("us", tz="UTC")), ("reason", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """Rows of a query, the columns a table shows, the lines that go to stderr, and the exit code."""

    rows: pa.Table
    columns: list[str]
    words: list[str]
    exit_code: int
    envelope: dict[str, Any]


def foreign_reads_result(ledger: Ledger, reads: ForeignReads, *, all_rows: bool, fail_on_exposed: bool) -> Result:
    """One row per response and finding; clean responses only where `all_rows`."""
    findings: dict[str, list[Row]] = {}
    for finding in rows_of(reads.findings):
        if all_rows or finding["kind"] != Kind.CLEAN:
            findings.setdefault(finding["rid"], []).append(finding)
    rows: list[Row] = []
    for response in rows_of(reads.responses):
        if response["verdict"] == Verdict.CLEAN and not all_rows:
            continue
        head = {name: response[name] for name in _RESPONSE_PART}
        for finding in findings.get(response["rid"], [{}]):
            row = head | {name: finding.get(name) for name in _FINDING_PART}
            row["mechanism"] = finding.get("mechanism") or head["mechanism"]
            row["proof"] = finding.get("proof") or head["proof"]
            row["reason"] = finding.get("reason") or head["reason"]
            rows.append(row)
    counted = {verdict.value: count for verdict, count in reads.counts.items()}
    envelope = {"counts": counted, "unattributed": reads.unattributed}
    words = [f"{sum(counted.values())} responses: " + ", ".join(f"{n} {name}" for name, n in counted.items())]
    words += loss_words(ledger, reads.unattributed)
    code = exit_code(ledger, reads, fail_on_exposed)
    return Result(_table(rows, FOREIGN_READS_SCHEMA), FOREIGN_READS_TABLE, words, code, envelope)


def exit_code(ledger: Ledger, reads: ForeignReads, fail_on_exposed: bool) -> int:
    """What all verdicts together deserve."""
    counts = reads.counts
    if any(problem.severity == "broken" for problem in ledger.problems):
        return EXIT_BROKEN
    if counts[Verdict.CONTAMINATED] or counts[Verdict.CORRUPT] or (fail_on_exposed and counts[Verdict.EXPOSED]):
        return EXIT_FOUND
    if counts[Verdict.UNKNOWN] or reads.unattributed != 0 or ledger.problems:
        return EXIT_UNKNOWN
    return EXIT_OK


def loss_words(ledger: Ledger, unattributed: int | None) -> list[str]:
    """What is missing from the record, for people."""
    words = []
    lost = [gap for gap in ledger.gaps if "alive" not in gap.reason]
    if lost:
        words.append(f"{len(lost)} gaps in the record (see `forensics gaps`): verdicts they touch are unknown")
    if len(lost) < len(ledger.gaps):
        words.append("the engine is still writing: verdicts are as of the last committed row")
    if unattributed:
        words.append(f"up to {unattributed} lost request rows: as many responses may be missing from this list")
    elif unattributed is None:
        words.append("the end of a worker's record is not known: responses may be missing from this list")
    words += [f"{p.severity}: {p.where}: {p.what} ({p.remedy})" for p in ledger.problems]
    return words


def gaps_result(ledger: Ledger) -> Result:
    """One row per gap, problems as words. An open tail of a living writer alone is no loss."""
    words = [
        f"{w.worker} epoch {w.epoch}: {w.state}, seq {w.first_seq} to {w.last_seq}"
        + (f", a peer saw {w.peer_seen_seq}" if w.peer_seen_seq is not None and w.peer_seen_seq > w.last_seq else "")
        for w in ledger.writers
    ]
    words += [f"{p.severity}: {p.where}: {p.what} ({p.remedy})" for p in ledger.problems]
    broken = any(p.severity == "broken" for p in ledger.problems)
    lost = bool(ledger.problems) or any("alive" not in gap.reason for gap in ledger.gaps)
    code = EXIT_BROKEN if broken else EXIT_UNKNOWN if lost else EXIT_OK
    envelope = {"writers": [vars(writer) for writer in ledger.writers]}
    return Result(gaps_table(ledger), GAP_SCHEMA.names, words, code, envelope)


def gaps_table(ledger: Ledger) -> pa.Table:
    """Every gap, columns GAP_SCHEMA."""
    return _table([{name: getattr(gap, name) for name in GAP_SCHEMA.names} for gap in ledger.gaps], GAP_SCHEMA)


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        kind = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        columns.append(pa.array([row[field.name] for row in rows], kind).cast(field.type))
    return pa.table(columns, schema=schema)
