"""The charts by name: what each is made of, for one request.

Invariant: a chart of the first screens needs a rollup alone, so that it is there as soon as the page is; a page map and
the flows of an incident wait for the ledger.
"""

from __future__ import annotations

from collections.abc import Callable

from console.core.flows import flows_of
from console.core.held_capacity import HeldFigure, WhatIf, figure_looked_at
from console.core.latency import LatencyFigure, bucket_fault
from console.core.looking import incidents_left
from console.core.places import Place
from console.core.printable import printable
from console.core.rollup import Rollup
from console.core.view import View
from console.core.view_link import BadLink
from console.web.asked import Asked, PageNotFound, area_asked
from console.web.figure_style import Figure, point_at
from console.web.held_figure import held_chart
from console.web.incident_figures import sankey, swimlanes
from console.web.incident_marks import with_incidents
from console.web.kept import Kept
from console.web.latency_figure import latency_chart
from console.web.page_figure import page_map_figure
from forensics.rows import rows_of


class NotReadYet(Exception):
    """The ledger has not been read yet: the chart comes by itself when it has."""


def chart(name: str, asked: Asked, theme: str) -> Figure:
    """The chart of that name as Plotly takes it. Raises PageNotFound, NotReadYet, BadLink, FilterError."""
    if name not in _CHARTS:
        raise PageNotFound(f"There is no chart {printable(name)}. There are: {', '.join(_CHARTS)}.")
    if asked.desk.merged is not None:
        raise PageNotFound("Charts are of one ledger: name it in the place of all.")
    figure = _CHARTS[name](asked, theme)
    for at, is_mark in ((asked.view.cursor_us, False), (asked.view.mark_us, True)):
        if at is not None:
            point_at(figure, at, theme, is_mark=is_mark)
    return figure


def _rollup(asked: Asked) -> Rollup:
    if asked.rollup is None:
        raise NotReadYet
    return asked.rollup


def _counted(asked: Asked, place: Place) -> Rollup:
    counted = asked.counted(place)
    if counted is None:
        raise NotReadYet
    return counted


def _kept(asked: Asked) -> Kept:
    if asked.kept is None:
        raise NotReadYet
    return asked.kept


def _span(asked: Asked, *, whole: bool) -> tuple[int | None, int | None]:
    """The range for an axis: an open end is that of the record, or (not `whole`) that of the data."""
    known, span = _rollup(asked), asked.span
    if not whole and span.start_us is None and span.end_us is None:
        return None, None
    start = known.first_us if span.start_us is None else span.start_us
    return start, (known.data_us or 0) + 1 if span.end_us is None else span.end_us


def _swimlanes(asked: Asked, theme: str) -> Figure:
    known = _rollup(asked)
    return swimlanes(incidents_left(known, asked.looking), _span(asked, whole=True), theme)


def _held(asked: Asked, theme: str) -> Figure:
    figure = held_asked(_counted(asked, Place.HELD), asked.view)
    if figure is None:
        raise PageNotFound("No pool of this ledger has gauges.")
    return _marked(asked, held_chart(figure, _span(asked, whole=False), theme), theme)


def held_asked(known: Rollup, view: View) -> HeldFigure | None:
    """The pool that the view names, else the fullest; None where no pool has gauges. Raises PageNotFound, BadLink."""
    figure, fault = figure_looked_at(known.held_if(what_if(view)), view.pool)
    if fault:
        raise PageNotFound(f"{fault[:1].upper()}{fault[1:]}.")
    return figure


def what_if(view: View) -> WhatIf:
    """The rates that the view tries out. Raises BadLink."""
    rate, hold, pages = (_number(view, f"what_if.{name}") for name in ("rate", "t_hold", "pages"))
    return WhatIf(1.0 if rate is None else rate, hold, pages)


def _number(view: View, name: str) -> float | None:
    text = view.option(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e9:
        raise BadLink(f"{name} is {text!r}; it has to be a number from 0 to 1,000,000,000")
    return value


def latency_asked(asked: Asked, counted: Rollup) -> LatencyFigure:
    """The lengths that the address asks for, as they are `counted` of its range. Raises PageNotFound."""
    bucket = asked.view.option("bucket")
    fault = bucket_fault(_rollup(asked).latency, bucket)
    if fault:
        raise PageNotFound(f"{fault[0].upper()}{fault[1:]}.")
    return counted.latency.only(bucket)


def _latency(asked: Asked, theme: str) -> Figure:
    return _marked(
        asked,
        latency_chart(latency_asked(asked, _counted(asked, Place.LATENCY)), _span(asked, whole=False), theme),
        theme,
    )


def _marked(asked: Asked, figure: Figure, theme: str) -> Figure:
    known = _rollup(asked)
    return with_incidents(figure, incidents_left(known, asked.looking), _span(asked, whole=True), theme)


def _strip(asked: Asked, theme: str) -> Figure:
    known = _rollup(asked)
    if known.strip is None:
        raise PageNotFound("No pool of this ledger has pages.")
    return page_map_figure(known.owners, known.strip, theme)


def _pages(asked: Asked, theme: str) -> Figure:
    kept = _kept(asked)
    return page_map_figure(kept.snapshot.owners, kept.page_map(area_asked(kept.snapshot, asked)), theme)


def _flows(asked: Asked, theme: str) -> Figure:
    snapshot = _kept(asked).snapshot
    incident = snapshot.incident(asked.view.incident)
    if incident is None:
        raise PageNotFound(f"There is no incident {printable(asked.view.incident)} in this ledger.")
    return sankey(rows_of(flows_of(snapshot.readings(incident))), snapshot.owners, theme)


_CHARTS: dict[str, Callable[[Asked, str], Figure]] = {
    "swimlanes": _swimlanes, "held": _held, "latency": _latency, "strip": _strip, "pages": _pages, "flows": _flows,
}  # fmt: skip
