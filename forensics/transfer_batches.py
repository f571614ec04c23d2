"""Batches of a transfer on its mover: each `post` joined with its end.

Invariant: an end belongs to the first post of its transfer, chunk, part and pool that has none yet. What was posted
and no end speaks of is a batch of its own, without an end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forensics.rows import Row, WorkerKey, WorkerRows, as_ints


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
    narrow: list[tuple[Row, Row]] = []
    alone: dict[Name, list[Row]] = defaultdict(list)
    for row in worker.transfers:
        batch = name_of(row)
        if row["op"] == "post":
            posts[batch].append(row)
        elif row["op"] in ("done", "fail"):
            post = posts[batch].pop(0) if posts[batch] else None
            if post is None:
                alone[batch].append(row)
            else:
                narrow.append((post, row))
            yield Batch(worker.key, post, row)
    for left in posts.values():
        for post in left:
            yield Batch(worker.key, post, None)
    for post, end in narrow:
        rest = _without(post, [end, *(one for one in alone[name_of(post)] if one["seq"] > end["seq"])])
        if rest is not None:
            yield Batch(worker.key, rest, None)


def _without(post: Row, ends: list[Row]) -> Row | None:
    """A post of those of its pages, whole, that none of `ends` lists; None where there are none."""
    if post["dst_pages"] is None or ends[0]["dst_pages"] is None:
        return None
    posted = as_ints(post["dst_pages"])
    ended = [as_ints(end["dst_pages"]) for end in ends if end["dst_pages"] is not None]
    if np.array_equal(posted, ended[0]):
        return None
    rest = ~np.isin(posted, np.concatenate(ended))
    if not rest.any():
        return None
    sources = as_ints(post["src_pages"]) if post["src_pages"] is not None else None
    return post | {
        "dst_pages": posted[rest], "src_pages": sources[rest] if sources is not None and len(sources) == len(rest) else None,
        "tok_off": None, "tokens": None, "pos": None, "digests": None, "n": int(rest.sum()),
    }  # fmt: skip
