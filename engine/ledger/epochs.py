"""Epochs: one life of a worker process, a number taken from the ledger directory.

Invariant: no two processes ever get the same epoch of one worker; the number is on disk before it is used.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from engine.ledger.errors import LedgerError

_WORKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_worker_name(worker: str) -> str:
    """Return `worker` if it can name a file; raise LedgerError otherwise."""
    if not _WORKER_NAME.fullmatch(worker):
        raise LedgerError(f"worker name {worker!r}: use letters, digits, '.', '_', '-' (at most 64, not first)")
    return worker


def take_epoch(directory: Path, worker: str, durable: bool = True) -> int:
    """Increment and return the epoch of `worker`, under a lock, fsynced (`durable`). The first epoch is 1."""
    path = directory / "epochs" / check_worker_name(worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        text = os.pread(descriptor, 64, 0).decode("ascii", errors="replace").strip()
        if text and not text.isdigit():
            raise LedgerError(f"{path}: {text!r} is no epoch; write back the last epoch of {worker} (see its segments)")
        epoch = (int(text) if text else _last_recorded(directory, worker)) + 1
        line = f"{epoch}\n".encode()
        os.pwrite(descriptor, line, 0)
        os.ftruncate(descriptor, len(line))
        if durable:
            os.fsync(descriptor)
        return epoch
    finally:
        os.close(descriptor)


def _last_recorded(directory: Path, worker: str) -> int:
    """The last epoch that left a file, so that a lost counter never leads a new life over the evidence of an old one."""
    names = [path.stem.removeprefix(f"{worker}-") for path in directory.glob(f"wal/{worker}-*.wal")]
    names += [path.stem.split("-")[0] for path in directory.glob(f"*/day=*/worker={worker}/*.parquet")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def last_epochs(directory: Path) -> dict[str, int]:
    """The last epoch taken by each worker, for the reader. A counter that holds no number was of a first one at least; one
    that is empty never got as far."""
    found = {}
    for path in sorted((directory / "epochs").glob("*")):
        text = path.read_text(errors="replace").strip()
        if text:
            found[path.name] = int(text) if text.isdigit() and text.isascii() else 1
    return found
