"""How incidents stand, as columns of their table: what a filter, an order and a file know of acknowledgements.

Invariant: `state` says all that holds at once, what decides it first: `open` (nobody's word holds), with `back` where a
silence has run out; `ack`; `silent`; and beside each of them `ended` where the incident grows no more. One that has ended
and of which nobody said anything is open still.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pyarrow as pa

from console.core.incidents import Incident
from console.core.marks import Severity
from console.core.rollup import Rollup
from console.core.triage import Entry, State, standing

_SCHEMA = pa.schema([("state", pa.list_(pa.string())), ("by", pa.string()), ("until", pa.timestamp("us", tz="UTC"))])
_UNTOLD, _UNTOLD_ENDED = ("open",), ("open", "ended")
_Row = tuple[tuple[str, ...], str | None, int | None]


def with_standing(known: Rollup, entries: Iterable[Entry], at_us: int) -> Rollup:
    """The rollup whose incidents have the columns `STANDING`, as they stand at `at_us` (see `standing`)."""
    said: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        said[entry.incident].append(entry)
    rows = tuple(_row(incident, said.get(incident.key), at_us) for incident in known.incidents)
    return known.with_incidents(rows, lambda: _beside(known.tables["incidents"], rows))


def open_by_severity(stood: Rollup) -> dict[Severity, int]:
    """How many incidents nobody has acknowledged or silenced, of all of the record; `stood`: of `with_standing`."""
    states = stood.tables["incidents"]["state"].to_pylist()
    is_open = [i.severity for i, state in zip(stood.incidents, states, strict=True) if State.OPEN in state]
    return {severity: is_open.count(severity) for severity in Severity}


def open_by_source(stood: Rollup) -> dict[str, dict[Severity, int]]:
    """The same by ledger, where those of several stand together."""
    states = stood.tables["incidents"]["state"].to_pylist()
    found = Counter(
        (i.source, i.severity) for i, state in zip(stood.incidents, states, strict=True) if State.OPEN in state
    )
    sources = {source for source, _ in found}
    return {source: {severity: found[source, severity] for severity in Severity} for source in sources}


def _row(incident: Incident, entries: Iterable[Entry] | None, at_us: int) -> _Row:
    if entries is None:
        return (_UNTOLD, None, None) if incident.growing else (_UNTOLD_ENDED, None, None)
    stands = standing(incident, entries, at_us)
    ended = () if incident.growing else ("ended",)
    until = stands.until_us if stands.state is State.SILENCED else None
    return (*_words(stands.state), *ended), stands.by or None, until


def _words(state: State) -> tuple[str, ...]:
    return (State.OPEN.value, state.value) if state is State.BACK else (state.value,)


def _beside(incidents: pa.Table, rows: tuple[_Row, ...]) -> pa.Table:
    for place, field in enumerate(_SCHEMA):
        incidents = incidents.append_column(field, pa.array([row[place] for row in rows], field.type))
    return incidents
