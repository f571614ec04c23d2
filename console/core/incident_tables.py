"""The responses of an incident as a table.

Invariant: one row per reading, in the order of the screen; a reading that waits for nothing is left out by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from console.core.incidents import Incident
from console.core.readings import Reading
from console.core.sheet import Sheet

_TIME = pa.timestamp("us", tz="UTC")
RESPONSES = pa.schema(
    [
        ("rid", pa.string()), ("tenant", pa.string()), ("verdict", pa.string()), ("proof", pa.string()), ("derived", pa.bool_()),
        ("pages", pa.int64()), ("donors", pa.list_(pa.string())), ("worker", pa.string()), ("epoch", pa.int64()), ("pool", pa.string()),
        ("first_step", pa.int64()), ("seen", _TIME), ("finished", _TIME), ("status", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip


def responses_sheet(incident: Incident, readings: Sequence[Reading]) -> Sheet:
    """What the incident says of each of its responses."""
    rows = [
        {
            "rid": r.rid, "tenant": r.tenant, "verdict": r.verdict.value, "proof": r.proof, "derived": r.derived, "pages": r.pages,
            "donors": [rid for rid, _ in r.donors], "worker": r.worker, "epoch": r.epoch, "pool": r.pool, "first_step": r.first_step,
            "seen": r.seen_us, "finished": r.finished_us, "status": r.status, "reason": r.reason or None,
        }
        for r in readings
    ]  # fmt: skip
    return Sheet(f"{incident.id}-responses", pa.Table.from_pylist(rows, RESPONSES), begins="seen")
