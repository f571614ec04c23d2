"""The evidence as the replay walks it: ids as positions, pages numbered, one page table row per lookup.

Invariant: nothing here compares two events. A null becomes the number that makes every clause of the specification
that uses it false (docs/verdicts.md, "Order"), so no comparison elsewhere asks for nulls.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forensics.evidence import Evidence

Ints = NDArray[np.int64]

NEVER_BEFORE = 1 << 62
"""Stands for a null that is compared as `null < b` or `b > null`."""
NEVER_AFTER = -(1 << 62)
"""Stands for a null that is compared as `b < null` or `null > b`."""
NONE = -1
"""No such id: no mover, no stream, no source cell, no growth event; as an owner: lost."""

GRAVITY_OF_IDENTITY = ("same", "tenant", "meaning", "both")

NULL_OF_EVENT = {"t_lo": NEVER_AFTER, "t_hi": NEVER_BEFORE, "post_seq": NEVER_AFTER, "done_seq": NEVER_BEFORE}
NULL_OF_READ = {"first_t": NEVER_AFTER, "last_t_end": NEVER_AFTER, "last_since": NEVER_AFTER, "end_t": NEVER_BEFORE}


class Event(NamedTuple):
    """One content event on one cell, somewhere in (lo, hi] of its worker's seq."""

    event: int
    cell: int
    kind: str
    lo: int
    hi: int
    t_lo: int
    t_hi: int
    owner: int
    tag: int
    mover: int
    post_seq: int
    done_seq: int
    stream: int
    src_cell: int
    src_lo: int
    src_hi: int
    src_tag: int
    reason: str


class Read(NamedTuple):
    """One request's reading of one cell: from seq `s0` to the run that ends at `s1_max`."""

    read: int
    cell: int
    rq: int
    owner: int
    tag: int
    s0: int
    s1: int
    s1_max: int
    last_since: int
    first_t: int
    last_t_end: int
    end_t: int
    growth: int
    reserve_seq: int
    end_seq: int


class Passes(NamedTuple):
    """The steps runs one request took part in, in seq order, column by column."""

    seq: list[int]
    since_seq: list[int]
    step: list[int]
    n: list[int]
    t: list[int]


class Life(NamedTuple):
    """One life of a page under a tag."""

    owner: int
    reserve_seq: int
    end_seq: int
    granted: bool
    failed: bool
    held: bool


class Request(NamedTuple):
    """A request on one worker; `rid` is never None."""

    rq: int
    worker: str
    epoch: int
    req: int
    role: str
    rid: str
    owner: int
    attempt: int | None
    tenant: str | None
    ended: bool
    last_token: int | None
    output_tokens: int | None
    complete: bool
    end_certain: bool


EVENT_INTS = [name for name in Event._fields if name not in ("event", "kind", "reason")]
READ_INTS = [name for name in Read._fields if name != "read"]


class Facts:
    """Evidence with ids replaced by positions in tables sorted by id: equal evidence, equal facts, in any row order."""

    def __init__(self, evidence: Evidence) -> None:
        cells, events, reads = (_sorted(getattr(evidence, f"{name}s"), name) for name in ("cell", "event", "read"))
        self._evidence = evidence
        self.cell_ids = integers(cells, "cell")
        self.events = {name: integers(events, name, NULL_OF_EVENT.get(name, NONE)) for name in EVENT_INTS}
        self.kinds, self.kind_names = _coded(events, "kind")
        self._reasons, self._reason_texts = _coded(events, "reason")
        self._reason_texts.append("")  # stands at NONE
        self.reads = {name: integers(reads, name, NULL_OF_READ.get(name, NONE)) for name in READ_INTS}
        self.events["cell"] = positions(self.cell_ids, self.events["cell"])
        self.events["src_cell"] = positions(self.cell_ids, self.events["src_cell"])
        self.reads["cell"] = positions(self.cell_ids, self.reads["cell"])
        self.reads["growth"] = positions(integers(events, "event"), self.reads["growth"])
        self.requests = {request.rq: request for request in _requests(evidence.requests)}
        self._number_pages(cells)
        self._events_by_cell = np.argsort(self.events["cell"], kind="stable")
        self._first_event = np.searchsorted(
            self.events["cell"], np.arange(len(self.cell_ids) + 1), sorter=self._events_by_cell
        )
        self._lives: dict[tuple[int, int], Life | None] = {}
        self._passes: dict[int, Passes] = {}
        self._made: dict[int, Event] = {}

    def _number_pages(self, cells: pa.Table) -> None:
        tables = [cells, self._evidence.tags, self._evidence.shares]
        workers, self.workers = _coded_together(tables, "worker")
        pools, self.pools = _coded_together(tables, "pool")
        epochs, pages = (np.concatenate([integers(t, name) for t in tables]) for name in ("epoch", "page"))
        _, epoch_place = np.unique(epochs, return_inverse=True)
        place = (workers * (epoch_place.max(initial=0) + 1) + epoch_place) * max(len(self.pools), 1) + pools
        numbered, first, number = np.unique((place << 32) + pages, return_index=True, return_inverse=True)
        self.page_count = len(numbered)
        self.page_number, self.page_pool = pages[first], pools[first]
        self._page_place = list(zip(workers[first].tolist(), epochs[first].tolist(), strict=True))
        ends = np.cumsum([len(table) for table in tables])
        self.page_of_cell, self._tag_page, self._share_page = np.split(number.astype(np.int64), ends[:-1])

    def select_reads(self, where: NDArray[np.int64]) -> list[Read]:
        """The reads at these positions."""
        columns = [self.reads[name][where].tolist() for name in READ_INTS]
        return [Read(*row) for row in zip(where.tolist(), *columns, strict=True)]

    def event(self, where: int) -> Event:
        """The event at this position."""
        if where not in self._made:
            reason = int(self._reasons[where])
            columns: dict[str, Any] = {name: column.item(where) for name, column in self.events.items()}
            kind = self.kind_names[self.kinds.item(where)]
            self._made[where] = Event(event=where, kind=kind, reason=self._reason_texts[reason], **columns)
        return self._made[where]

    def events_of(self, cell: int) -> Ints:
        """Positions of every event of a cell."""
        return self._events_by_cell[self._first_event[cell] : self._first_event[cell + 1]]

    def worker_of(self, page: int) -> tuple[str, int]:
        """(worker, epoch) that a page belongs to."""
        worker, epoch = self._page_place[page]
        return self.workers[worker], epoch

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the events of some kinds."""
        return np.isin(self.kinds, [code for code, name in enumerate(self.kind_names) if name in kinds])

    @cached_property
    def is_ghost(self) -> NDArray[np.bool_]:
        """Mask of the events that only say that something may have happened."""
        return self.is_kind("ghost")

    @cached_property
    def is_written(self) -> NDArray[np.bool_]:
        """Mask of what requests wrote on their own worker."""
        return self.is_kind("write", "growth")

    def passes_of(self, rq: int) -> Passes:
        """The runs that a request took part in."""
        if rq not in self._passes:
            columns, first, last = self._passes_by_request(rq)
            self._passes[rq] = Passes(*(columns[name][first:last].tolist() for name in Passes._fields))
        return self._passes[rq]

    def _passes_by_request(self, rq: int) -> tuple[dict[str, Ints], int, int]:
        columns = self._pass_columns
        first, last = np.searchsorted(columns["rq"], [rq, rq + 1]).tolist()
        return columns, first, last

    @cached_property
    def _pass_columns(self) -> dict[str, Ints]:
        table = self._evidence.passes
        columns = {name: integers(table, name) for name in ("rq", *Passes._fields)}
        order = np.lexsort((columns["seq"], columns["rq"]))
        return {name: column[order] for name, column in columns.items()}

    def life(self, tag: int, page: int) -> Life | None:
        """The life of `page` under `tag`; None where no row speaks of one."""
        if (tag, page) not in self._lives:
            self.remember_lives(np.array([tag]), np.array([page]))
        return self._lives[tag, page]

    def remember_lives(self, tags: Ints, pages: Ints) -> None:
        """Look up many lives at once, ahead of `life`."""
        rows = self._life_rows(tags, pages)
        columns = [column[rows].tolist() if len(column) else [NONE] * len(rows) for column in self._life_columns]
        for tag, page, row, *life in zip(tags.tolist(), pages.tolist(), rows.tolist(), *columns, strict=True):
            self._lives[tag, page] = Life(*life) if row >= 0 else None

    def owners(self, tags: Ints, pages: Ints) -> Ints:
        """owner(tag) at each page; NONE where it is lost."""
        rows = self._life_rows(tags, pages)
        owner = self._life_columns[0]
        return np.where(rows >= 0, owner[rows], NONE) if len(owner) else np.full(len(tags), NONE, np.int64)

    def ends(self, tags: Ints, pages: Ints) -> Ints:
        """end_seq(tag) at each page; NEVER_BEFORE where no row speaks of that life."""
        rows = self._life_rows(tags, pages)
        end = self._life_columns[2]
        return np.where(rows >= 0, end[rows], NEVER_BEFORE) if len(end) else np.full(len(tags), NEVER_BEFORE, np.int64)

    @cached_property
    def _life_columns(self) -> list[NDArray[np.generic]]:
        tags = self._evidence.tags
        numbers = [integers(tags, name) for name in ("owner", "reserve_seq", "end_seq")]
        return [*numbers, *(booleans(tags, name) for name in ("granted", "failed", "held"))]

    @cached_property
    def _life_index(self) -> tuple[Ints, Ints, Ints]:
        """(known tags, sorted keys, their rows); a key is the tag's place among the known ones and the page."""
        tags = integers(self._evidence.tags, "tag")
        known, place = np.unique(tags, return_inverse=True)
        keys = place * max(self.page_count, 1) + self._tag_page
        order = np.argsort(keys, kind="stable")
        return known, keys[order], order

    def _life_rows(self, tags: Ints, pages: Ints) -> Ints:
        known, keys, rows = self._life_index
        if not len(known):
            return np.full(len(tags), NONE, np.int64)
        place = np.minimum(np.searchsorted(known, tags), len(known) - 1)
        wanted = place * max(self.page_count, 1) + pages
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((known[place] == tags) & (keys[found] == wanted), rows[found], NONE)

    def identity(self, owner: int, page: int, tag: int, s0: int) -> str | None:
        """Identity of the share under which `owner` may read (page, tag) from `s0` on; the gravest of several."""
        taken = [identity for seq, identity in self._shares.get((owner, page, tag), ()) if seq <= s0]
        return max(taken, key=GRAVITY_OF_IDENTITY.index, default=None)

    @cached_property
    def _shares(self) -> dict[tuple[int, int, int], list[tuple[int, str]]]:
        table = self._evidence.shares
        columns = [integers(table, name).tolist() for name in ("owner", "tag", "seq")]
        found: dict[tuple[int, int, int], list[tuple[int, str]]] = defaultdict(list)
        rows = zip(*columns, self._share_page.tolist(), table["identity"].to_pylist(), strict=True)
        for owner, tag, seq, page, identity in rows:
            found[owner, page, tag].append((seq, identity))
        return found

    @cached_property
    def donors(self) -> dict[int, tuple[str, str | None]]:
        """(rid, tenant) of every owner that is known."""
        table = self._evidence.owners
        return {o: (r, t) for o, r, t in zip(*(table[n].to_pylist() for n in ("owner", "rid", "tenant")), strict=True)}

    @cached_property
    def requests_of_owner(self) -> dict[int, list[Request]]:
        """Every request row of a rid."""
        found: dict[int, list[Request]] = defaultdict(list)
        for request in self.requests.values():
            found[request.owner].append(request)
        return found


def integers(table: pa.Table, name: str, null: int = NONE) -> Ints:
    """A column as int64, nulls as `null`."""
    column = table[name].combine_chunks()
    if column.null_count:
        column = column.fill_null(null)
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def booleans(table: pa.Table, name: str) -> NDArray[np.bool_]:
    """A column as bool, nulls as False."""
    return table[name].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)


def positions(ids: Ints, wanted: Ints) -> Ints:
    """Where each wanted id stands among the sorted `ids`; NONE where it is not there."""
    if not len(ids):
        return np.full(len(wanted), NONE, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[place] == wanted, place, NONE)


def _sorted(table: pa.Table, key: str) -> pa.Table:
    ids = integers(table, key)
    return table if bool(np.all(ids[1:] > ids[:-1])) else table.take(pa.array(np.argsort(ids, kind="stable")))


def _coded(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A text column as codes into a list; a null is NONE."""
    column = table[name].combine_chunks().dictionary_encode()
    return column.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int64), column.dictionary.to_pylist()


def _coded_together(tables: list[pa.Table], name: str) -> tuple[Ints, list[str]]:
    return _coded(pa.concat_tables([table.select([name]) for table in tables]), name)


def _requests(table: pa.Table) -> list[Request]:
    names = (
        "rq worker epoch req role rid owner attempt tenant ended_seq last_token output_tokens rows_complete end_certain"
    )
    found = []
    for row in zip(*(table[name].to_pylist() for name in names.split()), strict=True):
        rq, worker, epoch, req, role, rid, owner, attempt, tenant, ended, last_token, tokens, complete, certain = row
        if owner is None or owner < 0:
            # Whose request it was is lost with its `receive`: that row is one of its own.
            owner, rid, complete = NONE, f"?{worker}/{epoch}/{req}", False
        found.append(
            Request(
                rq, worker, epoch, req, role, rid, owner, attempt, tenant, ended is not None, last_token, tokens,
                bool(complete), bool(certain),
            )
        )  # fmt: skip
    return found
