"""Identities of handoffs that two requests had at once: rooms, transfer ids, destination generations.

Invariant: a collision names a mechanism and decides no content. One owner's attempts never collide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from forensics.order import INF
from forensics.rows import Row, WorkerKey, WorkerRows

OwnerOf = Callable[[WorkerKey, int | None], int]
"""Owner of a request on a worker; -1 = lost."""


@dataclass
class Collisions:
    """Rooms that two owners had open at once on one worker; transfers, and page generations filled for two owners."""

    rooms: set[tuple[WorkerKey, int]] = field(default_factory=set)
    xfers: set[int] = field(default_factory=set)
    pages: set[tuple[int, int]] = field(default_factory=set)
    """(destination tag, page)."""

    def of_row(self, mover: WorkerKey, target: WorkerKey, row: Row) -> bool:
        """Whether a transfer row goes by a room or transfer id that collided."""
        if row["xfer"] in self.xfers:
            return True
        return (mover, row["room"]) in self.rooms or (target, row["room"]) in self.rooms

    def of_grant(self, grant: Row, at: WorkerKey) -> bool:
        """Whether a grant went out under an identity that collided, here or at one of its writers."""
        if grant["xfer"] in self.xfers or (at, grant["room"]) in self.rooms:
            return True
        writers = set(grant["writers"] or ())
        return any(key[0] in writers and room == grant["room"] for key, room in self.rooms)


def collisions(workers: dict[WorkerKey, WorkerRows], owner_of: OwnerOf) -> Collisions:
    """Every collision of a ledger."""
    xfers: dict[int, set[int]] = defaultdict(set)
    tags: dict[int, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    found = Collisions()
    for key, worker in workers.items():
        found.rooms |= {(key, room) for room in _shared_rooms(worker, owner_of)}
        for row in worker.transfers:
            owner = owner_of(key, row["req"])
            if owner < 0 or row["op"] not in ("grant", "post", "done"):
                continue
            if row["xfer"] is not None:
                xfers[row["xfer"]].add(owner)
            if row["op"] != "grant" and row["dst_tag"]:
                tags[row["dst_tag"]][owner].append(row)
    found.xfers = {xfer for xfer, owners in xfers.items() if len(owners) > 1}
    for tag, by_owner in tags.items():
        found.pages |= {(tag, page) for page in _in_several(list(by_owner.values()))}
    return found


def _in_several(writers: list[list[Row]]) -> set[int]:
    """Destination pages that stand in the rows of more than one writer."""
    if len(writers) < 2:
        return set()
    pages = Counter(page for rows in writers for page in {p for row in rows for p in row["dst_pages"] or ()})
    return {page for page, count in pages.items() if count > 1}


def _shared_rooms(worker: WorkerRows, owner_of: OwnerOf) -> set[int]:
    """Rooms that requests of two owners had at once."""
    ends: dict[int, int] = {}
    opened: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in worker.requests:
        if row["op"] == "room" and row["room"] is not None:
            opened[row["room"]].append((row["seq"], row["req"]))
        elif row["op"] in ("finish", "abort"):
            ends[row["req"]] = row["seq"]
    shared = set()
    for room, takers in opened.items():
        for i, (_, req) in enumerate(takers):
            rivals = (taker for seq, taker in takers[i + 1 :] if seq < ends.get(req, INF))
            if any(_are_two(owner_of(worker.key, req), owner_of(worker.key, rival)) for rival in rivals):
                shared.add(room)
    return shared


def _are_two(one: int, other: int) -> bool:
    return one >= 0 and other >= 0 and one != other
