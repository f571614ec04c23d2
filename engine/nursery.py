"""An engine's processes, forked from one that has imported once what they all need: torch alone takes seconds.

Invariant: a nursery (`engine.child`) ends with whoever made it, and its children end with it. The exit of a child is kept
there until it is asked for, so that the number of its process is its own until then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

FORK, EXIT = "fork", "exit"
"""What a nursery is asked for, a JSON line each: [FORK, path of a configuration] for a process id, where negative an error
number; [EXIT, process id] for an exit code."""
UNKNOWN_EXIT = 255
"""Exit code of a child whose nursery was killed: nobody else was told."""


class NurseryError(Exception):
    """A nursery has forked nothing; says why."""


class Nursery:
    """Forks children on demand; begins its imports when it is made."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engine.child", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._door, self._answers, self._turn = ours, ours.makefile(), threading.Lock()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fork(self, config: Path) -> Child:
        """A new process with the part that `config` names. Raises NurseryError."""
        pid = self._ask(FORK, str(config.resolve()))
        if pid < 0:
            raise NurseryError(f"no process could be forked: {os.strerror(-pid)}")
        return Child(self, pid)

    def exit_of(self, pid: int) -> int:
        """The exit code of a child that has ended; asked once."""
        try:
            return self._ask(EXIT, pid)
        except NurseryError:
            return UNKNOWN_EXIT

    def ended(self) -> bool:
        """Whether it can fork nobody any more."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it; children that are left are told to end."""
        with self._turn:
            self._process.terminate()
            self._process.wait()
            self._answers.close()
            self._door.close()

    def _ask(self, what: str, argument: str | int) -> int:
        with self._turn:
            try:
                self._door.sendall(json.dumps([what, argument]).encode() + b"\n")
                answer = self._answers.readline()
            except OSError:  # it has ended, or was closed
                answer = ""
        if not answer:
            code = self._process.wait()
            raise NurseryError(f"the process that forks the others ended with exit code {code}; its messages are above")
        return int(answer)


class Child:
    """One forked process, as its engine sees it."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid, self._nursery = pid, nursery
        self._code: int | None = None
        self._ending = threading.Lock()
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self.wait(0)

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code as soon as there is one; None if it still lives after `seconds`."""
        if self._code is None:
            ended = select.poll()
            ended.register(self._handle, select.POLLIN)
            if ended.poll(None if seconds is None else seconds * 1000):
                self._end()
        return self._code

    def _end(self) -> None:
        with self._ending:
            if self._code is None:
                self._code = self._nursery.exit_of(self.pid)
                os.close(self._handle)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Kill -9."""
        self.send_signal(signal.SIGKILL)
