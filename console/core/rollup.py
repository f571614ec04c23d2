"""What the first screens show of a ledger, as plain tables: small however long the record is, and kept between openings.

Invariant: a rollup is made of one snapshot and says of which; of what came later it has the live edge at most, and says
so. It holds no page of the record, so that what needs one (lineage, page map, events before the latest) waits for the
snapshot.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from console.core.detectors import Detector, detector_rows, detectors
from console.core.filter_language import Filter
from console.core.held_capacity import HeldFigure, Rates, WhatIf, held_figure, held_series, hold_rates
from console.core.incidents import STANDING, Incident, incidents_of
from console.core.latency import LatencyFigure, latency_figure
from console.core.library_rows import query_named
from console.core.owners import Owners, name_owners
from console.core.page_map import PageMap
from console.core.sheet import Sheet
from console.core.stretch_stats import Stats, gauge_stats
from console.core.strip import packed, strip_of, unpacked
from console.core.time_range import Span
from forensics.catalogue import Column
from forensics.rows import rows_of
from forensics.verdict import Verdict

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

_COURSE = "held-course"
"""The table of a rollup over a range: rows of `held_series` of it."""
MOST_DETECTIONS, MOST_HOLDERS, LATEST_EVENTS = 2000, 500, 50
_OF_THE_READING: dict[str, frozenset[str]] = {
    "counts": frozenset(), "incidents": frozenset({"incidents"}), "owners": frozenset({"incidents"}),
    "detectors": frozenset({"detectors"}), "strip": frozenset(), "latency": frozenset({"fast-prefill", "prefill-times"}),
    "held": frozenset({"held", "holders", "pools"}),
}  # fmt: skip
"""What is worked out of a rollup once, and of which of its tables."""


@dataclass(frozen=True)
class Rollup:
    """`head`: what is one value (see `rollup_of`); `tables`: by name. `path`: where the ledger is."""

    path: Path
    head: dict[str, Any]
    tables: dict[str, pa.Table]

    @property
    def name(self) -> str:
        """The ledger's directory name."""
        return self.path.resolve().name

    @property
    def taken_us(self) -> int:
        """When the ledger was read, us UTC."""
        return int(self.head["taken_us"])

    @property
    def first_us(self) -> int | None:
        """Time of the first row of any table."""
        return self.head["first_us"]  # type: ignore[no-any-return]

    @property
    def data_us(self) -> int | None:
        """Time of the last row of any table."""
        return self.head["data_us"]  # type: ignore[no-any-return]

    @property
    def judged_us(self) -> int | None:
        """Time of the last row that verdicts and figures are made of; `data_us`, but where there is a live edge."""
        return self.head.get("judged_us", self.data_us)

    @property
    def writing(self) -> bool:
        """Whether a writer was alive."""
        return bool(self.head["writing"])

    @property
    def judging(self) -> int:
        """Responses that were not judged yet."""
        return int(self.head["judging"])

    @property
    def responses(self) -> int:
        """Responses, those that are not judged yet among them."""
        return int(self.head["responses"])

    @property
    def rows(self) -> int:
        """Rows of all tables of the record."""
        return int(self.head["totals"]["events"])

    @property
    def record_words(self) -> str:
        """How whole the record is, in a few words."""
        return str(self.head["record_words"])

    @property
    def fingerprint(self) -> str:
        """Of the files it was made from: another means that the ledger has grown since."""
        return str(self.head["fingerprint"])

    def incident(self, incident_id: str | None) -> Incident | None:
        """The incident of that key, or of that id where no other has it, upper or lower case."""
        wanted = (incident_id or "").lower()
        by_key = [incident for incident in self.incidents if incident.key.lower() == wanted]
        found = by_key or [incident for incident in self.incidents if incident.id.lower() == wanted]
        return found[0] if len(found) == 1 else None

    def of(self, incident: Incident) -> Rollup:
        """Of the ledger that an incident is of."""
        assert not incident.source
        return self

    def span(self, incident_id: str) -> Span | None:
        """From the first to the last of an incident; None = there is none, or its times are not known."""
        incident = self.incident(incident_id)
        return Span(incident.first_seen_us, incident.last_seen_us) if incident else None

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """Responses by verdict."""
        return {verdict: int(self.head["counts"][verdict.value]) for verdict in Verdict}

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents, gravest first."""
        return incidents_of(self.tables["incidents"], self.writing)

    @cached_property
    def owners(self) -> Owners:
        """Tenants with their letters, the same as in the snapshot."""
        involved = {t for incident in self.incidents for t in (*incident.donor_tenants, *incident.reader_tenants)}
        return name_owners(self.head["tenants"], frozenset(involved))

    @cached_property
    def detectors(self) -> tuple[Detector, ...]:
        """The detectors, those that saw something first."""
        return detectors(self.tables["detectors"])

    @cached_property
    def strip(self) -> PageMap | None:
        """A small page map around the gravest incident; None where no pool has pages."""
        return unpacked(self.head["strip"])

    @cached_property
    def latency(self) -> LatencyFigure:
        """Prefill times by length."""
        return latency_figure(self.tables["fast-prefill"], self.tables["prefill-times"])

    @cached_property
    def held(self) -> tuple[HeldFigure, ...]:
        """One figure per pool that has gauges, the fullest of held pages first."""
        return self._held(WhatIf())

    def held_if(self, tried: WhatIf) -> tuple[HeldFigure, ...]:
        """The same with other rates tried out."""
        return self.held if tried == WhatIf() else self._held(tried)

    def _held(self, tried: WhatIf) -> tuple[HeldFigure, ...]:
        series, holders = _by_pool(self.tables["held"]), rows_of(self.tables["holders"])
        rates = {(row["worker"], row["pool"]): row for row in rows_of(self.tables["pools"])}
        figures = []
        for key, pool in rates.items():
            mine = series.get(key, self.tables["held"].slice(0, 0))
            of_pool = tuple(row for row in holders if (row["worker"], row["pool"]) == key)
            measured = Rates(pool["short_per_s"], pool["long_per_s"], pool["hold_s"], pool["pages_each"])
            figures.append(held_figure(mine, measured, of_pool, pool["pool_pages"], self.data_us or 0, tried))
        fullest_first = tuple(sorted(figures, key=lambda f: -(f.share or 0.0)))
        course = self.tables.get(_COURSE)
        return _on_course(fullest_first, course, self.tables["held-stats"])

    @cached_property
    def sheets(self) -> dict[str, Sheet]:
        """The tables that people filter, sort and export, by name."""
        return {
            "incidents": Sheet(
                "incidents", self.tables["incidents"], {**_columns("incidents"), **STANDING}, "first", "last"
            ),
            "detections": self._latest("detections", "detections", "t"),
            "holders": self._latest("holders", "holders", None),
            "latency": Sheet("latency", self.tables["fast-prefill"], _columns("fast-prefill")),
            "events": self._latest("events", None, "t"),
        }

    def extended(self, head: dict[str, Any], tables: dict[str, pa.Table]) -> Rollup:
        """The same with later events; what is made of other tables is not made again."""
        made = replace(self, head=head, tables=tables)
        vars(made).update({name: vars(self)[name] for name in _OF_THE_READING if name in vars(self)})
        return made

    def with_incidents(self, said: Hashable, rows: Callable[[], pa.Table]) -> Rollup:
        """The same with more columns of its incidents; `said` names them, so that what was made of them once is kept."""
        known: tuple[Hashable, Rollup] | None = vars(self).get("_said")
        if known is None or known[0] != said:
            known = said, self.extended(self.head, self.tables | {"incidents": rows()})
            vars(self)["_said"] = known
        return known[1]

    def with_tables(self, tables: dict[str, pa.Table]) -> Rollup:
        """The same with some tables counted of a range (`ranged`); what is made of others is not made again."""
        made = replace(self, tables=self.tables | tables)
        vars(made).update({name: getattr(self, name) for name, of in _OF_THE_READING.items() if not of & tables.keys()})
        if _COURSE in tables:
            vars(made)["held"] = _on_course(self.held, tables[_COURSE], made.tables["held-stats"])
        return made

    def _latest(self, name: str, query: str | None, begins: str | None) -> Sheet:
        """A table of which only a part is kept, and how much is not."""
        rows = self.tables[name]
        columns = _columns(query) if query else {}
        return Sheet(name, rows, columns, begins, left_out=self.head["totals"][name] - len(rows))


def rollup_of(snapshot: Snapshot) -> Rollup:
    """Everything that the first screens need, computed once. Raises QueryStopped."""
    ledger, library = snapshot.ledger, snapshot.library
    first, last = snapshot.first_us, snapshot.data_us
    found = library["detections"]
    gauges = ledger.tables["gauges"]
    tables = {
        "incidents": snapshot.incident_rows,
        "detectors": detector_rows(ledger.tables["checks"], found),
        "detections": found.slice(max(len(found) - MOST_DETECTIONS, 0)),
        "held": held_series(gauges, first or 0, snapshot.bin_s * 1_000_000),
        "held-stats": gauge_stats(gauges),
        "holders": library["holders"].slice(0, MOST_HOLDERS),
        "pools": _pools(
            ledger.tables["workers"], gauges, hold_rates(ledger.tables["pages"], library["held-capacity"], last or 0)
        ),
        "fast-prefill": library["fast-prefill"],
        "prefill-times": library["prefill-times"],
        "events": snapshot.events.before(None, Filter(), Span(), snapshot.taken_us, LATEST_EVENTS).rows,
    }
    totals = {
        "detections": len(found),
        "holders": len(library["holders"]),
        "events": sum(len(rows) for rows in ledger.tables.values()),
    }
    head = {
        "taken_us": snapshot.taken_us, "first_us": first, "data_us": last, "writing": snapshot.writing, "judging": snapshot.judging,
        "responses": snapshot.reads.responses.num_rows, "counts": {v.value: n for v, n in snapshot.counts.items()},
        "record_words": snapshot.record_words, "tenants": list(dict.fromkeys(snapshot.tenants)), "totals": totals,
        "fingerprint": snapshot.fingerprint, "strip": packed(strip_of(snapshot)),
    }  # fmt: skip
    return Rollup(ledger.path, head, tables)


def _on_course(figures: tuple[HeldFigure, ...], courses: pa.Table | None, stats: pa.Table) -> tuple[HeldFigure, ...]:
    """The same with the course of a range, if there is one, and what gauges say over the course: forecast and share stay those
    of the record's end."""
    said = {(row.pop("worker"), row.pop("pool")): Stats(**row) for row in rows_of(stats)}
    figures = tuple(replace(f, stats=said.get((f.worker, f.pool))) for f in figures)
    if courses is None:
        return figures
    by_pool = _by_pool(courses)
    return tuple(replace(f, course=by_pool.get((f.worker, f.pool), courses.slice(0, 0))) for f in figures)


def _by_pool(series: pa.Table) -> dict[tuple[str, str], pa.Table]:
    """The rows of `held_series`, which stand together by worker and pool."""
    counted_rows = series.group_by(["worker", "pool"], use_threads=False).aggregate([([], "count_all")])
    keys = zip(counted_rows["worker"].to_pylist(), counted_rows["pool"].to_pylist(), strict=True)
    lengths = counted_rows["count_all"].to_pylist()
    starts = itertools.accumulate(lengths, initial=0)
    return {key: series.slice(start, n) for key, start, n in zip(keys, starts, lengths, strict=False)}


def _pools(workers: pa.Table, gauges: pa.Table, rates: dict[tuple[str, str], Rates]) -> pa.Table:
    """One row per pool with gauges: its pages, and its rates of holding (0 where nothing was held)."""
    configs = (
        workers.filter(pc.equal(workers["op"], "config"))
        .group_by(["worker", "pool"])
        .aggregate([("pool_pages", "max")])
    )
    sizes = {(row["worker"], row["pool"]): row["pool_pages_max"] for row in rows_of(configs)}
    seen = sorted({(row["worker"], row["pool"]) for row in rows_of(gauges.group_by(["worker", "pool"]).aggregate([]))})
    none = Rates(0.0, 0.0, 0.0, 0.0)
    rows = [{"worker": w, "pool": p, "pool_pages": sizes.get((w, p)), **vars(rates.get((w, p), none))} for w, p in seen]
    kinds = [("worker", pa.string()), ("pool", pa.string()), ("pool_pages", pa.int64())]
    kinds += [(name, pa.float64()) for name in ("short_per_s", "long_per_s", "hold_s", "pages_each")]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _columns(query: str) -> dict[str, Column]:
    return query_named(query).columns
