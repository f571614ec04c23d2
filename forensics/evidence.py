"""Evidence: a ledger as the tables that both verdict engines read (docs/verdicts.md, "Evidence").

Invariant: evidence resolves names, page lists, loss and order between workers; it decides nothing about
content. Everything both engines share is here and in the modules it calls, so a fault here is common to both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.ledger.reader import Ledger
from forensics.cells import Cells
from forensics.content import ContentEvent, Life, PageKey, landings, local_events, proved_by_checks, shares, tag_lives
from forensics.loss import Missing, OwnRows, ghost_events, ghosts, missing_rows, own_rows
from forensics.order import INF, build_order
from forensics.reading import PageRead, attendances_of, page_reads
from forensics.rows import Row, WorkerKey, WorkerRows, worker_rows

_I, _B, _S = pa.int64(), pa.bool_(), pa.string()


def _schema(integers: str, texts: str = "", flags: str = "") -> pa.Schema:
    fields = [(n, _I) for n in integers.split()] + [(n, _S) for n in texts.split()] + [(n, _B) for n in flags.split()]
    return pa.schema(fields)


EVIDENCE_SCHEMAS: dict[str, pa.Schema] = {
    "requests": _schema(
        "rq epoch req owner attempt received_seq ended_seq last_token output_tokens started finished",
        "worker role rid tenant purpose adapter media weights kv_format status",
        "rows_complete end_certain",
    ),
    "cells": _schema("cell epoch page part tok_lo tok_hi", "worker pool"),
    "events": _schema(
        "event cell lo hi t_lo t_hi owner tag mover post_seq done_seq stream src_cell src_lo src_hi src_tag",
        "kind reason",
    ),
    "reads": _schema(
        "read cell rq owner tag s0 s1 s1_max last_since first_t last_t last_t_end end_t growth reserve_seq end_seq",
        "op",
    ),
    "passes": _schema("rq since_seq seq step n t t_end end_t", "kind"),
    "shares": _schema("rq owner epoch page tag seq end_seq", "worker pool identity"),
    "tags": _schema("tag epoch page owner reserve_seq end_seq", "worker pool", "granted failed held"),
    "owners": _schema("owner", "rid tenant"),
}


@dataclass(frozen=True)
class Evidence:
    """Arrow tables with the columns of `EVIDENCE_SCHEMAS`; `missing` are the gaps they were built under."""

    requests: pa.Table
    cells: pa.Table
    events: pa.Table
    reads: pa.Table
    passes: pa.Table
    shares: pa.Table
    tags: pa.Table
    owners: pa.Table
    missing: tuple[Missing, ...] = ()


IDENTITY_OF_OWNER = "tenant"
IDENTITY_OF_MEANING = ("adapter", "media", "weights", "kv_format")


def prepare(ledger: Ledger) -> Evidence:
    """Build the evidence of a ledger."""
    return _Preparation(ledger).evidence()


class _Preparation:
    def __init__(self, ledger: Ledger) -> None:
        self.workers = worker_rows(ledger)
        self.missing = missing_rows(ledger, self.workers)
        self.order = build_order(self.workers)
        self.lives = tag_lives(self.workers)
        self.attendances = attendances_of(self.workers)
        self.owner_ids: dict[str, int] = {}
        self.tenants: dict[int, str | None] = {}
        self.requests: list[Row] = []
        self.rq_of: dict[tuple[WorkerKey, int], int] = {}
        self._requests()

    def evidence(self) -> Evidence:
        reads = [
            (key, read)
            for key, by_req in self.attendances.items()
            for attendance in by_req.values()
            for read in page_reads(self.workers[key], attendance)
        ]
        events = [event for worker in self.workers.values() for event in local_events(worker)]
        events += landings(self.workers, self.order)
        for worker in self.workers.values():
            events = proved_by_checks(worker, events)
        cells = Cells(events, reads)
        extents = cells.page_extents()
        for ghost in ghosts(self.workers, self.missing, self.order):
            events += ghost_events(ghost, extents)
        event_rows = self._event_rows(events, cells)
        read_rows = self._read_rows(reads, cells, event_rows)
        return Evidence(
            requests=_table("requests", self.requests),
            cells=_table("cells", _cell_rows(cells)),
            events=_table("events", event_rows),
            reads=_table("reads", read_rows),
            passes=_table("passes", self._pass_rows()),
            shares=_table("shares", self._share_rows()),
            tags=_table("tags", self._tag_rows()),
            owners=_table("owners", self._owner_rows()),
            missing=tuple(self.missing),
        )

    def _requests(self) -> None:
        for key in sorted(self.workers):
            worker = self.workers[key]
            by_req: dict[int, list[Row]] = {}
            for row in worker.requests:
                if row["req"] is not None:
                    by_req.setdefault(row["req"], []).append(row)
            for row in (*worker.pages, *worker.transfers):
                if row["req"] is not None:
                    by_req.setdefault(row["req"], [])
            summaries = {req: _summary(rows) for req, rows in by_req.items()}
            whole = own_rows(worker, self.missing, {req: s.span for req, s in summaries.items()})
            for req in sorted(by_req):
                self._add_request(key, worker, req, summaries[req], whole[req])

    def _add_request(self, key: WorkerKey, worker: WorkerRows, req: int, summary: _Summary, whole: OwnRows) -> None:
        receive = summary.receive
        owner = -1
        if receive is not None and receive["rid"] is not None:
            owner = self.owner_ids.setdefault(receive["rid"], len(self.owner_ids))
            if self.tenants.get(owner) is None:
                self.tenants[owner] = receive["tenant"]
        row: dict[str, Any] = {
            "rq": len(self.requests), "worker": key[0], "epoch": key[1], "req": req, "role": worker.role, "owner": owner,
            "received_seq": summary.span[0], "ended_seq": summary.span[1], "last_token": summary.last_token,
            "output_tokens": summary.output_tokens, "started": summary.started, "finished": summary.finished,
            "status": summary.status, "rows_complete": whole.complete, "end_certain": whole.end_certain,
        }  # fmt: skip
        for name in ("rid", "attempt", "tenant", "purpose", *IDENTITY_OF_MEANING):
            row[name] = receive[name] if receive is not None else None
        self.rq_of[key, req] = row["rq"]
        self.requests.append(row)

    def _owner(self, key: WorkerKey, req: int | None) -> int:
        rq = self.rq_of.get((key, req)) if req is not None else None
        return -1 if rq is None else int(self.requests[rq]["owner"])

    def _event_rows(self, events: list[ContentEvent], cells: Cells) -> list[Row]:
        rows: list[Row] = []
        movers: dict[Any, int] = {}
        for cell in range(len(cells.rows)):
            rows.append(
                {"event": len(rows), "cell": cell, "kind": "unwritten", "lo": -1, "hi": 0, "owner": -1, "tag": 0}
            )
        for event in events:
            shared = self._shared_columns(event, movers)
            for cell in cells.of(event.page, event.tok_lo, event.tok_hi, event.part):
                row = {"event": len(rows), "cell": cell, **shared}
                if event.source is not None:
                    _, part, lo, _ = cells.rows[cell]
                    row["src_cell"] = cells.holding(event.source.page, lo, part)
                rows.append(row)
        return rows

    def _shared_columns(self, event: ContentEvent, movers: dict[Any, int]) -> Row:
        row: Row = {
            "kind": event.kind, "lo": event.lo, "hi": event.hi, "t_lo": event.t_lo, "t_hi": event.t_hi, "reason": event.reason,
            "owner": self._owner(event.page[0], event.req) if event.req is not None else -1, "tag": event.tag or 0,
            "post_seq": event.post_seq, "done_seq": event.done_seq,
        }  # fmt: skip
        if event.mover is not None and event.kind == "landing":
            row["mover"] = movers.setdefault(event.mover, len(movers))
        if event.stream is not None:
            row["stream"] = movers.setdefault((event.page[0], event.stream), len(movers))
        if event.source is not None:
            row |= {"src_lo": event.source.lo, "src_hi": event.source.hi, "src_tag": event.source.tag}
        return row

    def _read_rows(self, reads: list[tuple[WorkerKey, PageRead]], cells: Cells, events: list[Row]) -> list[Row]:
        """Reads per cell; a growth read brings its own growth event with it."""
        rows: list[Row] = []
        for key, read in reads:
            page: PageKey = (key, read.pool, read.page)
            rq = self.rq_of[key, read.req]
            owner = self.requests[rq]["owner"]
            life = self.lives.get((read.tag, page))
            for cell in cells.of(page, read.tok_lo, read.tok_hi, None):
                growth = None
                if read.growth is not None:
                    growth, run = len(events), read.growth
                    events.append(
                        {
                            "event": growth, "cell": cell, "kind": "growth", "lo": run.since_seq, "hi": run.seq,
                            "t_lo": run.t, "t_hi": run.end_t, "owner": owner, "tag": read.tag,
                        }
                    )  # fmt: skip
                if not read.passes:
                    continue
                last = read.passes[-1]
                rows.append(
                    {
                        "read": len(rows), "cell": cell, "rq": rq, "owner": owner, "tag": read.tag, "s0": read.s0,
                        "s1": last.seq, "s1_max": last.seq, "last_since": last.since_seq, "first_t": read.passes[0].t,
                        "last_t": last.t, "last_t_end": last.t_end, "end_t": last.end_t, "growth": growth,
                        "reserve_seq": life.reserve_seq if life else -1, "end_seq": life.end_seq if life else INF,
                        "op": "append" if read.growth is not None else "bind",
                    }
                )  # fmt: skip
        return rows

    def _pass_rows(self) -> list[Row]:
        return [
            {"rq": self.rq_of[key, req], **vars(p)}
            for key, by_req in self.attendances.items()
            for req, attendance in by_req.items()
            for p in attendance.passes
        ]

    def _share_rows(self) -> list[Row]:
        rows = []
        for key, worker in self.workers.items():
            for share in shares(worker):
                giver = self.lives.get((share.tag, share.page))
                rows.append(
                    {
                        "rq": self.rq_of[key, share.req], "owner": self._owner(key, share.req), **_place(share.page),
                        "tag": share.tag, "seq": share.seq, "end_seq": share.end_seq,
                        "identity": self._identity(key, giver, share.req),
                    }
                )  # fmt: skip
        return rows

    def _identity(self, key: WorkerKey, giver: Life | None, taker: int) -> str:
        rq_giver = self.rq_of.get((key, giver.req)) if giver is not None and giver.req is not None else None
        if rq_giver is None:
            return "same"  # the giver's own record is lost: its content has owner -1, which entitles nobody
        one, other = self.requests[rq_giver], self.requests[self.rq_of[key, taker]]
        tenant = one[IDENTITY_OF_OWNER] != other[IDENTITY_OF_OWNER]
        meaning = any(one[name] != other[name] for name in IDENTITY_OF_MEANING)
        return {(False, False): "same", (True, False): "tenant", (False, True): "meaning", (True, True): "both"}[
            tenant, meaning
        ]

    def _tag_rows(self) -> list[Row]:
        granted: set[int] = set()
        failed: set[int] = set()
        for worker in self.workers.values():
            for row in worker.transfers:
                if row["op"] == "grant" and row["dst_tag"]:
                    granted.add(row["dst_tag"])
                elif row["op"] == "fail" and row["dst_tag"]:
                    failed.add(row["dst_tag"])
        return [
            {
                "tag": tag, **_place(page), "owner": self._owner(page[0], life.req), "reserve_seq": life.reserve_seq,
                "end_seq": life.end_seq, "granted": tag in granted, "failed": tag in failed, "held": life.held,
            }
            for (tag, page), life in self.lives.items()
        ]  # fmt: skip

    def _owner_rows(self) -> list[Row]:
        return [
            {"owner": owner, "rid": rid, "tenant": self.tenants.get(owner)} for rid, owner in self.owner_ids.items()
        ]


@dataclass
class _Summary:
    """What a request's rows say about it; `span` = (received seq, ended seq, page_rows)."""

    receive: Row | None
    span: tuple[int, int | None, int | None]
    last_token: int | None
    output_tokens: int | None
    started: int | None
    finished: int | None
    status: str | None


def _summary(rows: list[Row]) -> _Summary:
    receive = next((row for row in rows if row["op"] == "receive"), None)
    # A reject is an end only where nothing followed it: a short handoff goes on after its reject.
    end = next((row for row in rows if row["op"] in ("finish", "abort")), None) or next(
        (row for row in rows if row["op"] == "reject"), None
    )
    return _Summary(
        receive,
        (
            receive["seq"] if receive else 0,
            end["seq"] if end else None,
            end["page_rows"] if end else None,
        ),
        end["last_token"] if end else None,
        end["output_tokens"] if end else None,
        receive["t"] if receive else None,
        end["t"] if end else None,
        end["status"] if end else None,
    )


def _place(page: PageKey) -> Row:
    (worker, epoch), pool, number = page
    return {"worker": worker, "epoch": epoch, "pool": pool, "page": number}


def _cell_rows(cells: Cells) -> list[Row]:
    return [
        {"cell": cell, **_place(page), "part": part, "tok_lo": lo, "tok_hi": hi}
        for cell, (page, part, lo, hi) in enumerate(cells.rows)
    ]


def _table(name: str, rows: list[Row]) -> pa.Table:
    schema = EVIDENCE_SCHEMAS[name]
    return pa.table({f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in schema}, schema=schema)
