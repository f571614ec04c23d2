"""The live edge: what the open streams hold beyond the last reading. Figures and events go on while verdicts are worked out.

Invariant: the edge judges nothing and costs what is new, however long the record is; a picture with an edge says up to
when its verdicts go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from console.core.events import Events, key_at
from console.core.filter_language import Filter
from console.core.rollup import LATEST_EVENTS, Rollup
from console.core.snapshot import Snapshot
from console.core.time_range import Span
from engine.ledger.follow import StreamEnd
from engine.ledger.schema import TABLES

MOST_STREAMS = 16
"""Of how many streams, those written last, the rows are looked at: a fleet has hundreds."""


_NAMING = pa.schema(
    [("worker", pa.string()), *(TABLES["requests"].field(name) for name in ("epoch", "op", "req", "rid", "tenant"))]
)


@dataclass(frozen=True)
class Edge:
    """`rows` that are not in the reading; `data_us`: how far the record goes; `events`: the latest, as `Events` has them."""

    rows: int
    data_us: int
    events: pa.Table


Looked = tuple[Snapshot, Edge | None]
"""A reading and what was found beyond it."""


def edge_of(snapshot: Snapshot, ends: tuple[StreamEnd, ...]) -> Edge | None:
    """What the streams hold beyond a reading; None where that is nothing."""
    known = {(state.worker, state.epoch): state.last_seq for state in snapshot.ledger.writers}
    # seq is dense, so that it counts rows.
    beyond = {end.writer: end.seq - known.get(end.writer, 0) for end in ends}
    rows = sum(n for n in beyond.values() if n > 0)
    last = sorted((end for end in ends if beyond[end.writer] > 0), key=lambda end: end.seen)[-MOST_STREAMS:]
    tables = _tables(last, known)
    events = Events(replace(snapshot.ledger, tables=tables), _names(tables, snapshot))
    latest = events.before(None, Filter(), Span(), 0, LATEST_EVENTS).rows
    return Edge(rows, key_at(latest, len(latest) - 1).t_us, latest) if len(latest) else None


def _tables(ends: list[StreamEnd], known: dict[tuple[str, int], int]) -> dict[str, pa.Table]:
    """Rows of the streams' last commits that the reading lacks."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for end in ends:
        for name, rows in end.rows():
            parts[name].append(rows.filter(pc.greater(rows["seq"], known.get(end.writer, 0))))
    empty = {
        name: schema.empty_table().add_column(0, "worker", pa.array([], pa.string())) for name, schema in TABLES.items()
    }
    return {name: pa.concat_tables([empty[name], *parts[name]], promote_options="default") for name in TABLES}


def _names(tables: dict[str, pa.Table], snapshot: Snapshot) -> pa.Table:
    """The `receive` rows of the requests that the rows are of, those of the reading among them."""
    received = tables["requests"].select(_NAMING.names)
    keys = {
        key
        for rows in tables.values()
        if "req" in rows.column_names
        for key in zip(*(rows[name].to_pylist() for name in ("worker", "epoch", "req")), strict=True)
    }
    earlier = [snapshot.requests[key] for key in sorted(k for k in keys if k in snapshot.requests)]
    return pa.concat_tables([received, pa.Table.from_pylist(earlier, _NAMING)])


def with_edge(known: Rollup, edge: Edge) -> Rollup:
    """The rollup as far as the record goes: its latest events, its rows, its end. Verdicts stay those of the reading."""
    events = pa.concat_tables([known.tables["events"], edge.events])
    order = [("t", "ascending"), ("worker", "ascending"), ("epoch", "ascending"), ("seq", "ascending")]
    events = events.sort_by(order).slice(max(len(events) - LATEST_EVENTS, 0))
    totals = known.head["totals"] | {"events": known.rows + edge.rows}
    head = known.head | {"totals": totals, "data_us": max(edge.data_us, known.data_us or 0), "judged_us": known.data_us}
    return known.extended(head, known.tables | {"events": events})
