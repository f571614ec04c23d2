"""docs/verdicts.md, "Mechanism", transcribed."""

from __future__ import annotations

from typing import Any

from literal_class import GRANTED, Class, LiteralClass
from literal_order import WRITTEN, Row, known_and_different, less

UNKNOWN = "mechanism unknown"
ROBBED = ("taken", "reserved")


class LiteralMechanism(LiteralClass):
    def mechanism(self, x: Row, e: Row, content: Class, mode: str) -> str:
        if content[3]:
            return content[3]
        place = self.place(x)
        life = self.life(x["tag"], place)
        if e["kind"] == "landing" and e["tag"] == x["tag"]:
            found = self.at_source(e)
            misplaced = None not in (e["pos"], x["pos"]) and e["pos"] != x["pos"]
            return "M13" if misplaced and found in ("M1", UNKNOWN) else found
        reserved = -1 if life is None else life["reserve_seq"]
        if e["kind"] in (*WRITTEN, "landing") and e["tag"] != x["tag"]:
            not_before = mode == "C" and e["kind"] == "landing" and not e["hi"] <= reserved
            if e["lo"] >= reserved or not_before:
                return self.astray(e, life)
        if e["kind"] in WRITTEN and e["tag"] == x["tag"]:
            return UNKNOWN if life is not None and life["owner"] == e["owner"] else "M11"
        return UNKNOWN if life is None else self.left_over(x, life)

    def odd(self, e: Row, depth: int = 1) -> list[tuple[Row, Row]]:
        found: list[tuple[Row, Row]] = []
        life = self.life(e["tag"], self.place(e))
        if depth > 8 or e["src_cell"] is None or life is None:
            return found
        for s in self.sources(e):
            tag = self.tag_at_source(e, s)
            if self.classify(s, life["owner"], tag, e["src_lo"], depth + 1)[0] in GRANTED:
                continue
            deeper = self.odd(s, depth + 1) if s["kind"] == "landing" and s["tag"] == tag else []
            found += deeper or [(e, s)]
        return found

    def at_source(self, e: Row) -> str:
        pairs = self.odd(e)
        lives = [self.life(landing["src_tag"], self.place_of_cell(landing["src_cell"])) for landing, _ in pairs]
        reused = [w for w, (_, s) in zip(lives, pairs, strict=True) if w is not None and s["lo"] >= w["end_seq"]]
        if reused:
            return "M8" if any(w["ended"] in ROBBED for w in reused) else "M5"
        if any(self.filled_later(landing, s) for landing, s in pairs):
            return "M6"
        if any(landing["collided"] for landing, _ in pairs):
            return "M11"
        strays = [
            self.astray(s, w)
            for w, (landing, s) in zip(lives, pairs, strict=True)
            if s["kind"] in (*WRITTEN, "landing") and known_and_different(s["tag"], landing["src_tag"])
            and w is not None and s["lo"] >= w["reserve_seq"]
        ]  # fmt: skip
        if strays:
            return min(strays)
        left = [
            w
            for w, (_, s) in zip(lives, pairs, strict=True)
            if s["kind"] in ("unwritten", "scrub") or (w is not None and s["hi"] <= w["reserve_seq"])
        ]
        if not left:
            return UNKNOWN
        return "M2" if any(w is not None and (w["failed"] or w["unreturned"]) for w in left) else "M1"

    def filled_later(self, landing: Row, s: Row) -> bool:
        return any(
            g["event"] != s["event"] and g["kind"] in (*WRITTEN, "landing") and g["tag"] == landing["src_tag"]
            and g["hi"] > landing["src_lo"]
            for g in self.on_cell(landing["src_cell"])
        )  # fmt: skip

    def astray(self, e: Row, life: Row | None) -> str:
        other = self.life(e["tag"], self.place(e))
        if other is None:
            return "M13"
        if life is None:
            return UNKNOWN
        if other["reserve_seq"] > life["reserve_seq"]:
            return "M8" if life["ended"] in ROBBED else "M7"
        if other["ended"] in ROBBED:
            return "M8"
        if e["kind"] in WRITTEN:
            return "M7"
        return "M4" if other["held"] or e["acked"] else "M3"

    def left_over(self, x: Row, life: Row) -> str:
        on_cell = self.on_cell(x["cell"])
        if any(g["kind"] in ("write", "landing") and g["tag"] == x["tag"] and g["hi"] > x["s0"] for g in on_cell):
            return "M6"
        if life["failed"]:
            return "M2"
        if life["misdirected"]:
            return "M13"
        if life["collided"]:
            return "M11"
        if self.another_component_had_it(x):
            return "M14"
        return "M2" if life["unreturned"] else "M1" if life["granted"] else UNKNOWN

    def another_component_had_it(self, x: Row) -> bool:
        pool = self.place(x)[2]
        return any(
            y["rq"] == x["rq"] and self.place(y)[2] not in (pool, "slot")
            and (pool == "slot" or (less(x["req_lo"], y["req_hi"]) and less(y["req_lo"], x["req_hi"])))
            and any(
                g["kind"] in ("write", "landing") and g["tag"] == y["tag"] and g["hi"] <= y["s0"]
                for g in self.on_cell(y["cell"])
            )
            for y in self.reads
        )  # fmt: skip

    def outside_its_life(self, e: Row) -> bool:
        own = self.life(e["tag"], self.place(e))
        return own is None or e["lo"] < own["reserve_seq"] or e["hi"] > own["end_seq"]

    def exposures(self, x: Row) -> list[dict[str, Any]]:
        """(mechanism, donor, reason) of what passed by without being read, and of sources released while read."""
        found: list[dict[str, Any]] = []
        life = self.life(x["tag"], self.place(x))
        for e in self.on_cell(x["cell"]):
            if e["kind"] == "landing" and e["tag"] == x["tag"] and e["src_cell"] is not None:
                source = self.life(e["src_tag"], self.place_of_cell(e["src_cell"]))
                if source is not None and e["src_since"] <= source["end_seq"] <= e["src_until"]:
                    found.append({"mechanism": "M5", "reason": "source released while it was read"})
            if life is None or life["owner"] != x["owner"]:
                continue
            if not (e["lo"] >= life["reserve_seq"] and e["hi"] <= life["end_seq"]):
                continue
            collided = e["kind"] == "landing" and e["tag"] == x["tag"] and e["collided"]
            strange = e["tag"] != x["tag"] and (
                e["kind"] == "landing" or (e["kind"] in WRITTEN and self.outside_its_life(e))
            )
            if collided or strange:
                content = self.classify(e, x["owner"], x["tag"], x["s0"])
                if content[0] == "foreign":
                    mechanism = "M11" if collided else self.astray(e, life)
                    found.append({"mechanism": mechanism, "donor": content[1]})
                if content[0] == "unknown" and not self.incomplete(x["rq"]):
                    mechanism = "M13" if content[2] == "page geometry differs" else ""
                    found.append({"kind": "unknown", "mechanism": mechanism, "reason": content[2]})
        return found
