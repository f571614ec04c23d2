"""The evidence of an incident, or of a range, as one file: rows of the ledger, what was judged of them, gaps, manifest roots.

    tar xf LEDGER-I-98584c01.tar && cd LEDGER-I-98584c01 && sha256sum -c SHA256SUMS

Invariant: the same record and scope make the same bytes; SHA256SUMS has the digest of every other file. Names are covered in
every file as they are on every other way out.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from console.core.export import Exported, told_view
from console.core.incidents import Incident
from console.core.redaction import Redaction
from console.core.sheet import overlapping
from console.core.snapshot import Snapshot
from console.core.time_range import Span, rfc3339
from console.core.view import View
from engine.ledger.gaps import Gap
from engine.ledger.reader import WriterState
from forensics.render import write

MARGIN_US = 120_000_000
"""How much time before the first and after the last of an incident goes with it."""
MEDIA_TYPE, SUMS = "application/x-tar", "SHA256SUMS"
_ALWAYS = ("start", "config", "close")
"""Rows of `workers` without which no other row can be read: of every worker, whenever they are."""
_MOST_NAME = 60
_TIME = pa.timestamp("us", tz="UTC")
_PLACE = "place of the row"


@dataclass(frozen=True)
class Scope:
    """What a bundle is about. `rids`: responses whose judgement goes along; `involved`: those and their donors, whose rows
    go along whenever they were written; `incidents`: ids.
    """

    name: str
    span: Span
    rids: frozenset[str]
    involved: frozenset[str]
    incidents: frozenset[str]


def incident_scope(incident: Incident) -> Scope:
    """An incident with `MARGIN_US` on both sides; where its times are not known, the whole record."""
    first, last = incident.first_seen_us, incident.last_seen_us
    known = first is not None and last is not None
    span = Span(first - MARGIN_US, last + MARGIN_US + 1) if known else Span()  # type: ignore[operator]
    rids = frozenset(incident.rids)
    return Scope(incident.id, span, rids, rids | set(incident.donors), frozenset({incident.id}))


def range_scope(snapshot: Snapshot, span: Span) -> Scope:
    """What happened in a range: responses and incidents that overlap it."""
    responses = overlapping(snapshot.reads.responses, span, "started", "finished")
    incidents = overlapping(snapshot.incident_rows, span, "first", "last")
    rids = frozenset(responses["rid"].to_pylist())
    return Scope("range", span, rids, frozenset(), frozenset(incidents["id"].to_pylist()))


def evidence_bundle(snapshot: Snapshot, scope: Scope, view: View, redaction: Redaction) -> Exported:
    """The tar file. `view`: from which it was asked for."""
    stem = _plain(f"{snapshot.name[:_MOST_NAME]}-{scope.name}")
    tables = _tables(snapshot, scope)
    contents = {f"{name}.parquet": _parquet(name, redaction.cover(rows)) for name, rows in tables.items()}
    contents["manifest_roots.json"] = _json(snapshot.ledger.manifest_roots)
    contents["about.json"] = _json(_about(snapshot, scope, view, redaction, tables))
    sums = "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents))
    return Exported(f"{stem}.tar", MEDIA_TYPE, _tar(stem, {**contents, SUMS: sums.encode()}))


def _tables(snapshot: Snapshot, scope: Scope) -> dict[str, pa.Table]:
    """By the path of their file, without ending."""
    ledger, settled = snapshot.ledger, snapshot.judged.settled
    rids, ids = pa.array(sorted(scope.rids), pa.string()), pa.array(sorted(scope.incidents), pa.string())
    involved = _requests_of(snapshot, scope.involved)
    found = {f"ledger/{name}": _rows(name, rows, scope.span, involved) for name, rows in ledger.tables.items()}
    found |= {
        "judgement/responses": settled.responses.filter(pc.is_in(settled.responses["rid"], value_set=rids)),
        "judgement/findings": settled.findings.filter(pc.is_in(settled.findings["rid"], value_set=rids)),
        "judgement/incidents": snapshot.incident_rows.filter(pc.is_in(snapshot.incident_rows["id"], value_set=ids)),
        "record/gaps": _of_dataclasses(Gap, ledger.gaps),
        "record/writers": _of_dataclasses(WriterState, ledger.writers),
    }
    return found


def _requests_of(snapshot: Snapshot, rids: Iterable[str]) -> pa.Table:
    """Keys (worker, epoch, req) of the requests of those names."""
    keys = sorted(key for rid in rids for key in snapshot.requests_of.get(rid, ()))
    schema = pa.schema([("worker", pa.string()), ("epoch", pa.int32()), ("req", pa.int64())])
    return pa.table([list(column) for column in zip(*keys, strict=True)] or [[], [], []], schema=schema)


def _rows(name: str, rows: pa.Table, span: Span, involved: pa.Table) -> pa.Table:
    """Rows of one table within the span, and those of the requests that are involved, in their order."""
    last = "t_end" if "t_end" in rows.column_names else "t"
    placed = rows.append_column(_PLACE, pa.array(np.arange(len(rows))))
    kept = [overlapping(placed, span, "t", last)[_PLACE]]
    if "req" in rows.column_names:
        of_them = placed.select(["worker", "epoch", "req", _PLACE])
        kept += [of_them.join(involved, ["worker", "epoch", "req"], join_type="left semi")[_PLACE]]
    if name == "workers":
        kept += [placed.filter(pc.is_in(rows["op"], value_set=pa.array(_ALWAYS)))[_PLACE]]
    return rows.take(np.unique(np.concatenate([places.to_numpy() for places in kept])))


def _of_dataclasses(kind: type[Gap] | type[WriterState], rows: Iterable[Gap | WriterState]) -> pa.Table:
    listed = list(rows)
    columns: dict[str, Any] = {}
    for each in fields(kind):
        values = [getattr(row, each.name) for row in listed]
        times = each.name.endswith("_t")
        words = each.name in ("worker", "table", "pool", "reason", "state")
        columns[each.name] = pa.array(values, _TIME if times else pa.string() if words else pa.int64())
    return pa.table(columns)


def _about(
    snapshot: Snapshot, scope: Scope, view: View, redaction: Redaction, tables: dict[str, pa.Table]
) -> dict[str, Any]:
    start, end = scope.span.start_us, scope.span.end_us
    return {
        "ledger": snapshot.name, "about": scope.name, "view": told_view(view, redaction),
        "from": None if start is None else rfc3339(start), "to": None if end is None else rfc3339(end),
        "last_row": None if snapshot.data_us is None else rfc3339(snapshot.data_us), "record": snapshot.record_words,
        "names": redaction.words or "as recorded", "rows": {name: len(rows) for name, rows in sorted(tables.items())},
        "rows_are": "those of every worker in that time, and those of the requests concerned whenever they were written",
        "verify": f"sha256sum -c {SUMS}",
    }  # fmt: skip


def _parquet(name: str, rows: pa.Table) -> bytes:
    out = io.BytesIO()
    write(rows, "parquet", out, envelope={"table": name}, columns=rows.column_names, tz=ZoneInfo("UTC"))
    return out.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"


def _tar(stem: str, contents: dict[str, bytes]) -> bytes:
    """Without times, owners or anything else that only the moment of writing knows."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(contents):
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mode = len(contents[name]), 0o644
            tar.addfile(entry, io.BytesIO(contents[name]))
    return out.getvalue()


def _plain(name: str) -> str:
    """A file name that needs no quoting anywhere."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
