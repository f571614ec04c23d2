"""Where rows are missing, something may have happened: ghosts, and requests whose own rows are incomplete.

Invariant: loss only ever adds doubt. A ghost stands wherever a lost row could have changed the content of a page;
it never says what happened there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np

from engine.ledger.reader import Gap, Ledger
from forensics.attending import grown_across, read_across
from forensics.content import ContentEvent, EventRun
from forensics.order import INF, NOTHING, Lost, Order
from forensics.rows import Pages, Row, WorkerKey, WorkerRows, as_ints

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
        reason = f"{gap.reason} in {gap.table} of {gap.worker}"
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
    """Ghosts of a worker's own lost rows, of lost mover rows under its grants, and of movers that are not there."""
    found: list[PoolGhost] = []
    lost_transfers = {m.worker for m in missing if m.table == "transfers" and workers[m.worker].role != "gateway"}
    for m in missing:
        found += _own_ghosts(workers[m.worker], m)
    for key, worker in workers.items():
        for pool in sorted({row["pool"] for row in worker.pages} - set(worker.configs)):
            found.append(
                PoolGhost(key, pool, None, NOTHING, INF, f"page size of pool {pool} lost in workers of {key[0]}")
            )
    mover_gaps: dict[str, list[Missing]] = defaultdict(list)
    for m in missing:
        if m.table == "transfers" and workers[m.worker].role != "gateway":
            mover_gaps[m.worker[0]].append(m)
    present = {key[0] for key, worker in workers.items() if worker.seqs}
    told = {key: _first_acks(worker, "sent") for key, worker in workers.items()} if mover_gaps else {}
    for key, worker in workers.items():
        heard = _first_acks(worker, "received")
        of_grants: list[PoolGhost] = []
        for grant in _grants(worker):
            for writer in grant["writers"] or ():
                drained = min(heard.get((grant["xfer"], writer), INF), heard.get((grant["xfer"], None), INF))
                of_grants += _grant_ghosts(
                    key, grant, drained, writer, mover_gaps[writer], writer in present, order, told
                )
        found += _joined(of_grants)
        if key in lost_transfers:  # a lost grant may have let any mover in
            for gaps in mover_gaps.values():
                found += [_far_ghost(key, m, order) for m in gaps if m.worker != key]
    return [ghost for ghost in found if ghost.lo < ghost.hi]


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
    at: WorkerKey,
    grant: Row,
    drained: int,
    writer: str,
    gaps: list[Missing],
    present: bool,
    order: Order,
    told: dict[WorkerKey, Acks],
) -> list[PoolGhost]:
    """Doubt that one writer of one grant leaves, until it was `drained`: on the pool, since what it sent astray is
    not on the granted pages."""
    pool, seq = grant["dst_pool"], grant["seq"]
    if not present:
        return [PoolGhost(at, pool, None, seq, drained, f"no record of {writer}")]
    found = []
    for m in gaps:
        said = min((s for (xfer, _), s in told[m.worker].items() if xfer == grant["xfer"]), default=None)
        if said is not None and drained != INF and m.lo >= said:
            continue  # what is lost came after the writer had said that nothing is outstanding
        far = _far_ghost(at, m, order)
        found.append(PoolGhost(at, pool, None, max(far.lo, seq), min(far.hi, drained), m.reason))
    return found


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

    A request that ended is complete if its page rows are as many as it said and no steps or requests row of
    the worker is lost while it lived; one that did not end must have no lost row after its start at all. The
    open tail of a writer that is alive is no loss to a request that has not ended: it is judged as of now.
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
        overlapping = [m for m in mine if m.lo < end and m.hi > received and m.table in ("steps", "requests")]
        if ended is not None:
            complete = not overlapping and (page_rows is None or page_rows == counted[req])
        else:
            complete = not overlapping and not any(m.table == "pages" and m.hi > received for m in mine)
        certain = ended is not None or not any(m.table == "requests" and m.hi > received for m in mine)
        found[req] = OwnRows(complete, certain)
    return found
