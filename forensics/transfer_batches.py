"""Batches of a transfer on its mover: each `post` joined with its end.

Invariant: an end belongs to the first post of its transfer, chunk, part and pool that has none yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.rows import Row, WorkerKey, WorkerRows


@dataclass(frozen=True)
class Batch:
    """One bounded batch of a transfer on its mover: its `post` and its `done` or `fail`, each None where not there."""

    mover: WorkerKey
    post: Row | None
    end: Row | None

    @property
    def lists(self) -> Row:
        """The row that names the pages; a `done` without lists means those of its `post`."""
        row = self.end or self.post or {}
        return row if row["dst_pages"] is not None else (self.post or row)


Name = tuple[int, int, int, str]
"""(xfer, chunk, part, destination pool)."""


def name_of(row: Row) -> Name:
    """By what a post and its end know each other."""
    return row["xfer"], row["chunk"] or 0, row["part"] or 0, row["dst_pool"] or ""


def batches(worker: WorkerRows) -> Iterator[Batch]:
    """Posts of a worker joined with their ends, in the order of the ends."""
    posts: dict[Name, list[Row]] = defaultdict(list)
    for row in worker.transfers:
        batch = name_of(row)
        if row["op"] == "post":
            posts[batch].append(row)
        elif row["op"] in ("done", "fail"):
            yield Batch(worker.key, posts[batch].pop(0) if posts[batch] else None, row)
    for left in posts.values():
        for post in left:
            yield Batch(worker.key, post, None)
