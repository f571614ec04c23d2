"""What passes physically found that was not right, whether or not a token left afterwards.

Invariant: read from the rows of `truth/` alone; `engine.truth.read_truth` says what of it was delivered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from engine.truth import KV, Place, place_of


@dataclass
class WrongReads:
    """One response: `corrupt` = some pass found what nobody had written, its own content in a wrong place, or come under
    another tag, be it in a torn page; `alike`: whose bytes, of the reader's own tokens, stood on which pages, `astray`: of
    those, which under another tag than the reader's; the first pass that certainly found another's bytes, by worker and
    step, at `first_us` (true time)."""

    corrupt: bool = False
    alike: set[tuple[str, Place]] = field(default_factory=set)
    astray: set[tuple[str, Place]] = field(default_factory=set)
    first_us: int | None = None
    first_worker: str = ""
    first_step: int = 0


def wrong_reads(directory: Path) -> dict[str, WrongReads]:
    """By rid, over all workers of a ledger's `truth/` directory."""
    rids: dict[int, str] = {}
    reads = []
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["kind"] == "stamp":
                rids[row["stamp"]] = row["rid"]
            elif row["kind"] == "read":
                reads.append((row["t"], path.stem, row))
    found: dict[str, WrongReads] = {}
    for t, worker, row in sorted(reads, key=lambda read: read[:2]):
        one, torn = found.setdefault(rids[row["stamp"]], WrongReads()), set(row["torn"])
        for page, stamps in (*row["borrowed"].items(), *row.get("displaced", {}).items()):
            named = {(rids[stamp], place_of(worker, row.get("pool", KV), int(page))) for stamp in stamps}
            one.alike |= named
            one.astray |= named if int(page) in row.get("astray", ()) else set()
        certain = {page: stamps for page, stamps in row["foreign"].items() if int(page) not in torn}
        own = set(map(str, row.get("astray", ()))) - {*row["borrowed"], *row.get("displaced", ())}
        one.corrupt |= bool(row["misplaced"] or row.get("displaced") or own) or any(
            0 in stamps for stamps in row["foreign"].values()
        )
        if one.first_us is None and any(stamp for stamps in certain.values() for stamp in stamps):
            one.first_us, one.first_worker, one.first_step = t, worker, row["step"]
    return found
