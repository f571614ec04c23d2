"""Requests that ran on a decode worker while rows of its passes or of their pauses were lost, and what that leaves in doubt.

Invariant: a lost row never makes more certain. Where the number of requests that took part in the next run is the one that
its row states, one lost row of a request cannot have paused anybody or let anybody run again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from forensics.order import INF
from forensics.rows import WorkerRows

Doubtful = list[tuple[str, list[int], int]]
"""(pool, pages, until which seq)."""


@dataclass(frozen=True)
class Tenancy:
    """One request: its pages by pool, those that it grows into apart, and from when to when (seq) it ran."""

    begun: int
    ended: int
    pages: dict[str, list[int]]
    grown: dict[str, list[int]]

    def ran_across(self, lo: int, hi: int) -> bool:
        """Whether it ran while rows between `lo` and `hi` were written."""
        return self.begun < hi and self.ended > lo


def tenancies(worker: WorkerRows) -> dict[int, Tenancy]:
    """Every request of a worker that bound pages."""
    ended = {row["req"]: row["seq"] for row in worker.requests if row["op"] in ("finish", "abort")}
    found: dict[int, Tenancy] = {}
    for row in worker.pages:
        req = row["req"]
        if row["op"] not in ("bind", "append") or req is None:
            continue
        if req not in found:
            found[req] = Tenancy(row["seq"], ended.get(req, INF), defaultdict(list), defaultdict(list))
        pages = list(row["pages"] or ())
        found[req].pages[row["pool"]] += pages
        found[req].grown[row["pool"]] += pages if row["op"] == "append" else pages[-1:]
    return found


def grown_across(worker: WorkerRows, lo: int, hi: int) -> Doubtful:
    """Where requests grow that ran across lost passes: how many slots they had filled is not known."""
    return [
        (pool, pages, one.ended)
        for one in tenancies(worker).values()
        if one.ran_across(lo, hi)
        for pool, pages in one.grown.items()
    ]


def read_across(worker: WorkerRows, lo: int, hi: int) -> Doubtful:
    """Where requests read that ran across a lost row of theirs: it may have said that one was paused, or ran again."""
    known = tenancies(worker)
    run = next((row for row in worker.steps if row["since_seq"] is not None and row["since_seq"] >= hi - 1), None)
    if run is None or (hi - lo == 2 and run["batch"] == _running(worker, known, run["since_seq"])):
        return []
    across = [one for one in known.values() if one.ran_across(lo, hi)]
    return [(pool, pages, one.ended) for one in across for pool, pages in one.pages.items()]


def _running(worker: WorkerRows, known: dict[int, Tenancy], at: int) -> int:
    """Requests that take part in a run which begins at `at`, as far as rows say."""
    bound: dict[int, bool] = {}
    for row in worker.pages:
        if row["seq"] <= at and row["op"] in ("bind", "append", "unbind") and row["req"] is not None:
            bound[row["req"]] = row["op"] != "unbind"
    paused = {
        row["req"]: row["op"] == "pause"
        for row in worker.requests
        if row["op"] in ("pause", "resume") and row["seq"] <= at
    }
    return sum(
        bound.get(req, False) and not paused.get(req, False)
        for req, one in known.items()
        if one.begun <= at < one.ended
    )
