"""A folder of what engines left behind, as a ledger: `forensics ingest` finds this through the entry point.

Invariant: nobody's pages were watched, and the ledger says so. Every chain of every worker begins and ends with a row that
is missing, so that no verdict but `unknown` can rest on it; what a source itself shows to be missing is missing here, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from secrets import token_bytes
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from engine.adapters.folder_reading import Reading, read_folder
from engine.adapters.keyed import Keyed
from engine.adapters.ledger_rows import LedgerRows
from engine.adapters.notes import Notes
from engine.adapters.observed import Identity, Observed, Said, Unseen
from engine.adapters.request_lives import join_lives
from engine.ledger.errors import LedgerError
from engine.ledger.recorder import Recorder
from engine.ledger.schema import TABLE_NAMES

BUILD = "ingested"
"""What `workers.build` says of a worker whose rows come from what it left behind."""
NEVER_WHOLE = tuple(name for name in TABLE_NAMES if name != "workers")
KEY_BYTES = 32
Row = TypeVar("Row", bound=Observed | Unseen)


@dataclass
class Ingested:
    """What became of a folder: rows by worker, and the notes of the reading."""

    ledger: Path
    rows: dict[str, int] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)

    @property
    def whole(self) -> bool:
        """Whether every line and frame was taken, and no source shows a gap."""
        return not (self.notes.skipped or self.notes.lost or self.notes.unknown)

    def words(self) -> list[str]:
        """For people: what was read, what was not, where and why."""
        notes = self.notes
        said = [f"{worker}: {rows} rows" for worker, rows in self.rows.items()]
        said += [f"read: {count} x {kind}" for kind, count in sorted(notes.taken.items())]
        said += [f"holds nothing for a ledger: {count} x {kind}" for kind, count in sorted(notes.unread.items())]
        said += [f"unknown field: {name}, {count} x" for name, count in sorted(notes.unknown.items())]
        said += [f"skipped: {count} x {why}" for why, count in sorted(notes.skipped.items())]
        said += [f"  {skip.where}: {skip.why}" for skip in notes.skips]
        if len(notes.skips) < sum(notes.skipped.values()):
            said.append(f"  (the first {len(notes.skips)} of {sum(notes.skipped.values())} are shown)")
        said += [f"missing: {what}" for what in notes.lost]
        return said + [f"taken as given: {what}" for what in notes.assumed]

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        notes = self.notes
        return {
            "ledger": str(self.ledger), "rows": self.rows, "read": dict(notes.taken), "unread": dict(notes.unread),
            "unknown_fields": dict(notes.unknown), "skipped": dict(notes.skipped),
            "skips": [{"where": skip.where, "why": skip.why} for skip in notes.skips],
            "missing": notes.lost, "assumed": notes.assumed,
        }  # fmt: skip


def ingest_folder(
    folder: Path, ledger: Path, *, zone: str = "UTC", year: int | None = None, key: bytes | None = None
) -> Ingested:
    """Read `folder` into a new ledger. `key`: 16 to 64 bytes for pseudonyms; without one they stand for nothing later.

    Raises LedgerError where the folder or the ledger cannot be used; ValueError for an unknown zone or a bad key.
    """
    if not folder.is_dir():
        raise LedgerError(f"{folder}: no such directory; give the folder that holds the engines' logs")
    if ledger.exists() and any(ledger.iterdir()):
        raise LedgerError(f"{ledger}: is not empty; evidence is never rewritten, give a new directory")
    if key is not None and not 16 <= len(key) <= 64:
        raise ValueError("a key has 16 to 64 bytes")
    try:
        reading = Reading(ZoneInfo(zone), year, Keyed(key or token_bytes(KEY_BYTES)))
    except (KeyError, OSError) as error:
        raise ValueError(f"unknown time zone {zone!r}; write one such as UTC or Europe/Berlin") from error
    done = Ingested(ledger)
    said = read_folder(folder, reading, done.notes)
    for ordinal, worker in enumerate(sorted(said), 1):
        done.rows[worker] = _write_worker(ledger, worker, ordinal, said[worker], reading.keyed, done.notes)
    if not any(done.rows.values()):
        raise LedgerError(
            f"{folder}: holds nothing that can be placed in time; see what was skipped:\n" + "\n".join(done.words())
        )
    return done


def _write_worker(ledger: Path, worker: str, ordinal: int, said: list[Said], keyed: Keyed, notes: Notes) -> int:
    """One sealed life of a worker; the rows written, 0 where nothing carries a time."""
    config, identity = _configuration(worker, said, notes), _identity(worker, said, notes)
    rows = _in_order([row for row in said if not isinstance(row, Identity)], notes)
    times = [row.t_us for row in rows if row.t_us is not None]
    if not times:
        notes.skipped["worker of which nothing carries a time"] += 1
        return 0
    now = [min(times)]
    recorder = Recorder(
        ledger, worker, ordinal=ordinal, now_us=lambda: now[0], digest_key=keyed.key, threaded=False, durable=True
    )
    recorder.record("workers", "start", ordinal=ordinal, build=BUILD, **identity)
    if config:
        recorder.record("workers", "config", pool="kv", **config)
    _miss_everything(recorder)
    writer, before = LedgerRows(recorder, notes, config.get("page_tokens")), recorder.seq
    missed = 0
    for row in rows:
        writer.write(row)
        missed += row.rows if isinstance(row, Unseen) else 0
    written = recorder.seq - before - missed
    now[0] = max(times)
    _miss_everything(recorder)
    recorder.close()
    if recorder.problem is not None:
        raise LedgerError(f"{worker}: {recorder.problem}")
    return written


def _miss_everything(recorder: Recorder) -> None:
    for table in NEVER_WHOLE:
        recorder.miss(table)
    recorder.miss("pages", "kv")


def _in_order(said: list[Said], notes: Notes) -> list[Observed | Unseen]:
    """Rows by time, requests joined; what has no time stands behind everything that has one."""
    rows = [row for row in said if isinstance(row, Observed | Unseen) and not _is_config(row)]
    requests = [row for row in rows if isinstance(row, Observed) and row.table == "requests"]
    others = [row for row in rows if not (isinstance(row, Observed) and row.table == "requests")]
    joined = list(join_lives(_by_time(requests), notes))
    if any(row.t_us is None for row in chain(joined, others)):
        notes.assume("what carries no time stands behind everything of its worker that does")
    return _by_time([*joined, *others])


def _by_time(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.t_us is None, row.t_us or 0))


def _is_config(row: Said) -> bool:
    return isinstance(row, Observed) and row.table == "workers" and row.op == "config"


def _configuration(worker: str, said: list[Said], notes: Notes) -> dict[str, Any]:
    """What the sources say of the pool, in pages where the size of a page is known."""
    found = _agreed(worker, (dict(row.columns) for row in said if isinstance(row, Observed) and _is_config(row)), notes)
    tokens, page = found.pop("pool_tokens", None), found.get("page_tokens")
    if tokens is None:
        return found
    if found.get("pool_pages") is None and page:
        found["pool_pages"] = tokens // page
    elif not page:
        notes.assume(
            f"{worker}: its pool holds {tokens} tokens; no source says the size of a page, so its pages are not known"
        )
    if found.get("prompt_limit_tokens") is None:
        found["prompt_limit_tokens"] = min(tokens, found.get("context_tokens") or tokens)
        notes.assume(f"{worker}: no source says its longest prompt; it is no longer than its pool and its context")
    return found


def _identity(worker: str, said: list[Said], notes: Notes) -> dict[str, Any]:
    return _agreed(worker, (dict(row.columns) for row in said if isinstance(row, Identity)), notes)


def _agreed(worker: str, every: Iterable[dict[str, Any]], notes: Notes) -> dict[str, Any]:
    """Of each field what is said of it; where sources differ the smallest number, or the first word, and that is told."""
    found: dict[str, Any] = {}
    for columns in every:
        for name, value in columns.items():
            held = found.get(name)
            if value is None or value == held:
                continue
            if held is None:
                found[name] = value
                continue
            notes.assume(f"{worker}: sources differ about {name}: {held} and {value}")
            if type(value) is int and type(held) is int:
                found[name] = min(held, value)
    return found
