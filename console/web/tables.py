"""The tables by name, as pages show and files hold them, and their cells in words.

Invariant: a table and its file are the same rows in the same order; every text has been through `printable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from console.core.detectors import detectors_sheet
from console.core.flows import flows_of
from console.core.incident_tables import lineage_of, order_of, responses_sheet
from console.core.page_tables import allocations_sheet, marks_sheet
from console.core.places import Place
from console.core.printable import NOTHING, printable, ranges
from console.core.run_tables import RUN_TABLES
from console.core.sheet import Sheet, Shown, shown
from console.core.times import moment
from console.core.view import Sort
from console.web.asked import Asked, PageNotFound, area_asked
from console.web.charts import NotReadYet
from console.web.table_pages import Stretch, stretch

PLACES = {
    "incidents": Place.INCIDENTS, "detections": Place.INCIDENTS, "detectors": Place.OVERVIEW, "holders": Place.HELD,
    "latency": Place.LATENCY, "events": Place.EVENTS, "marks": Place.PAGES, "allocations": Place.PAGES,
    "flows": Place.PAGES, "responses": Place.PAGES, "lineage": Place.PAGES, "order": Place.PAGES,
    "runbooks": Place.RUNS, "runs": Place.RUNS,
}  # fmt: skip
"""The screen on which each table stands; those of an incident are named by it in their query."""

MAIN = {
    Place.OVERVIEW: "incidents", Place.INCIDENTS: "incidents", Place.INCIDENT: "responses", Place.PAGES: "marks",
    Place.HELD: "holders", Place.LATENCY: "latency", Place.EVENTS: "events", Place.RUNS: "runs",
}  # fmt: skip
"""The table that a screen's order and export are about."""


@dataclass(frozen=True)
class Heading:
    """A column of a table: its name, what it means, whether it holds numbers, how it is sorted, the address that does."""

    name: str
    meaning: str
    numeric: bool
    order: str
    link: str


@dataclass(frozen=True)
class Grid:
    """A table in words."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    words: str
    part: Stretch


def place_of(name: str) -> Place:
    """The screen of a table. Raises PageNotFound."""
    if name not in PLACES:
        raise PageNotFound(f"There is no table {printable(name)}. There are: {', '.join(PLACES)}.")
    return PLACES[name]


def sheet_asked(name: str, asked: Asked) -> Sheet:
    """The table of that name, but for that of events, which is as long as the record: of those, the last few.
    Raises PageNotFound, NotReadYet, BadLink, FilterError."""
    place_of(name)
    known = asked.rollup
    if known is None:
        raise NotReadYet
    if asked.desk.merged is not None and name not in known.sheets:
        raise PageNotFound(f"The table {name} is of one ledger: name it in the place of all.")
    if name == "detectors":
        return detectors_sheet(known.tables["detectors"])
    if name in known.sheets:
        return (asked.counted(PLACES[name]) or known).sheets[name]
    return _of_snapshot(name, asked)


def columns_of(name: str, asked: Asked) -> tuple[str, ...]:
    """The columns of a table. Raises PageNotFound, NotReadYet, BadLink, FilterError."""
    if name in RUN_TABLES:
        return tuple(RUN_TABLES[name].names)
    return tuple(sheet_asked(name, asked).rows.column_names)


def _of_snapshot(name: str, asked: Asked) -> Sheet:
    if asked.kept is None:
        raise NotReadYet
    snapshot = asked.kept.snapshot
    if name == "flows":
        incident = snapshot.incident(asked.view.incident)
        if incident is None:
            raise PageNotFound(f"There is no incident {printable(asked.view.incident)} in this ledger.")
        return Sheet("flows", flows_of(snapshot.readings(incident)))
    if name in ("responses", "lineage", "order"):
        return _of_incident(name, asked)
    drawn = asked.kept.page_map(area_asked(snapshot, asked))
    if name == "marks":
        return marks_sheet(drawn.markers, drawn.markers_left_out)
    return allocations_sheet(drawn.tenures, drawn.tenures_total - len(drawn.tenures))


def _of_incident(name: str, asked: Asked) -> Sheet:
    incident = asked.desk.incident_of(asked.view.incident)
    if incident is None:
        raise PageNotFound(f"There is no incident {printable(asked.view.incident)} in this ledger.")
    desk = asked.desk.open_incident(incident, asked.view.rid).select(page=asked.view.page)
    if name == "responses":
        return replace(responses_sheet(incident, desk.readings), name="responses", begins=None)
    lineage = desk.lineage()
    return lineage_of(lineage) if name == "lineage" else order_of(desk.story(lineage))


def left_of(sheet: Sheet, asked: Asked) -> Shown:
    """What the view leaves of a table. Raises FilterError."""
    return shown(sheet, asked.view, asked.span, asked.now_us)


def grid(sheet: Sheet, left: Shown, asked: Asked, most: int, columns: tuple[str, ...] = ()) -> Grid:
    """`most` rows in words, from where the address goes on. `columns`: which, in which order; none = those that a table shows."""
    named = columns or tuple(n for n in left.rows.column_names if n not in sheet.columns or sheet.columns[n].shown)
    part = stretch(sheet.name, left.rows, asked, most)
    seen = left.rows.slice(part.start, part.end - part.start)
    cells = [[_cell(name, value) for value in seen[name].to_pylist()] for name in named]
    words = (
        left.words
        if len(seen) == len(left.rows)
        else f"{part.start + 1:,} to {part.end:,} of {len(left.rows):,} rows here; {left.words}"
    )
    return Grid(tuple(_headings(sheet, left.rows, named, asked)), tuple(zip(*cells, strict=True)), words, part)


def _headings(sheet: Sheet, rows: pa.Table, named: tuple[str, ...], asked: Asked) -> Iterator[Heading]:
    for name in named:
        about = sheet.columns.get(name)
        meaning = f"{about.meaning}{f' ({about.unit})' if about.unit else ''}" if about else name
        sort, kind = asked.view.sort, rows.schema.field(name).type
        mine = sort is not None and sort.column == name
        order = ("descending" if sort and sort.descending else "ascending") if mine else "none"
        link = asked.link(sort=Sort(name, mine and order == "ascending"))
        yield Heading(name, meaning, pa.types.is_integer(kind) or pa.types.is_floating(kind), order, link)


def _cell(name: str, value: Any) -> str:
    for kinds, word in _WORDS:
        if isinstance(value, kinds):
            return word(name, value)
    return NOTHING if value is None else printable(str(value))


def _list(name: str, values: list[Any]) -> str:
    if all(isinstance(value, int) for value in values):
        return ranges(values)
    few = ", ".join(printable(str(value)) for value in values[:3])
    return f"{few} and {len(values) - 3:,} more" if len(values) > 3 else few or NOTHING


_WORDS: tuple[tuple[Any, Callable[[str, Any], str]], ...] = (
    (bool, lambda _, value: "yes" if value else "no"),
    (datetime, lambda _, value: moment(round(value.timestamp() * 1e6))),
    # Ids are numbers that are not counted.
    (int, lambda name, value: str(value) if name in ("page", "epoch", "seq", "room") else f"{value:,}"),
    (float, lambda _, value: f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"),
    (list, _list),
)  # fmt: skip
