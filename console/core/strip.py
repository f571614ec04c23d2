"""The page strip: a small page map for the overview, kept with a rollup.

Invariant: it is the page map of its area and nothing else; in what is kept, a cell is a byte and a mark a list of values.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from console.core.page_map import Area, PageMap, incident_area, page_map, whole_area
from console.core.page_marks import Marker

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

ROWS, COLS = 16, 240
MOST_MARKERS = 200


def strip_of(snapshot: Snapshot) -> PageMap | None:
    """Around the gravest incident that names pages, else all of the first pool; None where no pool has pages."""
    areas = (incident_area(snapshot, incident) for incident in snapshot.incidents)
    area = next((area for area in areas if area is not None), None)
    if area is None and snapshot.pools:
        area = whole_area(snapshot, *snapshot.pools[0])
    return None if area is None else page_map(snapshot, area, rows=ROWS, cols=COLS)


def packed(strip: PageMap | None) -> dict[str, Any] | None:
    """As it is kept."""
    if strip is None:
        return None
    area, kept = strip.area, strip.markers[:MOST_MARKERS]
    return {
        "area": [*area.key, area.pool, area.start_us, area.end_us, area.first_page, area.last_page],
        "pages_per_row": strip.pages_per_row, "bin_us": strip.bin_us, "shape": list(strip.cells.shape),
        "cells": base64.b64encode(strip.cells.tobytes()).decode(), "markers": [list(vars(marker).values()) for marker in kept],
        "left_out": strip.markers_left_out + len(strip.markers) - len(kept),
    }  # fmt: skip


def unpacked(kept: dict[str, Any] | None) -> PageMap | None:
    """As it was, without its tenures."""
    if kept is None:
        return None
    worker, epoch, pool, *rest = kept["area"]
    cells = np.frombuffer(base64.b64decode(kept["cells"]), np.uint8).reshape(kept["shape"])
    markers = tuple(Marker(*values) for values in kept["markers"])
    area = Area((worker, epoch), pool, *rest)
    return PageMap(area, kept["pages_per_row"], kept["bin_us"], cells, markers, kept["left_out"], (), 0)
