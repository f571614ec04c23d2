"""Lives of pages in one pool of one worker epoch, as its allocator recorded them.

Invariant: a life begins at a reserve or append and ends at the next free or reserve of the same page, whatever tag that
row believed in. Lives say who owned a page; what was in it is for `forensics` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.rows import Row, WorkerRows


@dataclass
class Life:
    """One page under one tag. Times in us of the worker's clock; ends are None while the life goes on."""

    page: int
    tag: int
    req: int | None
    pos: int
    start_seq: int
    start_us: int
    end_seq: int | None = None
    end_us: int | None = None
    cause: str | None = None
    held_us: int | None = None

    def covers(self, seq: int) -> bool:
        """Whether the life was going on at row `seq`."""
        return self.start_seq <= seq and (self.end_seq is None or seq < self.end_seq)


@dataclass
class PoolLives:
    """All lives of a pool, in the order in which they began, and by page."""

    lives: list[Life] = field(default_factory=list)
    by_page: dict[int, list[Life]] = field(default_factory=dict)
    highest_page: int = 0

    def of_page(self, page: int) -> list[Life]:
        """The page's lives in order."""
        return self.by_page.get(page, [])

    def at(self, page: int, seq: int) -> Life | None:
        """The life of the page at row `seq`."""
        return next((life for life in reversed(self.of_page(page)) if life.covers(seq)), None)

    def of_tag(self, page: int, tag: int) -> Life | None:
        """The page's life under `tag`."""
        return next((life for life in reversed(self.of_page(page)) if life.tag == tag), None)

    def of_request(self, req: int) -> Iterator[Life]:
        """The lives that belong to a request, in slot order."""
        return iter(
            sorted((life for life in self.lives if life.req == req), key=lambda life: (life.pos, life.start_seq))
        )


def pool_lives(worker: WorkerRows, pool: str) -> PoolLives:
    """Read the lives of `pool` from the worker's `pages` rows; rows whose page list is lost are left out."""
    found = PoolLives()
    for row in worker.pages:
        if row["pool"] != pool or row["pages"] is None:
            continue
        if row["op"] in ("reserve", "append"):
            _begin(found, row)
        elif row["op"] == "free":
            for page in row["pages"]:
                _end(found, page, row)
        elif row["op"] == "hold":
            for page in row["pages"]:
                if found.by_page.get(page):
                    found.by_page[page][-1].held_us = row["t"]
    return found


def _begin(found: PoolLives, row: Row) -> None:
    for offset, page in enumerate(row["pages"]):
        _end(found, page, row)
        life = Life(page, row["tag"], row["req"], (row["pos"] or 0) + offset, row["seq"], row["t"])
        found.lives.append(life)
        found.by_page.setdefault(page, []).append(life)
        found.highest_page = max(found.highest_page, page)


def _end(found: PoolLives, page: int, row: Row) -> None:
    lives = found.by_page.get(page)
    if lives and lives[-1].end_seq is None:
        lives[-1].end_seq, lives[-1].end_us, lives[-1].cause = row["seq"], row["t"], row["cause"]
