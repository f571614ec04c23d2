"""One reading of a ledger with its verdicts: immutable, and all that any screen draws from.

Invariant: nothing here reads a file or a clock; a snapshot of the same ledger is the same snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from console.core.bins import bin_seconds
from console.core.events import Events
from console.core.held_capacity import REASONS
from console.core.incidents import QUERY, Incident, incidents_of, with_names
from console.core.judging import Judging
from console.core.library_rows import asked_again, library_rows
from console.core.lives import PoolLives, pool_lives
from console.core.owners import Owners, name_owners
from console.core.page_marks import PoolMarks, pool_marks
from console.core.readings import Reading, readings_of
from console.core.rollup import Rollup, rollup_of
from engine.ledger.reader import Ledger, Problem
from forensics.foreign_reads import ForeignReads
from forensics.loss import lost_to_order, missing_rows
from forensics.lost_transfers import lost_transfers
from forensics.order import Order, build_order
from forensics.rows import Row, WorkerKey, WorkerRows, rows_of, worker_rows
from forensics.verdict import Verdict

OF_PREFILLS = ("fast-prefill", "prefill-times")
RANK = "prefill-rank"
QUERIES = (QUERY, "detections", "held-capacity", "holders", *OF_PREFILLS)
"""What is asked of the library at every reading, all at once."""

WHOLE = "record: no gaps"
MOST_KEPT = 32
"""How many lineages and stories of pages are kept."""
T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """`taken_us` is when it was read (us UTC); `fingerprint` names the state of the files it was read from."""

    ledger: Ledger
    reads: ForeignReads
    taken_us: int
    fingerprint: str

    @cached_property
    def rollup(self) -> Rollup:
        """What the first screens show of it. Raises QueryStopped."""
        return rollup_of(self)

    @property
    def name(self) -> str:
        """The ledger's directory name."""
        return self.ledger.path.resolve().name

    @cached_property
    def events(self) -> Events:
        """Its rows in order, of all tables."""
        return Events(self.ledger)

    @cached_property
    def writing(self) -> bool:
        """Whether a writer of the ledger is alive."""
        return any(writer.state == "open" for writer in self.ledger.writers)

    @cached_property
    def empty(self) -> bool:
        """Whether the ledger holds no request yet."""
        return not self.ledger.tables["requests"].num_rows

    @cached_property
    def data_us(self) -> int | None:
        """Time of the last row of any table."""
        times = [pc.max(table["t"].cast(pa.int64())).as_py() for table in self.ledger.tables.values() if table.num_rows]
        return max((t for t in times if t is not None), default=None)

    @cached_property
    def first_us(self) -> int | None:
        """Time of the first row of any table."""
        times = [pc.min(table["t"].cast(pa.int64())).as_py() for table in self.ledger.tables.values() if table.num_rows]
        return min((t for t in times if t is not None), default=None)

    @cached_property
    def workers(self) -> dict[WorkerKey, WorkerRows]:
        """Rows by worker epoch."""
        return worker_rows(self.ledger)

    @cached_property
    def order(self) -> Order:
        """What came before what between workers."""
        missing = missing_rows(self.ledger, self.workers)
        return build_order(self.workers, lost_to_order(missing, lost_transfers(self.workers, missing).left))

    @cached_property
    def requests(self) -> dict[tuple[str, int, int], Row]:
        """The `receive` row of every request, by (worker, epoch, req)."""
        rows = self.ledger.tables["requests"]
        received = rows_of(rows.filter(pc.equal(rows["op"], "receive")))
        return {(row["worker"], row["epoch"], row["req"]): row for row in received}

    @cached_property
    def requests_of(self) -> dict[str, list[tuple[str, int, int]]]:
        """Keys of the `requests` of every rid, in their order."""
        found: dict[str, list[tuple[str, int, int]]] = {}
        for key, row in self.requests.items():
            found.setdefault(row["rid"], []).append(key)
        return found

    @cached_property
    def rooms(self) -> dict[tuple[str, int, int], int]:
        """The room of every request that has a `room` row, by (worker, epoch, req)."""
        rows = self.ledger.tables["requests"]
        given = rows_of(rows.filter(pc.equal(rows["op"], "room")))
        return {
            (row["worker"], row["epoch"], row["req"]): row["room"] for row in reversed(given) if row["room"] is not None
        }

    @cached_property
    def _kept(self) -> tuple[OrderedDict[tuple[object, ...], Any], Lock]:
        return OrderedDict(), Lock()

    def once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives, worked out once; the MOST_KEPT asked for last are kept. From any thread."""
        kept, lock = self._kept
        with lock:
            if key in kept:
                kept.move_to_end(key)
                return cast("T", kept[key])
        made = make()
        with lock:
            kept[key] = made
            while len(kept) > MOST_KEPT:
                kept.popitem(last=False)
        return made

    @cached_property
    def judged(self) -> Judging:
        """Which responses are judged, and which wait for rows that are on their way."""
        return Judging(self.ledger, self.reads, self.taken_us)

    @cached_property
    def bin_s(self) -> int:
        """Length of the stretches of time in which figures count."""
        return bin_seconds(self.first_us or 0, self.data_us or 0)

    @cached_property
    def library(self) -> dict[str, pa.Table]:
        """Rows of the library's `QUERIES` by name; what waits is not judged. Raises QueryStopped."""
        return library_rows(self.ledger, self.judged.settled, QUERIES, {"bucket": f"{self.bin_s}s"})

    @cached_property
    def prefill_times(self) -> Callable[..., dict[str, pa.Table]]:
        """Asks the library's `OF_PREFILLS` of a range, `RANK` of a response. Raises QueryStopped, and so does what it gives."""
        return asked_again(self.ledger, (*OF_PREFILLS, RANK))

    @cached_property
    def gauges(self) -> pa.Table:
        """What is shown of the gauges, by time and in one piece."""
        rows = self.ledger.tables["gauges"].select(["t", "worker", "pool", *REASONS, "free"])
        return rows.combine_chunks().sort_by("t")

    @cached_property
    def gauge_times(self) -> NDArray[np.int64]:
        """When each of `gauges` was, us."""
        return np.asarray(self.gauges["t"].cast(pa.int64()).to_numpy(), np.int64)

    @cached_property
    def incident_rows(self) -> pa.Table:
        """The library's incidents, gravest first, with the names behind their counts."""
        return with_names(self.library[QUERY], self.judged.settled.findings)

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents, gravest first."""
        return incidents_of(self.incident_rows, self.writing)

    def status_of(self, rid: str) -> str:
        """How a response ended; nothing where it is not known."""
        return self._statuses.get(rid, "")

    @cached_property
    def _statuses(self) -> dict[str, str]:
        responses = self.reads.responses
        return dict(zip(responses["rid"].to_pylist(), responses["status"].to_pylist(), strict=True))

    @cached_property
    def judging(self) -> int:
        """Responses that still run, or whose last rows are still on the way: not judged yet."""
        return len(self.judged.waiting)

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """Responses by verdict; those not judged yet are left out of `unknown`."""
        return self.judged.settled.counts

    @property
    def verdicts(self) -> pa.Table:
        """`rid` and `verdict` of every response that is judged."""
        return self.judged.settled.responses.select(["rid", "verdict"])

    @cached_property
    def _readings(self) -> dict[str, tuple[Reading, ...]]:
        return {}

    def readings(self, incident: Incident) -> tuple[Reading, ...]:
        """What an incident says of each of its responses, gravest first; none where it concerns no response."""
        if incident.id not in self._readings:
            self._readings[incident.id] = readings_of(incident, self.judged.settled, self.workers)
        return self._readings[incident.id]

    @cached_property
    def owners(self) -> Owners:
        """Tenants with their letters."""
        involved = {
            tenant for incident in self.incidents for tenant in (*incident.donor_tenants, *incident.reader_tenants)
        }
        return name_owners(self.tenants, frozenset(involved))

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """Tenants in the order in which they first appeared."""
        receives = sorted(self.requests.values(), key=lambda row: (row["t"], row["worker"], row["seq"]))
        return tuple(dict.fromkeys(row["tenant"] for row in receives if row["tenant"]))

    @cached_property
    def pools(self) -> tuple[tuple[WorkerKey, str], ...]:
        """Every (worker epoch, pool) that has pages, decode workers first."""
        found = {(key, row["pool"]) for key, rows in self.workers.items() for row in rows.pages if row["pool"]}
        return tuple(sorted(found, key=lambda item: (self.workers[item[0]].role != "decode", item)))

    @cached_property
    def pool_pages(self) -> dict[tuple[str, int, str], int]:
        """Pages by (worker, epoch, pool), where the worker says it; the most it says."""
        rows = self.ledger.tables["workers"]
        said = rows.filter(pc.and_(pc.equal(rows["op"], "config"), pc.is_valid(rows["pool_pages"])))
        sizes = said.group_by(["worker", "epoch", "pool"], use_threads=False).aggregate([("pool_pages", "max")])
        return {(row["worker"], row["epoch"], row["pool"]): row["pool_pages_max"] for row in rows_of(sizes)}

    @cached_property
    def landings(self) -> dict[str | None, list[tuple[WorkerKey, Row]]]:
        """By worker written to, None where that is lost: the remote writes that were done, with their movers."""
        found: dict[str | None, list[tuple[WorkerKey, Row]]] = {}
        for key, worker in self.workers.items():
            for row in worker.transfers:
                if row["op"] == "done":
                    found.setdefault(row["peer"], []).append((key, row))
        return found

    @cached_property
    def landed_under(self) -> dict[int | None, list[tuple[WorkerKey, Row]]]:
        """The same writes by the tag that they were meant for."""
        found: dict[int | None, list[tuple[WorkerKey, Row]]] = {}
        for key, row in chain.from_iterable(self.landings.values()):
            found.setdefault(row["dst_tag"], []).append((key, row))
        return found

    @cached_property
    def _lives(self) -> dict[tuple[WorkerKey, str], PoolLives]:
        return {}

    def lives(self, key: WorkerKey, pool: str) -> PoolLives:
        """Lives of the pages of one pool."""
        if (key, pool) not in self._lives:
            self._lives[key, pool] = pool_lives(self.workers[key], pool)
        return self._lives[key, pool]

    @cached_property
    def _marks(self) -> dict[tuple[WorkerKey, str], PoolMarks]:
        return {}

    def marks(self, key: WorkerKey, pool: str) -> PoolMarks:
        """Foreign reads and late writes of one pool."""
        if (key, pool) not in self._marks:
            self._marks[key, pool] = pool_marks(self, key, pool)
        return self._marks[key, pool]

    def rid_of(self, key: WorkerKey, req: int | None) -> str | None:
        """The rid of a worker's request; None where its `receive` is lost."""
        row = self.requests.get((*key, req)) if req is not None else None
        return row["rid"] if row else None

    def tenant_of(self, key: WorkerKey, req: int | None) -> str | None:
        """The tenant of a worker's request."""
        row = self.requests.get((*key, req)) if req is not None else None
        return row["tenant"] if row else None

    def incident(self, incident_id: str | None) -> Incident | None:
        """The incident of that id, upper or lower case."""
        wanted = (incident_id or "").lower()
        return next((incident for incident in self.incidents if incident.id.lower() == wanted), None)

    @cached_property
    def first_problem(self) -> Problem | None:
        """The gravest thing wrong with the ledger's files."""
        return min(self.ledger.problems, key=lambda problem: problem.severity != "broken", default=None)

    @cached_property
    def record_words(self) -> str:
        """How whole the record is, in a few words."""
        broken = sum(problem.severity == "broken" for problem in self.ledger.problems)
        if broken:
            return f"RECORD BROKEN: {broken} contradiction{'s' * (broken > 1)}, see forensics gaps"
        lost = sum(gap.before_seq is not None for gap in self.ledger.gaps)
        problems = len(self.ledger.problems)
        parts = [f"{lost} gap{'s' * (lost > 1)}"] * bool(lost) + [f"{problems} problem{'s' * (problems > 1)}"] * bool(
            problems
        )
        dead = [writer.worker for writer in self.ledger.writers if writer.state == "dead"]
        parts += [f"{', '.join(sorted(set(dead)))} died"] * bool(dead)
        if self.reads.unattributed:
            parts.append(f"up to {self.reads.unattributed} responses lost")
        return "record: " + ", ".join(parts) if parts else WHOLE
