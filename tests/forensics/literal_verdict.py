"""docs/verdicts.md transcribed sentence by sentence over plain rows: slow, quadratic, and the yardstick of both engines.

It shares no code with them; order, classes and mechanisms stand in `literal_order`, `literal_class`, `literal_mechanism`.
"""

from __future__ import annotations

from typing import Any

from literal_class import Class
from literal_mechanism import LiteralMechanism
from literal_order import WRITTEN, Row


class Literal(LiteralMechanism):
    # --- findings ---------------------------------------------------------------------------------------------

    def incomplete(self, rq: int) -> bool:
        return not self.requests[rq]["rows_complete"] or self.requests[rq]["owner"] == -1

    def judge(self, x: Row) -> tuple[list[Row], str, list[Row]]:
        """Findings of a read, the mode that decided, the granted events it certainly found."""
        for mode, proof in (("E", "proved"), ("C", "inferred")):
            possible = self.possible(x, mode)
            classes = {e["event"]: self.of_read(e, x) for e in possible}
            sure = [e for e in possible if self.certain(e, x, possible, mode)]
            granted = [e for e in sure if classes[e["event"]][0] in ("entitled", "shared")]
            found = self.decide(x, possible, classes, sure, mode, proof)
            if found:
                return found, proof, granted
        reasons = sorted(c[2] for c in classes.values() if c[0] == "unknown")
        reason = reasons[0] if reasons else "undecided order"
        mechanism = "M13" if reason == "page geometry differs" else ""
        return [self.finding(x, "unknown", "inferred", reason=reason, mechanism=mechanism)], "inferred", granted

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

    def accusation(self, x: Row, e: Row, content: Class, kind: str, mode: str, proof: str) -> Row:
        row = self.finding(x, kind, proof, **self.steps(x, e), mechanism=self.mechanism(x, e, content, mode))
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
        token = request["last_token"]
        began, ended = (r["t"], r["end_t"]) if r else (x["last_t_end"], x["end_t"])
        if token is not None and (token > began or token == began == ended):
            return "yes"
        if token is None or (q is not None and (token < q["t"] or token == q["t"] != q["end_t"])):
            return "no"
        return "unknown"

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
                if root["kind"] in WRITTEN and taint["owner"] == root["owner"]
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
        found += [
            self.finding(x, **{"kind": "exposed", "proof": "proved"} | columns)
            for x in self.reads
            for columns in self.exposures(x)
        ]
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
        pages = sorted({page for g in group for page in self.members.get(g["place"], [g["place"][3]])})
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
