"""docs/verdicts.md, "Order", transcribed sentence by sentence over plain rows: slow, quadratic, no code shared with either engine.

Nulls are None; a clause with a None in it is False.
"""

from __future__ import annotations

from typing import Any

from forensics.evidence import EVIDENCE_SCHEMAS, Evidence

Row = dict[str, Any]
PLACE = ("worker", "epoch", "pool", "page")
WRITTEN = ("write", "growth", "rewrite")


def less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def same(a: int | None, b: int | None) -> bool:
    return a is not None and a == b


def known_and_different(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a != b


class LiteralOrder:
    def __init__(self, evidence: Evidence) -> None:
        tables = {name: getattr(evidence, name).to_pylist() for name in EVIDENCE_SCHEMAS}
        self.cells = {c["cell"]: c for c in tables["cells"]}
        self.requests = {r["rq"]: r for r in tables["requests"]}
        self.owners = {o["owner"]: o for o in tables["owners"]}
        self.events, self.reads, self.passes = tables["events"], tables["reads"], tables["passes"]
        self.tags, self.shares = tables["tags"], tables["shares"]
        self.members = {tuple(m[n] for n in PLACE): m["numbers"] for m in tables["members"]}

    def place(self, e: Row) -> tuple[Any, ...]:
        return self.place_of_cell(e["cell"])

    def place_of_cell(self, cell: int) -> tuple[Any, ...]:
        return tuple(self.cells[cell][name] for name in PLACE)

    def on_cell(self, cell: int) -> list[Row]:
        return [e for e in self.events if e["cell"] == cell]

    def life(self, tag: int | None, place: tuple[Any, ...]) -> Row | None:
        return next((t for t in self.tags if same(t["tag"], tag) and tuple(t[n] for n in PLACE) == place), None)

    def before(self, e: Row, f: Row, mode: str) -> bool:
        by_seq = self.before_e(e, f)
        return by_seq or (mode == "C" and not self.before_e(f, e) and less(e["t_hi"], f["t_lo"]))

    def before_e(self, e: Row, f: Row) -> bool:
        done, post = e["done_seq"], f["post_seq"]
        by_mover = same(e["mover"], f["mover"]) and (less(done, post) or same(done, post))
        return e["hi"] <= f["lo"] or by_mover or (same(e["stream"], f["stream"]) and e["hi"] < f["hi"])

    def pre(self, e: Row, x: Row, mode: str) -> bool:
        by_seq = e["hi"] <= x["s0"] or same(x["growth"], e["event"])
        return by_seq or (mode == "C" and not e["lo"] >= x["s0"] and less(e["t_hi"], x["first_t"]))

    def gone(self, e: Row, x: Row, mode: str) -> bool:
        if e["lo"] >= x["s1_max"]:
            return True
        return mode == "C" and not self.seen(e, x, "E") and less(x["end_t"], e["t_lo"]) and x["s1"] == x["s1_max"]

    def seen(self, e: Row, x: Row, mode: str) -> bool:
        if self.pre(e, x, mode) or e["hi"] <= x["last_since"]:
            return True
        return mode == "C" and not self.gone(e, x, "E") and less(e["t_hi"], x["last_t_end"])

    def passed(self, e: Row, f: Row, x: Row, mode: str) -> bool:
        overwritten = f["hi"] if f["kind"] == "rewrite" else f["lo"]
        after = [
            p
            for p in self.passes
            if p["rq"] == x["rq"] and p["seq"] > x["s0"] and (p["since_seq"] >= e["hi"] or e["hi"] <= x["s0"])
        ]
        if any(p["seq"] <= overwritten for p in after):
            return True
        if mode == "E" or not after or f["t_lo"] is None:
            return False
        first = min(after, key=lambda p: p["seq"])
        return bool(first["end_t"] < f["t_lo"] and first["since_seq"] < f["hi"])

    def possible(self, x: Row, mode: str) -> list[Row]:
        on_cell = self.on_cell(x["cell"])
        hiders = [f for f in on_cell if f["kind"] != "ghost" and self.pre(f, x, mode)]
        return [
            e
            for e in on_cell
            if not self.gone(e, x, mode) and not any(self.before(e, f, mode) for f in hiders)
        ]  # fmt: skip

    def certain(self, e: Row, x: Row, possible: list[Row], mode: str) -> bool:
        return self.seen(e, x, mode) and all(
            self.before(f, e, mode) or self.gone(f, x, mode) or self.passed(e, f, x, mode)
            for f in possible
            if f is not e
        )
