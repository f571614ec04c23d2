"""Every file of a folder through its reader, by worker.

Invariant: what one file says twice, once captured and once decoded, is read once; a file that no reader knows is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from engine.adapters.crash_dump import read_dump
from engine.adapters.folder import Kind, Source, lines_of, sources
from engine.adapters.json_values import parsed
from engine.adapters.keyed import Keyed
from engine.adapters.kv_frames import read_capture, read_decoded
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed, Said
from engine.adapters.prometheus import read_scrape
from engine.adapters.server_info import read_loads, read_server_info
from engine.adapters.sglang_log import read_sglang_log
from engine.adapters.sglang_requests import read_exporter
from engine.adapters.times import in_file_name
from engine.adapters.transcript import read_transcript
from engine.adapters.vllm_log import read_vllm_log


@dataclass(frozen=True)
class Reading:
    """How files are read: the zone of local times, the year of vLLM's lines (None = from what else is there), the key."""

    zone: ZoneInfo
    year: int | None
    keyed: Keyed


def read_folder(folder: Path, reading: Reading, notes: Notes) -> dict[str, list[Said]]:
    """What is said, by worker, in the order of files and lines."""
    said: dict[str, list[Said]] = defaultdict(list)
    found = list(sources(folder))
    for source in sorted(found, key=lambda one: one.kind is Kind.VLLM_LOG):  # theirs is the year of the others
        if source.kind is None:
            notes.skip(source.name, "no known kind of file")
            continue
        try:
            how = _dated(reading, said, notes) if source.kind is Kind.VLLM_LOG else reading
            said[source.worker] += _anew(source, how, said[source.worker], notes)
        except OSError as error:
            notes.skip(source.name, f"cannot be read: {error.strerror}")
    return dict(said)


def _read(source: Source, how: Reading, notes: Notes) -> Iterator[Said]:
    path, name, kind = source.path, source.name, source.kind
    if kind is Kind.KV_CAPTURE:
        yield from read_capture(path.read_bytes(), name, how.keyed, notes)
    elif kind is Kind.CRASH_DUMP:
        yield from read_dump(path.read_bytes(), name, how.keyed, notes)
    elif kind is Kind.KV_LINES:
        yield from read_decoded(lines_of(path), name, how.keyed, notes)
    elif kind is Kind.EXPORTER:
        yield from read_exporter(lines_of(path), name, how.keyed, notes)
    elif kind is Kind.SGLANG_LOG:
        yield from read_sglang_log(lines_of(path), name, how.zone, how.keyed, notes)
    elif kind is Kind.VLLM_LOG:
        yield from read_vllm_log(lines_of(path), name, how.zone, how.year, notes)
    elif kind is Kind.SCRAPE:
        yield from read_scrape(lines_of(path), name, in_file_name(path.name), notes)
    elif kind is Kind.TRANSCRIPT:
        yield from read_transcript(path.read_text(encoding="utf-8", errors="replace"), name, notes)
    else:
        record = parsed(path.read_text(encoding="utf-8", errors="replace")) or {}
        yield from read_server_info(record, notes) if kind is Kind.SERVER_INFO else read_loads(record, name, notes)


def _anew(source: Source, how: Reading, before: list[Said], notes: Notes) -> list[Said]:
    """The rows of a source; none of decoded KV events where a capture beside them holds the same."""
    if source.kind is not Kind.KV_LINES:
        return list(_read(source, how, notes))
    own = Notes()
    rows = list(_read(source, how, own))
    held = {_event(row) for row in before if isinstance(row, Observed) and row.table == "cache"}
    events = [row for row in rows if isinstance(row, Observed)]
    if not events or not all(_event(row) in held for row in events):
        notes.absorb(own)
        return rows
    notes.unread["KV lines that a capture beside them holds, too"] += own.taken["KV line"]
    return []


def _event(row: Observed) -> tuple[object, ...]:
    return row.t_us, row.op, row.columns.get("tier"), tuple(row.columns.get("keys") or ())


def _dated(reading: Reading, said: dict[str, list[Said]], notes: Notes) -> Reading:
    """With the year in which everything else in the folder lies, where none was given."""
    if reading.year is not None:
        return reading
    times = [row.t_us for rows in said.values() for row in rows if isinstance(row, Observed) and row.t_us is not None]
    years = (
        {datetime.fromtimestamp(t / 1e6, UTC).astimezone(reading.zone).year for t in (min(times), max(times))}
        if times
        else set()
    )
    if len(years) != 1:
        return reading
    year = years.pop()
    notes.assume(f"vLLM's lines carry no year: {year} is that of everything else in the folder")
    return Reading(reading.zone, year, reading.keyed)
