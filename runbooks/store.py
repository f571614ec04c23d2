"""Run state on disk: SQLite in WAL mode, one row per run and one per step.

Invariant: a state only moves along `states.STEP_MOVES` and `RUN_MOVES`, in one durable transaction per move, and one
process at a time runs one runbook against one target (a file lock that dies with its process).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbooks.audit import EMPTY, Head, verify_audit
from runbooks.errors import EvidenceBroken, RunBusy, UsageError
from runbooks.plan import Plan
from runbooks.states import Conclusion, RunState, StepState, check_run_move, check_step_move

SCHEMA_VERSION = 1
_DATABASE = "runs.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY, runbook TEXT NOT NULL, version TEXT NOT NULL, runbook_digest TEXT NOT NULL,
    plan_digest TEXT NOT NULL, target TEXT NOT NULL, params TEXT NOT NULL, state TEXT NOT NULL, conclusion TEXT,
    started_us INTEGER NOT NULL, changed_us INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS steps (
    run_id TEXT NOT NULL REFERENCES runs, place INTEGER NOT NULL, step_id TEXT NOT NULL, phase TEXT NOT NULL,
    uses TEXT NOT NULL, state TEXT NOT NULL, intent_us INTEGER, changed_us INTEGER NOT NULL,
    output TEXT NOT NULL DEFAULT '{}', findings TEXT NOT NULL DEFAULT '[]', PRIMARY KEY (run_id, place)
) STRICT;
CREATE TABLE IF NOT EXISTS audit_head (only INTEGER PRIMARY KEY CHECK (only = 1), count INTEGER, hash TEXT) STRICT;
"""


@dataclass(frozen=True)
class StoredStep:
    """One step of a stored run. `findings` are sentences; times are microseconds since 1970."""

    place: int
    step_id: str
    phase: str
    uses: str
    state: StepState
    changed_us: int
    output: dict[str, Any]
    findings: list[str]


@dataclass(frozen=True)
class StoredRun:
    """One stored run with its steps in order."""

    run_id: str
    runbook: str
    version: str
    plan_digest: str
    target: str
    params: dict[str, Any]
    state: RunState
    conclusion: Conclusion | None
    started_us: int
    changed_us: int
    steps: list[StoredStep]


def default_state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Where runs are kept when nothing else is said."""
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "kvwitness" / "runbooks"


def has_runs(directory: Path) -> bool:
    """Whether a run has ever been kept in a directory."""
    return (directory / _DATABASE).is_file()


class RunStore:
    """The state directory: `runs.sqlite`, `audit.jsonl` and the locks of running runs. `read_only`: changes nothing in it."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._directory = directory
        try:
            if read_only:
                address = f"{(directory / _DATABASE).resolve().as_uri()}?mode=ro"
                self._database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=10.0)
                self._check_version()
                return
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(directory / _DATABASE, isolation_level=None, timeout=10.0)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._check_version()
            self._database.executescript(_SCHEMA)
            self._database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except OSError as error:
            raise UsageError(f"--state-dir {directory}: cannot be used ({error.strerror})") from error
        except sqlite3.Error as error:
            raise EvidenceBroken(f"{directory}/runs.sqlite: cannot be opened ({error})") from error

    def _check_version(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise UsageError(f"--state-dir {self._directory}: was written by a newer version ({version})")

    @property
    def is_made(self) -> bool:
        """Whether its tables are there: another process may be making them now."""
        return bool(self._database.execute("PRAGMA user_version").fetchone()[0])

    @property
    def audit_path(self) -> Path:
        """Where the audit log of this state directory is."""
        return self._directory / "audit.jsonl"

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @contextmanager
    def lock(self, runbook: str, target: str) -> Iterator[None]:
        """Hold the lock of (runbook id, target). Raises RunBusy if another process holds it."""
        name = hashlib.sha256(f"{runbook}\n{target}".encode()).hexdigest()[:16]
        path = self._directory / f"{runbook}-{name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise RunBusy(f"{runbook} is already running against {target}; wait for it or end it") from error
        try:
            yield
        finally:
            os.close(descriptor)

    def create(self, run_id: str, plan: Plan, now_us: int) -> None:
        """Store a planned run with all its steps planned."""
        head = plan.runbook.head
        with self._transaction():
            self._database.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
                (
                    *(run_id, head.id, head.version, plan.runbook.digest, plan.digest, plan.target),
                    *(json.dumps(dict(plan.params)), RunState.PLANNED, now_us, now_us),
                ),
            )
            self._database.executemany(
                "INSERT INTO steps (run_id, place, step_id, phase, uses, state, changed_us) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (run_id, place, located.step.id, located.step.phase, located.step.uses, StepState.PLANNED, now_us)
                    for place, located in enumerate(plan.runbook.steps)
                ],
            )

    def move_step(
        self,
        run_id: str,
        place: int,
        state: StepState,
        now_us: int,
        *,
        output: Mapping[str, Any] | None = None,
        findings: list[str] | None = None,
    ) -> None:
        """Move one step, and store its output or findings with the move. Raises IllegalMove."""
        with self._transaction():
            row = self._one("SELECT state FROM steps WHERE run_id = ? AND place = ?", run_id, place)
            check_step_move(StepState(row[0]), state)
            self._database.execute(
                "UPDATE steps SET state = ?, changed_us = ?, "
                "intent_us = CASE WHEN ? = 'intent' THEN ? ELSE intent_us END, "
                "output = coalesce(?, output), findings = coalesce(?, findings) WHERE run_id = ? AND place = ?",
                (
                    *(state, now_us, state, now_us, None if output is None else json.dumps(output)),
                    *(None if findings is None else json.dumps(findings), run_id, place),
                ),
            )

    def move_run(self, run_id: str, state: RunState, now_us: int, conclusion: Conclusion | None = None) -> None:
        """Move a run, and store its conclusion with the move. Raises IllegalMove."""
        with self._transaction():
            row = self._one("SELECT state FROM runs WHERE run_id = ?", run_id)
            check_run_move(RunState(row[0]), state)
            self._database.execute(
                "UPDATE runs SET state = ?, changed_us = ?, conclusion = coalesce(?, conclusion) WHERE run_id = ?",
                (state, now_us, conclusion, run_id),
            )

    def interrupt_dead(self, runbook: str, target: str, now_us: int) -> list[str]:
        """Mark runs whose process died, their started steps `in_doubt`; return their ids. Call with the lock held."""
        rows = self._database.execute(
            "SELECT run_id FROM runs WHERE runbook = ? AND target = ? AND state = ?",
            (runbook, target, RunState.RUNNING),
        ).fetchall()
        for (run_id,) in rows:
            for step in self.read(run_id).steps:
                if step.state in (StepState.INTENT, StepState.APPLIED):
                    self.move_step(run_id, step.place, StepState.IN_DOUBT, now_us)
            self.move_run(run_id, RunState.INTERRUPTED, now_us)
        return [run_id for (run_id,) in rows]

    def audit_head(self) -> Head:
        """The audit head stored last."""
        row = self._database.execute("SELECT count, hash FROM audit_head").fetchone()
        return Head(*row) if row else EMPTY

    def verified_audit(self) -> Head | None:
        """The head of the audit log, checked whole against the one stored; None = nothing was written. Raises EvidenceBroken."""
        stored = self.audit_head()
        if not stored.count and not self.audit_path.exists():
            return None
        return verify_audit(self.audit_path, stored)

    def set_audit_head(self, head: Head) -> None:
        """Remember the audit head, so that a cut log is noticed."""
        with self._transaction():
            self._database.execute("INSERT OR REPLACE INTO audit_head VALUES (1, ?, ?)", (head.count, head.hash))

    def read(self, run_id: str) -> StoredRun:
        """One run. Raises UsageError if there is none."""
        columns = "run_id, runbook, version, plan_digest, target, params, state, conclusion, started_us, changed_us"
        row = self._one(f"SELECT {columns} FROM runs WHERE run_id = ?", run_id)
        steps = self._database.execute(
            "SELECT place, step_id, phase, uses, state, changed_us, output, findings FROM steps WHERE run_id = ? "
            "ORDER BY place",
            (run_id,),
        ).fetchall()
        return StoredRun(
            run_id=row[0],
            runbook=row[1],
            version=row[2],
            plan_digest=row[3],
            target=row[4],
            params=json.loads(row[5]),
            state=RunState(row[6]),
            conclusion=Conclusion(row[7]) if row[7] else None,
            started_us=row[8],
            changed_us=row[9],
            steps=[_stored_step(step) for step in steps],
        )

    def run_ids(self) -> list[str]:
        """Every run, the latest first."""
        rows = self._database.execute("SELECT run_id FROM runs ORDER BY started_us DESC, run_id").fetchall()
        return [row[0] for row in rows]

    def _one(self, query: str, *values: Any) -> Any:
        row = self._database.execute(query, values).fetchone()
        if row is None:
            raise UsageError(f"there is no run '{values[0]}' in this state directory")
        return row

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def _stored_step(row: Any) -> StoredStep:
    return StoredStep(
        place=row[0],
        step_id=row[1],
        phase=row[2],
        uses=row[3],
        state=StepState(row[4]),
        changed_us=row[5],
        output=json.loads(row[6]),
        findings=json.loads(row[7]),
    )
