"""Several ledgers looked at as one: their incidents, detections and events together, each row with the ledger it is of.

Invariant: made of readings and rollups of the ledgers, by name; nothing is judged here and no history is copied. An id may
stand in two ledgers, a key (`Incident.key`) in one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from console.core.detectors import Detector
from console.core.held_capacity import HeldFigure, WhatIf
from console.core.incidents import Incident
from console.core.latency import LatencyFigure, latency_figure
from console.core.ledger_names import ALL_LEDGERS
from console.core.merged_events import OWN_SOURCE, MergedEvents, in_time, with_source
from console.core.owners import Owners
from console.core.rollup import LATEST_EVENTS, Rollup
from console.core.sheet import SOURCE, Sheet
from console.core.snapshot import WHOLE, Snapshot
from console.core.triage import Entry
from forensics.catalogue import Column
from forensics.verdict import Verdict

_TABLES = ("detections", "detectors", "holders", "fast-prefill")
_TOTALS = ("detections", "holders", "events")


@dataclass(frozen=True)
class MergedRollup(Rollup):
    """The rollups of several ledgers, `parts` by name, as one. What is of one pool or length stays in its part."""

    parts: Mapping[str, Rollup]

    @property
    def name(self) -> str:
        """Of all of them."""
        return ALL_LEDGERS

    def of(self, incident: Incident) -> Rollup:
        """Of the ledger that an incident is of."""
        return self.parts[incident.source]

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents of all ledgers, as one ledger's stand: gravest first."""
        found = [replace(i, source=source) for source, part in self.parts.items() for i in part.incidents]
        return tuple(found[at] for at in _order(found))

    @cached_property
    def detectors(self) -> tuple[Detector, ...]:
        """None: each ledger's engine has its own."""
        return ()

    @cached_property
    def latency(self) -> LatencyFigure:
        """None: lengths of several engines are no figure."""
        part = next(iter(self.parts.values()))
        return latency_figure(*(part.tables[name].slice(0, 0) for name in ("fast-prefill", "prefill-times")))

    @cached_property
    def sheets(self) -> dict[str, Sheet]:
        """The tables that people filter, sort and export, by name, with a column that says of which ledger a row is."""
        return {name: replace(sheet, columns=_columns(sheet)) for name, sheet in super().sheets.items()}

    def _held(self, tried: WhatIf) -> tuple[HeldFigure, ...]:
        figures = [figure for part in self.parts.values() for figure in part.held_if(tried)]
        return tuple(sorted(figures, key=lambda f: -(f.share or 0.0)))


def merged_rollup(parts: Mapping[str, Rollup]) -> MergedRollup:
    """The rollups of ledgers by name, one at least, as one."""
    rollups = list(parts.values())
    tables = {name: _joined({s: part.tables[name] for s, part in parts.items()}) for name in _TABLES}
    incidents = _joined({source: part.tables["incidents"] for source, part in parts.items()})
    of_rows = [replace(i, source=source) for source, part in parts.items() for i in part.incidents]
    events = in_time(_joined({source: part.tables["events"] for source, part in parts.items()}))
    tables |= {
        "incidents": incidents.take(pa.array(_order(of_rows), pa.int64())),
        "events": events.slice(max(len(events) - LATEST_EVENTS, 0)),
    }
    totals = {name: sum(part.head["totals"][name] for part in rollups) for name in _TOTALS}
    head: dict[str, Any] = {
        "taken_us": min(part.taken_us for part in rollups), "first_us": _of(min, (part.first_us for part in rollups)),
        "data_us": _of(max, (part.data_us for part in rollups)), "judged_us": _of(max, (part.judged_us for part in rollups)),
        "writing": any(part.writing for part in rollups), "judging": sum(part.judging for part in rollups),
        "responses": sum(part.responses for part in rollups), "record_words": _record_words(parts),
        "counts": Counter({v.value: sum(part.counts[v] for part in rollups) for v in Verdict}), "totals": totals,
        "tenants": list(dict.fromkeys(tenant for part in rollups for tenant in part.head["tenants"])),
        "fingerprint": ",".join(part.fingerprint for part in rollups), "strip": None,
    }  # fmt: skip
    return MergedRollup(Path(ALL_LEDGERS), head, tables, dict(parts))


@dataclass(frozen=True, eq=False)
class Merged:
    """`rollups` and `records` of the ledgers that have any, by name: `records` are those that have been read. `missing`: the
    ledgers of which there is nothing yet, so that nothing is said of them.
    """

    rollups: Mapping[str, Rollup]
    records: Mapping[str, Snapshot]
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`3 LEDGERS`, `2 OF 3 LEDGERS`."""
        there = len(self.rollups)
        return f"{there} OF {there + len(self.missing)} LEDGERS" if self.missing else f"{there} LEDGERS"

    @cached_property
    def rollup(self) -> MergedRollup | None:
        """What the first screens draw from; None while there is nothing of any ledger."""
        return merged_rollup(self.rollups) if self.rollups else None

    @cached_property
    def events(self) -> MergedEvents:
        """The rows of all that have been read."""
        return MergedEvents({source: record.events for source, record in self.records.items()})

    @property
    def owners(self) -> Owners:
        """Tenants with their letters: a tenant has one, whichever ledgers name it."""
        assert self.rollup is not None
        return self.rollup.owners

    @cached_property
    def verdicts(self) -> pa.Table:
        """`source`, `rid` and `verdict` of every response that is judged."""
        return _joined({source: record.verdicts for source, record in self.records.items()})


Record = Snapshot | Merged
"""What has events: one ledger, or several."""


def said_of(source: str, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """What was said of one ledger's incidents, as it is said of them among those of several."""
    return tuple(replace(entry, incident=f"{source}:{entry.incident}") for entry in entries)


def _columns(sheet: Sheet) -> dict[str, Column]:
    own = {OWN_SOURCE if name == SOURCE else name: column for name, column in sheet.columns.items()}
    return {SOURCE: Column("the ledger that the row is of"), **own}


def _order(incidents: list[Incident]) -> list[int]:
    """Their places in the order of the library's query, those alike by ledger."""

    def key(at: int) -> tuple[Any, ...]:
        one = incidents[at]
        first = math.inf if one.first_seen_us is None else one.first_seen_us
        return one.severity, -one.counts[Verdict.CONTAMINATED], first, one.cause, one.source

    return sorted(range(len(incidents)), key=key)


def _joined(parts: Mapping[str, pa.Table]) -> pa.Table:
    return pa.concat_tables([with_source(source, rows) for source, rows in parts.items()], promote_options="default")


def _of(choose: Any, values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _record_words(parts: Mapping[str, Rollup]) -> str:
    """Of the ledgers whose record is not whole."""
    told = {source: part.record_words for source, part in parts.items() if part.record_words != WHOLE}
    return "; ".join(f"{source} {words}" for source, words in told.items()) or WHOLE
