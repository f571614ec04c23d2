"""What people say of incidents: seen, silenced, noted. Kept beside no evidence, in lines that are only ever added.

Invariant: a silence ends by itself: with its time, or with its incident. An incident that grew after it was
acknowledged is open again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from console.core.incidents import Incident

MOST_SILENCE_US = 7 * 86_400_000_000
SOON_US = 15 * 60_000_000
"""A silence that ends within that time is about to end."""


class Act(StrEnum):
    """What can be said of an incident."""

    ACK = "ack"
    SILENCE = "silence"
    UNSILENCE = "unsilence"
    NOTE = "note"


class State(StrEnum):
    """How an incident stands with the people on call."""

    OPEN = "open"
    ACKED = "ack"
    SILENCED = "silent"
    BACK = "back"  # was silenced, and the silence is over


@dataclass(frozen=True)
class Entry:
    """One line. `at_us` is when it was said; `until_us` when a silence ends; `seen_us`, `responses` and
    `severity` are the incident's last event, size and gravity then."""

    incident: str
    act: Act
    who: str
    at_us: int
    words: str = ""
    until_us: int | None = None
    seen_us: int | None = None
    responses: int | None = None
    severity: int | None = None


@dataclass(frozen=True)
class Standing:
    """An incident as the people on call left it. `by` and `until_us` are of what decided `state`; `last` was said last of
    how it stands, and may be overtaken: by what the incident did since, or by time."""

    state: State
    by: str = ""
    until_us: int | None = None
    notes: tuple[Entry, ...] = ()
    last: Entry | None = None


class TriageError(Exception):
    """What was said cannot be kept or is not allowed: why, and what to do."""


def standing(incident: Incident, entries: Iterable[Entry], now_us: int) -> Standing:
    """How an incident stands at `now_us`, which may be the moment of a replay: what was said later is not known then.
    `entries` name incidents by their keys.
    """
    mine = [entry for entry in entries if entry.incident == incident.key and entry.at_us <= now_us]
    notes = tuple(entry for entry in mine if entry.act is Act.NOTE)
    said = [entry for entry in mine if entry.act is not Act.NOTE]
    state, by, until = State.OPEN, "", None
    for entry in said:
        if entry.act is Act.SILENCE:
            state, by, until = State.SILENCED, entry.who, entry.until_us
            state = State.OPEN if _graver(incident, entry) else state
        elif entry.act is Act.UNSILENCE and state is State.SILENCED:
            state, by, until = State.OPEN, entry.who, None
        elif entry.act is Act.ACK:
            grown = (incident.last_seen_us or 0) > (entry.seen_us or 0) or incident.responses > (
                entry.responses or incident.responses
            )
            state, by, until = (State.OPEN if grown or _graver(incident, entry) else State.ACKED), entry.who, None
    if state is State.SILENCED and not incident.growing:
        state, by, until = State.OPEN, "", None
    elif state is State.SILENCED and (until is None or until <= now_us):
        state = State.BACK
    return Standing(state, by, until, notes, said[-1] if said else None)


def _graver(incident: Incident, entry: Entry) -> bool:
    """Whether the incident is worse than what was spoken of; 1 is the gravest."""
    return entry.severity is not None and incident.severity < entry.severity


@dataclass(frozen=True)
class Silence:
    """A silence that goes on. `left_us` until it ends; `of`: the incident's id and its ledger, as `Incident` has them."""

    entry: Entry
    left_us: int
    of: tuple[str, str]

    @property
    def ends_soon(self) -> bool:
        """Whether it is time to say more of it."""
        return self.left_us < SOON_US


def silences(incidents: Iterable[Incident], entries: Iterable[Entry], now_us: int) -> tuple[Silence, ...]:
    """Silences that go on, the first to end first."""
    said, found = list(entries), []
    for incident in incidents:
        stands = standing(incident, said, now_us)
        if stands.state is State.SILENCED:
            entry = [e for e in said if e.incident == incident.key and e.act is Act.SILENCE][-1]
            found.append(Silence(entry, (stands.until_us or now_us) - now_us, (incident.id, incident.source)))
    return tuple(sorted(found, key=lambda silence: silence.left_us))


class TriageBook:
    """The entries of one ledger, in one file of JSON lines in `directory`. `now_us` gives microseconds UTC."""

    def __init__(self, directory: Path, ledger: Path, *, who: str, now_us: Callable[[], int]) -> None:
        if directory.resolve().is_relative_to(ledger.resolve()):
            raise TriageError(
                f"{directory} is inside the ledger: evidence is never written to; set XDG_STATE_HOME elsewhere"
            )
        self.path = directory / f"{ledger.resolve().name}-{short_name(ledger)}.jsonl"
        self._who, self._now_us = who, now_us

    def entries(self) -> tuple[Entry, ...]:
        """All that was said, in order; without the lines that `faults` names. Raises TriageError."""
        return tuple(line for line in self._lines() if isinstance(line, Entry))

    def faults(self) -> tuple[str, ...]:
        """Lines that cannot be read, cut off by a crash or changed by hand."""
        return tuple(line for line in self._lines() if isinstance(line, str))

    def _lines(self) -> Iterator[Entry | str]:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise TriageError(f"{self.path}: {error.strerror}; what was said of incidents cannot be read") from error
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                row = json.loads(line)
                yield Entry(**{**row, "act": Act(row["act"])})
            except (ValueError, TypeError, KeyError) as error:
                yield f"{self.path}, line {number}: cannot be read ({error})"

    def ack(self, incident: Incident, words: str = "") -> Entry:
        """Say that it is seen as it stands now."""
        return self._add(
            Entry(
                incident.id, Act.ACK, self._who, self._now_us(), words, seen_us=incident.last_seen_us,
                responses=incident.responses, severity=int(incident.severity),
            )
        )  # fmt: skip

    def silence(self, incident: Incident, length_us: int, words: str = "") -> Entry:
        """Say nothing of it for a time, unless it gets graver. Raises TriageError without a length, beyond seven
        days, and where it is over already."""
        if not incident.growing:
            raise TriageError(f"{incident.id} grows no more, so that there is nothing to silence; ack it")
        if length_us <= 0:
            raise TriageError("a silence needs an end; write silence 2h WORDS")
        if length_us > MOST_SILENCE_US:
            raise TriageError("a silence ends within seven days; ack what stays as it is")
        now, severity = self._now_us(), int(incident.severity)
        return self._add(
            Entry(incident.id, Act.SILENCE, self._who, now, words, until_us=now + length_us, severity=severity)
        )

    def unsilence(self, incident: Incident, words: str = "") -> Entry:
        """End a silence before its time. Raises TriageError where none goes on."""
        if standing(incident, self.entries(), self._now_us()).state is not State.SILENCED:
            raise TriageError(f"{incident.id} is not silent, so that there is no silence to end")
        return self._ended(incident, words)

    def _ended(self, incident: Incident, words: str) -> Entry:
        return self._add(Entry(incident.id, Act.UNSILENCE, self._who, self._now_us(), words))

    def end_silences(self, incidents: Iterable[Incident]) -> tuple[Entry, ...]:
        """End the silences of incidents that are over, so that one which comes back is heard."""
        last = {e.incident: e.act for e in self.entries() if e.act in (Act.SILENCE, Act.UNSILENCE)}
        over = [i for i in incidents if not i.growing and last.get(i.id) is Act.SILENCE]
        return tuple(self._ended(incident, "ended with its incident") for incident in over)

    def note(self, incident: Incident, words: str) -> Entry:
        """Note something. Raises TriageError without words."""
        if not words.strip():
            raise TriageError("a note needs words")
        return self._add(Entry(incident.id, Act.NOTE, self._who, self._now_us(), words))

    def _is_cut(self) -> bool:
        content = self.path.read_bytes()
        return bool(content) and not content.endswith(b"\n")

    def _add(self, entry: Entry) -> Entry:
        line = json.dumps({name: value for name, value in asdict(entry).items() if value not in (None, "")}) + "\n"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                # One write, so that two consoles never mix their lines; on a line of its own, whatever was cut off before.
                os.write(handle, b"\n" * self._is_cut() + line.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise TriageError(f"{self.path}: {error.strerror}; it could not be kept") from error
        return entry


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's state is, by the XDG rules."""
    given = environment.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else Path(environment.get("HOME", "/nonexistent")) / ".local" / "state"
    return base / "kvwitness"


def short_name(ledger: Path) -> str:
    """Tells ledgers of one name apart."""
    return hashlib.sha256(str(ledger.resolve()).encode()).hexdigest()[:8]
