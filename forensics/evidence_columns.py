"""The tables of evidence, column by column: what was found of cells, events, reads, lives and passes, as lists and arrays.

Invariant: a value that several rows have in common is looked up once; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from forensics.cells import Cells
from forensics.content import ContentEvent
from forensics.lives import PageKey
from forensics.order import INF
from forensics.outcomes import Outcomes
from forensics.reading import Attendance, PageRead
from forensics.requests import Requests
from forensics.rows import Ints, WorkerKey
from forensics.stand_ins import LivesOn, StandIns

UNWRITTEN = {"kind": "unwritten", "lo": -1, "hi": 0, "owner": -1, "tag": 0}
"""What every cell begins with."""


@dataclass(frozen=True)
class Repeated:
    """A column whose row i is `values[of[i]]`."""

    values: Sequence[Any]
    of: Ints


Columns = dict[str, Any]
"""By name: a sequence, an array or a `Repeated`."""


def table_of(schema: pa.Schema, columns: Columns) -> pa.Table:
    """A table of columns of one length; one that is not there is null."""
    arrays = {name: _array(column, schema.field(name).type) for name, column in columns.items()}
    rows = len(next(iter(arrays.values())))
    return pa.Table.from_arrays([arrays.get(f.name, pa.nulls(rows, f.type)) for f in schema], schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, Repeated):
        return pa.array(column.values, kind).take(pa.array(column.of))
    return column if isinstance(column, pa.Array) else pa.array(column, kind)


def places_of(pages: Sequence[PageKey]) -> Columns:
    """Worker, epoch, pool and page of each."""
    return {
        "worker": [page[0][0] for page in pages], "epoch": [page[0][1] for page in pages],
        "pool": [page[1] for page in pages], "page": [page[2] for page in pages],
    }  # fmt: skip


def _repeated(columns: Mapping[str, Sequence[Any]], of: Ints) -> Columns:
    return {name: Repeated(values, of) for name, values in columns.items()}


def cell_columns(cells: Cells) -> Columns:
    """The table `cells`."""
    rows = cells.rows
    return {
        "cell": np.arange(len(rows)), **places_of([row[0] for row in rows]), "part": [row[1] for row in rows],
        "tok_lo": [row[2] for row in rows], "tok_hi": [row[3] for row in rows],
    }  # fmt: skip


def pass_columns(attendances: Iterable[tuple[int, Attendance]]) -> Columns:
    """The table `passes`, of requests (rq) in order."""
    taken = [(rq, p) for rq, attendance in attendances for p in attendance.passes]
    names = ("since_seq", "seq", "step", "n", "kind", "t", "t_end", "end_t")
    return {"rq": [rq for rq, _ in taken], **{name: [getattr(p, name) for _, p in taken] for name in names}}


def member_columns(found: StandIns) -> Columns:
    """The table `members`."""
    numbers = pa.ListArray.from_arrays(pa.array(found.bounds_of_members, pa.int32()), pa.array(found.members))
    return {**places_of(found.keys), "numbers": numbers}


def tag_columns(lives: LivesOn, requests: Requests, recorded: Outcomes) -> Columns:
    """The table `tags`."""
    owners = {at: requests.owner(*at) for at in set(zip(lives.at, lives.req, strict=True))}
    return {
        "tag": lives.tag, **places_of(lives.stand_in),
        "owner": [owners[at] for at in zip(lives.at, lives.req, strict=True)], "reserve_seq": lives.reserve_seq,
        "end_seq": lives.end_seq, "ended": lives.ended, "held": lives.held, **recorded.of(lives.tag, lives.page),
    }  # fmt: skip


@dataclass
class EventColumns:
    """The table `events`, and which growth each row of it is."""

    columns: Columns = field(default_factory=dict)
    growths: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """(cell, req, tag, lo, hi) -> event."""


def event_columns(events: list[ContentEvent], cells: Cells, requests: Requests) -> EventColumns:
    """Events per cell, after the fresh memory of each."""
    views = {event.source.page for event in events if event.source is not None and event.source.tag is None}
    # What a tier holds under a key was put there; it has no fresh memory.
    fresh = [cell for cell, (page, _, _, _) in enumerate(cells.rows) if page not in views]
    found = EventColumns()
    at, of = list(fresh), [0] * len(fresh)
    source_cells: list[int | None] = [None] * len(fresh)
    for number, event in enumerate(events, 1):
        mine = cells.of(event.page, event.tok_lo, event.tok_hi, event.part, event.parts)
        if event.kind == "growth":
            for row, cell in enumerate(mine, len(at)):
                found.growths[cell, event.req, event.tag, event.lo, event.hi] = row
        at += mine
        of += [number] * len(mine)
        source_cells += [_source_cell(event, cell, cells) for cell in mine]
    shared = {name: [UNWRITTEN.get(name), *values] for name, values in _of_events(events, requests).items()}
    found.columns = {
        "event": np.arange(len(at)), "cell": at, "src_cell": source_cells, **_repeated(shared, np.array(of, np.int64)),
    }  # fmt: skip
    return found


def _source_cell(event: ContentEvent, cell: int, cells: Cells) -> int | None:
    if event.source is None:
        return None
    page, part, lo, _ = cells.rows[cell]
    return cells.holding(event.source.page, lo, part, cells.parts[page[:2]])


_AS_THEY_ARE = ("kind", "lo", "hi", "t_lo", "t_hi", "post_seq", "done_seq", "digest", "pos", "authority", "reason", "flaw",
                "collided", "acked")  # fmt: skip


def _of_events(events: list[ContentEvent], requests: Requests) -> dict[str, list[Any]]:
    """What an event has in common on all of its cells."""
    movers: dict[Any, int] = {}

    def number(mover: object) -> int:
        return movers.setdefault(mover, len(movers))

    columns: dict[str, list[Any]] = {name: [getattr(event, name) for event in events] for name in _AS_THEY_ARE}
    columns["tag"] = [event.tag if event.kind == "growth" else event.tag or 0 for event in events]
    columns["owner"] = [-1 if event.req is None else requests.owner(event.page[0], event.req) for event in events]
    columns["mover"] = [None if event.mover is None else number(event.mover) for event in events]
    columns["stream"] = [None if event.stream is None else number((event.page[0], event.stream)) for event in events]
    for name in ("lo", "hi", "tag", "since", "until"):
        columns[f"src_{name}"] = [None if event.source is None else getattr(event.source, name) for event in events]
    return columns


def read_columns(
    reads: list[tuple[WorkerKey, PageRead]],
    cells: Cells,
    requests: Requests,
    lives: LivesOn,
    growths: dict[tuple[Any, ...], int],
) -> Columns:
    """The table `reads`: reads per cell."""
    reads = [(key, read) for key, read in reads if read.passes]
    spans = {
        (page, tag): span
        for page, tag, *span in zip(lives.stand_in, lives.tag, lives.reserve_seq, lives.end_seq, strict=True)
    }
    lived = [spans.get(((key, read.pool, read.page), read.tag), (-1, INF)) for key, read in reads]
    rqs = [requests.rq_of[key, read.req] for key, read in reads]
    at: list[int] = []
    of: list[int] = []
    grown: list[int | None] = []
    tokens: list[tuple[int | None, int | None]] = []
    for number, (key, read) in enumerate(reads):
        mine, run = cells.of((key, read.pool, read.page), read.tok_lo, read.tok_hi), read.growth
        at += mine
        of += [number] * len(mine)
        if run is None:
            grown += [None] * len(mine)
        else:
            grown += [growths[cell, read.req, read.tag, run.since_seq, run.seq] for cell in mine]
        tokens += [_tokens(read, cells, cell) for cell in mine]
    shared: dict[str, Sequence[Any]] = {
        "rq": rqs, "owner": [requests.rows[rq]["owner"] for rq in rqs], "tag": [read.tag for _, read in reads],
        "s0": [read.s0 for _, read in reads], "s1": [read.passes[-1].seq for _, read in reads],
        "last_since": [read.passes[-1].since_seq for _, read in reads], "first_t": [read.passes[0].t for _, read in reads],
        "last_t": [read.passes[-1].t for _, read in reads], "last_t_end": [read.passes[-1].t_end for _, read in reads],
        "end_t": [read.passes[-1].end_t for _, read in reads], "reserve_seq": [since for since, _ in lived],
        "end_seq": [until for _, until in lived], "op": ["bind" if read.growth is None else "append" for _, read in reads],
        "pos": [read.pos for _, read in reads], "pos_last": [read.pos_last for _, read in reads],
    }  # fmt: skip
    shared["s1_max"] = shared["s1"]
    return {
        "read": np.arange(len(at)), "cell": at, "growth": grown, "req_lo": [lo for lo, _ in tokens],
        "req_hi": [hi for _, hi in tokens], **_repeated(shared, np.array(of, np.int64)),
    }  # fmt: skip


def _tokens(read: PageRead, cells: Cells, cell: int) -> tuple[int | None, int | None]:
    """Which tokens of the request a cell of its read holds."""
    if read.req_lo is None:
        return None, None
    _, _, lo, hi = cells.rows[cell]
    shift = read.req_lo - read.tok_lo
    return shift + lo, read.req_hi if read.req_hi == INF else shift + hi
