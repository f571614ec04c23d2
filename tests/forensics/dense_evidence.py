"""Evidence drawn blindly from a few seqs, so that bounds coincide, windows overlap and chains of transfers close on themselves.

Only what a ledger cannot break holds: lo < hi, post < done, runs in order, lives of a page disjoint, one reserve per tag.
What a real record would never show is welcome: the two engines must agree on it too. Two evidences of three are `calm`:
nothing is lost and transfers go one way, so that doubt does not drown every other kind.
"""

from __future__ import annotations

import random
from typing import Any

from evidence_builder import DECODE, PREFILL, EvidenceBuilder

from forensics.evidence import Evidence
from forensics.order import INF

LAST = 10
OWN_MOVER = {PREFILL: 7, DECODE: 8}
FLAGS = (
    ("granted", 0.5), ("failed", 0.2), ("held", 0.5), ("unreturned", 0.2), ("misdirected", 0.2), ("collided", 0.2),
)  # fmt: skip


class DenseEvidence:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calm = seed % 3 != 0
        self.built = EvidenceBuilder()
        self.rqs: dict[tuple[str, int], list[int]] = {PREFILL: [], DECODE: []}
        self.cells: list[tuple[int, tuple[str, int], int]] = []  # cell, place, page
        self.tags: dict[int, list[int]] = {}  # page: its tags

    def evidence(self) -> Evidence:
        pick = self.random
        for rid in ("ann", "bob", "cid")[: pick.randint(2, 3)]:
            for at in (PREFILL, DECODE):
                self._request(None if not self.calm and pick.random() < 0.1 else rid, at)
        for page, at in enumerate((PREFILL, DECODE, PREFILL)[: pick.randint(2, 3)]):
            self._page(page + 1, at)
        for cell, at, page in self.cells:
            for _ in range(pick.randint(1, 5)):
                self._event(cell, at, page)
        for cell, at, page in self.cells:
            for _ in range(pick.randint(0, 3)):
                self._share(cell, at, page)
        for _ in range(pick.randint(3, 8)):
            self._read()
        return self.built.build()

    def _maybe(self, value: int | None, p: float = 0.8) -> int | None:
        return value if self.random.random() < p else None

    def _request(self, rid: str | None, at: tuple[str, int]) -> None:
        pick = self.random
        ended = pick.random() < 0.8
        rq = self.built.request(
            rid, at, ended_seq=LAST if ended else None, end_certain=pick.random() < 0.6, rows_complete=self.calm or pick.random() < 0.9,
            last_token=self._maybe(pick.randint(0, 100)) if ended else None,
            output_tokens=pick.choice([None, 0, 0, 1]) if ended else None,
        )  # fmt: skip
        self.rqs[at].append(rq)
        since = pick.randint(0, 3)
        for _ in range(pick.randint(1, 3)):
            seq = since + pick.randint(1, 3)
            self.built.runs(rq, (since, seq), n=pick.randint(1, 2))
            since = seq + pick.randint(0, 1)

    def _page(self, page: int, at: tuple[str, int]) -> None:
        first = self.built.cell(page, at, self.random.choice(["kv", "kv", "index"]))
        self.cells.append((first, at, page))
        self.tags[page] = [100 * page + i for i in range(3)]
        begin = self.random.randint(0, 2)
        for tag in self.tags[page]:
            end = begin + self.random.randint(1, 5)
            if self.random.random() < 0.9:
                flags: dict[str, Any] = {name: self.random.random() < p for name, p in FLAGS}
                flags["ended"] = self.random.choice(["freed", "taken", "reserved", None])
                owner = None if not self.calm and self.random.random() < 0.1 else self.random.choice(self.rqs[at])
                self.built.life(tag, first, owner, begin, INF if self.random.random() < 0.2 else end, **flags)
                if self.built.rows["tags"][-1]["end_seq"] == INF:
                    return
            begin = end + self.random.randint(0, 1)

    def _interval(self) -> tuple[int, int]:
        lo = self.random.randint(-1, LAST - 2)
        if self.calm:
            return lo, lo + self.random.choice([1, 1, 2, 4])
        return lo, INF if self.random.random() < 0.1 else self.random.randint(lo + 1, LAST)

    def _event(self, cell: int, at: tuple[str, int], page: int) -> None:
        pick = self.random
        lo, hi = self._interval()
        kind = pick.choices(["write", "growth", "rewrite", "landing", "scrub", "ghost"], [5, 1, 0.7, 5, 1, 1])[0]
        sources = [c for c in self.cells if c[0] < cell] if self.calm else self.cells
        if self.calm and (kind == "ghost" or (kind == "landing" and not sources)):
            kind = "write"
        columns: dict[str, Any] = {}
        if kind != "ghost":
            t_lo = pick.randint(0, 90)
            columns = {"t_lo": self._maybe(t_lo), "t_hi": self._maybe(t_lo + pick.choice([0, 3, 20]))}
        tag = pick.choice(self.tags[page])
        if kind in ("write", "growth", "rewrite"):
            columns |= {"mover": self._maybe(OWN_MOVER[at], 0.7), "authority": self._maybe(2, 0.9)}
            owners = [t["owner"] for t in self.built.rows["tags"] if t["tag"] == tag] if pick.random() < 0.7 else []
            columns["owner"] = owners[0] if owners else self.built.rows["requests"][pick.choice(self.rqs[at])]["owner"]
            columns |= {"tag": tag, "stream": self._maybe(pick.randint(100, 101), 0.4)}
        elif kind == "landing":
            post = pick.randint(0, LAST)
            columns |= {"mover": self._maybe(pick.randint(0, 1)), "post_seq": self._maybe(post, 0.9), "tag": tag}
            columns |= {
                "collided": pick.random() < 0.2,
                "acked": pick.random() < 0.2,
                "authority": self._maybe(pick.randint(0, 1)),
            }
            columns["flaw"] = pick.choice(["layout", "size"]) if pick.random() < 0.06 else None
            columns["done_seq"] = self._maybe(post + pick.randint(1, 3), 0.9)
            if self.calm or pick.random() < 0.9:
                src, _, src_page = pick.choice(sources)
                src_lo, src_hi = self._interval()
                columns |= {
                    "src_cell": src,
                    "src_lo": src_lo,
                    "src_hi": src_hi,
                    "src_tag": self._maybe(pick.choice(self.tags[src_page]), 0.9),
                    "src_since": src_lo + pick.randint(0, 2),
                    "src_until": src_hi - pick.randint(0, 2),
                }
        if kind not in ("scrub", "ghost"):
            columns |= {"digest": self._maybe(pick.randint(1, 2), 0.5), "pos": self._maybe(pick.randint(1, 2), 0.3)}
        elif kind == "ghost":
            columns["reason"] = pick.choice(["rows lost", "missing mover"])
        self.built.event(cell, kind, lo, hi, **columns)

    def _share(self, cell: int, at: tuple[str, int], page: int) -> None:
        rq = self.random.choice(self.rqs[at])
        identity = self.random.choice(["same", "tenant", "meaning", "both"])
        key = self.random.choice(["complete", "incomplete", "unknown"])
        tag, seq = self.random.choice(self.tags[page]), self.random.randint(0, LAST)
        self.built.share(rq, cell, tag, seq, identity, key=key)

    def _read(self) -> None:
        pick = self.random
        cell, at, page = pick.choice(self.cells)
        rq = pick.choice(self.rqs[at])
        own = [
            t["tag"]
            for t in self.built.rows["tags"]
            if t["page"] == page and t["owner"] == self.built.rows["requests"][rq]["owner"]
        ]
        tag = pick.choice(own) if own and pick.random() < 0.6 else pick.choice(self.tags[page])
        last = max(p["seq"] for p in self.built.rows["passes"] if p["rq"] == rq)
        s0 = pick.randint(0, last - 1)
        columns: dict[str, Any] = {"pos": self._maybe(1, 0.3)}
        columns["pos_last"] = columns["pos"] and columns["pos"] + pick.randint(0, 1)
        if pick.random() < 0.8:
            columns["req_lo"] = pick.randint(0, 2)
            columns["req_hi"] = columns["req_lo"] + pick.randint(1, 2)
        if pick.random() < 0.2:
            columns["growth"] = self.built.write(cell, rq, tag, pick.randint(s0 + 1, last), s0, kind="growth")
        if pick.random() < 0.15:
            columns["s1_max"] = last + pick.randint(1, 3)
        self.built.read(cell, rq, tag, s0, **columns)


def dense_evidence(seed: int) -> Evidence:
    """Evidence of one seed."""
    return DenseEvidence(seed).evidence()
