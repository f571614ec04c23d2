"""Tiers without pages: what an `offload` put under a key, and what a `load` brought back from it.

Invariant: such a tier is shared by workers and has no seq of its own. Each load gets a view of its key: a page that
holds every offload of that key which may have come before the load, read once. So a view says no more of order than
the ledger's edges do, and what nobody is known to have offloaded has no source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.cache import Taking
from forensics.content import OWN_RANK, ContentEvent, Source, pos_of
from forensics.life_table import LifeTable
from forensics.lives import Life, Lives, PageKey
from forensics.loss import Missing
from forensics.order import INF, Order
from forensics.rows import Pages, Row, WorkerKey, WorkerRows

LOADED = (2, 3)
"""The window of a view's seq in which its load read it."""
BEFORE, PERHAPS = (1, 2), (1, 4)
FIRST_TAG = 1 << 62
"""Tags of offloads: above every tag of a reserve that a ledger can hold in practice."""

Place = tuple[str, str, int]
"""(tier, component, key)."""


@dataclass(frozen=True)
class Moved:
    """One key of an `offload` or `load` row: where it went from or to."""

    worker: WorkerKey
    row: Row
    index: int
    place: Place

    @property
    def seq(self) -> int:
        """Its row's seq."""
        return int(self.row["seq"])

    @property
    def page(self) -> PageKey:
        """The worker's page that it went from or to."""
        return self.worker, self.row["pool"], self.row["pages"][self.index]


@dataclass
class Tiers:
    """Events, lives and takings that the loads of a ledger bring with them."""

    events: list[ContentEvent] = field(default_factory=list)
    lives: Lives = field(default_factory=dict)
    takings: list[tuple[WorkerKey, Taking]] = field(default_factory=list)


def has_pages(worker: WorkerRows, tier: str) -> bool:
    """Whether a tier is a pool of this worker: then its transfers are the content events, and `cache` rows are claims."""
    pools = {*worker.configs, *(row["pool"] for row in worker.pages)}
    return tier in pools or any(tier in (row["src_pool"], row["dst_pool"]) for row in worker.transfers)


def tiers(workers: dict[WorkerKey, WorkerRows], order: Order, missing: list[Missing], lives: LifeTable) -> Tiers:
    """What every load from a tier without pages found there."""
    offloads: dict[Place, list[Moved]] = defaultdict(list)
    loads: list[Moved] = []
    for worker in workers.values():
        for moved in _moved(worker):
            if moved.row["op"] == "offload":
                offloads[moved.place].append(moved)
            else:
                loads.append(moved)
    lost = [m for m in missing if m.table == "cache" and workers[m.worker].role != "gateway"]
    hits = _hits(workers)
    tags: dict[tuple[WorkerKey, int, int], int] = {}
    found = Tiers()
    for number, load in enumerate(loads):
        view: PageKey = ((f"tier {load.place[0]}", 0), load.place[1], number)
        _add_load(found, load, view, workers[load.worker], bool(offloads[load.place]))
        for offload in offloads[load.place]:
            at = _relation(order, offload, load)
            if at is None:
                continue
            tag = tags.setdefault((offload.worker, offload.seq, offload.place[2]), FIRST_TAG + len(tags))
            giver = lives.get(offload.row["tag"], offload.page)
            found.lives[tag, view] = Life(view, tag, giver.req if giver else None, 0, offload.worker)
            found.events.append(_offloaded(offload, view, tag, at, workers[load.worker].unit(load.row["pool"])))
            _add_hit(found, offload, load, view, tag, hits)
        _add_ghosts(found, order, lost, load, view, workers[load.worker])
    return found


def _moved(worker: WorkerRows) -> Iterator[Moved]:
    paged: dict[str, bool] = {}
    for row in worker.cache:
        if row["op"] not in ("offload", "load") or row["pages"] is None or row["keys"] is None:
            continue
        tier = row["tier"] or ""
        if tier not in paged:
            paged[tier] = has_pages(worker, tier)
        if not paged[tier]:
            for index, (_, key) in enumerate(zip(came_back(row) or (), row["keys"], strict=False)):
                yield Moved(worker.key, row, index, (tier, row["component"] or "", key))


def came_back(row: Row) -> Pages | None:
    """The pages of a `load` row that were filled (of an `offload` row all of its pages)."""
    pages: Pages | None = row["pages"]
    if pages is None or row["op"] != "load" or row["returned"] is None:
        return pages
    return pages[: max(row["returned"], 0)]


def _relation(order: Order, offload: Moved, load: Moved) -> tuple[int, int] | None:
    """When an offload took place in a view: before the load, perhaps, or (None) after it."""
    if offload.worker == load.worker:
        return BEFORE if offload.seq < load.seq else None
    if order.after(offload.worker, offload.seq, load.worker) <= load.seq:
        return BEFORE
    return None if order.after(load.worker, load.seq, offload.worker) <= offload.seq else PERHAPS


def _add_load(found: Tiers, load: Moved, view: PageKey, worker: WorkerRows, known: bool) -> None:
    seq = load.seq
    found.events.append(
        ContentEvent(
            load.page, "landing", 0, worker.unit(load.row["pool"]), seq - 1, seq, load.row["t"], load.row["t"], None,
            load.row["tag"], mover=load.worker, source=Source(view, *LOADED, None) if known else None, authority=OWN_RANK,
            pos=pos_of(load.row, load.index),
        )
    )  # fmt: skip


def _offloaded(offload: Moved, view: PageKey, tag: int, at: tuple[int, int], unit: int) -> ContentEvent:
    """An offload in a view; offloads of one worker are in the order of its seq."""
    seq = offload.seq
    source = Source(offload.page, seq - 1, seq, offload.row["tag"] or 0)
    return ContentEvent(
        view, "landing", 0, unit, *at, tag=tag, mover=offload.worker, post_seq=seq - 1, done_seq=seq, source=source
    )


Hits = dict[tuple[WorkerKey, int, Place], list[Row]]
"""`hit` rows by (worker, req, place), in seq order."""


def _hits(workers: dict[WorkerKey, WorkerRows]) -> Hits:
    hits: Hits = defaultdict(list)
    for key, worker in workers.items():
        for row in worker.cache:
            if row["op"] == "hit" and row["req"] is not None:
                for name in row["keys"] or ():
                    hits[key, row["req"], (row["tier"] or "", row["component"] or "", name)].append(row)
    return hits


def _add_hit(found: Tiers, offload: Moved, load: Moved, view: PageKey, tag: int, hits: Hits) -> None:
    """The loader's right to a key: its request's last `hit` on (tier, component, key) before the load."""
    req = load.row["req"]
    earlier = [row for row in hits.get((load.worker, req, load.place), ()) if row["seq"] < load.seq]
    if earlier:
        found.takings.append((load.worker, Taking(view, tag, req, 0, INF, offload.row, earlier[-1])))


def _add_ghosts(
    found: Tiers, order: Order, lost: list[Missing], load: Moved, view: PageKey, worker: WorkerRows
) -> None:
    """An offload or a hit may be missing wherever cache rows are, unless they certainly came after the load."""
    for m in lost:
        is_later = (
            load.seq <= m.lo if m.worker == load.worker else order.after(load.worker, load.seq, m.worker) <= m.lo + 1
        )
        if not is_later:
            unit = worker.unit(load.row["pool"])
            found.events.append(ContentEvent(view, "ghost", 0, unit, *PERHAPS, reason=m.reason))
