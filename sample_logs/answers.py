"""What is to be found in a sample: from the physical truth of its run and from its scenario.

Invariant: neither the ledger nor forensics is asked. Truth knows what every pass found in the pages that it read.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from catalogue import Sample

from engine.block_pool import PageState
from engine.simulation.fleet import Fleet
from engine.simulation.scenario import Scenario
from engine.simulation.script import RequestAction, ReserveAction
from engine.simulation.traffic import arrivals
from engine.truth import TruthResponse, read_truth

VERDICTS = ("contaminated", "unknown", "corrupt", "exposed", "clean")
OUTSIDER = "outsider"
CROSS_TENANT = "it read KV that another tenant's request had computed from the same tokens"


class Asked(NamedTuple):
    """What a scenario says of a request."""

    tenant: str
    purpose: str


def answer(sample: Sample, scenario: Scenario, truth: Path, leaked: dict[str, int]) -> dict[str, Any]:
    """`expected.json` of a sample, from its `truth` directory and the pages that were `leaked` on each worker."""
    asked = dict(_requests(scenario))
    told = _Truth(sample, asked, truth)
    by_verdict: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    for rid in sorted(asked, key=_natural):
        by_verdict[told.verdict(rid)].append(rid)
    contaminated = by_verdict["contaminated"]
    return {
        "sample": sample.name,
        "responses": len(asked),
        "counts": {verdict: len(rids) for verdict, rids in by_verdict.items()},
        "contaminated_by_purpose": dict(sorted(Counter(asked[rid].purpose for rid in contaminated).items())),
        "leaked_pages": {worker: count for worker, count in leaked.items() if count},
        "contaminated": [told.entry(rid) for rid in contaminated],
        "corrupt": by_verdict["corrupt"],
        "exposed": {rid: sample.exposed.get(rid, CROSS_TENANT) for rid in by_verdict["exposed"]},
        "unknown": dict(sample.unknown),
    }


def leaked_pages(fleet: Fleet) -> dict[str, int]:
    """Worker -> pages that are in use for a request that is at an end there."""
    found = {}
    for name, worker in fleet.workers.items():
        role = worker.role
        used = role.pool.pages_in(PageState.USED).tolist()
        found[name] = sum(role.pool.owner_of(page) not in role.requests for page in used)
    return found


def _requests(scenario: Scenario) -> Iterator[tuple[str, Asked]]:
    """Everybody who asks for anything, by rid."""
    for arrival in arrivals(scenario.traffic, scenario.seed, scenario.start, scenario.end):
        yield arrival.rid, Asked(arrival.tenant, arrival.purpose)
    for action in scenario.script:
        if isinstance(action, RequestAction):
            yield action.rid, Asked(action.tenant, action.purpose)
        elif isinstance(action, ReserveAction):
            yield action.outsider, Asked(action.outsider, OUTSIDER)


class _Truth:
    """What a run's `truth` directory says of every request of its scenario."""

    def __init__(self, sample: Sample, asked: dict[str, Asked], directory: Path) -> None:
        self._sample, self._asked = sample, asked
        self._found = {rid: one for rid, one in read_truth(directory).items() if rid in asked}
        self._borrowed = _borrowed(directory)

    def verdict(self, rid: str) -> str:
        """Raises ValueError where truth itself cannot tell: such a scenario is no sample."""
        sample, truth = self._sample, self._found.get(rid) or TruthResponse(rid)
        if rid in sample.unknown:
            return "unknown"
        if truth.contaminated or self._disclosed(truth):
            return "contaminated"
        if truth.perhaps:
            raise ValueError(f"{sample.name}: nobody can tell what {rid} read; change the scenario's times")
        if truth.unwritten or truth.misplaced or truth.wrong_meaning:
            return "corrupt"
        return "exposed" if rid in sample.exposed or truth.cross_tenant else "clean"

    def entry(self, rid: str) -> dict[str, Any]:
        """Donors, pages and first step of a contaminated response."""
        truth, pools = self._found[rid], defaultdict(set)
        others = self._disclosed(truth)
        for places in truth.donors.values():
            for worker, page in places:
                pool, _, number = str(page).rpartition("/")
                pools[f"{worker}/{pool or 'kv'}"].add(int(number))
        for worker, page in {place for giver in others for place in self._borrowed[rid, giver]}:
            pools[f"{worker}/kv"].add(page)
        return {
            "rid": rid,
            "purpose": self._asked[rid].purpose,
            "mechanism": self._sample.mechanism,
            "donors": sorted({*truth.donors, *others}),
            "pages": {pool: ranges(pages) for pool, pages in sorted(pools.items())},
            "first_worker": truth.first_worker,
            "first_step": truth.first_step,
        }

    def _disclosed(self, truth: TruthResponse) -> set[str]:
        """Givers of the right tokens whose tenant and meaning are others."""
        tenant = self._asked[truth.rid].tenant
        return {giver for giver in truth.wrong_meaning if self._asked[giver].tenant != tenant}


def _borrowed(directory: Path) -> dict[tuple[str, str], set[tuple[str, int]]]:
    """(reader, giver) -> the (worker, page) where the reader found the right tokens, computed by the giver."""
    rows = [
        (path.stem, json.loads(line)) for path in directory.glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    rids = {row["stamp"]: row["rid"] for _, row in rows if row["kind"] == "stamp"}
    places = defaultdict(set)
    for worker, row in rows:
        for page, stamps in row.get("borrowed", {}).items():
            for stamp in stamps:
                places[rids[row["stamp"]], rids[stamp]].add((worker, int(page)))
    return places


def ranges(pages: Iterable[int]) -> str:
    """Page numbers as text: 3-7,9."""
    ordered = sorted(pages)
    ends = [i for i, (one, other) in enumerate(pairwise(ordered)) if other != one + 1] + [len(ordered) - 1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return ",".join(
        f"{ordered[a]}" if a == b else f"{ordered[a]}-{ordered[b]}" for a, b in zip(starts, ends, strict=True)
    )


def _natural(rid: str) -> tuple[str, int]:
    """Orders over-9 before over-10."""
    head, _, number = rid.rpartition("-")
    return (head, int(number)) if number.isdigit() else (rid, -1)
