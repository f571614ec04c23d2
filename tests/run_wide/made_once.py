"""What several tests need and cost much to make: made once in a test run, by whichever of its processes needs it first.

Invariant: a thing has one name and nobody changes it; what another process has made is read only when it is complete.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Made = TypeVar("Made")


class MadeOnce:
    """Called with a name and what makes the thing (picklable) of that name."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._known: dict[str, Any] = {}

    def __call__(self, name: str, make: Callable[[], Made]) -> Made:
        if name not in self._known:
            self._known[name] = self._shared(name, make)
        return self._known[name]

    def _shared(self, name: str, make: Callable[[], Made]) -> Made:
        path = self._directory / name.replace("/", "--")
        with Path(f"{path}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits, and finds it made
            if not path.exists():
                part = Path(f"{path}.part")
                part.write_bytes(pickle.dumps(make(), pickle.HIGHEST_PROTOCOL))
                part.rename(path)
        return pickle.loads(path.read_bytes())


def directory_of_the_run(own: Path) -> Path:
    """The directory that all processes of this run share; `own` is this process's temporary directory."""
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once"
