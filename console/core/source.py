"""Where snapshots come from: a ledger directory, read again when its files have changed.

Invariant: of a ledger, nothing else in the console reads a file but `rollup_store`, which looks at sizes and marks. A
reading that fails says why and what to do, and costs nothing that was read before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

from console.core.live_edge import Looked, edge_of
from console.core.looks import Looks
from console.core.rollup import Rollup
from console.core.rollup_store import RollupStore, ledger_marks
from console.core.settled_heap import settle
from console.core.snapshot import Snapshot
from engine.ledger.errors import LedgerError
from engine.ledger.follow import StreamFollower
from engine.ledger.reader import read_ledger
from engine.ledger.stream import is_locked
from forensics.foreign_reads import EnginesDisagree, foreign_reads
from forensics.kept_judgements import KeptJudgements

AUTO = "auto"
SEGMENTS_US = 10_000_000
"""How often sealed segments are looked at: they never change, unless somebody changes them."""
REDATE_US = 5_000_000
"""How often a snapshot of unchanged files is judged anew by the clock (what is on the way)."""


@dataclass(frozen=True)
class Failure:
    """A reading that did not work: what is wrong, what to do, and when (us UTC)."""

    what: str
    remedy: str
    at_us: int


class LedgerSource:
    """Reads one ledger. `now_us` gives microseconds UTC, `steady_s` seconds of a clock that never jumps.

    `engine` is that of `forensics.foreign_reads`, or `auto`: the replay alone while writers are alive, since a picture
    is wanted every second, and both engines with their comparison as soon as the ledger is finished. `store` keeps what
    the first screens show for the next opening, `kept` what was judged.
    """

    def __init__(
        self, path: Path, *, now_us: Callable[[], int], engine: str = AUTO, store: RollupStore | None = None,
        kept: KeptJudgements | None = None, steady_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._kept = kept or KeptJudgements()
        self.path, self.now_us, self.engine, self.store = path, now_us, engine, store
        self.looks = Looks(steady_s)
        self._last: Snapshot | Failure | None = None
        self._follower, self._following = StreamFollower(path), Lock()
        self._seen = ""
        self._segments: tuple[int, str] | None = None

    def check(self) -> None:
        """Say at once whether there is a ledger, without reading it. Raises LedgerError."""
        if not self.path.is_dir():
            missing = "is a file; a ledger is a directory" if self.path.exists() else "no such directory"
            raise LedgerError(f"{self.path}: {missing}; give the directory that the engine writes its ledger to")
        if not any((self.path / name).is_dir() for name in ("epochs", "wal", "manifest")):
            inner = sorted(p.name for p in self.path.iterdir() if (p / "epochs").is_dir() or (p / "manifest").is_dir())
            hint = f"it contains ledgers: {', '.join(inner)}" if inner else "is it the right directory?"
            raise LedgerError(f"{self.path}: holds no ledger (no epochs/, wal/ or manifest/); {hint}")

    def remembered(self) -> Rollup | None:
        """What was seen of this ledger when it was last open, if it was; at once, and perhaps no longer so."""
        return self.store.load(self.path) if self.store is not None else None

    def read(self) -> Snapshot | Failure:
        """Read now, whatever has changed."""
        self._seen = self.fingerprint()
        at = self.now_us()
        marks = ledger_marks(self.path)
        try:
            ledger = read_ledger(self.path)
            live = any(writer.state == "open" for writer in ledger.writers)
            engine = ("replay" if live else "both") if self.engine == AUTO else self.engine
            reads = self._kept.judge(ledger, engine, partial(foreign_reads, ledger, engine=engine))
            snapshot = Snapshot(ledger, reads, at, self._seen)
            rollup = snapshot.rollup  # made here, so that what fails in a query is a failure of the reading
            if self.store is not None:
                self.store.keep(rollup, marks)
            self._last = snapshot
            settle(rollup.rows)
        except LedgerError as error:
            self._last = Failure(
                str(error), "check --ledger; this view goes on by itself when the ledger can be read", at
            )
        except EnginesDisagree as error:
            remedy = "no verdict of this ledger can be trusted: keep the ledger and report both findings"
            self._last = Failure(f"the two engines disagree: {error}", remedy, at)
        except Exception as error:  # a fault in judging must not take the last good picture from the person on call
            remedy = "run `forensics query foreign-reads` on this ledger for the whole message; keep the ledger"
            self._last = Failure(f"judging the ledger failed: {type(error).__name__}: {error}", remedy, at)
        return self._last

    def read_if_changed(self) -> Snapshot | Failure | None:
        """A new reading if the files have changed, or time has changed what the last one means; else None."""
        self.looks.began()
        try:
            return self._changed()
        except OSError as error:
            self._seen = ""  # so that the next look reads again, whatever the files say
            remedy = "check --ledger and its rights; this view goes on by itself when the ledger can be read"
            self._last = Failure(f"{self.path}: {error.strerror or error}", remedy, self.now_us())
            return self._last
        finally:
            self.looks.ended(saw=isinstance(self._last, Snapshot))

    def _changed(self) -> Snapshot | Failure | None:
        if self._last is None or self.fingerprint() != self._seen:
            return self.read()
        last, now = self._last, self.now_us()
        if not isinstance(last, Snapshot) or now - last.taken_us < REDATE_US:
            return None
        if not last.judging:
            return None
        self._last = replace(last, taken_us=now)
        return self._last

    def edge(self) -> Looked | None:
        """The last reading and what the streams hold beyond it; None where there is no reading, or no directory to look in.

        Cheap however long the record is; from any thread, also while a reading goes on.
        """
        last = self._last
        if not isinstance(last, Snapshot):
            return None
        self.looks.began()
        saw = False
        try:
            with self._following:
                ends = self._follower.look()
                found = edge_of(last, ends)
            saw = True
        except OSError:
            return None  # the next reading says what is wrong
        finally:
            self.looks.ended(saw=saw)
        return last, found

    def fingerprint(self) -> str:
        """Names, sizes, times and locks of the ledger's files: changes when there is something new to see.

        A sealed segment that was rewritten or damaged under an open console is something new, too.
        """
        seen: list[tuple[str, int, int, bool]] = []
        for path in sorted([*self.path.glob("wal/*.wal"), *self.path.glob("manifest/*.jsonl")]):
            try:
                stat = path.stat()
                # A writer that dies changes no file, only lets go of its lock.
                seen.append((path.name, stat.st_size, stat.st_mtime_ns, path.suffix == ".wal" and is_locked(path)))
            except FileNotFoundError:
                continue
        return hashlib.sha256(json.dumps([seen, self._segments_seen()]).encode()).hexdigest()[:16]

    def _segments_seen(self) -> str:
        """Names, sizes and times of the sealed segments, of `SEGMENTS_US` ago at most."""
        now = self.now_us()
        if self._segments is None or not 0 <= now - self._segments[0] < SEGMENTS_US:
            seen = hashlib.sha256()
            for path in sorted(self.path.glob("*/day=*/worker=*/*.parquet")):
                with contextlib.suppress(FileNotFoundError):
                    stat = path.stat()
                    seen.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
            self._segments = now, seen.hexdigest()
        return self._segments[1]
