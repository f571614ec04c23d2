"""Rooms at prefill for which request or grant is still to come, and what the one that comes too late is to be told.

Invariant: a request and a grant meet in the order in which each came to its room; several of one kind in a room
happen only where rooms are not checked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from engine.request import Request, RequestError
from engine.transfer import Grant

REMEMBERED_REFUSALS = 4096
Waiting = TypeVar("Waiting", Request, Grant)


class PrefillBootstrapQueue:
    """See the module."""

    def __init__(self) -> None:
        self.requests: dict[int, list[Request]] = {}
        self.grants: dict[int, list[Grant]] = {}
        self.refused: OrderedDict[int, RequestError] = OrderedDict()

    def refuse(self, room: int, error: RequestError) -> None:
        """Remember why `room` is dead. What never comes to ask is forgotten, the oldest first."""
        self.refused[room] = error
        while len(self.refused) > REMEMBERED_REFUSALS:
            self.refused.popitem(last=False)

    def add_request(self, request: Request) -> None:
        """A request waits for its room's grant."""
        self.requests.setdefault(request.given.room, []).append(request)

    def add_grant(self, grant: Grant) -> None:
        """A grant waits for its room's request."""
        self.grants.setdefault(grant.room, []).append(grant)

    def take_request(self, room: int, request: Request | None = None) -> Request | None:
        """The first (or this) request of a room, out of the queue; None where it is not there."""
        return _take(self.requests, room, request)

    def take_grant(self, room: int, grant: Grant | None = None) -> Grant | None:
        """The first (or this) grant of a room, out of the queue; None where it is not there."""
        return _take(self.grants, room, grant)

    def grant_of(self, xfer: int, room: int) -> Grant | None:
        """The grant of a transfer that waits in its room."""
        return next((grant for grant in self.grants.get(room, []) if grant.xfer == xfer), None)

    def of_peer(self, decode: str) -> list[Grant]:
        """Every waiting grant of one decode worker."""
        return [grant for waiting in self.grants.values() for grant in waiting if grant.decode == decode]

    def pair(self, room: int) -> tuple[Request, Grant] | None:
        """The next request and grant that meet in a room, both out of the queue."""
        if room not in self.requests or room not in self.grants:
            return None
        request, grant = _take(self.requests, room, None), _take(self.grants, room, None)
        return None if request is None or grant is None else (request, grant)


def _take(rooms: dict[int, list[Waiting]], room: int, wanted: Waiting | None) -> Waiting | None:
    waiting = rooms.get(room, [])
    place = next((i for i, one in enumerate(waiting) if wanted is None or one is wanted), None)
    if place is None:
        return None
    taken = waiting.pop(place)
    if not waiting:
        del rooms[room]
    return taken
