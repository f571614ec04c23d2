"""The runbooks there are and the runs that were made of them, for reading: nothing here runs or changes one.

Invariant: a state directory is opened only where it is there already, and never made.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from runbooks.errors import RunbookError
from runbooks.lint import lint_files
from runbooks.lookup import library_files
from runbooks.model import Runbook
from runbooks.report import headline
from runbooks.store import RunStore, StoredRun

MOST_RUNS = 50


@dataclass(frozen=True)
class RunList:
    """Runbooks by id, the latest runs, how many more there are, and why runs cannot be read if they cannot."""

    runbooks: tuple[Runbook, ...]
    runs: tuple[tuple[StoredRun, str], ...]
    more: int
    problem: str


def run_list(directory: Path, today: date) -> RunList:
    """What there is. `directory`: where runbooks keep their runs."""
    runbooks = tuple(lint_files(library_files(), today)[0])
    if not (directory / "runs.sqlite").is_file():
        return RunList(runbooks, (), 0, "")
    try:
        with closing(RunStore(directory)) as store:
            ids = store.run_ids()
            runs = tuple(store.read(run_id) for run_id in ids[:MOST_RUNS])
    except RunbookError as error:
        return RunList(runbooks, (), 0, str(error))
    return RunList(runbooks, tuple((run, headline(run)) for run in runs), max(len(ids) - MOST_RUNS, 0), "")
