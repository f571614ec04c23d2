"""What the record says of each life beside its content: granted, failed, not returned, misdirected, collided.

Invariant: these flags name mechanisms; no verdict rests on one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from forensics.collisions import Collisions
from forensics.life_table import LifeTable, outside
from forensics.rows import Ints, Row, WorkerKey, WorkerRows, as_ints
from forensics.tiers import came_back
from forensics.transfer_batches import batches

TagPage = tuple[int, int]


@dataclass
class Outcomes:
    """Tags, or (tag, page), of which something is recorded."""

    granted: set[int] = field(default_factory=set)
    collided: set[int] = field(default_factory=set)
    misdirected: set[int] = field(default_factory=set)
    failed: set[TagPage] = field(default_factory=set)
    short: set[int] = field(default_factory=set)
    returned: set[TagPage] = field(default_factory=set)

    def of(self, tags: list[int | None], pages: list[int]) -> dict[str, list[bool]]:
        """The flags of lives, each of a tag on a page, as columns of the evidence table `tags`."""
        lives = list(zip(tags, pages, strict=True))
        return {
            "granted": [tag in self.granted for tag in tags], "failed": [life in self.failed for life in lives],
            "unreturned": [life[0] in self.short and life not in self.returned for life in lives],
            "misdirected": [tag in self.misdirected for tag in tags], "collided": [tag in self.collided for tag in tags],
        }  # fmt: skip


def outcomes(workers: dict[WorkerKey, WorkerRows], lives: LifeTable, collisions: Collisions) -> Outcomes:
    """The flags of every life of a ledger."""
    found = Outcomes()
    granted: dict[int, list[Ints]] = defaultdict(list)
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] == "grant" and row["dst_tag"]:
                found.granted.add(row["dst_tag"])
                if row["dst_pages"] is not None:
                    granted[row["dst_tag"]].append(as_ints(row["dst_pages"]))
                if collisions.of_grant(row, key):
                    found.collided.add(row["dst_tag"])
        for row in worker.cache:
            _take_load(found, row)
    for worker in workers.values():
        for batch in batches(worker):
            lists = batch.lists
            tag, pages = lists["dst_tag"], lists["dst_pages"]
            if not tag:
                continue
            if pages is not None and _is_misdirected(as_ints(pages), granted.get(tag) or _lived(lives, tag)):
                found.misdirected.add(tag)
            if batch.end is not None and batch.end["op"] == "fail":
                found.failed |= {(tag, page) for page in (pages if pages is not None else lives.pages_of(tag))}
    return found


def _is_misdirected(pages: Ints, allowed: list[Ints]) -> bool:
    """Whether some of `pages` are not among those allowed; False where nothing is known to be."""
    return bool(allowed) and len(outside(pages, allowed[0] if len(allowed) == 1 else np.concatenate(allowed))) > 0


def _lived(lives: LifeTable, tag: int) -> list[Ints]:
    """What stands for a grant that is not on record: the pages that the tag was on."""
    pages = lives.pages_of(tag)
    return [np.array(pages, np.int64)] if pages else []


def _take_load(found: Outcomes, row: Row) -> None:
    """A load that returned fewer keys than it was asked for leaves every other page of its tag as it was."""
    if row["op"] != "load" or row["tag"] is None or row["returned"] is None:
        return
    asked = row["asked"] if row["asked"] is not None else row["n"]
    if asked is not None and row["returned"] < asked:
        found.short.add(row["tag"])
        found.returned |= {(row["tag"], page) for page in came_back(row) or ()}
