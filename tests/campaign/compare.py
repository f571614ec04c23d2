"""One run's verdicts against its physical truth: recall, precision, donors and pages, class, loss, defences, record.

Invariant: a failure is told for what it is about, never summed up; what is allowed is allowed here and nowhere else.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lost_rows import RowName, draw_rows, read_without, smallest
from mechanisms import OF_FAULT
from scenario_draw import Drawn
from wrong_reads import WrongReads, wrong_reads

from engine.ledger.reader import Ledger, read_ledger
from engine.truth import Place, TruthResponse, place_of, read_truth
from forensics.evidence import prepare
from forensics.foreign_reads import ForeignReads, foreign_reads
from forensics.replay import run as run_replay
from forensics.rows import worker_rows

Row = dict[str, Any]
Places = set[Place]
LOSS_WORDS = ("lost", "missing", "no record", "open tail", "dead writer")
SENDING_OTHERS = {"early-post", "room-collision", "short-handoff", "source-reuse"}
"""Faults by which another's bytes come under the reader's own tag: a handoff cut short sends the rest of its page as it was, too."""
UNORDERED = "undecided order"
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
        self.tables = _tables(self.ledger)
        self.wrong = wrong_reads(path / "truth")
        found = read_truth(path / "truth")
        self.truth = {
            rid: found.get(rid) or TruthResponse(rid) for rid in {*found, *self.responses} if not rid.startswith("?")
        }

    def run(self) -> Judged:
        """Every check."""
        self._record()
        self._by_class()
        for rid in sorted(self.truth):
            self.judged.counts["fine record, responses"] += self.drawn.decidable
            verdict = self.responses.get(rid)
            if verdict is None:
                self._absent(rid)
                continue
            self._doubt(rid, verdict)
            self._recall(rid, verdict)
            self._cleared(rid, verdict)
            self._precision(rid, verdict)
            self._class(rid, verdict)
        if self.drawn.defended:
            self._defended()
        self._loss()
        return self.judged

    def pages(self, rid: str, *kinds: str, delivered: bool = False) -> Places:
        """Pages of a response's findings of some kinds."""
        return {
            place_of(row["worker"], row["pool"], page)
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

    def _by_class(self) -> None:
        """Pages that are judged together are judged as they would be one by one."""
        apart = run_replay(prepare(self.ledger, page_by_page=True))
        if not apart.equals(self.reads.findings):
            theirs = [row for row in apart.to_pylist() if row not in self.reads.findings.to_pylist()]
            self.judged.fail("by class", "", _rows(theirs))

    def _absent(self, rid: str) -> None:
        if self.reads.unattributed == 0:
            self.judged.fail("absent", rid, "no verdict, and nothing is said to be missing")

    def _doubt(self, rid: str, verdict: Row) -> None:
        """Nothing is called lost where nothing is, and a whole record with clocks leaves few in doubt."""
        if verdict["verdict"] != "unknown":
            return
        if not {"rows", "kill"} & set(self.drawn.losses) and any(word in verdict["reason"] for word in LOSS_WORDS):
            self.judged.fail("doubt without loss", rid, f"{verdict['reason']}: {_rows(self.findings[rid])}")
        if self.drawn.decidable:
            self.judged.counts["fine record, unknown"] += 1

    def _recall(self, rid: str, verdict: Row) -> None:
        truth = self.truth[rid]
        if not truth.contaminated:
            return
        self.judged.counts["contaminated, truth"] += 1
        if len(self.drawn.faults) == 1:
            self.judged.counts[f"harmed by {self.drawn.faults[0]} alone"] += 1
        if verdict["verdict"] == "contaminated":
            self.judged.counts["contaminated, found"] += 1
            self._everything_listed(rid, verdict)
        elif verdict["verdict"] == "unknown" and not self.drawn.decidable:
            self.judged.counts["contaminated, unknown by a poor record"] += 1
        elif verdict["verdict"] == "unknown" and self._is_among_slots(rid, verdict):
            self.judged.counts["contaminated, unknown among slots"] += 1
        else:
            self.judged.fail("recall", rid, f"{verdict['verdict']} ({verdict['reason']}): truth {_told(truth)}")

    def _is_among_slots(self, rid: str, verdict: Row) -> bool:
        """Whether all that is missed are pages that were filled slot by slot and that another's write went to: where it was
        under way meanwhile it came before some of the slots and after others, and no row says which, finer than clocks tell.
        """
        grown = {
            place_of(row["worker"], row["pool"], page)
            for row in self.ledger.tables["pages"].to_pylist()
            if row["op"] == "append"
            for page in row["pages"] or ()
        }
        receives = (row for row in self.ledger.tables["requests"].to_pylist() if row["op"] == "receive")
        own = {(row["worker"], row["req"]) for row in receives if row["rid"] == rid}
        written = {
            place_of(row["peer"], row["dst_pool"], page)
            for row in self.ledger.tables["transfers"].to_pylist()
            if row["op"] in ("post", "done") and (row["worker"], row["req"]) not in own
            for page in row["dst_pages"] or ()
        }
        certain = {place for places in self.truth[rid].donors.values() for place in places}
        missed = certain & grown & written & self.pages(rid, "unknown")
        return verdict["reason"] == UNORDERED and certain == missed

    def _cleared(self, rid: str, verdict: Row) -> None:
        """Who read what nobody had written, or its own content in a wrong place, is never called clean."""
        truth = self.truth[rid]
        if (truth.unwritten or truth.misplaced) and verdict["verdict"] in ("clean", "exposed"):
            self.judged.fail("cleared", rid, f"{verdict['verdict']}: truth {_told(truth)}")

    def _everything_listed(self, rid: str, verdict: Row) -> None:
        """Certain donors and pages are in the verdict; a lower bound is what it lists as unknown, and a further donor of a
        page that is foreign anyway."""
        truth, undecided, foreign = self.truth[rid], self.pages(rid, "unknown"), self.pages(rid, "foreign")
        certain = {place for places in truth.donors.values() for place in places}
        if certain - undecided - foreign:
            self.judged.fail(
                "pages missing", rid, f"{certain - undecided - foreign} of {_told(truth)}; {_rows(self.findings[rid])}"
            )
        named = set(verdict["donors"])
        unnamed = {donor: places for donor, places in truth.donors.items() if donor not in named}
        if certain & undecided:
            self.judged.counts["lower bound"] += 1
        elif unnamed:
            self.judged.counts["lower bound"] += 1
            if self.drawn.decidable:
                self.judged.counts["fine record, lower bound"] += 1

    def _precision(self, rid: str, verdict: Row) -> None:
        truth = self.truth[rid]
        wrong = self.wrong.get(rid, WrongReads())
        if verdict["verdict"] == "corrupt" and not (wrong.corrupt or truth.contaminated or truth.perhaps):
            self.judged.fail("corrupt wrongly", rid, f"{_rows(self.findings[rid])}; truth {_told(truth)}")
        if verdict["verdict"] != "contaminated":
            return
        self.judged.counts["contaminated, verdict"] += 1
        places = _joined(truth)
        delivered = [row for row in self.findings[rid] if row["kind"] == "foreign" and row["delivered"] == "yes"]
        # Bytes of another without a right to them, that are those of the reader's own tokens, as nothing in the record says.
        sent = set(self.drawn.faults) & SENDING_OTHERS
        for donor, place in wrong.alike if sent else wrong.astray:
            places.setdefault(donor, set()).add(place)
        if not places:
            self.judged.fail("accused", rid, f"{_rows(self.findings[rid])}; truth {_told(truth)}")
            return
        donors = {row["donor_rid"] for row in delivered if row["donor_rid"] not in (None, SEVERAL)}
        if donors - set(places):
            self.judged.fail(
                "donors too many", rid, f"{donors - set(places)}: {_rows(delivered)}; truth {_told(truth)}"
            )
        pages = self.pages(rid, "foreign", delivered=True)
        extra = pages - {place for some in places.values() for place in some}
        if extra:
            self.judged.fail("pages too many", rid, f"{extra}: {_rows(delivered)}; truth {_told(truth)}")

    def _class(self, rid: str, verdict: Row) -> None:
        if verdict["verdict"] != "contaminated" or len(self.drawn.faults) != 1:
            return
        allowed = OF_FAULT[self.drawn.faults[0]]
        twice = self._named_twice(rid)
        # Where rows are lost, what ended a life may be among them: the class is not decidable.
        lossy = {gap.worker for gap in self.ledger.gaps if gap.table in ("pages", "transfers", "cache")}
        found = {
            row["mechanism"]
            for row in self.findings[rid]
            if row["kind"] == "foreign"
            and row["worker"] not in lossy
            and not twice & {place_of(row["worker"], row["pool"], page) for page in row["page_list"]}
        }
        if not found <= allowed:
            self.judged.fail("class", rid, f"{sorted(found)} of {self.drawn.faults[0]}: {_rows(self.findings[rid])}")

    def _named_twice(self, rid: str) -> Places:
        """Pages that stand twice in a table of the response: it then reads its own pages in a wrong place."""
        return {place for place in self.tables[rid] if self.tables[rid][place] > 1}

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
        lost = draw_rows(self.ledger, source, source.choice([0.002, 0.01, 0.05]))
        moved = self._moved(lost)
        if moved:
            rid, check, words = moved[0]
            fewest = smallest(lost, lambda rows: any(move[:2] == (rid, check) for move in self._moved(rows)))
            self.judged.fail(check, rid, f"without {fewest}: {words}")
        for rid, check, words in moved[1:]:
            self.judged.fail(check, rid, words)

    def _moved(self, lost: list[RowName]) -> list[tuple[str, str, str]]:
        """Verdicts that the loss of rows moved as it must not: rid, check, words."""
        reads = foreign_reads(read_without(self.path, lost), engine="replay")
        after = {row["rid"]: row for row in reads.responses.to_pylist()}
        moved = []
        for rid, before in self.responses.items():
            now = after.get(rid)
            if now is None:
                if reads.unattributed == 0 and not rid.startswith("?"):
                    moved.append((rid, "loss: gone", "nothing is said to be missing"))
            elif now["verdict"] not in (before["verdict"], "unknown"):
                moved.append((rid, f"loss: {before['verdict']} to {now['verdict']}", str(now)))
            elif now["verdict"] != "unknown" and not set(now["donors"]) <= {*before["donors"], *self.truth[rid].donors}:
                moved.append((rid, "loss: new donors", f"{before['donors']} to {now['donors']}"))
        return moved


def _tables(ledger: Ledger) -> dict[str, Counter[tuple[str, int | str]]]:
    """How often each page stands in the tables that a response's requests bound."""
    rows = (row for row in worker_rows(ledger).values())
    tables: dict[str, Counter[tuple[str, int | str]]] = defaultdict(Counter)
    for worker in rows:
        rids = {row["req"]: row["rid"] for row in worker.requests if row["op"] == "receive"}
        for row in worker.pages:
            if row["op"] in ("bind", "append") and row["req"] in rids and worker.role == "decode":
                tables[rids[row["req"]]].update(
                    place_of(worker.key[0], row["pool"], int(page)) for page in row["pages"]
                )
    return tables


def _joined(truth: TruthResponse) -> dict[str, Places]:
    return {
        rid: truth.donors.get(rid, set()) | truth.perhaps.get(rid, set()) for rid in {*truth.donors, *truth.perhaps}
    }


def _told(truth: TruthResponse) -> str:
    certain, perhaps = ({rid: sorted(p) for rid, p in places.items()} for places in (truth.donors, truth.perhaps))
    words = [name for name in ("contaminated", "undecided", "unwritten", "misplaced") if getattr(truth, name)] or [
        "clean"
    ]
    first = f"first {truth.first_worker}/{truth.first_step}"
    return f"{' '.join(words)}, certain {certain}, perhaps {perhaps}, {first}"


def _rows(findings: list[Row]) -> list[str]:
    names = ("worker", "kind", "proof", "delivered", "mechanism", "donor_rid", "page_list", "first_step", "reason")
    return [" ".join(f"{row[name]}" for name in names) for row in findings if row["kind"] != "clean"]
