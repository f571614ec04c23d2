"""Physical truth beside the ledger: who wrote what each pass really found, from the stamps that travel with the bytes.

Invariant: nothing here reads or knows the ledger; `truth/` is for tests and simulations, forensics never opens it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def stamp_of(rid: str) -> int:
    """The stamp (63 bits, never 0) that a request leaves in every slot it writes."""
    return int.from_bytes(hashlib.blake2b(rid.encode(), digest_size=8).digest(), "little") >> 1 | 1


class TruthLog:
    """Appends JSON lines to `truth/<worker>.jsonl`; does nothing where `path` is None."""

    def __init__(self, path: Path | None, worker: str) -> None:
        self._lock = threading.Lock()
        self._file = None
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
            self._file = open(path / f"{worker}.jsonl", "a", buffering=1)  # noqa: SIM115  closed with the process

    @property
    def on(self) -> bool:
        """Whether truth is kept."""
        return self._file is not None

    def stamp(self, stamp: int, rid: str) -> None:
        """Which request a stamp belongs to."""
        self._write({"kind": "stamp", "stamp": stamp, "rid": rid})

    def read(self, step: int, t_us: int, stamp: int, foreign: dict[int, list[int]]) -> None:
        """What a pass found that was not the reader's: page -> stamps (0 = never written)."""
        self._write({"kind": "read", "step": step, "t": t_us, "stamp": stamp, "foreign": foreign})

    def finish(self, rid: str, output_tokens: int, last_token_us: int | None) -> None:
        """How many tokens left, and when the last one did."""
        self._write({"kind": "finish", "rid": rid, "output_tokens": output_tokens, "last_token": last_token_us})

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            with self._lock:
                self._file.write(json.dumps(row) + "\n")


@dataclass
class TruthResponse:
    """The truth about one request: contaminated if a pass found another's stamp and a token left at or after it."""

    rid: str
    contaminated: bool = False
    donors: dict[str, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))  # rid -> (worker, page)
    first_step: int | None = None
    output_tokens: int = 0


def read_truth(directory: Path) -> dict[str, TruthResponse]:
    """Truth by rid over all workers of a ledger's `truth/` directory."""
    rows = [
        (path.stem, json.loads(line))
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    rids = {row["stamp"]: row["rid"] for _, row in rows if row["kind"] == "stamp"}
    found = {rid: TruthResponse(rid) for rid in rids.values()}
    last_token: dict[str, int] = {}
    for _, row in rows:
        if row["kind"] == "finish":
            found[row["rid"]].output_tokens = max(found[row["rid"]].output_tokens, row["output_tokens"])
            if row["last_token"] is not None:
                last_token[row["rid"]] = max(last_token.get(row["rid"], 0), row["last_token"])
    for worker, row in rows:
        if row["kind"] == "read":
            response = found[rids[row["stamp"]]]
            if last_token.get(response.rid, -1) < row["t"]:
                continue
            for page, stamps in row["foreign"].items():
                for stamp in stamps:
                    if stamp != 0:
                        response.contaminated = True
                        response.donors[rids[stamp]].add((worker, int(page)))
                        response.first_step = row["step"] if response.first_step is None else response.first_step
    return found
