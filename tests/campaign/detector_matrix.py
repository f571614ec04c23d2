"""Which detector sees which fault, and when: measured, and written into docs/detectors.md.

`python tests/campaign/detector_matrix.py` prints the page, `--write` puts it into its place.

Invariant: a page follows from `SEEDS` and the engine alone. In log mode a check changes nothing that happens, so one run
with every defence in log mode shows what each of them alone would.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from scenario_draw import FAULTS, draw
from wrong_reads import wrong_reads

from engine.defences import DETECTORS
from engine.faults import CLASSES
from engine.ledger.reader import Ledger, read_ledger
from engine.simulation.simulate import simulate
from engine.truth import read_truth
from forensics.ask import Asked, ask
from forensics.catalogue import load_queries

HEALTHY = Path(__file__).parents[2] / "sample_logs" / "healthy" / "ledger"
PAGE = Path(__file__).parents[2] / "docs" / "detectors.md"
SEEDS = {
    "short-handoff": (2, 3, 5), "fail-open": (2, 3, 4), "late-write": (1, 8), "early-ack": (1, 8), "lost-ack": (1, 2, 8),
    "source-reuse": (3, 5), "early-post": (2, 3, 4), "early-free": (1, 2, 3), "double-free": (1, 4, 5), "leak": (1, 5, 7),
    "slow-drain": (1, 5, 8), "room-collision": (6, 7, 9), "shifted-pages": (1, 2, 3),
}  # fmt: skip
"""Such in which the fault does harm."""
COLUMNS = tuple(dict.fromkeys(DETECTORS.values()))
CAUGHT, LATE, MISSED = "●", "◐", "○"
FREES, ROOMS = DETECTORS["owner-free"], DETECTORS["room-unique"]
CLASS_OF = {fault.name: fault.mechanism for fault in CLASSES}


Request = tuple[str, int, int]
"""(worker, epoch, ordinal)."""


@dataclass
class Affected:
    """Somebody whom a fault harmed: when, and whom a check may speak of: requests, or pages that were read."""

    requests: set[Request]
    at_us: int | None = None  # of the first bad read; None: nothing was read that should not have been
    worker: str = ""
    step: int = 0
    places: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class Cell:
    """Of `count` affected, how many a detector told at or before the first bad read, and how many only after it."""

    count: int = 0
    caught: int = 0
    late: int = 0

    def __str__(self) -> str:
        if self.caught == self.count:
            return CAUGHT
        return f"{LATE} {self.caught}+{self.late}" if self.caught + self.late else MISSED


def measure(fault: str, mode: str = "log", defence: str | None = None) -> dict[str, Cell]:
    """Cells of one fault by detector, over its seeds; with `defence` that one alone is in `mode`."""
    cells = {detector: Cell() for detector in COLUMNS}
    for seed in SEEDS[fault]:
        drawn = draw(seed, (fault,), mode, defence)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "ledger"
            simulate(drawn.scenario, path)
            ledger = read_ledger(path, verify=False)
            for one in affected(fault, ledger, path / "truth"):
                _note(cells, one, ledger)
    return cells


def affected(fault: str, ledger: Ledger, truth: Path) -> list[Affected]:
    """Whom the fault harmed: who read another's bytes, or (leak, slow-drain) whose pages did not come back at once."""
    if CLASS_OF[fault] in ("M9", "M10"):
        return [Affected({one}) for one in _without_pages_back(ledger, held=CLASS_OF[fault] == "M10")]
    requests: dict[str, set[Request]] = defaultdict(set)
    for row in ledger.tables["requests"].to_pylist():
        if row["op"] == "receive":
            requests[row["rid"]].add((row["worker"], row["epoch"], row["req"]))
    wrong, found = wrong_reads(truth), read_truth(truth)
    return [
        Affected(
            set().union(*(requests[each] for each in (rid, *one.donors))), wrong[rid].first_us, wrong[rid].first_worker,
            wrong[rid].first_step, set().union(*one.donors.values()),
        )
        for rid, one in sorted(found.items())
        if one.contaminated
    ]  # fmt: skip


def _without_pages_back(ledger: Ledger, held: bool) -> list[Request]:
    """Requests that were aborted and whose pages were held, or neither held nor freed."""
    by_op: dict[str, set[Request]] = defaultdict(set)
    for table in ("pages", "requests"):
        for row in ledger.tables[table].to_pylist():
            if row["req"] is not None:
                by_op[row["op"]].add((row["worker"], row["epoch"], row["req"]))
    ended = by_op["reserve"] & by_op["abort"]
    return sorted(ended & by_op["hold"] if held else ended - by_op["hold"] - by_op["free"])


def _note(cells: dict[str, Cell], one: Affected, ledger: Ledger) -> None:
    """Whether the failed checks of a run speak of somebody affected, and in time."""
    told: dict[str, bool] = {}  # detector -> in time
    pages = _pages_of_requests(ledger)
    for row in ledger.tables["checks"].to_pylist():
        if row["op"] == "mismatch" and _speaks_of(row, one, pages):
            told[row["detector"]] = told.get(row["detector"], False) or _in_time(row, one)
    for detector, cell in cells.items():
        cell.count += 1
        cell.caught += told.get(detector, False)
        cell.late += detector in told and not told[detector]


def _pages_of_requests(ledger: Ledger) -> dict[Request, set[tuple[str, int]]]:
    pages: dict[Request, set[tuple[str, int]]] = defaultdict(set)
    for row in ledger.tables["pages"].to_pylist():
        if row["op"] in ("reserve", "append"):
            pages[row["worker"], row["epoch"], row["req"]] |= {(row["worker"], page) for page in row["pages"]}
    return pages


def _speaks_of(row: dict[str, Any], one: Affected, pages: dict[Request, set[tuple[str, int]]]) -> bool:
    """By its request; a free that is wrong speaks of the pages, the numbers of two requests in one room of both, and an
    audit of its whole worker."""
    place = row["worker"], row["epoch"]
    if row["req"] is not None:
        own = (*place, row["req"])
        return own in one.requests or (row["detector"] == FREES and bool(pages[own] & one.places))
    if row["detector"] == ROOMS:
        return any((*place, req) in one.requests for req in (row["expected"], row["found"]))
    return any(each[:2] == place for each in one.requests)


def _in_time(row: dict[str, Any], one: Affected) -> bool:
    if one.at_us is None:
        return True
    if row["step"] is not None and row["worker"] == one.worker:
        return bool(row["step"] <= one.step)
    return round(row["t"].timestamp() * 1e6) <= one.at_us


def page() -> str:
    """The text of docs/detectors.md."""
    lines = [
        "# Which detector sees which fault",
        "",
        "Measured, not argued: `make detectors` plays every fault alone in virtual time, seeds fixed, with every defence in",
        "`log` mode, and writes this page; a test keeps it as the command writes it.",
        "",
        "A detector has caught a fault where a failed check of it speaks of a request that read another's bytes, or of one of the",
        "donors, at or before the first bad read. `●`: of every such request. `◐ c+l`: of c in time, and of l only",
        "afterwards. `○`: of none. Where a fault lets nobody read another's bytes (leak, slow-drain), it is about the requests",
        "whose pages did not come back, and there is no too late. Digests (D3), canaries (D5, D6) and latencies (D7) need real",
        "bytes or clients: virtual time has none.",
        "",
        "| class | fault | affected | " + " | ".join(COLUMNS) + " |",
        "|---|---|---|" + "---|" * len(COLUMNS),
    ]
    for fault in FAULTS:
        cells = measure(fault)
        count = cells[COLUMNS[0]].count
        lines.append(
            f"| {CLASS_OF[fault]} | {fault} | {count} | " + " | ".join(str(cells[name]) for name in COLUMNS) + " |"
        )
    lines += ["", "| detector | defences |", "|---|---|"]
    lines += [f"| {name} | {', '.join(d for d, each in DETECTORS.items() if each == name)} |" for name in COLUMNS]
    return "\n".join([*lines, "", *precision()]) + "\n"


def precision() -> list[str]:
    """What every detector, live and in the record, says of a week in which nothing happened."""
    query = next(query for query in load_queries() if query.name == "detections")
    result = ask(query, HEALTHY, Asked())
    false = Counter(row["detector"] for row in result.rows.to_pylist())
    tables = read_ledger(HEALTHY).tables
    rids = {row["rid"] for row in tables["requests"].to_pylist() if row["op"] == "receive"}
    passed: Counter[str] = Counter()
    for row in tables["checks"].to_pylist():
        if row["op"] == "passed":
            passed[row["detector"]] += row["n"] or 1
    return [
        "## False alarms",
        "",
        f"`forensics query detections --ledger sample_logs/healthy/ledger`: {len(rids)} requests in a week with every defence on,",
        f"{', '.join(f'{count:,} checks of {name} passed' for name, count in sorted(passed.items()))};"
        f" false detections: {', '.join(f'{count} of {name}' for name, count in sorted(false.items())) or 'none'}.",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
