"""Which responses are judged, and which are not yet: rows of living writers may still be on their way.

Invariant: only an `unknown` waits. Everything else that is found stands at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from engine.ledger.reader import Gap, Ledger
from forensics.foreign_reads import ForeignReads
from forensics.rows import Row, rows_of
from forensics.verdict import Verdict

SETTLE_US = 10_000_000
"""How long after its end a response may wait for the last rows of living writers before its `unknown` counts."""


@dataclass(frozen=True)
class Judging:
    """`now_us`: when the ledger was read, us UTC."""

    ledger: Ledger
    reads: ForeignReads
    now_us: int

    @cached_property
    def waiting(self) -> frozenset[str]:
        """rids of responses that are `unknown` only because their rows are still on the way."""
        alive = {(w.worker, w.epoch) for w in self.ledger.writers if w.state == "open"}
        if not alive:
            return frozenset()
        responses = self.reads.responses
        unknown = rows_of(responses.filter(pc.equal(responses["verdict"], Verdict.UNKNOWN.value)))
        running = running_rids(self.ledger, alive) if unknown else frozenset()
        return frozenset(row["rid"] for row in unknown if self._on_the_way(row, running))

    def _on_the_way(self, response: Row, running: frozenset[str]) -> bool:
        if response["rid"] in running:
            return True
        if response["finished"] is None:  # its end is to come, unless it may be among what was lost
            return not any(_is_loss(gap) for gap in self.ledger.gaps)
        return bool(self.now_us - response["finished"] < SETTLE_US)

    @cached_property
    def settled(self) -> ForeignReads:
        """The verdicts without those that wait."""
        if not self.waiting:
            return self.reads
        waiting = pa.array(sorted(self.waiting))
        findings, responses = (
            table.filter(pc.invert(pc.is_in(table["rid"], value_set=waiting)))
            for table in (self.reads.findings, self.reads.responses)
        )
        counts = self.reads.counts | {Verdict.UNKNOWN: self.reads.counts[Verdict.UNKNOWN] - len(self.waiting)}
        return ForeignReads(findings, responses, counts, self.reads.unattributed)


def _is_loss(gap: Gap) -> bool:
    """Whether rows of `requests` are missing between others."""
    return gap.table == "requests" and gap.before_seq is not None


def running_rids(ledger: Ledger, alive: set[tuple[str, int]]) -> frozenset[str]:
    """rids that a living worker has received and not ended; where rows are lost since, the end may be among them."""
    found: dict[tuple[str, int, int], str] = {}
    whole_since: dict[tuple[str, int], int] = {}
    for gap in ledger.gaps:
        if _is_loss(gap) and gap.before_seq is not None:
            writer = (gap.worker, gap.epoch)
            whole_since[writer] = max(whole_since.get(writer, 0), gap.before_seq)
    rows = ledger.tables["requests"].select(["worker", "epoch", "seq", "op", "req", "rid"])
    for row in rows_of(rows.filter(pc.is_in(rows["op"], value_set=pa.array(["receive", "finish", "abort"])))):
        key = (row["worker"], row["epoch"], row["req"])
        if key[:2] not in alive:
            continue
        if row["op"] != "receive":
            found.pop(key, None)
        elif row["rid"] and row["seq"] >= whole_since.get(key[:2], 0):
            found[key] = row["rid"]
    return frozenset(found.values())
