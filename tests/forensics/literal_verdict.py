"""docs/verdicts.md transcribed sentence by sentence over plain rows: slow, quadratic, and the yardstick of the replay.

It shares no code with forensics/replay*.py. Nulls are None; a clause with a None in it is False.
"""

from __future__ import annotations

from typing import Any

from forensics.evidence import EVIDENCE_SCHEMAS, Evidence

Row = dict[str, Any]
PLACE = ("worker", "epoch", "pool", "page")


def less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def same(a: int | None, b: int | None) -> bool:
    return a is not None and a == b


class Literal:
    def __init__(self, evidence: Evidence) -> None:
        tables = {name: getattr(evidence, name).to_pylist() for name in EVIDENCE_SCHEMAS}
        self.cells = {c["cell"]: c for c in tables["cells"]}
        self.requests = {r["rq"]: r for r in tables["requests"]}
        self.owners = {o["owner"]: o for o in tables["owners"]}
        self.events, self.reads, self.passes = tables["events"], tables["reads"], tables["passes"]
        self.tags, self.shares = tables["tags"], tables["shares"]

    # --- order -----------------------------------------------------------------------------------------------

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

    def passed(self, e: Row, f: Row, x: Row) -> bool:
        return any(
            p["seq"] > x["s0"] and (p["since_seq"] >= e["hi"] or e["hi"] <= x["s0"]) and p["seq"] <= f["lo"]
            for p in self.passes
            if p["rq"] == x["rq"]
        )

    def possible(self, x: Row, mode: str) -> list[Row]:
        on_cell = [e for e in self.events if e["cell"] == x["cell"]]
        hiders = [f for f in on_cell if f["kind"] != "ghost" and self.pre(f, x, mode)]
        return [
            e
            for e in on_cell
            if not self.gone(e, x, mode) and not any(self.before(e, f, mode) for f in hiders)
        ]  # fmt: skip

    def certain(self, e: Row, x: Row, possible: list[Row], mode: str) -> bool:
        return self.seen(e, x, mode) and all(
            self.before(f, e, mode) or self.gone(f, x, mode) or self.passed(e, f, x) for f in possible if f is not e
        )

    # --- class -----------------------------------------------------------------------------------------------

    def place(self, e: Row) -> tuple[Any, ...]:
        return tuple(self.cells[e["cell"]][name] for name in PLACE)

    def life(self, tag: int, place: tuple[Any, ...]) -> Row | None:
        return next((t for t in self.tags if t["tag"] == tag and tuple(t[n] for n in PLACE) == place), None)

    def identity(self, owner: int, place: tuple[Any, ...], tag: int, s0: int) -> str | None:
        found = {
            s["identity"]
            for s in self.shares
            if s["owner"] == owner and s["tag"] == tag and tuple(s[n] for n in PLACE) == place and s["seq"] <= s0
        }
        return next((i for i in ("both", "meaning", "tenant", "same") if i in found), None)

    def shared(self, e: Row, owner: int, tag: int, s0: int) -> tuple[Any, ...] | None:
        """(class, donor, reason, by M12 share), or None where no share of (page, tag) speaks for e."""
        life, identity = self.life(tag, self.place(e)), self.identity(owner, self.place(e), tag, s0)
        if life is None or identity is None or e["lo"] >= life["end_seq"]:
            return None
        if e["hi"] > life["end_seq"]:
            return ("unknown", None, "undecided order", False)
        return {
            "same": ("entitled", None, "", False),
            "tenant": ("shared", None, "", False),
            "meaning": ("wrong", None, "", False),
            "both": ("foreign", life["owner"], "", True),
        }[identity]

    def sources(self, e: Row) -> list[Row]:
        y = {"cell": e["src_cell"], "s0": e["src_lo"], "s1_max": e["src_hi"], "growth": None}
        return self.possible(y, "E")

    def roots(self, e: Row) -> list[Row]:
        return [e] if e["kind"] != "landing" else [root for s in self.sources(e) for root in self.roots(s)]

    def classify(self, e: Row, o: int, tag: int, s0: int, depth: int = 1) -> tuple[Any, ...]:
        if e["kind"] == "ghost":
            return ("unknown", None, e["reason"], False)
        if e["kind"] in ("unwritten", "scrub"):
            return ("unwritten", None, "", False)
        if e["kind"] == "landing":
            return self.classify_landing(e, o, tag, s0, depth)
        if e["owner"] == -1:
            return ("unknown", None, "owner lost", False)
        if e["owner"] == o:
            return ("entitled" if e["tag"] == tag else "stale", None, "", False)
        life = self.life(tag, self.place(e))
        if e["tag"] == tag and life is not None and life["owner"] == e["owner"]:
            shared = self.shared(e, o, tag, s0)
            if shared is not None:
                return shared
        return ("foreign", e["owner"], "", False)

    def classify_landing(self, e: Row, o: int, tag: int, s0: int, depth: int) -> tuple[Any, ...]:
        if depth > 8:
            return ("unknown", None, "transfer chain too long", False)
        if e["src_cell"] is None:
            return ("unknown", None, "source unknown", False)
        members = [self.classify(s, o, e["src_tag"], e["src_lo"], depth + 1) for s in self.sources(e)]
        reasons = sorted(m[2] for m in members if m[0] == "unknown")
        if reasons:
            return ("unknown", None, reasons[0], False)
        if not members:
            return ("unknown", None, "undecided source", False)
        life = self.life(tag, self.place(e))
        if e["tag"] != tag:
            return self.by_roots(e, o)
        if life is None or life["owner"] == -1:
            return ("unknown", None, "owner lost", False)
        if life["owner"] == o:
            classes = {m[0] for m in members}
            if classes <= {"entitled", "shared", "wrong"} and len(classes) == 1:
                return (classes.pop(), None, "", False)
            if classes & {"entitled", "shared", "wrong"}:
                return ("unknown", None, "undecided source", False)
            found = self.by_roots(e, o)
            by_share = found[0] == "foreign" and all(m[3] for m in members)
            return (*found[:3], by_share)
        shared = self.shared(e, o, tag, s0)
        if shared is None:
            return self.by_roots(e, o)
        to_giver = self.classify_landing(e, life["owner"], tag, s0, depth)
        if to_giver[0] == "unknown":
            return to_giver
        return shared if to_giver[0] == "entitled" else self.by_roots(e, o)

    def by_roots(self, e: Row, o: int) -> tuple[Any, ...]:
        owners = {r["owner"] if r["kind"] in ("write", "growth") else None for r in self.roots(e)}
        if -1 in owners:
            return ("unknown", None, "owner lost", False)
        if owners == {None}:
            return ("unwritten", None, "", False)
        if owners == {o}:
            return ("stale", None, "", False)
        if owners & {None, o}:
            return ("unknown", None, "undecided source", False)
        return ("foreign", owners.pop() if len(owners) == 1 else -1, "", False)

    # --- findings ---------------------------------------------------------------------------------------------

    def incomplete(self, rq: int) -> bool:
        return not self.requests[rq]["rows_complete"] or self.requests[rq]["owner"] == -1

    def judge(self, x: Row) -> tuple[list[Row], str, list[Row]]:
        """Findings of a read, the mode that decided, the granted events it certainly found."""
        for mode, proof in (("E", "proved"), ("C", "inferred")):
            possible = self.possible(x, mode)
            classes = {e["event"]: self.classify(e, x["owner"], x["tag"], x["s0"]) for e in possible}
            sure = [e for e in possible if self.certain(e, x, possible, mode)]
            granted = [e for e in sure if classes[e["event"]][0] in ("entitled", "shared")]
            found = self.decide(x, possible, classes, sure, mode, proof)
            if found:
                return found, proof, granted
        reasons = sorted(c[2] for c in classes.values() if c[0] == "unknown")
        reason = reasons[0] if reasons else "undecided order"
        return [self.finding(x, "unknown", "inferred", reason=reason)], "inferred", granted

    def decide(self, x: Row, possible: list[Row], classes: dict, sure: list[Row], mode: str, proof: str) -> list[Row]:
        def of(*wanted: str) -> list[Row]:
            return [e for e in possible if classes[e["event"]][0] in wanted]

        if certainly := [e for e in of("foreign") if e in sure]:
            return [self.accusation(x, e, classes[e["event"]], "foreign", mode, proof) for e in certainly]
        if of("foreign", "unknown") or not possible:
            return []
        if wrong := of("stale", "unwritten", "wrong"):
            return [self.accusation(x, e, classes[e["event"]], "corrupt", mode, proof) for e in wrong if e in sure]
        if shared := of("shared"):
            return [self.accusation(x, e, classes[e["event"]], "exposed", mode, proof) for e in shared if e in sure]
        return [self.finding(x, "clean", proof)]

    def finding(self, x: Row, kind: str, proof: str, **columns: Any) -> Row:
        row = {
            "rq": x["rq"], "place": self.place(x), "kind": kind, "proof": proof, "derived": False, "delivered": "",
            "mechanism": "", "donor": None, "first_step": None, "first_step_last": None, "first_seq": None,
            "reason": "",
        }  # fmt: skip
        return row | columns

    def accusation(self, x: Row, e: Row, content: tuple[Any, ...], kind: str, mode: str, proof: str) -> Row:
        row = self.finding(x, kind, proof, **self.steps(x, e))
        if kind != "exposed":
            row["mechanism"] = self.mechanism(x, e, content, mode)
        if kind == "foreign":
            row |= {"donor": content[1], "delivered": self.delivered(x, e)}
        return row

    def runs(self, x: Row) -> list[Row]:
        return sorted((p for p in self.passes if p["rq"] == x["rq"]), key=lambda p: p["seq"])

    def first_runs(self, x: Row, e: Row) -> tuple[Row | None, Row | None]:
        """(R, Q)"""
        sure = [p for p in self.runs(x) if p["seq"] > x["s0"] and (p["since_seq"] >= e["hi"] or e["hi"] <= x["s0"])]
        maybe = [p for p in self.runs(x) if p["seq"] > max(e["lo"], x["s0"])]
        return (sure or [None])[0], (maybe or [None])[0]

    def steps(self, x: Row, e: Row) -> Row:
        r, q = self.first_runs(x, e)
        last = None if q is None else r["step"] if r else q["step"] + q["n"] - 1
        return {
            "first_step": q["step"] if q else None,
            "first_step_last": last,
            "first_seq": max(e["hi"], x["s0"]),
        }

    def delivered(self, x: Row, e: Row) -> str:
        request = self.requests[x["rq"]]
        rows = [r for r in self.requests.values() if r["owner"] == request["owner"]]
        if request["role"] == "prefill":
            if any(r["output_tokens"] is not None and r["output_tokens"] >= 1 for r in rows):
                return "yes"
            return "no" if all(r["ended_seq"] is not None and r["output_tokens"] == 0 for r in rows) else "unknown"
        r, q = self.first_runs(x, e)
        if request["ended_seq"] is None:
            return "yes" if request["end_certain"] else "unknown"
        if request["last_token"] is not None and request["last_token"] >= (r["t"] if r else x["last_t_end"]):
            return "yes"
        if request["last_token"] is None or (q is not None and request["last_token"] < q["t"]):
            return "no"
        return "unknown"

    def mechanism(self, x: Row, e: Row, content: tuple[Any, ...], mode: str) -> str:
        if content[3]:
            return "M12"
        place = self.place(x)
        life = self.life(x["tag"], place) or {"reserve_seq": -1, "end_seq": 1 << 62, "failed": False, "granted": False}
        if e["kind"] == "landing" and e["tag"] == x["tag"]:
            source = self.life(e["src_tag"], tuple(self.cells[e["src_cell"]][n] for n in PLACE))
            for s in self.sources(e):
                entitled = self.classify(s, x["owner"], e["src_tag"], e["src_lo"], 2)[0] == "entitled"
                if not entitled and source is not None and s["lo"] >= source["end_seq"]:
                    return "M5"
            late = any(
                s["cell"] == e["src_cell"] and s["kind"] in ("write", "growth") and s["tag"] == e["src_tag"]
                and s["hi"] > e["src_lo"]
                for s in self.events
            )  # fmt: skip
            return "M6" if late else "M1"
        after_reserve = e["lo"] >= life["reserve_seq"]
        if e["kind"] == "landing" and (after_reserve or (mode == "C" and not e["hi"] <= life["reserve_seq"])):
            return self.stray(e)
        if e["kind"] in ("write", "growth") and e["tag"] != x["tag"] and after_reserve:
            other = self.life(e["tag"], place)
            return "M8" if other is not None and other["reserve_seq"] <= life["end_seq"] else "M7"
        return "M2" if life["failed"] else "M1" if life["granted"] else "mechanism unknown"

    def stray(self, e: Row) -> str:
        life = self.life(e["tag"], self.place(e))
        return "M13" if life is None else "M4" if life["held"] else "M3"

    def exposures(self, x: Row) -> list[Row]:
        found = []
        life = self.life(x["tag"], self.place(x))
        for e in self.events:
            if e["kind"] != "landing" or e["cell"] != x["cell"]:
                continue
            if e["tag"] == x["tag"]:
                if e["src_cell"] is None:
                    continue
                source = self.life(e["src_tag"], tuple(self.cells[e["src_cell"]][n] for n in PLACE))
                if source is not None and e["src_lo"] < source["end_seq"] < e["src_hi"]:
                    reason = "source released while it was read"
                    found.append(self.finding(x, "exposed", "proved", mechanism="M5", reason=reason))
            elif life is not None and life["owner"] == x["owner"]:
                content = self.classify(e, x["owner"], x["tag"], x["s0"])
                inside = e["lo"] >= life["reserve_seq"] and e["hi"] <= life["end_seq"]
                if inside and content[0] == "foreign":
                    row = self.finding(x, "exposed", "proved", mechanism=self.stray(e), donor=content[1])
                    found.append(row)
        return found

    def derived(self, judged: list[tuple[Row, str, list[Row]]], first_hand: list[Row]) -> list[Row]:
        found: list[Row] = []
        while True:
            added = []
            taints = self.taints([*first_hand, *found])
            for x, proof, granted in judged:
                for e in granted:
                    for taint in self.tainting(e, taints):
                        if taint["owner"] == x["owner"]:
                            continue
                        for donor in taint["donors"]:
                            row = self.finding(x, "foreign", max(taint["proof"], proof, key="proved inferred".index))
                            row |= self.steps(x, e)
                            row |= {
                                "derived": True, "delivered": self.delivered(x, e), "mechanism": taint["mechanism"],
                                "donor": donor,
                            }  # fmt: skip
                            if row not in found and row not in added:
                                added.append(row)
            if not added:
                return found
            found += added

    def taints(self, findings: list[Row]) -> list[Row]:
        taints = []
        for rq, request in self.requests.items():
            mine = [f for f in findings if f["rq"] == rq and f["kind"] == "foreign"]
            if mine:
                first = min(mine, key=lambda f: (f["first_seq"], f["mechanism"], f["proof"] == "inferred"))
                taints.append(
                    {
                        "owner": request["owner"], "at": (request["worker"], request["epoch"]),
                        "since": first["first_seq"], "mechanism": first["mechanism"], "proof": first["proof"],
                        "donors": {f["donor"] for f in mine},
                    }
                )  # fmt: skip
        return taints

    def tainting(self, e: Row, taints: list[Row]) -> list[Row]:
        per_root = [
            [
                taint
                for taint in taints
                if root["kind"] in ("write", "growth") and taint["owner"] == root["owner"]
                and taint["at"] == self.place(root)[:2] and root["hi"] > taint["since"]
            ]
            for root in self.roots(e)
        ]  # fmt: skip
        return [taint for of_root in per_root for taint in of_root] if all(per_root) else []

    # --- output -------------------------------------------------------------------------------------------------

    def page_findings(self) -> list[Row]:
        found, judged = [], []
        for x in self.reads:
            if self.incomplete(x["rq"]):
                found.append(self.finding(x, "unknown", "proved", reason="own rows lost"))
                continue
            of_read, proof, granted = self.judge(x)
            found += of_read
            judged.append((x, proof, granted))
        found += self.derived(judged, list(found))
        found += [f for x in self.reads for f in self.exposures(x)]
        order = ["foreign", "unknown", "corrupt", "exposed", "clean"]
        gravest: dict[Any, int] = {}
        for f in found:
            key = (f["rq"], f["place"])
            gravest[key] = min(gravest.get(key, 9), order.index(f["kind"]))
        return [f for f in found if order.index(f["kind"]) == gravest[f["rq"], f["place"]]]

    def run(self) -> list[Row]:
        groups: dict[Any, list[Row]] = {}
        for f in self.page_findings():
            key = tuple(f[n] for n in ("rq", "kind", "proof", "derived", "delivered", "mechanism", "donor", "reason"))
            groups.setdefault((*key, f["place"][2]), []).append(f)
        rows = [self.row(group) for group in groups.values()]
        nulls_last = lambda value: (value is None, value)  # noqa: E731
        return sorted(
            rows,
            key=lambda r: (
                r["rid"], r["worker"], r["epoch"], r["req"], r["pool"], r["kind"], r["mechanism"],
                nulls_last(r["donor_rid"]), r["reason"], nulls_last(r["first_seq"]), str(r["page_list"]), r["proof"],
                r["derived"], r["delivered"],
            ),
        )  # fmt: skip

    def row(self, group: list[Row]) -> Row:
        f = group[0]
        request = self.requests[f["rq"]]
        pages = sorted({g["place"][3] for g in group})
        rid = request["rid"] if request["owner"] != -1 else "?{worker}/{epoch}/{req}".format(**request)
        donor = self.owners.get(f["donor"], {"rid": None if f["donor"] is None else "?", "tenant": None})
        least = {
            name: min((g[name] for g in group if g[name] is not None), default=None)
            for name in ("first_step", "first_step_last", "first_seq")
        }
        row = {
            "rid": rid, "attempt": request["attempt"], "tenant": request["tenant"], "worker": request["worker"],
            "epoch": request["epoch"], "req": request["req"], "pool": f["place"][2], "kind": f["kind"],
            "proof": f["proof"], "derived": f["derived"], "delivered": f["delivered"], "mechanism": f["mechanism"],
            "donor_rid": donor["rid"], "donor_tenant": donor["tenant"], "pages": len(pages), "page_list": pages,
            "first_step": least["first_step"], "first_step_last": least["first_step_last"],
            "first_step_proof": f["proof"] if least["first_step"] is not None else None,
            "first_seq": least["first_seq"], "reason": f["reason"],
        }  # fmt: skip
        return row
