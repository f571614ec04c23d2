"""What was worked out of one snapshot, for whoever asks next: its events in order, and page maps.

Invariant: all of it is of the one snapshot; a map that was asked for again is the same map.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

from console.core.events import Events
from console.core.page_map import Area, PageMap, page_map
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot

MOST_MAPS = 32


@dataclass(frozen=True)
class Pinned:
    """What was shown when somebody paused: the reading, and its live edge."""

    kept: Kept
    live: Rollup | None


class Kept:
    """Of `snapshot`. Used from threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._maps: OrderedDict[Area, PageMap] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def events(self) -> Events:
        """Its events."""
        return self.snapshot.events

    def page_map(self, area: Area) -> PageMap:
        """The map of an area, as fine as maps are."""
        with self._lock:
            if area in self._maps:
                self._maps.move_to_end(area)
                return self._maps[area]
        drawn = page_map(self.snapshot, area)
        with self._lock:
            self._maps[area] = drawn
            while len(self._maps) > MOST_MAPS:
                self._maps.popitem(last=False)
        return drawn
