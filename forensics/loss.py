"""Where rows are missing, something may have happened: ghosts, and requests whose own rows are incomplete.

Invariant: loss only ever adds doubt. A ghost stands wherever a lost row could have changed the content of a page;
it never says what happened there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.ledger.reader import Gap, Ledger
from forensics.attending import grown_across, read_across
from forensics.content import ContentEvent, EventRun
from forensics.order import INF, NOTHING, Lost, Order
from forensics.rows import Pages, Row, WorkerKey, WorkerRows, as_ints
from forensics.transfer_batches import batches

ALIVE = "alive"


@dataclass(frozen=True)
class Missing:
    """Rows of one chain with lo < seq < hi are missing (hi INF: the end is not known)."""

    worker: WorkerKey
    table: str
    pool: str | None
    lo: int
    hi: int
    alive: bool
    reason: str


def missing_rows(ledger: Ledger, workers: dict[WorkerKey, WorkerRows]) -> list[Missing]:
    """The ledger's gaps, each narrowed to the seqs that are really missing."""
    alive = {(state.worker, state.epoch) for state in ledger.writers if state.state == "open"}
    found: list[Missing] = []
    for gap in ledger.gaps:
        key = (gap.worker, gap.epoch)
        narrowed = _narrow(gap, workers[key].seqs if key in workers else [])
        if narrowed is None:
            continue
        is_tail = gap.before_seq is None
        is_there = key in alive or (key in workers and workers[key].seqs)
        reason = f"{gap.reason} in {gap.table} of {gap.worker}" if is_there else f"no record of {gap.worker}"
        found.append(Missing(key, gap.table, gap.pool, *narrowed, alive=is_tail and key in alive, reason=reason))
    for key, worker in workers.items():
        for row in worker.pages:
            if row["pages"] is None and row["op"] != "audit":
                reason = f"page list lost in pages of {key[0]}"
                found.append(Missing(key, "pages", row["pool"], row["seq"] - 1, row["seq"] + 1, False, reason))
    return found


def _narrow(gap: Gap, seqs: list[int]) -> tuple[int, int] | None:
    """Bounds (lo, hi) round the missing seqs of a gap; None where every seq between its ends is there."""
    lo = gap.after_seq
    i = bisect_right(seqs, lo)
    while i < len(seqs) and seqs[i] == lo + 1:
        lo, i = lo + 1, i + 1
    if gap.before_seq is None:
        return lo, INF
    hi, j = gap.before_seq, bisect_left(seqs, gap.before_seq) - 1
    while j >= 0 and seqs[j] == hi - 1:
        hi, j = hi - 1, j - 1
    return (lo, hi) if hi - lo > 1 else None


def lost_to_order(missing: list[Missing], left: list[Missing]) -> Lost:
    """What is lost to the order between workers: of all that is `missing`, and of what is `left` of it unexplained. The
    open tail of a writer that is alive comes after all that it was heard to say."""
    transfers: dict[WorkerKey, list[tuple[int, int]]] = defaultdict(list)
    for m in left:
        if m.table == "transfers" and not m.alive:
            transfers[m.worker].append((m.lo, m.hi))
    workers = frozenset(m.worker for m in missing if not m.alive)
    return Lost({key: sorted(gaps) for key, gaps in transfers.items()}, workers)


@dataclass(frozen=True)
class PoolGhost:
    """A ghost on every page of one pool (or, `pages` given, on those), in (lo, hi] of the worker's seq."""

    worker: WorkerKey
    pool: str | None
    pages: Pages | None
    lo: int
    hi: int
    reason: str


def ghosts(workers: dict[WorkerKey, WorkerRows], missing: list[Missing], order: Order) -> list[PoolGhost]:
    """Ghosts of a worker's own lost rows, and of lost mover rows under its grants."""
    found: list[PoolGhost] = []
    for m in missing:
        found += _own_ghosts(workers[m.worker], m)
    for key, worker in workers.items():
        for pool in sorted({row["pool"] for row in worker.pages} - set(worker.configs)):
            found.append(
                PoolGhost(key, pool, None, NOTHING, INF, f"page size of pool {pool} lost in workers of {key[0]}")
            )
    movers = lost_movers(workers, missing)
    by_name: dict[str, list[LostMover]] = defaultdict(list)
    for mover in movers.values():
        by_name[mover.worker[0]].append(mover)
        if mover.lost_batch and _fills_its_own(workers[mover.worker]):
            found += [PoolGhost(m.worker, None, None, m.lo, _last(m.hi), m.reason) for m in mover.spans]
    for key, worker in workers.items():
        heard = _first_acks(worker, "received")
        found += _joined(
            [ghost for grant in _grants(worker) for ghost in _grant_ghosts(key, grant, heard, by_name, order)]
        )
        if key in movers:  # a lost grant may have let any mover in
            others = [mover for mover in movers.values() if mover.worker != key]
            found += [_far_ghost(key, m, order) for mover in others for m in mover.spans]
    return [ghost for ghost in found if ghost.lo < ghost.hi]


@dataclass(frozen=True)
class LostMover:
    """A worker epoch of whose transfers rows are missing: where (`spans`), and whether both ends of one batch may be.

    `said`: transfer -> the seq at which it said first that nothing is outstanding.
    """

    worker: WorkerKey
    spans: list[Missing]
    lost_batch: bool
    said: dict[int, int]


def lost_movers(workers: dict[WorkerKey, WorkerRows], missing: list[Missing]) -> dict[WorkerKey, LostMover]:
    """Every worker that may have moved what is not recorded. A gateway moves nothing."""
    gaps: dict[WorkerKey, list[Missing]] = defaultdict(list)
    for m in missing:
        if m.table == "transfers" and workers[m.worker].role != "gateway":
            gaps[m.worker].append(m)
    return {key: _lost_mover(workers[key], found) for key, found in gaps.items()}


def _lost_mover(worker: WorkerRows, gaps: list[Missing]) -> LostMover:
    """One row is not both ends of a batch; two may be, and what they ended was under way all the time between them."""
    tails, lost = [m for m in gaps if m.alive], sorted((m for m in gaps if not m.alive), key=lambda m: m.lo)
    is_batch = sum(m.hi - m.lo - 1 for m in lost) > 1 or (bool(lost) and _leans_on_its_post(worker))
    if is_batch:
        lost = [replace(lost[0], hi=max(m.hi for m in lost))]
    said = {xfer: seq for (xfer, _), seq in sorted(_first_acks(worker, "sent").items(), key=lambda ack: -ack[1])}
    return LostMover(worker.key, lost + tails, is_batch, said)


def _leans_on_its_post(worker: WorkerRows) -> bool:
    """Whether some end of a batch leaves its pages to a post that is not there."""
    return any(batch.post is None and batch.lists["dst_pages"] is None for batch in batches(worker))


def _fills_its_own(worker: WorkerRows) -> bool:
    """Whether it moves anything to pages of its own."""
    ends = (row for row in worker.transfers if row["op"] in ("post", "done", "fail"))
    return any(row["dir"] == "pull" or row["peer"] == worker.key[0] for row in ends)


def _own_ghosts(worker: WorkerRows, m: Missing) -> list[PoolGhost]:
    """Doubt that a worker's lost row leaves on its own pages."""
    if m.table in ("pages", "cache"):
        # A lost cache row may have been a load into a page, or the hit that entitled somebody to one.
        return [PoolGhost(m.worker, m.pool, None, m.lo, _last(m.hi), m.reason)]
    if m.table == "transfers":
        return [PoolGhost(m.worker, None, None, m.lo, _last(m.hi), m.reason)]
    if m.table == "steps" and worker.role != "prefill":
        # It hides what its requests wrote as they grew, and how far they had come.
        window = PoolGhost(m.worker, None, None, m.lo, _last(m.hi), m.reason)
        return [
            window,
            *(
                PoolGhost(m.worker, pool, pages, m.lo, until, m.reason)
                for pool, pages, until in grown_across(worker, m.lo, m.hi)
            ),
        ]
    if m.table == "requests" and worker.role == "decode":
        return [
            PoolGhost(m.worker, pool, pages, m.lo, until, m.reason)
            for pool, pages, until in read_across(worker, m.lo, m.hi)
        ]
    return []


def _last(hi: int) -> int:
    return hi if hi == INF else hi - 1


def _grants(worker: WorkerRows) -> list[Row]:
    return [row for row in worker.transfers if row["op"] == "grant" and row["dst_pages"] is not None]


def _far_ghost(at: WorkerKey, m: Missing, order: Order) -> PoolGhost:
    hi = INF if m.hi == INF else order.after(m.worker, m.hi, at)
    return PoolGhost(at, None, None, order.known(at, m.worker, m.lo), hi, m.reason)


Acks = dict[tuple[int, str | None], int]
"""The seq of the first ack that says "nothing outstanding", by (xfer, peer)."""


def _first_acks(worker: WorkerRows, status: str) -> Acks:
    first: Acks = {}
    for row in worker.transfers:
        if row["op"] == "ack" and row["status"] == status and row["outstanding"] == 0:
            first.setdefault((row["xfer"], row["peer"]), row["seq"])
    return first


def _grant_ghosts(
    at: WorkerKey, grant: Row, heard: Acks, by_name: dict[str, list[LostMover]], order: Order
) -> Iterator[PoolGhost]:
    """Doubt that the writers of one grant leave."""
    named = grant["writers"] or ()
    for writer in named or by_name:  # where it names nobody, anybody may have written
        drained = heard.get((grant["xfer"], writer), INF)
        if len(named) == 1:  # an ack of nobody in particular is the only writer's
            drained = min(drained, heard.get((grant["xfer"], None), INF))
        for mover in by_name.get(writer, ()):
            if mover.worker != at:
                yield from _writer_ghosts(at, grant, drained, mover, order)


def _writer_ghosts(at: WorkerKey, grant: Row, drained: int, mover: LostMover, order: Order) -> Iterator[PoolGhost]:
    """Doubt that one writer of one grant leaves: on the pool, since what it sent astray is not on the granted pages.

    A batch whose post is lost may last until the grant was `drained`. Where the writer may have lost a whole batch, its
    word that nothing is outstanding bounds nothing: the batch may have come after it.
    """
    seq, said = grant["seq"], mover.said.get(grant["xfer"])
    for m in mover.spans:
        far, is_bound = _far_ghost(at, m, order), m.alive or not mover.lost_batch
        if far.hi <= seq:
            continue  # what is lost came before the grant
        if is_bound and drained < INF and said is not None and m.lo >= said:
            continue  # what is lost came after the writer had said that nothing is outstanding
        hi = drained if is_bound else max(far.hi, drained)
        yield PoolGhost(at, grant["dst_pool"], None, max(far.lo, seq), hi, m.reason)


def _joined(ghosts: list[PoolGhost]) -> list[PoolGhost]:
    """Those of one pool and reason whose windows overlap, as one."""
    found: list[PoolGhost] = []
    for ghost in sorted((g for g in ghosts if g.lo < g.hi), key=lambda g: (g.pool or "", g.reason, g.lo, g.hi)):
        last = found[-1] if found else None
        if last is not None and (last.pool, last.reason) == (ghost.pool, ghost.reason) and ghost.lo <= last.hi:
            found[-1] = replace(last, hi=max(last.hi, ghost.hi))
        else:
            found.append(ghost)
    return found


WHOLE_PAGE = -1
"""Stands for the end of a ghost that covers all of its page, however many tokens that is known to hold."""


def ghost_run(ghost: PoolGhost) -> EventRun:
    """A ghost of named pages, as an event on each; `tok_hi` is WHOLE_PAGE."""
    page = (ghost.worker, ghost.pool or "", -1)
    event = ContentEvent(page, "ghost", 0, WHOLE_PAGE, ghost.lo, ghost.hi, reason=ghost.reason)
    pages = np.unique(as_ints(ghost.pages))
    return EventRun(event, pages, np.arange(len(pages)))


@dataclass(frozen=True)
class OwnRows:
    """Whether a request's own record is whole, and whether its end is known to be absent where it is absent."""

    complete: bool
    end_certain: bool


def own_rows(
    worker: WorkerRows, missing: list[Missing], lives: dict[int, tuple[int, int | None, int | None]]
) -> dict[int, OwnRows]:
    """Per request of one worker. `lives`: req -> (received seq, ended seq, page_rows of its end), None where not there.

    A request that ended is complete if its page rows are as many as it said (where it did not say, if no pages row of
    the worker is lost while it lived) and no steps or requests row is; one that did not end must have no lost row after
    its start at all. The open tail of a writer that is alive is no loss to a request that has not ended: it is judged as
    of now.
    """
    ends = {req: ended for req, (_, ended, _) in lives.items() if ended is not None}
    # What comes in a request's name after its end, such as a second free, it had not counted.
    counted = Counter(
        row["req"] for row in worker.pages if row["req"] is not None and row["seq"] < ends.get(row["req"], INF)
    )
    mine = [m for m in missing if m.worker == worker.key and not m.alive]
    found: dict[int, OwnRows] = {}
    for req, (received, ended, page_rows) in lives.items():
        end = ended if ended is not None else INF
        # Where its end says how many pages rows it had, these are counted instead.
        tables = ("steps", "requests", "pages") if page_rows is None else ("steps", "requests")
        overlapping = [m for m in mine if m.lo < end and m.hi > received and m.table in tables]
        complete = not overlapping and page_rows in (None, counted[req])
        certain = ended is not None or not any(m.table == "requests" and m.hi > received for m in mine)
        found[req] = OwnRows(complete, certain)
    return found
