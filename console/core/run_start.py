"""What people ask of runbooks: start one, answer, go on, abort. Done by the `runbook` command, in a process of its own
that outlives the console.

Invariant: nothing is asked unless it was allowed when the console was opened; the console itself runs no step and writes
no state of a run.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from runbooks.errors import UsageError
from runbooks.going_on import STANDING, check_going_on, checked_words
from runbooks.model import Runbook
from runbooks.store import StoredRun, default_state_dir

_PROGRAM = "runbooks.cli"


class StartRefused(Exception):
    """What may not or cannot be asked for: why, and what to do."""


@dataclass(frozen=True)
class RunSetting:
    """Where runs are kept, whether they `may_start` from here, and the engine file that they are run against."""

    directory: Path = field(default_factory=default_state_dir)
    may_start: bool = False
    engine: Path | None = None


@dataclass(frozen=True)
class Order:
    """`subject`: what it is about, in messages; `arguments` of the `runbook` command."""

    subject: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> str:
        """The same as a command to give in a shell."""
        return shlex.join(["runbook", *self.arguments])


class Orders:
    """Orders on behalf of `by`, about the ledger that is looked at."""

    def __init__(self, setting: RunSetting, ledger: Path, by: str) -> None:
        self._setting, self._ledger, self._by = setting, ledger, by

    def run(self, book: Runbook | None, asked: str = "", given: Mapping[str, str] | None = None) -> Order:
        """Start a runbook with parameters as they were written. Raises StartRefused."""
        if book is None:
            raise StartRefused(f"there is no runbook {asked or 'selected'}; 6 lists those that there are")
        given = given or {}
        order = Order(
            book.head.id,
            ("run", book.head.id, *self._against(), *(f"--param={name}={value}" for name, value in given.items())),
        )
        self._check(order, book)
        params = book.head.params
        for name, value in given.items():
            if name not in params:
                raise StartRefused(f"{book.head.id} has no parameter {name}; it has {', '.join(params) or 'none'}")
            try:
                params[name].convert(value)
            except ValueError as error:
                raise StartRefused(f"{name}: {error}; {params[name].says}") from error
        missing = [name for name, param in params.items() if param.required and name not in given]
        if missing:
            raise StartRefused(f"{book.head.id} needs {', '.join(missing)}: :run {book.head.id} {missing[0]}=VALUE")
        return order

    def resume(self, run: StoredRun | None, book: Runbook | None, answer: str | None = None) -> Order:
        """Go on with a run, with the answer that it waits for, if any. Raises StartRefused."""
        if run is None:
            raise StartRefused("no run is selected; the list shows runs below the runbooks")
        if book is None or book.head.version != run.version:
            raise StartRefused(f"{run.runbook} has changed since this run began: abort it, and start another")
        try:
            check_going_on(run, answer)
        except UsageError as error:
            raise StartRefused(str(error)) from error
        said = () if answer is None else (f"--answer={answer.strip()}",)
        order = Order(run.run_id, ("resume", run.run_id, *self._against(), *said))
        self._check(order, book)
        return order

    def abort(self, run: StoredRun | None, why: str) -> Order:
        """End a run that stands. Raises StartRefused."""
        if run is None:
            raise StartRefused("no run is selected; the list shows runs below the runbooks")
        if run.state not in STANDING:
            raise StartRefused(f"{run.run_id} is {run.state}: only a run that waits or was interrupted can be aborted")
        try:
            order = Order(run.run_id, ("abort", run.run_id, *self._kept(), f"--why={checked_words(why, 'why')}"))
        except UsageError as error:
            raise StartRefused(str(error)) from error
        self._check(order, None)
        return order

    def _against(self) -> tuple[str, ...]:
        engine = () if self._setting.engine is None else ("--engine", str(self._setting.engine))
        return (*engine, "--ledger", str(self._ledger), *self._kept())

    def _kept(self) -> tuple[str, ...]:
        return ("--state-dir", str(self._setting.directory), f"--by={self._by}")

    def _check(self, order: Order, book: Runbook | None) -> None:
        if not self._setting.may_start:
            raise StartRefused(f"this console only reads: open it with --write, or give in a shell: {order.words}")
        if book is not None and "engine" in book.head.requires and self._setting.engine is None:
            raise StartRefused(
                f"{book.head.id} needs a running engine: open the console with --engine-file RUN_DIR/engine.json"
            )


@dataclass
class Start:
    """A started process, and the file that its words go to."""

    subject: str
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


def start(order: Order) -> Start:
    """Start its process. Raises StartRefused where none can be made."""
    words = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as the process
    command = [sys.executable, "-m", _PROGRAM, *order.arguments]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words, start_new_session=True
        )
    except OSError as error:
        words.close()
        raise StartRefused(f"{order.subject} could not be started: {error.strerror}") from error
    return Start(order.subject, process, words)


def split_asked(text: str) -> tuple[str, dict[str, str]]:
    """`RB-01 reserve_tokens=5`: a runbook's id, perhaps none, and parameters. Raises StartRefused."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise StartRefused(f"{text!r} cannot be read ({error}); write RB-01 NAME=VALUE") from error
    given = dict(word.split("=", 1) for word in words if "=" in word)
    ids = [word for word in words if "=" not in word]
    if len(ids) > 1 or len(given) + len(ids) < len(words):
        raise StartRefused(f"{text!r} cannot be read; write RB-01 NAME=VALUE, each once")
    return (ids[0].upper() if ids else ""), given
