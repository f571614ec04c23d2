"""The terminal console as it is really started: its own process on a terminal of its own, until `q` ends it."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from console.core.palettes import THEMES

DEADLINE_SECONDS = 30
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(rb"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


class Terminal:
    """`console` on a pseudo-terminal of 80x24."""

    def __init__(self, ledger: Path, home: Path, environment: dict[str, str], *options: str) -> None:
        variables = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        variables |= {f"XDG_{kind}_HOME": str(home / kind) for kind in ("STATE", "CONFIG", "CACHE")}
        variables.pop("NO_COLOR", None)
        command = [sys.executable, "-m", "console.cli", "--ledger", str(ledger), "--engine", "replay", *options]
        self.seen = b""
        self.process, self._end = pty.fork()
        if not self.process:
            os.execve(sys.executable, command, variables | environment)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def until(self, words: bytes) -> None:
        """Read until it has been written since the last key."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while words not in _SEQUENCE.sub(b"", self.seen):
            assert time.monotonic() < deadline, (words, self.seen[-2000:])
            if select.select([self._end], [], [], 0.1)[0]:
                self.seen += os.read(self._end, 65536)

    def press(self, key: bytes) -> None:
        """One key; what was seen before is forgotten."""
        self.seen = b""
        os.write(self._end, key)

    def quit(self) -> int:
        """End it; its exit code."""
        self.press(b"q")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            if select.select([self._end], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # its terminal is closed
                    self.seen += os.read(self._end, 65536)
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, self.seen[-2000:]

    def kill(self) -> None:
        """End it whatever it does."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process, 9)
            os.waitpid(self.process, 0)
        os.close(self._end)


@pytest.fixture
def terminal(finished_ledger, tmp_path):
    """Starts consoles; every one has ended."""
    running = []

    def start(environment: dict[str, str], *options: str) -> Terminal:
        running.append(Terminal(finished_ledger, tmp_path, environment, *options))
        return running[-1]

    yield start
    for each in running:
        each.kill()


def test_without_colours_it_starts_and_draws_whatever_theme_is_asked_for(terminal):
    console = terminal({"NO_COLOR": "1"}, "--theme", "dark")
    console.until(b"FINISHED")
    console.until(b"OPEN INCIDENTS")
    assert not COLOUR.search(console.seen)
    for _ in THEMES:  # `T` goes through all of them
        console.press(b"T")
        console.press(b"4")
        console.until(b"[4 Held]")
        console.press(b"2")
        console.until(b"[2 Incidents]")
    assert console.quit() == 0


@pytest.mark.parametrize(("theme", "options"), [("dark", ()), ("ansi", ("--no-mouse", "--ascii", "--no-bell"))])
def test_with_colours_it_has_some_and_the_mouse_unless_it_may_not(terminal, theme, options):
    console = terminal({}, "--theme", theme, *options)
    console.until(b"FINISHED")
    console.until(b"OPEN INCIDENTS")
    assert COLOUR.search(console.seen)
    assert (b"\x1b[?1000h" in console.seen) is not bool(options)
    assert (b" open, incident-ledger, kvwitness\x07" in console.seen) is not bool(options)
    assert console.seen.isascii() is bool(options)
    assert console.quit() == 0
    assert (b"\x1b[23;0t" in console.seen) is not bool(options)  # the title that was there before is back
