"""Landings that a failed tag check places.

Invariant: a check that failed proves what was there; that an earlier one held is believed only where nothing is lost that
may say otherwise, and the record counts so many checks that every pass before was checked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from forensics.content import EventRun
from forensics.order import NOTHING
from forensics.reading import Attendance
from forensics.rows import Row, WorkerRows

LOGGED = "log"
"""Action of a failed check after which its pass counted as any other."""


def proved_by_checks(
    worker: WorkerRows,
    attendances: Mapping[int, Attendance],
    events: list[EventRun],
    lost: Sequence[tuple[int, int]] = (),
) -> list[EventRun]:
    """Events of a ledger, in which landings on a worker's pages are placed by its failed tag checks. `lost`: (lo, hi)
    between which rows of the worker are missing.

    A failed tag check proves that the page held `found` at its `step`, and the same request's checks of earlier
    steps, which held, prove that it did not yet: the landing stands right before that pass. Of several that brought
    the page that tag, nobody can say which one the check met.
    """
    first = _first_failures(worker, attendances, lost)
    if not first:
        return events
    landed = [one for one in events if one.event.page[0] == worker.key and one.event.kind == "landing"]
    brought = Counter(
        at
        for one in landed
        for page in one.pages.tolist()
        if (at := (one.event.page[1], page, one.event.tag or 0)) in first
    )
    placed: list[EventRun] = []
    for one in events:
        event = one.event
        if event.page[0] != worker.key or event.kind != "landing":
            placed.append(one)
            continue
        places = [(event.page[1], page, event.tag or 0) for page in one.pages.tolist()]
        proofs = [first[at] if brought[at] == 1 else None for at in places]
        rest = np.ones(len(proofs), bool)
        for i, found in enumerate(proofs):
            if found is not None and event.lo <= found[1] and event.hi > found[0]:
                narrowed = replace(event, lo=max(event.lo, found[0]), hi=min(event.hi, found[1]))
                placed.append(replace(one, event=narrowed, pages=one.pages[i : i + 1], index=one.index[i : i + 1]))
                rest[i] = False
        if rest.any():
            placed.append(replace(one, pages=one.pages[rest], index=one.index[rest]))
    return placed


def _first_failures(
    worker: WorkerRows, attendances: Mapping[int, Attendance], lost: Sequence[tuple[int, int]]
) -> dict[tuple[str, int, int], tuple[int, int]]:
    """(pool, page, tag found) -> (lo, hi] in which the page came to hold that tag."""
    runs = {row["step"]: row for row in worker.steps}
    first: dict[tuple[str, int, int], tuple[int, int]] = {}
    for row in worker.checks:
        run = runs.get(row["step"])
        if row["op"] != "mismatch" or row["page"] is None or run is None or run["n"] != 1 or run["since_seq"] is None:
            continue
        at = (row["pool"], row["page"], row["found"])
        if at not in first:
            attendance = attendances.get(row["req"])
            held = NOTHING if attendance is None else _held(worker, attendance, row, run, lost)
            first[at] = (held, run["since_seq"])
    return first


def _held(worker: WorkerRows, attendance: Attendance, failed: Row, run: Row, lost: Sequence[tuple[int, int]]) -> int:
    """The end of the last pass before `run` in which the check that `failed` there certainly held; NOTHING where none did.

    A check that failed before may stand in a row that is lost, and so may what bound the page, or paused the request.
    """
    until = run["since_seq"]
    begun = [
        row["seq"]
        for row in (*attendance.binds, *attendance.appends)
        if row["pool"] == failed["pool"] and row["seq"] <= until and failed["page"] in (row["pages"] or ())
    ]
    if not begun:
        return NOTHING
    bound = max([*begun, *(resumed for _, resumed in attendance.pauses)])
    if any(lo < failed["seq"] and hi > bound for lo, hi in lost) or not _all_were_checked(
        worker, attendance, failed, run
    ):
        return NOTHING
    return max((p.seq for p in attendance.passes if bound <= p.since_seq and p.seq <= until), default=NOTHING)


def _all_were_checked(worker: WorkerRows, attendance: Attendance, failed: Row, run: Row) -> bool:
    """Whether `passed` rows count as many pages as the request had in all its passes that it went on from."""
    pool = failed["pool"]
    taken = sorted(
        (row["seq"], len(row["pages"] or ())) for row in (*attendance.binds, *attendance.appends) if row["pool"] == pool
    )
    seqs, pages = [seq for seq, _ in taken], np.cumsum([0, *(n for _, n in taken)])
    passes = [p for p in attendance.passes if failed["action"] == LOGGED or p.seq < run["seq"]]
    due = sum(p.n * int(pages[bisect_left(seqs, p.seq)]) for p in passes)
    counted = sum(
        row["n"] or 0
        for row in worker.checks
        if row["op"] == "passed" and row["req"] == failed["req"] and row["detector"] == failed["detector"]
    )
    return counted >= due
