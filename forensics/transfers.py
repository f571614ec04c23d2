"""What transfers brought: landings on destination pages, and what may have landed without a `done`.

Invariant: `done` lands somewhere in (post, done], and it brings whatever the source page held then; who claims to
have sent it changes nothing. What may have landed without one is a ghost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from engine.ledger.tag import split_tag
from forensics.collisions import Collisions
from forensics.content import AUTHORITATIVE, OWN_RANK, SUBORDINATE, ContentEvent, EventRun, Source, part_of, run_of
from forensics.geometry import SIZE, flaw_of, pages_hit
from forensics.loss import PoolGhost
from forensics.lost_transfers import LostTransfers
from forensics.order import INF, NOTHING, Order
from forensics.rows import Ints, Row, WorkerKey, WorkerRows, as_ints
from forensics.transfer_batches import Batch, batches

OTHER_SIZE = "page geometry differs"
TAKES = frozenset({"reserve", "append", "free", "scrub"})
"""What ends a page's time under a tag, or begins another."""


@dataclass(frozen=True)
class Ends:
    """Both ends of one transfer row, as worker epochs."""

    mover: WorkerKey
    source: WorkerKey
    target: WorkerKey


@dataclass
class Transfers:
    """The transfers of a ledger, with what is needed to place them."""

    workers: dict[WorkerKey, WorkerRows]
    order: Order
    collisions: Collisions
    lost: LostTransfers
    by_place: dict[tuple[int, int], WorkerKey] = field(default_factory=dict)
    drained: dict[tuple[WorkerKey, int], int] = field(default_factory=dict)
    heard: dict[tuple[WorkerKey, int, str], int] = field(default_factory=dict)
    """(worker, transfer, peer) -> the seq at which that peer told it first that nothing is outstanding."""
    leases: dict[tuple[str, int], WorkerKey] = field(default_factory=dict)
    """(worker, transfer) -> which epoch of it granted the pull."""
    lent: dict[tuple[WorkerKey, int], dict[int, int]] = field(default_factory=dict)
    """(worker, transfer) -> page -> tag, of what was granted to be pulled."""
    boundless: dict[tuple[WorkerKey, str], tuple[int, int]] = field(default_factory=dict)
    """(lo, hi] by pool in which something came from, or to, pages of which nobody knows the size."""

    def __post_init__(self) -> None:
        for key, worker in self.workers.items():
            if worker.ordinal is not None:
                self.by_place[worker.ordinal, key[1]] = key
            for row in worker.transfers:
                if row["op"] == "ack" and row["status"] == "sent" and row["outstanding"] == 0:
                    self.drained.setdefault((key, row["xfer"]), row["seq"])
                elif row["op"] == "ack" and row["status"] == "received" and row["outstanding"] == 0:
                    self.heard.setdefault((key, row["xfer"], row["peer"]), row["seq"])
                elif row["op"] == "grant" and row["dir"] == "pull":
                    self.leases.setdefault((key[0], row["xfer"]), key)
                    if row["src_pages"] is not None and row["src_tag"] is not None:
                        lent = self.lent.setdefault((key, row["xfer"]), {})
                        lent.update(dict.fromkeys(row["src_pages"], row["src_tag"]))

    def landings(self) -> list[EventRun]:
        """Every landing, and a ghost for what may have landed."""
        return [event for worker in self.workers.values() for batch in batches(worker) for event in self._events(batch)]

    def ghosts(self) -> list[PoolGhost]:
        """Doubt about whole pools. Only after `landings`."""
        return [PoolGhost(*at, None, *window, OTHER_SIZE) for at, window in self.boundless.items()]

    def ends(self, mover: WorkerKey, row: Row) -> Ends:
        """Source and target of a row: the mover is the source in push, the target in pull."""
        far_tag = row["src_tag"] if row["dir"] == "pull" else row["dst_tag"]
        far = (row["peer"], mover[1])
        if row["peer"] == mover[0]:
            far = mover
        elif far_tag:
            parts = split_tag(far_tag)
            far = self.by_place.get((parts.ordinal, parts.epoch), (row["peer"], parts.epoch))
            far = far if far[0] == row["peer"] else (row["peer"], parts.epoch)
        elif row["dir"] == "pull":
            far = self.leases.get((row["peer"], row["xfer"]), far)
        return Ends(mover, far, mover) if row["dir"] == "pull" else Ends(mover, mover, far)

    def _events(self, batch: Batch) -> Iterator[EventRun]:
        lists, end = batch.lists, batch.end
        if end is not None and end["op"] == "fail" and end["bytes"] == 0:
            return
        if not lists or lists["dst_pages"] is None:
            return
        ends = self.ends(batch.mover, lists)
        target = self.workers.get(ends.target)
        if target is None:
            return
        window, (part, parts) = self._window(batch, ends.target), part_of(lists)
        flaw = self._flaw(ends, lists, parts)
        if flaw == SIZE:
            yield from self._spilled(ends, lists, window)
        if end is None or end["op"] != "done":
            reason = "failed transfer, bytes unknown" if end else "transfer posted, outcome not known"
            for span in target.spans(lists["dst_pool"], lists["dst_pages"], lists):
                page = (ends.target, lists["dst_pool"], -1)
                ghost = ContentEvent(page, "ghost", span.tok_lo, span.tok_hi, *window, reason=reason)
                yield EventRun(ghost, span.pages, span.index)
            return
        t_lo, t_hi = self._bound(batch.post, ends, 0), self._bound(end, ends, 1)
        collided, acked = self.collisions.of_row(batch.mover, ends.target, lists), self._acked(batch)
        authority, measured = self._authority(ends), end if end["digests"] else lists
        many = frozenset(page for tag, page in self.collisions.pages if tag == lists["dst_tag"])
        source, sources = self._source(batch, ends, lists), as_ints(lists["src_pages"])
        tags = self._source_tags(source, lists, sources)
        for span in target.spans(lists["dst_pool"], lists["dst_pages"], lists):
            event = ContentEvent(
                (ends.target, lists["dst_pool"], -1), "landing", span.tok_lo, span.tok_hi, *window, t_lo, t_hi,
                None, lists["dst_tag"], part, parts, batch.mover, batch.post["seq"] if batch.post else None, end["seq"],
                pos=lists["pos"], authority=authority, flaw=flaw, acked=acked, collided=collided,
            )  # fmt: skip
            tag_at = np.full(len(span.index), NOTHING)
            told = span.index < len(tags)
            tag_at[told] = tags[span.index[told]]
            for tag in np.unique(tag_at).tolist():
                here = tag_at == tag
                come = event if source is None or tag == NOTHING else replace(event, source=replace(source, tag=tag))
                listed = None if come is event else sources
                yield EventRun(come, span.pages[here], span.index[here], measured["digests"], listed, many)

    def _source(self, batch: Batch, ends: Ends, lists: Row) -> Source | None:
        if lists["src_pages"] is None or ends.source not in self.workers:
            return None
        lo, hi = self._window(batch, ends.source)
        return Source(
            (ends.source, lists["src_pool"], -1), lo, hi, lists["src_tag"] or 0, *self._surely(batch, ends.source)
        )

    def _source_tags(self, source: Source | None, lists: Row, sources: Ints) -> Ints:
        """The tag of each source page; NOTHING where nobody knows it, in which case its content is not known.

        A puller may not know the tags of what it reads. Then a page counts as read under the tag under which it was
        granted; one that was not, under the tag that it certainly had before the read: whose it was, the source says.
        """
        if source is None:
            return np.full(len(sources), NOTHING)
        if lists["src_tag"] is not None or lists["dir"] != "pull":
            return np.full(len(sources), source.tag)
        key, pool = source.page[0], source.page[1]
        tags = dict(self.lent.get((key, lists["xfer"]), {}))
        if wanted := set(sources.tolist()) - set(tags):
            tags |= _given(self.workers[key], pool, wanted, source.lo)
        return np.array([tags.get(page, NOTHING) for page in sources.tolist()], np.int64)

    def _window(self, batch: Batch, at: WorkerKey) -> tuple[int, int]:
        """(lo, hi] in the seq of worker `at` between a batch's post and its done on the mover."""
        post, done = self._placed(batch)
        if at == batch.mover:
            return post, done
        lo = self.order.known(at, batch.mover, post) if post != NOTHING else NOTHING
        hi = self.order.after(batch.mover, done, at) if done != INF else INF
        return lo, hi

    def _placed(self, batch: Batch) -> tuple[int, int]:
        """The seqs on the mover between which a batch was under way; NOTHING and INF where they are not known."""
        post: int = batch.post["seq"] if batch.post else NOTHING
        if batch.end is None:
            drained = self.drained.get((batch.mover, batch.lists["xfer"]), INF)
            latest = self.lost.latest_end(batch.mover, post, drained)
            return post, latest if latest < INF and self._keeps(batch, drained) else INF
        end: int = batch.end["seq"]
        return post if batch.post else self.lost.posts.get((batch.mover, end), NOTHING), end

    def _keeps(self, batch: Batch, drained: int) -> bool:
        """Whether the destination's pages certainly stayed under the tag that they were granted under until their worker
        knew that nothing is outstanding. What may have landed in somebody else's time stays in doubt without an end."""
        lists, ends = batch.lists, self.ends(batch.mover, batch.lists)
        target = self.workers.get(ends.target)
        if target is None or not lists["dst_tag"] or lists["dst_pages"] is None:
            return False
        heard = (
            drained if ends.target == batch.mover else self.heard.get((ends.target, lists["xfer"], batch.mover[0]), INF)
        )
        since, pages = split_tag(lists["dst_tag"]).seq, set(lists["dst_pages"])
        if heard == INF or bisect_right(target.seqs, heard) - bisect_right(target.seqs, since) != heard - since:
            return False
        return not any(
            row["op"] in TAKES and row["pool"] == lists["dst_pool"] and since < row["seq"] < heard
            and (row["pages"] is None or pages.intersection(row["pages"]))
            for row in target.pages
        )  # fmt: skip

    def _surely(self, batch: Batch, at: WorkerKey) -> tuple[int, int]:
        """[since, until] of the seq of worker `at` that certainly lies between a batch's post and its done."""
        if batch.post is None or batch.end is None:
            return INF, NOTHING
        post, done = batch.post["seq"], batch.end["seq"]
        if at == batch.mover:
            return post + 1, done - 1
        return self.order.after(batch.mover, post, at), self.order.known(at, batch.mover, done)

    def _bound(self, row: Row | None, ends: Ends, side: int) -> int | None:
        return None if row is None else self.order.bounds(row["t"], ends.mover, ends.target)[side]

    def _acked(self, batch: Batch) -> bool:
        """Whether the mover had said before this `done` that nothing was outstanding any more."""
        if batch.end is None:
            return False
        return self.drained.get((batch.mover, batch.end["xfer"]), INF) < batch.end["seq"]

    def _authority(self, ends: Ends) -> int | None:
        """Last pipeline stage and the target's own rank; None where a `start` row is lost."""
        mover, target = self.workers[ends.mover].start, self.workers[ends.target].start
        if ends.mover == ends.target:
            return OWN_RANK
        if mover is None or target is None:
            return None
        last = (mover["pp_size"] or 1) <= 1 or mover["pp_rank"] == mover["pp_size"] - 1
        own = (mover["tp_size"] or 1) <= 1 or mover["tp_rank"] == target["tp_rank"]
        return AUTHORITATIVE if last and own else SUBORDINATE

    def _flaw(self, ends: Ends, lists: Row, parts: int) -> str | None:
        source, target = self.workers.get(ends.source), self.workers[ends.target]
        if source is None or (source.key == target.key and lists["src_pool"] == lists["dst_pool"]):
            return None
        ranks = (source.ranks, target.ranks)
        return flaw_of(source.configs.get(lists["src_pool"]), target.configs.get(lists["dst_pool"]), parts, ranks)

    def _spilled(self, ends: Ends, lists: Row, window: tuple[int, int]) -> Iterator[EventRun]:
        """Where the two ends count pages in different bytes, nobody can say which pages were hit."""
        source, target, pool = self.workers[ends.source], self.workers[ends.target], lists["dst_pool"]
        configs = source.configs.get(lists["src_pool"]), target.configs.get(pool)
        if configs[0] is None or configs[1] is None:
            lo, hi = self.boundless.get((ends.target, pool), window)
            self.boundless[ends.target, pool] = min(lo, window[0]), max(hi, window[1])
            return
        (lo, hi), sizes = window, [config["page_bytes"] for config in configs if config is not None]
        for number in sorted(pages_hit(lists["dst_pages"], sizes[0], sizes[1]) - set(lists["dst_pages"])):
            page = (ends.target, pool, number)
            yield run_of(ContentEvent(page, "ghost", 0, target.unit(pool), lo, hi, reason=OTHER_SIZE))


def _given(worker: WorkerRows, pool: str, pages: set[int], until: int) -> dict[int, int]:
    """Page -> the tag that it had when row `until` of its worker was written, where no row that may say otherwise is lost."""
    given: dict[int, Row] = {}
    for row in worker.pages:
        if row["op"] in ("reserve", "append") and row["pool"] == pool and row["seq"] <= until:
            given |= dict.fromkeys(pages.intersection(row["pages"] or ()), row)
    seqs = worker.seqs
    return {
        page: row["tag"]
        for page, row in given.items()
        if bisect_right(seqs, until) - bisect_right(seqs, row["seq"]) == until - row["seq"]
    }
