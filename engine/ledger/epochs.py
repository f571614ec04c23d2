"""Epochs: one life of a worker process, a number taken from the ledger directory.

Invariant: no two processes ever get the same epoch of one worker; the number is on disk before it is used.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from engine.ledger.errors import LedgerError

MOST_EPOCHS = 4095
"""A tag has 12 bits for an epoch."""
_WORKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_worker_name(worker: str) -> str:
    """Return `worker` if it can name a file; raise LedgerError otherwise."""
    if not _WORKER_NAME.fullmatch(worker):
        raise LedgerError(f"worker name {worker!r}: use letters, digits, '.', '_', '-' (at most 64, not first)")
    return worker


def epoch_of(text: str) -> int | None:
    """The epoch that a text is; None where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= MOST_EPOCHS else None


def take_epoch(directory: Path, worker: str, durable: bool = True) -> int:
    """Increment and return the epoch of `worker`, under a lock, fsynced (`durable`). The first epoch is 1."""
    path = directory / "epochs" / check_worker_name(worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        text = os.pread(descriptor, 64, 0).decode("ascii", errors="replace").strip()
        last = epoch_of(text) if text else _last_recorded(directory, worker)
        if last is None:
            raise LedgerError(f"{path}: {text!r} is no epoch; write back the last epoch of {worker} (see its segments)")
        epoch = last + 1
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
    return max((epoch for name in names if (epoch := epoch_of(name)) is not None), default=0)


def last_epochs(directory: Path) -> dict[str, int | None]:
    """The last epoch taken by each worker, for the reader; None where the counter holds none. One that is empty took none, and
    what cannot be read as a file is no counter."""
    found = {}
    for path in sorted((directory / "epochs").glob("*")):
        try:
            text = path.read_text(errors="replace").strip()
        except OSError:
            continue
        if text:
            found[path.name] = epoch_of(text)
    return found
