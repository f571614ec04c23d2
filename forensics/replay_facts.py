"""The evidence as the replay walks it: ids as positions, pages numbered, one page table row per lookup.

Invariant: nothing here compares two events.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forensics.evidence import Evidence
from forensics.replay_records import (
    EVENT_INTS,
    NEVER_BEFORE,
    NONE,
    NULL_OF_EVENT,
    NULL_OF_READ,
    READ_INTS,
    TAKINGS,
    WRITTEN,
    Event,
    Life,
    Passes,
    Read,
    Request,
    Taking,
)  # fmt: skip

Ints = NDArray[np.int64]


class Facts:
    """Evidence with ids replaced by positions in tables sorted by id: equal evidence, equal facts, in any row order."""

    def __init__(self, evidence: Evidence) -> None:
        cells, events, reads = (_sorted(getattr(evidence, f"{name}s"), name) for name in ("cell", "event", "read"))
        self._evidence = evidence
        self.cell_ids = integers(cells, "cell")
        self.events = {name: integers(events, name, NULL_OF_EVENT.get(name, NONE)) for name in EVENT_INTS}
        self.kinds, self.kind_names = _coded(events, "kind")
        self._reasons, self._reason_texts = _coded(events, "reason")
        self.flaws, self._flaw_texts = _coded(events, "flaw")
        for texts in (self._reason_texts, self._flaw_texts):
            texts.append("")  # stands at NONE
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
        self._number_members()
        ends = np.cumsum([len(table) for table in tables])
        self.page_of_cell, self._tag_page, self._share_page = np.split(number.astype(np.int64), ends[:-1])

    def _number_members(self) -> None:
        table = self._evidence.members
        names = [table[name].to_pylist() for name in ("worker", "epoch", "pool", "page")]
        lists = table["numbers"].combine_chunks()
        self._members, bounds = lists.values.to_numpy(), lists.offsets.to_pylist()
        places = {
            (self.workers[worker], epoch, self.pools[pool], page): number
            for number, ((worker, epoch), pool, page) in enumerate(
                zip(self._page_place, self.page_pool.tolist(), self.page_number.tolist(), strict=True)
            )
        }
        self._bounds = {
            places[name]: bounds[i : i + 2] for i, name in enumerate(zip(*names, strict=True)) if name in places
        }

    def members_of(self, pages: list[int] | Ints) -> NDArray[np.int32]:
        """The numbers of the pages that some pages of the evidence stand for: each for itself where nothing else is said."""
        bounds = (self._bounds.get(int(page)) for page in pages)
        return np.concatenate(
            [
                self._members[b[0] : b[1]] if b is not None else self.page_number[[page]].astype(np.int32)
                for page, b in zip(pages, bounds, strict=True)
            ]
        )

    def select_reads(self, where: NDArray[np.int64]) -> list[Read]:
        """The reads at these positions."""
        columns = [self.reads[name][where].tolist() for name in READ_INTS]
        return [Read(*row) for row in zip(where.tolist(), *columns, strict=True)]

    def event(self, where: int) -> Event:
        """The event at this position."""
        if where not in self._made:
            texts = {"reason": self._reason_texts[self._reasons[where]], "flaw": self._flaw_texts[self.flaws[where]]}
            columns: dict[str, Any] = {name: column.item(where) for name, column in self.events.items()}
            kind = self.kind_names[self.kinds.item(where)]
            self._made[where] = Event(event=where, kind=kind, **texts, **columns)
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
        return self.is_kind(*WRITTEN)

    @cached_property
    def is_filling(self) -> NDArray[np.bool_]:
        """Mask of landings and of writes that are no growth."""
        return self.is_kind("write", "landing")

    @cached_property
    def is_content(self) -> NDArray[np.bool_]:
        """Mask of everything that brought content."""
        return self.is_written | self.is_filling

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
        return self.spans(tags, pages)[1]

    def spans(self, tags: Ints, pages: Ints) -> tuple[Ints, Ints]:
        """(reserve_seq, end_seq) of (tag, page); both NEVER_BEFORE where no row speaks of that life."""
        rows = self._life_rows(tags, pages)
        nothing = np.full(len(tags), NEVER_BEFORE, np.int64)
        reserve, end = (np.where(rows >= 0, c[rows], nothing) if len(c) else nothing for c in self._life_columns[1:3])
        return reserve, end

    def life_numbers(self, tags: Ints, pages: Ints) -> list[Ints]:
        """Everything that is known of each life, as numbers that differ where it does."""
        rows = self._life_rows(tags, pages)
        *numbers, ended = self._life_columns
        columns = [*numbers, np.unique(ended, return_inverse=True)[1]]
        return [np.append(column.astype(np.int64), NONE)[rows] for column in columns]

    @cached_property
    def _life_columns(self) -> list[NDArray[np.generic]]:
        tags = self._evidence.tags
        numbers = [integers(tags, name) for name in ("owner", "reserve_seq", "end_seq")]
        flags = [
            booleans(tags, name) for name in ("granted", "failed", "held", "unreturned", "misdirected", "collided")
        ]
        ended = np.array(tags["ended"].combine_chunks().fill_null("").to_pylist(), object)
        return [*numbers, *flags, ended]

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

    def taking(self, owner: int, page: int, tag: int, s0: int) -> Taking | None:
        """The share under which `owner` may read (page, tag) from `s0` on; the gravest of several."""
        taken = [taking for seq, taking in self._shares.get((owner, page, tag), ()) if seq <= s0]
        return max(taken, default=None)

    @cached_property
    def _shares(self) -> dict[tuple[int, int, int], list[tuple[int, Taking]]]:
        table = self._evidence.shares
        columns = [integers(table, name).tolist() for name in ("owner", "tag", "seq")]
        texts = [table[name].to_pylist() for name in ("identity", "key_state")]
        found: dict[tuple[int, int, int], list[tuple[int, Taking]]] = defaultdict(list)
        for owner, tag, seq, page, *words in zip(*columns, self._share_page.tolist(), *texts, strict=True):
            found[owner, page, tag].append((seq, TAKINGS[words[0], words[1]]))
        return found

    @cached_property
    def takers(self) -> Ints:
        """Owners that took a page from a cache."""
        return integers(self._evidence.shares, "owner")

    def reads_of_request(self, rq: int) -> Ints:
        """Positions of every read of a request."""
        order, rqs = self._reads_by_request
        first, last = np.searchsorted(rqs, [rq, rq + 1])
        return order[first:last]

    @cached_property
    def _reads_by_request(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.reads["rq"], kind="stable")
        return order, self.reads["rq"][order]

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
    """A column as int64, nulls as `null`; a flag is 1 or 0."""
    column = table[name].combine_chunks()
    if pa.types.is_boolean(column.type):
        column = column.fill_null(False)
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
