"""Evidence by hand: name requests, pages, lives, events and reads; get the tables of docs/verdicts.md.

Every cell begins with its `unwritten` event. Times of passes are ten times their seq unless given.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from forensics.evidence import EVIDENCE_SCHEMAS, Evidence
from forensics.order import INF

PREFILL, DECODE = ("prefill-0", 1), ("decode-0", 1)


class EvidenceBuilder:
    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in EVIDENCE_SCHEMAS}
        self._owners: dict[str, int] = {}

    def owner(self, rid: str, tenant: str | None = None) -> int:
        """The owner id of a rid."""
        if rid not in self._owners:
            self._owners[rid] = len(self._owners)
            self.rows["owners"].append({"owner": self._owners[rid], "rid": rid, "tenant": tenant or f"t-{rid}"})
        return self._owners[rid]

    def request(self, rid: str | None, at: tuple[str, int] = DECODE, **columns: Any) -> int:
        """A request on a worker, finished with one token at time 10_000 unless told; returns its rq."""
        rows = self.rows["requests"]
        row = {
            "rq": len(rows), "worker": at[0], "epoch": at[1], "req": len(rows) + 1, "role": at[0].split("-")[0],
            "rid": rid, "owner": -1 if rid is None else self.owner(rid), "attempt": 0,
            "tenant": None if rid is None else f"t-{rid}", "received_seq": 1, "ended_seq": 900, "status": "200",
            "last_token": 10_000, "output_tokens": 1, "rows_complete": True, "end_certain": True,
            "started": 0, "finished": 10_000,
        }  # fmt: skip
        rows.append(row | columns)
        return len(rows) - 1

    def cell(self, page: int, at: tuple[str, int] = DECODE, pool: str = "kv", tok_lo: int = 0, tok_hi: int = 64) -> int:
        """A cell of a page; returns its id."""
        cell = len(self.rows["cells"])
        self.rows["cells"].append(
            {"cell": cell, "worker": at[0], "epoch": at[1], "pool": pool, "page": page, "part": 0, "tok_lo": tok_lo,
             "tok_hi": tok_hi}
        )  # fmt: skip
        self.event(cell, "unwritten", -1, 0)
        return cell

    def place(self, cell: int) -> dict[str, Any]:
        """Worker, epoch, pool and page of a cell."""
        return {name: self.rows["cells"][cell][name] for name in ("worker", "epoch", "pool", "page")}

    def event(self, cell: int, kind: str, lo: int, hi: int, **columns: Any) -> int:
        """A content event; returns its id."""
        event = len(self.rows["events"])
        self.rows["events"].append(
            {
                "event": event, "cell": cell, "kind": kind, "lo": lo, "hi": hi, "owner": -1, "tag": 0, "collided": False,
                "acked": False,
            }
            | columns
        )  # fmt: skip
        return event

    def write(self, cell: int, rq: int, tag: int, hi: int, lo: int | None = None, **columns: Any) -> int:
        """A local write by a request, at its row unless `lo` is given."""
        kind = columns.pop("kind", "write")
        owner = self.rows["requests"][rq]["owner"]
        return self.event(cell, kind, hi - 1 if lo is None else lo, hi, owner=owner, tag=tag, **columns)

    def landing(
        self,
        cell: int,
        tag: int,
        lo: int,
        hi: int,
        src: int | None,
        src_tag: int | None = 0,
        window: tuple[int, int] = (0, 0),
        **columns: Any,
    ) -> int:
        """A transfer into `cell` under `tag`, from cell `src` while its worker was in `window`, as in a push."""
        source = {
            "src_cell": src, "src_lo": window[0], "src_hi": window[1], "src_tag": src_tag, "src_since": window[0] + 1,
            "src_until": window[1] - 1,
        }  # fmt: skip
        return self.event(cell, "landing", lo, hi, tag=tag, **(source | columns))

    def ghost(self, cell: int, lo: int, hi: int, reason: str = "missing rows in pages") -> int:
        """Lost rows that may have changed the cell."""
        return self.event(cell, "ghost", lo, hi, reason=reason)

    def life(self, tag: int, cell: int, rq: int | None, reserve: int, end: int = INF, **flags: Any) -> None:
        """A life of the cell's page under `tag`, ended by its own free unless told."""
        row = self.place(cell)
        owner = -1 if rq is None else self.rows["requests"][rq]["owner"]
        row |= {"tag": tag, "owner": owner, "reserve_seq": reserve, "end_seq": end}
        row |= dict.fromkeys(("granted", "failed", "held", "unreturned", "misdirected", "collided"), False)
        self.rows["tags"].append(row | {"ended": "freed" if end < INF else None} | flags)

    def share(
        self, rq: int, cell: int, tag: int, seq: int, identity: str, end: int = INF, key: str = "unknown"
    ) -> None:
        """A share of (the cell's page, tag) taken by a request."""
        row = self.place(cell)
        owner = self.rows["requests"][rq]["owner"]
        self.rows["shares"].append(
            row
            | {
                "rq": rq, "owner": owner, "tag": tag, "seq": seq, "end_seq": end, "identity": identity, "key_state": key,
            }
        )  # fmt: skip

    def runs(self, rq: int, *runs: tuple[int, int], kind: str = "decode", **columns: Any) -> None:
        """Steps runs (since_seq, seq] of a request; each is one step, numbered by its seq."""
        for since, seq in runs:
            row = {"rq": rq, "since_seq": since, "seq": seq, "step": seq, "n": 1, "kind": kind}
            row |= {"t": since * 10 + 1, "t_end": seq * 10 - 2, "end_t": seq * 10 - 1}
            self.rows["passes"].append(row | columns)

    def read(self, cell: int, rq: int, tag: int, s0: int, **columns: Any) -> int:
        """A read from `s0` through every later run of the request; returns its id."""
        runs = sorted((p for p in self.rows["passes"] if p["rq"] == rq and p["seq"] > s0), key=lambda p: p["seq"])
        place = self.place(cell) | {"tag": tag}
        life = next(
            (t for t in self.rows["tags"] if {name: t[name] for name in place} == place),
            {"reserve_seq": -1, "end_seq": INF},
        )
        read = len(self.rows["reads"])
        row = {
            "read": read, "cell": cell, "rq": rq, "owner": self.rows["requests"][rq]["owner"], "tag": tag, "s0": s0,
            "s1": runs[-1]["seq"], "s1_max": runs[-1]["seq"], "last_since": runs[-1]["since_seq"],
            "first_t": runs[0]["t"], "last_t": runs[-1]["t"], "last_t_end": runs[-1]["t_end"],
            "end_t": runs[-1]["end_t"], "growth": None, "reserve_seq": life["reserve_seq"], "end_seq": life["end_seq"],
            "op": "bind",
        }  # fmt: skip
        self.rows["reads"].append(row | columns)
        return read

    def build(self) -> Evidence:
        """The evidence."""
        return evidence_of(self.rows)


def evidence_of(rows: dict[str, list[dict[str, Any]]]) -> Evidence:
    """Evidence of plain rows, a missing column null."""
    return Evidence(
        **{
            name: pa.table({f.name: pa.array([row.get(f.name) for row in rows[name]], f.type) for f in schema}, schema)
            for name, schema in EVIDENCE_SCHEMAS.items()
        }
    )
