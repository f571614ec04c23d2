"""What a lost row of a mover's transfers must have been, where the rows that are left say so.

Invariant: only what cannot be otherwise is said here. An end (`done`, `fail`) has a `post`; so where one row is missing and
one end has none, that row was it. And a mover that recorded everything since, and has said that nothing is outstanding,
cannot have ended a write later than the last of its rows that is missing before it said so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from forensics.loss import Missing
from forensics.order import INF
from forensics.rows import WorkerKey, WorkerRows
from forensics.transfer_batches import batches, name_of


@dataclass
class LostTransfers:
    """`posts`: (mover, seq of an end) -> the seq of its lost post. `gaps` by mover; `left`: what is missing besides."""

    posts: dict[tuple[WorkerKey, int], int] = field(default_factory=dict)
    gaps: dict[WorkerKey, list[Missing]] = field(default_factory=lambda: defaultdict(list))
    left: list[Missing] = field(default_factory=list)

    def latest_end(self, mover: WorkerKey, post: int, drained: int) -> int:
        """The last seq at which a post without an end can have ended. `drained`: the mover's first ack that says that
        nothing is outstanding (INF: none)."""
        after = max((m.hi for m in self.gaps.get(mover, ()) if m.hi > post + 1), default=INF)
        return after - 1 if after <= drained < INF else INF


def lost_transfers(workers: dict[WorkerKey, WorkerRows], missing: list[Missing]) -> LostTransfers:
    """What the rows that are left say of those of `missing`."""
    found = LostTransfers()
    for m in missing:
        if m.table == "transfers" and m.worker in workers:
            found.gaps[m.worker].append(m)
    known: set[Missing] = set()
    for mover, gaps in found.gaps.items():
        made = list(batches(workers[mover]))
        ends = [batch.end for batch in made if batch.post is None and batch.end is not None]
        is_one = len(gaps) == 1 and gaps[0].hi - gaps[0].lo == 2 and len(ends) == 1
        # Of two batches of one name nobody can say whose post it was.
        is_one = is_one and sum(name_of(batch.lists) == name_of(ends[0]) for batch in made) == 1
        # An end that leaves its pages to its post has lost them with it.
        if is_one and ends[0]["seq"] >= gaps[0].hi and None not in (ends[0]["dst_pages"], ends[0]["src_pages"]):
            found.posts[mover, ends[0]["seq"]] = gaps[0].lo + 1
            known.add(gaps[0])
    found.left = [m for m in missing if m not in known]
    return found
