"""What an open incident shows, as tables: its responses, the pages of one, and the order of events on a page.

Invariant: the same rows in the same order as the screens have them; words in which names may stand are in `says`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from console.core.incidents import Incident
from console.core.lineage import Lineage
from console.core.page_events import PageStory
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
LINEAGE = pa.schema(
    [
        ("page", pa.int64()), ("slot", pa.int64()), ("tok_lo", pa.int64()), ("tok_hi", pa.int64()), ("verdict", pa.string()),
        ("links", pa.list_(pa.string())), ("donors", pa.list_(pa.string())), ("reason", pa.string()),
    ]
)  # fmt: skip
ORDER = pa.schema(
    [
        ("t", _TIME), ("delta_us", pa.int64()), ("event", pa.string()), ("worker", pa.string()), ("seq", pa.int64()),
        ("rid", pa.string()), ("tenant", pa.string()), ("generation", pa.int64()), ("verdict", pa.string()),
        ("placed", pa.string()), ("offending", pa.bool_()), ("says", pa.string()),
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


def lineage_of(known: Lineage | None) -> Sheet:
    """The pages of a response with findings, in slot order."""
    rows = [
        {
            "page": p.page, "slot": p.slot, "tok_lo": p.tok_lo, "tok_hi": p.tok_hi, "verdict": p.verdict.value,
            "links": [link.style.value for link in p.links], "donors": [link.donor for link in p.links], "reason": p.reason,
        }
        for p in (known.pages if known else ())
    ]  # fmt: skip
    return Sheet("lineage", pa.Table.from_pylist(rows, LINEAGE), left_out=known.more if known else 0)


def order_of(story: PageStory | None) -> Sheet:
    """The events of a page, in their order."""
    rows = [
        {
            "t": e.t_us, "delta_us": e.delta_us, "event": e.kind, "worker": e.worker, "seq": e.seq, "rid": e.rid, "tenant": e.tenant,
            "generation": e.generation, "verdict": e.verdict.value if e.verdict else None, "placed": e.placed.value,
            "offending": e.offending, "says": e.note,
        }
        for e in (story.events if story else ())
    ]  # fmt: skip
    return Sheet("order", pa.Table.from_pylist(rows, ORDER), left_out=story.left_out if story else 0)
