"""The events of several ledgers as one list in time, page by page.

Invariant: as in `events`: a page costs what one page of each ledger costs, however long their records are, and no history is
copied. Order: time, then the name of the ledger, then worker, epoch, seq; so that pages go on by key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from console.core.events import COLUMNS, PAGE, EventKey, EventPage, Events, key_at, keys_of
from console.core.filter_language import Filter, Term
from console.core.filter_rows import filter_rows
from console.core.sheet import SOURCE
from console.core.time_range import Span

OWN_SOURCE = "found_in"
MERGED_COLUMNS = pa.schema([(SOURCE, pa.string()), *COLUMNS])


class MergedEvents:
    """Events of ledgers by their names, with the interface of `Events`."""

    columns = MERGED_COLUMNS

    def __init__(self, parts: Mapping[str, Events]) -> None:
        self._parts = dict(parts)

    def __len__(self) -> int:
        return sum(len(events) for events in self._parts.values())

    def before(self, key: EventKey | None, wanted: Filter, span: Span, now_us: int, n: int = PAGE) -> EventPage:
        """The last `n` events before `key` (None = before the end of the range). Raises FilterError."""
        pages = {
            source: events.before(_own(source, key), own, span, now_us, n)
            for source, events, own in self._asked(wanted, now_us)
        }
        # From here on nothing is missing of any ledger.
        floor = max(_keys(pages, "earlier"), default=None)
        found = _in_order(pages)
        kept = [at for at, place in enumerate(keys_of(found)) if floor is None or place >= floor]
        rows = found.slice(kept[0]) if kept else found.slice(0, 0)
        if len(rows) > n:
            rows = rows.slice(len(rows) - n)
            floor = keys_of(rows.slice(0, 1))[0]
        is_last = key is None or not self.between(key, None, span)
        return self._page(rows, floor, key, floor, None if is_last else key, span)

    def after(self, key: EventKey | None, wanted: Filter, span: Span, now_us: int, n: int = PAGE) -> EventPage:
        """The first `n` events from `key` on (None = from the beginning of the range). Raises FilterError."""
        pages = {
            source: events.after(_own(source, key), own, span, now_us, n)
            for source, events, own in self._asked(wanted, now_us)
        }
        ceiling = min(_keys(pages, "later"), default=None)
        found = _in_order(pages)
        kept = [at for at, place in enumerate(keys_of(found)) if ceiling is None or place < ceiling]
        rows = found.slice(0, len(kept))
        if len(rows) > n:
            ceiling = keys_of(rows.slice(n, 1))[0]
            rows = rows.slice(0, n)
        is_first = key is None or not self.between(None, key, span)
        return self._page(rows, key, ceiling, None if is_first else key, ceiling, span)

    def all(self, wanted: Filter, span: Span, now_us: int) -> Iterator[pa.Table]:
        """Every event of the range that the filter leaves, in order, some thousands at a time. Raises FilterError."""
        coming = {source: events.all(own, span, now_us) for source, events, own in self._asked(wanted, now_us)}
        held: dict[str, pa.Table] = {}
        while True:
            for source in set(coming) - set(held):
                part = next(coming[source], None)
                if part is None:
                    del coming[source]
                else:
                    held[source] = with_source(source, part)
            if not held:
                return
            # Up to here the rows of every ledger are at hand.
            bound = min(key_at(part, len(part) - 1) for part in held.values())
            ripe = {source: _up_to(part, bound) for source, part in held.items()}
            yield in_time(pa.concat_tables([held[source].slice(0, n) for source, n in ripe.items()]))
            held = {source: held[source].slice(n) for source, n in ripe.items() if n < len(held[source])}

    def between(self, start: EventKey | None, end: EventKey | None, span: Span) -> int:
        """How many events of the range stand from `start` on and before `end`; None = as far as the range goes."""
        return sum(
            events.between(_own(source, start), _own(source, end), span) for source, events in self._parts.items()
        )

    def _asked(self, wanted: Filter, now_us: int) -> Iterator[tuple[str, Events, Filter]]:
        """The ledgers of which the filter leaves anything, and what it asks of their rows. Raises FilterError."""
        for source, events in self._parts.items():
            own = _filter_of(source, wanted, now_us)
            if own is not None:
                yield source, events, own

    def _page(
        self, rows: pa.Table, start: EventKey | None, end: EventKey | None, earlier: EventKey | None, later: EventKey | None, span: Span,
    ) -> EventPage:  # fmt: skip
        total = self.between(None, None, span)
        return EventPage(rows, self.between(start, end, span) - len(rows), earlier, later, total)


def _own(source: str, key: EventKey | None) -> EventKey | None:
    """Where one ledger's events go on at a place of the merged list."""
    if key is None:
        return None
    if source == key.source:
        return replace(key, source="")
    return EventKey(key.t_us + (source < key.source), "", 0, 0)


def _filter_of(source: str, wanted: Filter, now_us: int) -> Filter | None:
    """What a filter asks of the rows of one ledger; None = none of them can be left."""
    row, terms = pa.table({SOURCE: [source]}), list[Term]()
    for term in wanted.terms:
        if term.field not in (None, SOURCE):
            terms.append(term)
            continue
        is_left = len(filter_rows(Filter(term.text, (term,)), row, now_us).rows) > 0
        # Free text may stand in the name or in the row.
        if not is_left and (term.field == SOURCE or term.negated):
            return None
        if not is_left or (term.field is None and term.negated):
            terms.append(term)
    return Filter(wanted.text, tuple(terms))


def _keys(pages: Mapping[str, EventPage], end: str) -> Iterator[EventKey]:
    for source, page in pages.items():
        place: EventKey | None = getattr(page, end)
        if place is not None:
            yield replace(place, source=source)


def with_source(source: str, rows: pa.Table) -> pa.Table:
    """Rows of one ledger as they stand among those of several; a column of theirs that has that name is called `OWN_SOURCE`."""
    rows = rows.rename_columns([OWN_SOURCE if name == SOURCE else name for name in rows.column_names])
    return rows.add_column(0, SOURCE, pa.array([source] * len(rows), pa.string()))


def _in_order(pages: Mapping[str, EventPage]) -> pa.Table:
    parts = [with_source(source, page.rows) for source, page in pages.items()]
    return in_time(pa.concat_tables([MERGED_COLUMNS.empty_table(), *parts]))


def in_time(rows: pa.Table) -> pa.Table:
    """Events of several ledgers in their order."""
    return rows.sort_by([(name, "ascending") for name in ("t", SOURCE, "worker", "epoch", "seq")])


def _up_to(rows: pa.Table, bound: EventKey) -> int:
    """How many of the rows, which are in order, stand up to a place."""
    return bisect_right(range(len(rows)), bound, key=lambda at: key_at(rows, at))
