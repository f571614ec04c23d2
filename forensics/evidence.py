"""Evidence: a ledger as the tables that both verdict engines read (docs/verdicts.md, "Evidence").

Invariant: evidence resolves names, page lists, loss and order between workers; it decides nothing about
content. Pages whose history is the same to every reader have one stand-in (`stand_ins.py`). Everything both engines share
is here and in the modules it calls, so a fault here is common to both.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa

from engine.ledger.reader import Ledger
from forensics.cache import Taking, identity, key_state
from forensics.cache import takings as takings_of
from forensics.cells import Cells
from forensics.collisions import collisions
from forensics.content import EventRun, local_events, run_of
from forensics.evidence_columns import (
    Columns,
    cell_columns,
    event_columns,
    member_columns,
    pass_columns,
    read_columns,
    table_of,
    tag_columns,
)
from forensics.failed_checks import proved_by_checks
from forensics.laid_out import Runs
from forensics.life_table import LifeTable
from forensics.lives import PageKey
from forensics.loss import WHOLE_PAGE, Missing, ghost_run, ghosts, lost_to_order, missing_rows
from forensics.lost_transfers import lost_transfers
from forensics.order import build_order
from forensics.outcomes import outcomes
from forensics.reading import ReadRun, attendances_of, filled, grown, page_reads, rewrites
from forensics.requests import Requests
from forensics.rows import Row, WorkerKey, worker_rows
from forensics.stand_ins import StandIns, ghosts_on, lives_on, stand_ins, widened
from forensics.tiers import tiers
from forensics.transfers import Transfers
from forensics.view_classes import classes
from forensics.views import WHOLE, views

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
        "event cell lo hi t_lo t_hi owner tag mover post_seq done_seq stream src_cell src_lo src_hi src_tag src_since"
        " src_until digest pos authority",
        "kind reason flaw",
        "collided acked",
    ),
    "reads": _schema(
        "read cell rq owner tag s0 s1 s1_max last_since first_t last_t last_t_end end_t growth reserve_seq end_seq"
        " pos pos_last req_lo req_hi",
        "op",
    ),
    "passes": _schema("rq since_seq seq step n t t_end end_t", "kind"),
    "shares": _schema("rq owner epoch page tag seq end_seq", "worker pool identity key_state"),
    "tags": _schema(
        "tag epoch page owner reserve_seq end_seq",
        "worker pool ended",
        "granted failed held unreturned misdirected collided",
    ),
    "owners": _schema("owner", "rid tenant"),
    "members": _schema("epoch page", "worker pool").append(pa.field("numbers", pa.list_(pa.int32()))),
}


UNSAID = frozenset({"checks", "pages", "requests", "steps"})
"""Tables of which a lost row may have said that a check failed, or that nothing was checked."""


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
    members: pa.Table
    missing: tuple[Missing, ...] = ()


def prepare(ledger: Ledger, *, page_by_page: bool = False) -> Evidence:
    """Build the evidence of a ledger. With `page_by_page` each page has its whole history to itself, at any cost."""
    return _Preparation(ledger).evidence(page_by_page)


class _Preparation:
    def __init__(self, ledger: Ledger) -> None:
        self.workers = worker_rows(ledger)
        self.missing = missing_rows(ledger, self.workers)
        self.lost = lost_transfers(self.workers, self.missing)
        self.order = build_order(self.workers, lost_to_order(self.missing, self.lost.left))
        self.lives = LifeTable(self.workers)
        self.attendances = attendances_of(self.workers)
        self.requests = Requests(self.workers, self.missing)
        self.collisions = collisions(self.workers, self.requests.owner)
        self.tiers = tiers(self.workers, self.order, self.missing, self.lives)

    def evidence(self, page_by_page: bool) -> Evidence:
        reads = [
            (key, run)
            for key, by_req in self.attendances.items()
            for attendance in by_req.values()
            for run in page_reads(self.workers[key], attendance)
        ]
        lost = self.lost
        transfers = Transfers(self.workers, self.order, self.collisions, lost)
        events = self._event_runs(transfers, reads)
        ghosts_of_pools = [*ghosts(self.workers, lost.left, self.order), *transfers.ghosts()]
        events += [ghost_run(ghost) for ghost in ghosts_of_pools if ghost.pages is not None]
        takings = [*self.tiers.takings]
        takings += [(key, taking) for key, worker in self.workers.items() for taking in takings_of(worker)]
        recorded = outcomes(self.workers, self.lives, self.collisions)
        runs = Runs(events, reads)
        seen = views(runs, self.lives, page_by_page=page_by_page)
        found = stand_ins(runs, seen, classes(runs, seen, self.lives, recorded, takings))
        cells = Cells([e for e in found.events if e.tok_hi != WHOLE_PAGE], found.reads)
        extents = cells.page_extents()
        shown = [e if e.tok_hi != WHOLE_PAGE else widened(e, extents) for e in found.events if e.page in extents]
        shown += ghosts_on(found, [ghost for ghost in ghosts_of_pools if ghost.pages is None], extents)
        event_rows = event_columns(shown, cells, self.requests)
        lives = lives_on(found, self.lives, self.tiers.lives)
        attended = (
            (self.requests.rq_of[key, req], attendance)
            for key, by_req in self.attendances.items()
            for req, attendance in by_req.items()
        )
        return Evidence(
            requests=_of_rows("requests", self.requests.rows),
            cells=_table("cells", cell_columns(cells)),
            events=_table("events", event_rows.columns),
            reads=_table("reads", read_columns(found.reads, cells, self.requests, lives, event_rows.growths)),
            passes=_table("passes", pass_columns(attended)),
            shares=_of_rows("shares", self._share_rows(found, takings)),
            tags=_table("tags", tag_columns(lives, self.requests, recorded)),
            owners=_of_rows("owners", self.requests.owners()),
            members=_table("members", member_columns(found)),
            missing=tuple(self.missing),
        )

    def _event_runs(self, transfers: Transfers, reads: list[tuple[WorkerKey, ReadRun]]) -> list[EventRun]:
        by_passes = filled(reads)
        events = [event for key, worker in self.workers.items() for event in local_events(worker, by_passes[key])]
        for key, by_req in self.attendances.items():
            for attendance in by_req.values():
                events += rewrites(self.workers[key], attendance)
        events += [grown(key, run) for key, run in reads if run.read.growth is not None]
        events += transfers.landings()
        for worker in self.workers.values():
            lost = [(m.lo, m.hi) for m in self.missing if m.worker == worker.key and m.table in UNSAID]
            events = proved_by_checks(worker, self.attendances[worker.key], events, lost)
        return events + [run_of(event) for event in self.tiers.events]

    def _share_rows(self, found: StandIns, takings: list[tuple[WorkerKey, Taking]]) -> list[Row]:
        on_page: dict[PageKey, list[tuple[WorkerKey, Taking]]] = defaultdict(list)
        for key, taking in takings:
            on_page[taking.page].append((key, taking))
        return [
            self._share_row(key, taking) | _place(stand_in)
            for stand_in, page in found.page_of.items()
            for key, taking in on_page.get(page, ())
            if found.tag_of[stand_in] in (WHOLE, taking.tag)
        ]

    def _share_row(self, key: WorkerKey, taking: Taking) -> Row:
        life = self.lives.get(taking.tag, taking.page) or self.tiers.lives.get((taking.tag, taking.page))
        giver = self.requests.row(life.at, life.req) if life is not None else None
        taker = self.requests.row(key, taking.req)
        # A giver whose own record is lost gives nothing: its content has owner -1, which entitles nobody.
        same = identity(giver, taker, taking.given, taking.taken) if giver is not None else "same"
        return {
            "rq": self.requests.rq_of[key, taking.req], "owner": self.requests.owner(key, taking.req),
            "tag": taking.tag, "seq": taking.seq, "end_seq": taking.end_seq, "identity": same,
            "key_state": key_state(taking.given, taking.taken),
        }  # fmt: skip


def _place(page: PageKey) -> Row:
    (worker, epoch), pool, number = page
    return {"worker": worker, "epoch": epoch, "pool": pool, "page": number}


def _table(name: str, columns: Columns) -> pa.Table:
    return table_of(EVIDENCE_SCHEMAS[name], columns)


def _of_rows(name: str, rows: list[Row]) -> pa.Table:
    return _table(name, {f.name: [row.get(f.name) for row in rows] for f in EVIDENCE_SCHEMAS[name]})
