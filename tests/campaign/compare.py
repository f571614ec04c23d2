"""One run's verdicts against its physical truth: recall, precision, donors and pages, class, loss, defences, record.

Invariant: a failure is told for what it is about, never summed up; what is allowed is allowed here and nowhere else.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.ledger.reader import Ledger, read_ledger
from engine.truth import TruthResponse, read_truth
from forensics.foreign_reads import ForeignReads, foreign_reads
from lost_rows import read_without
from mechanisms import OF_FAULT
from scenario_draw import Drawn

Row = dict[str, Any]
Places = set[tuple[str, int]]
SEVERAL = "?"
"""Stands for the donor of pages whose bytes are several others'."""


@dataclass(frozen=True)
class Failure:
    """What one check found wrong, of which response (empty: of the run)."""

    check: str
    rid: str
    words: str


@dataclass
class Judged:
    """A run, judged: what failed, and counts of what happened."""

    drawn: Drawn
    failures: list[Failure] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fail(self, check: str, rid: str, words: object) -> None:
        """Note a failure."""
        self.failures.append(Failure(check, rid, str(words)))


class Comparison:
    """Truth and verdicts of one run, side by side."""

    def __init__(self, drawn: Drawn, path: Path) -> None:
        self.drawn, self.path = drawn, path
        self.judged = Judged(drawn)
        self.ledger: Ledger = read_ledger(path)
        self.reads: ForeignReads = foreign_reads(self.ledger)
        self.responses: dict[str, Row] = {row["rid"]: row for row in self.reads.responses.to_pylist()}
        self.findings: dict[str, list[Row]] = defaultdict(list)
        for row in self.reads.findings.to_pylist():
            self.findings[row["rid"]].append(row)
        found = read_truth(path / "truth")
        self.truth = {rid: found.get(rid) or TruthResponse(rid) for rid in {*found, *self.responses} if not rid.startswith("?")}

    def run(self) -> Judged:
        """Every check."""
        self._record()
        for rid in sorted(self.truth):
            verdict = self.responses.get(rid)
            if verdict is None:
                self._absent(rid)
                continue
            self._recall(rid, verdict)
            self._precision(rid, verdict)
            self._class(rid, verdict)
        if self.drawn.defended:
            self._defended()
        self._loss()
        return self.judged

    def pages(self, rid: str, *kinds: str, delivered: bool = False) -> Places:
        """Pages of a response's findings of some kinds."""
        return {
            (row["worker"], page)
            for row in self.findings[rid]
            if row["kind"] in kinds and (not delivered or row["delivered"] == "yes")
            for page in row["page_list"] or ()
        }

    def _record(self) -> None:
        """The record is whole where nothing was taken from it."""
        if self.ledger.problems:
            self.judged.fail("record", "", self.ledger.problems)
        if not {"rows", "kill"} & set(self.drawn.losses) and self.ledger.gaps:
            self.judged.fail("record", "", self.ledger.gaps[:3])

    def _absent(self, rid: str) -> None:
        if self.reads.unattributed == 0:
            self.judged.fail("absent", rid, "no verdict, and nothing is said to be missing")

    def _recall(self, rid: str, verdict: Row) -> None:
        truth = self.truth[rid]
        if not truth.contaminated:
            return
        self.judged.counts["contaminated in truth"] += 1
        if verdict["verdict"] == "contaminated":
            self.judged.counts["contaminated found"] += 1
            self._everything_listed(rid, verdict)
        elif verdict["verdict"] == "unknown" and not self.drawn.decidable:
            self.judged.counts["contaminated, unknown by a poor record"] += 1
        else:
            self.judged.fail("recall", rid, f"{verdict['verdict']} ({verdict['reason']}): truth {_told(truth)}")

    def _everything_listed(self, rid: str, verdict: Row) -> None:
        """Certain donors and pages are in the verdict, but for pages that it lists as unknown."""
        truth, undecided = self.truth[rid], self.pages(rid, "unknown")
        certain = {place for places in truth.donors.values() for place in places}
        foreign = self.pages(rid, "foreign")
        donors = {donor for donor, places in truth.donors.items() if places - undecided}
        if undecided & certain:
            self.judged.counts["lower bounds"] += 1
        if certain - undecided - foreign:
            self.judged.fail("pages missing", rid, f"{certain - undecided - foreign} of {_told(truth)}; {_rows(self.findings[rid])}")
        elif donors - set(verdict["donors"]):
            self.judged.fail("donors missing", rid, f"{donors - set(verdict['donors'])} of {_told(truth)}; {_rows(self.findings[rid])}")

    def _precision(self, rid: str, verdict: Row) -> None:
        truth = self.truth[rid]
        if verdict["verdict"] == "corrupt" and not (truth.unwritten or truth.misplaced or truth.contaminated or truth.perhaps):
            self.judged.fail("corrupt wrongly", rid, f"{_rows(self.findings[rid])}; truth {_told(truth)}")
        if verdict["verdict"] != "contaminated":
            return
        self.judged.counts["contaminated in verdict"] += 1
        if not (truth.contaminated or truth.perhaps):
            self.judged.fail("accused", rid, f"{_rows(self.findings[rid])}; truth {_told(truth)}")
            return
        places = _joined(truth)
        delivered = [row for row in self.findings[rid] if row["kind"] == "foreign" and row["delivered"] == "yes"]
        donors = {row["donor_rid"] for row in delivered if row["donor_rid"] not in (None, SEVERAL)}
        if donors - set(places):
            self.judged.fail("donors too many", rid, f"{donors - set(places)}: {_rows(delivered)}; truth {_told(truth)}")
        pages = self.pages(rid, "foreign", delivered=True)
        extra = pages - {place for some in places.values() for place in some}
        if extra:
            self.judged.fail("pages too many", rid, f"{extra}: {_rows(delivered)}; truth {_told(truth)}")

    def _class(self, rid: str, verdict: Row) -> None:
        if verdict["verdict"] != "contaminated" or len(self.drawn.faults) != 1:
            return
        allowed = OF_FAULT[self.drawn.faults[0]]
        found = {row["mechanism"] for row in self.findings[rid] if row["kind"] == "foreign"}
        if not found <= allowed:
            self.judged.fail("class", rid, f"{sorted(found)} of {self.drawn.faults[0]}: {_rows(self.findings[rid])}")

    def _defended(self) -> None:
        """Nothing gets through, and who is refused is told why."""
        for rid, truth in self.truth.items():
            if truth.contaminated:
                self.judged.fail("defended", rid, _told(truth))
        for row in self.responses.values():
            if row["verdict"] in ("contaminated", "corrupt"):
                self.judged.fail("defended", row["rid"], _rows(self.findings[row["rid"]]))
        for row in self.ledger.tables["requests"].to_pylist():
            ended = row["op"] in ("abort", "reject") and row["worker"] == "gateway"
            if ended and not (row["status"] and row["reason"]):
                self.judged.fail("untyped error", str(row["req"]), row)

    def _loss(self) -> None:
        """The same run with rows taken away: verdicts move to unknown only."""
        source = random.Random(f"loss/{self.drawn.seed}")
        ledger = read_without(self.path, source, source.choice([0.002, 0.01, 0.05]))
        reads = foreign_reads(ledger, engine="replay")
        after = {row["rid"]: row for row in reads.responses.to_pylist()}
        for rid, before in self.responses.items():
            now = after.get(rid)
            if now is None:
                if reads.unattributed == 0 and not rid.startswith("?"):
                    self.judged.fail("loss", rid, "gone, and nothing is said to be missing")
            elif now["verdict"] not in (before["verdict"], "unknown"):
                self.judged.fail("loss", rid, f"from {before['verdict']} to {now['verdict']}: {now}")
            elif not set(now["donors"]) <= set(before["donors"]):
                self.judged.fail("loss", rid, f"new donors {set(now['donors']) - set(before['donors'])}: {now}")


def _joined(truth: TruthResponse) -> dict[str, Places]:
    return {rid: truth.donors.get(rid, set()) | truth.perhaps.get(rid, set()) for rid in {*truth.donors, *truth.perhaps}}


def _told(truth: TruthResponse) -> str:
    certain, perhaps = ({rid: sorted(p) for rid, p in places.items()} for places in (truth.donors, truth.perhaps))
    return (
        f"{'contaminated' if truth.contaminated else 'undecided' if truth.undecided else 'clean'}"
        f"{' unwritten' if truth.unwritten else ''}{' misplaced' if truth.misplaced else ''}, certain {certain}, perhaps {perhaps}, first {truth.first_worker}/{truth.first_step}"
    )


def _rows(findings: list[Row]) -> list[str]:
    names = ("worker", "kind", "proof", "delivered", "mechanism", "donor_rid", "page_list", "first_step", "reason")
    return [" ".join(f"{row[name]}" for name in names) for row in findings if row["kind"] != "clean"]
