"""Requests: one row per (worker, epoch, req), with its owner, its end and whether its own record is whole.

Invariant: an owner is a rid; a request whose `receive` is lost has none, and what it wrote is nobody's to claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forensics.cache import IDENTITY_OF_MEANING
from forensics.loss import Missing, OwnRows, own_rows
from forensics.rows import Row, WorkerKey, WorkerRows


@dataclass(frozen=True, slots=True)
class Summary:
    """What a request's rows say about it; `span` = (received seq, ended seq, page_rows)."""

    receive: Row | None
    span: tuple[int, int | None, int | None]
    last_token: int | None
    output_tokens: int | None
    started: int | None
    finished: int | None
    status: str | None


def summary(rows: list[Row]) -> Summary:
    """Of one request's rows on one worker, in seq order."""
    receive = next((row for row in rows if row["op"] == "receive"), None)
    # A reject is an end only where nothing followed it: a short handoff goes on after its reject.
    end = next((row for row in rows if row["op"] in ("finish", "abort")), None) or next(
        (row for row in rows if row["op"] == "reject"), None
    )
    return Summary(
        receive,
        (receive["seq"] if receive else 0, end["seq"] if end else None, end["page_rows"] if end else None),
        end["last_token"] if end else None,
        end["output_tokens"] if end else None,
        receive["t"] if receive else None,
        end["t"] if end else None,
        end["status"] if end else None,
    )


class Requests:
    """Every request of a ledger; rows have the columns of the evidence table of that name."""

    def __init__(self, workers: dict[WorkerKey, WorkerRows], missing: list[Missing]) -> None:
        self.rows: list[Row] = []
        self.rq_of: dict[tuple[WorkerKey, int], int] = {}
        self.owner_ids: dict[str, int] = {}
        self._tenants: dict[int, str | None] = {}
        for key in sorted(workers):
            worker = workers[key]
            by_req: dict[int, list[Row]] = {}
            for row in worker.requests:
                if row["req"] is not None:
                    by_req.setdefault(row["req"], []).append(row)
            for row in (*worker.pages, *worker.transfers, *worker.cache):
                if row["req"] is not None:
                    by_req.setdefault(row["req"], [])
            summaries = {req: summary(rows) for req, rows in by_req.items()}
            whole = own_rows(worker, missing, {req: s.span for req, s in summaries.items()})
            for req in sorted(by_req):
                self._add(key, worker, req, summaries[req], whole[req])

    def owner(self, key: WorkerKey, req: int | None) -> int:
        """The owner of a request on a worker; -1 = lost."""
        row = self.row(key, req)
        return -1 if row is None else int(row["owner"])

    def row(self, key: WorkerKey, req: int | None) -> Row | None:
        """The request's row, if it is known at all."""
        rq = self.rq_of.get((key, req)) if req is not None else None
        return None if rq is None else self.rows[rq]

    def owners(self) -> list[Row]:
        """Rows of the evidence table `owners`."""
        return [
            {"owner": owner, "rid": rid, "tenant": self._tenants.get(owner)} for rid, owner in self.owner_ids.items()
        ]

    def _add(self, key: WorkerKey, worker: WorkerRows, req: int, summary: Summary, whole: OwnRows) -> None:
        receive = summary.receive
        owner = -1
        if receive is not None and receive["rid"] is not None:
            owner = self.owner_ids.setdefault(receive["rid"], len(self.owner_ids))
            if self._tenants.get(owner) is None:
                self._tenants[owner] = receive["tenant"]
        row: dict[str, Any] = {
            "rq": len(self.rows), "worker": key[0], "epoch": key[1], "req": req, "role": worker.role, "owner": owner,
            "received_seq": summary.span[0], "ended_seq": summary.span[1], "last_token": summary.last_token,
            "output_tokens": summary.output_tokens, "started": summary.started, "finished": summary.finished,
            "status": summary.status, "rows_complete": whole.complete, "end_certain": whole.end_certain,
        }  # fmt: skip
        for name in ("rid", "attempt", "tenant", "purpose", *IDENTITY_OF_MEANING):
            row[name] = receive[name] if receive is not None else None
        self.rq_of[key, req] = row["rq"]
        self.rows.append(row)
