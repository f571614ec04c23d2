"""What a lost row of a mover's transfers must have been, where the rows that are left say so.

Invariant: only what cannot be otherwise is said here. An end (`done`, `fail`) has a `post`; so where one row is missing and
one end has none, that row was it. Where one row is missing and one post has no end, that row was its end only if it was
none of the other rows that such a mover writes. Of more than one missing row nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from forensics.loss import Missing
from forensics.order import INF
from forensics.rows import WorkerKey, WorkerRows
from forensics.transfer_batches import Batch, batches, name_of


@dataclass
class LostTransfers:
    """`posts`: (mover, seq of an end) -> the seq of its lost post. `ends`: (mover, seq of a post) -> that of its lost end.
    `left`: what is missing besides the posts."""

    posts: dict[tuple[WorkerKey, int], int] = field(default_factory=dict)
    ends: dict[tuple[WorkerKey, int], int] = field(default_factory=dict)
    left: list[Missing] = field(default_factory=list)

    def latest_end(self, mover: WorkerKey, post: int, drained: int) -> int:
        """The last seq at which a post without an end can have ended. `drained`: the mover's first ack that says that
        nothing is outstanding (INF: none)."""
        end = self.ends.get((mover, post), INF)
        return end if end < drained < INF else INF


def lost_transfers(workers: dict[WorkerKey, WorkerRows], missing: list[Missing]) -> LostTransfers:
    """What the rows that are left say of those of `missing`."""
    found = LostTransfers()
    by_mover: dict[WorkerKey, list[Missing]] = defaultdict(list)
    for m in missing:
        if m.table == "transfers" and m.worker in workers:
            by_mover[m.worker].append(m)
    known: set[Missing] = set()
    for mover, gaps in by_mover.items():
        if len(gaps) > 1 or gaps[0].hi - gaps[0].lo != 2:
            continue
        lost, made = gaps[0].lo + 1, list(batches(workers[mover]))
        ends = [batch.end for batch in made if batch.post is None and batch.end is not None]
        posts = [batch.post for batch in made if batch.end is None and batch.post is not None]
        if not ends and len(posts) == 1 and posts[0]["seq"] < lost and _had_no_other(mover, workers, made):
            found.ends[mover, posts[0]["seq"]] = lost
        # Of two batches of one name nobody can say whose post it was.
        is_one = len(ends) == 1 and sum(name_of(batch.lists) == name_of(ends[0]) for batch in made) == 1
        # An end that leaves its pages to its post has lost them with it.
        if is_one and ends[0]["seq"] > lost and None not in (ends[0]["dst_pages"], ends[0]["src_pages"]):
            found.posts[mover, ends[0]["seq"]] = lost
            known.add(gaps[0])
    found.left = [m for m in missing if m not in known]
    return found


def _had_no_other(mover: WorkerKey, workers: dict[WorkerKey, WorkerRows], made: list[Batch]) -> bool:
    """Whether every row that a mover writes besides its batches is there: one ack of each transfer that it moved, and every
    abort that others sent it. Of one that writes other rows, too, nobody can say."""
    acked: set[int] = set()
    heard = 0
    for row in workers[mover].transfers:
        if row["op"] == "ack" and row["status"] == "sent" and row["outstanding"] == 0:
            acked.add(row["xfer"])
        elif row["op"] == "abort" and row["status"] == "received":
            heard += 1
        elif row["op"] not in ("post", "done", "fail"):
            return False
    told = sum(
        row["op"] == "abort" and row["status"] == "sent" and row["peer"] in (None, mover[0])
        for key, worker in workers.items()
        if key != mover
        for row in worker.transfers
    )
    return told <= heard and acked >= {batch.lists["xfer"] for batch in made}
