"""Starting a runbook: by the `runbook` command, in a process of its own that outlives the console.

Invariant: nothing is started unless it was allowed when the console was opened; the console itself runs no step.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from runbooks.model import Runbook
from runbooks.store import default_state_dir

_PROGRAM = "runbooks.cli"


class StartRefused(Exception):
    """A run that may not or cannot be started: why, and what to do."""


@dataclass(frozen=True)
class RunSetting:
    """Where runs are kept, whether they `may_start` from here, and the engine file that they are run against."""

    directory: Path = field(default_factory=default_state_dir)
    may_start: bool = False
    engine: Path | None = None


def words_of_start(setting: RunSetting, runbook_id: str, ledger: Path) -> str:
    """The same as a command to give in a shell."""
    return " ".join(["runbook", *_arguments(setting, runbook_id, ledger)])


def _arguments(setting: RunSetting, runbook_id: str, ledger: Path) -> list[str]:
    engine = [] if setting.engine is None else ["--engine", str(setting.engine)]
    return ["run", runbook_id, *engine, "--ledger", str(ledger), "--state-dir", str(setting.directory)]


def check_start(setting: RunSetting, book: Runbook | None, runbook_id: str, ledger: Path) -> Runbook:
    """The runbook, if it may be started. Raises StartRefused."""
    if book is None:
        raise StartRefused(f"there is no runbook {runbook_id or 'selected'}; 6 lists those that there are")
    if not setting.may_start:
        command = words_of_start(setting, book.head.id, ledger)
        raise StartRefused(f"this console only reads: open it with --write, or give in a shell: {command}")
    if "engine" in book.head.requires and setting.engine is None:
        raise StartRefused(
            f"{book.head.id} needs a running engine: open the console with --engine-file RUN_DIR/engine.json"
        )
    missing = [name for name, param in book.head.params.items() if param.required]
    if missing:
        raise StartRefused(f"{book.head.id} needs {', '.join(missing)}: give them in a shell with --param NAME=VALUE")
    return book


@dataclass
class Start:
    """A started process, and the file that its words go to."""

    runbook_id: str
    process: subprocess.Popen[bytes]
    words_file: IO[bytes]

    def ended(self) -> str | None:
        """Its last words and its exit code, once it has ended; None before."""
        code = self.process.poll()
        if code is None:
            return None
        self.words_file.seek(0)
        said = self.words_file.read().decode("utf-8", "replace").strip().splitlines()
        self.words_file.close()
        return f"{said[-1] if said else 'said nothing'} (exit code {code})"


def start(setting: RunSetting, book: Runbook, ledger: Path) -> Start:
    """Start a run. Raises StartRefused where no process can be made."""
    words = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as the process
    command = [sys.executable, "-m", _PROGRAM, *_arguments(setting, book.head.id, ledger)]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words, start_new_session=True
        )
    except OSError as error:
        words.close()
        raise StartRefused(f"{book.head.id} could not be started: {error.strerror}") from error
    return Start(book.head.id, process, words)
