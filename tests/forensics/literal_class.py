"""docs/verdicts.md, "What a reader finds in an event", transcribed. A class is (word, donor, reason, cause)."""

from __future__ import annotations

from typing import Any

from literal_order import PLACE, WRITTEN, LiteralOrder, Row, known_and_different

Class = tuple[str, int | None, str, str]
GRANTED = ("entitled", "shared", "wrong")
ENTITLED: Class = ("entitled", None, "", "")
GRAVITY = [
    ("same", None), ("tenant", "unknown"), ("tenant", "complete"), ("tenant", "incomplete"), ("meaning", None), ("both", None),
]  # fmt: skip
CAUSE_OF_KEY = {"unknown": "mechanism unknown", "complete": "P0", "incomplete": "M12"}


def unknown(reason: str) -> Class:
    return ("unknown", None, reason, "")


class LiteralClass(LiteralOrder):
    def taking(self, owner: int, place: tuple[Any, ...], tag: int, s0: int) -> tuple[str, str | None] | None:
        """(identity, key state) of the gravest share of (page, tag)."""
        found = {
            (s["identity"], s["key_state"] if s["identity"] == "tenant" else None)
            for s in self.shares
            if s["owner"] == owner and s["tag"] == tag and tuple(s[n] for n in PLACE) == place and s["seq"] <= s0
        }
        return max(found, key=GRAVITY.index) if found else None

    def by_identity(self, of_giver: Class, taking: tuple[str, str | None], giver: int) -> Class:
        word, _, _, cause = of_giver
        identity, key = taking
        taken_wrongly: Class = ("foreign", giver, "", "M12")
        if identity == "same":
            return of_giver
        if identity == "tenant":
            if word == "wrong":
                return taken_wrongly if cause == "M12" else of_giver
            assert key is not None
            of_key = CAUSE_OF_KEY[key]
            return ("shared", None, "", of_key if word == "entitled" else min(cause, of_key))
        if identity == "meaning":
            return {"entitled": ("wrong", None, "", "M12"), "shared": taken_wrongly, "wrong": of_giver}[word]
        return taken_wrongly

    def sources(self, e: Row) -> list[Row]:
        y = {"cell": e["src_cell"], "s0": e["src_lo"], "s1_max": e["src_hi"], "growth": None}
        return self.possible(y, "E")

    def tag_at_source(self, e: Row, s: Row) -> int:
        return s["tag"] if e["src_tag"] is None else e["src_tag"]

    def roots(self, e: Row) -> list[Row]:
        return [e] if e["kind"] != "landing" else [root for s in self.sources(e) for root in self.roots(s)]

    def classify(self, e: Row, o: int, tag: int, s0: int, depth: int = 1) -> Class:
        found = self.by_content(e, o, tag, s0, depth)
        if found[0] not in ("entitled", "shared"):
            return found
        if e["kind"] == "landing" and e["flaw"] == "layout":
            return ("wrong", None, "", "M13")
        contest = self.contest(e)
        return found if contest is None else contest

    def by_content(self, e: Row, o: int, tag: int, s0: int, depth: int) -> Class:
        if e["kind"] == "ghost":
            return unknown(e["reason"])
        if e["kind"] in ("unwritten", "scrub"):
            return ("unwritten", None, "", "")
        if e["kind"] == "landing":
            return self.of_landing(e, o, tag, s0, depth)
        if e["owner"] == -1:
            return unknown("owner lost")
        if e["owner"] == o and e["tag"] == tag:
            return ENTITLED
        life = self.life(tag, self.place(e))
        if e["owner"] != o and e["tag"] == tag and life is not None and life["owner"] == e["owner"]:
            lent = self.lent(e, o, tag, s0, ENTITLED)
            if lent is not None:
                return lent
        return ("stale", None, "", "") if e["owner"] == o else ("foreign", e["owner"], "", "")

    def lent(self, e: Row, o: int, tag: int, s0: int, of_giver: Class) -> Class | None:
        """What a share makes of e; None where none speaks for it."""
        life, taking = self.life(tag, self.place(e)), self.taking(o, self.place(e), tag, s0)
        if life is None or e["lo"] >= life["end_seq"]:
            return None
        if taking is None:
            return None if self.taking(-1, self.place(e), tag, s0) is None else unknown("owner lost")
        if e["hi"] > life["end_seq"]:
            return unknown("undecided order")
        return self.by_identity(of_giver, taking, life["owner"])

    def of_landing(self, e: Row, o: int, tag: int, s0: int, depth: int) -> Class:
        if depth > 8:
            return unknown("transfer chain too long")
        if e["src_cell"] is None:
            return unknown("source unknown")
        if e["flaw"] == "size":
            return unknown("page geometry differs")
        members = [self.classify(s, o, self.tag_at_source(e, s), e["src_lo"], depth + 1) for s in self.sources(e)]
        reasons = sorted(m[2] for m in members if m[0] == "unknown")
        if reasons:
            return unknown(reasons[0])
        if not members:
            return unknown("undecided source")
        if e["tag"] != tag:
            return self.by_roots(e, o)
        life = self.life(tag, self.place(e))
        if life is None or life["owner"] == -1:
            return unknown("owner lost")
        if life["owner"] == o:
            return self.of_own_landing(e, o, members)
        if self.lent(e, o, tag, s0, ENTITLED) is None:
            return self.by_roots(e, o)
        to_giver = self.classify(e, life["owner"], tag, s0, depth)
        if to_giver[0] == "unknown":
            return to_giver
        lent = self.lent(e, o, tag, s0, to_giver) if to_giver[0] in GRANTED else None
        return self.by_roots(e, o) if lent is None else lent

    def of_own_landing(self, e: Row, o: int, members: list[Class]) -> Class:
        words = {m[0] for m in members}
        if words <= set(GRANTED) and len(words) == 1:
            return (words.pop(), None, "", min(m[3] for m in members))
        if words & set(GRANTED):
            return unknown("undecided source")
        found = self.by_roots(e, o)
        if found[0] == "foreign" and all(m[0] == "foreign" and m[3] == "M12" for m in members):
            return (*found[:3], "M12")
        return found

    def by_roots(self, e: Row, o: int) -> Class:
        owners = {r["owner"] if r["kind"] in WRITTEN else None for r in self.roots(e)}
        if -1 in owners:
            return unknown("owner lost")
        if owners == {None}:
            return ("unwritten", None, "", "")
        if owners == {o}:
            return ("stale", None, "", "")
        if owners & {None, o}:
            return unknown("undecided source")
        return ("foreign", owners.pop() if len(owners) == 1 else -1, "", "")

    def contest(self, e: Row) -> Class | None:
        rivals = [
            f
            for f in self.on_cell(e["cell"])
            if f["kind"] in (*WRITTEN, "landing") and f["tag"] == e["tag"] and known_and_different(e["mover"], f["mover"])
            and not (e["digest"] is not None and e["digest"] == f["digest"])
        ]  # fmt: skip

        def above(one: Row, other: Row) -> bool:
            least = 0 if one["authority"] is None else one["authority"]
            most = 1 if other["authority"] is None else other["authority"]
            return least > most

        if any(self.before_e(f, e) and above(f, e) for f in rivals):
            return ("wrong", None, "", "M11")
        if any(not self.before_e(e, f) and not (self.before_e(f, e) and above(e, f)) for f in rivals):
            return unknown("two writers")
        return None

    def of_read(self, e: Row, x: Row) -> Class:
        """class(e; o, tag) of a read x, and whether the page stands where it should."""
        found = self.classify(e, x["owner"], x["tag"], x["s0"])
        misplaced = e["tag"] == x["tag"] and known_and_different(e["pos"], x["pos"])
        if found[0] not in ("entitled", "shared") or not misplaced:
            return found
        wrong = ("wrong", None, "", "M13")
        life = self.life(x["tag"], self.place(e))
        beyond = x["pos_last"] is not None and e["pos"] > x["pos_last"]
        if not beyond or x["owner"] in (e["owner"], None if life is None else life["owner"]):
            return wrong
        found = self.by_roots(e, x["owner"]) if e["kind"] == "landing" else ("foreign", e["owner"], "", "")
        if found[0] == "foreign":
            return (*found[:3], "M13")
        return found if found[0] == "unknown" else wrong
