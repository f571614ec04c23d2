"""From findings to one verdict per response (docs/verdicts.md, "Verdict of a response").

Invariant: precedence is `Verdict`'s order; a response never becomes clean by lack of rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from forensics.evidence import Evidence
from forensics.rows import Row, rows_of
from forensics.verdict import RESPONSE_COLUMNS, Kind, Proof, Verdict

NO_RECORD = "no record of its reads"
OWN_ROWS_LOST = "own rows lost"
STAGES = {"prefill": 0, "decode": 1}


def response_id(request: Row) -> str:
    """The rid; where its `receive` row is lost, the request's place on its worker."""
    return request["rid"] or f"?{request['worker']}/{request['epoch']}/{request['req']}"


def verdict_of(finding: Row) -> Verdict:
    """The verdict that one finding alone supports."""
    if finding["kind"] != Kind.FOREIGN:
        return Verdict(finding["kind"])
    return {"yes": Verdict.CONTAMINATED, "no": Verdict.EXPOSED}.get(finding["delivered"], Verdict.UNKNOWN)


def responses(evidence: Evidence, findings: pa.Table) -> pa.Table:
    """One row per response, columns `RESPONSE_COLUMNS`, sorted by rid."""
    by_rid: dict[str, list[Row]] = defaultdict(list)
    for finding in rows_of(findings):
        by_rid[finding["rid"]].append(finding)
    requests: dict[str, list[Row]] = defaultdict(list)
    for request in rows_of(evidence.requests):
        requests[response_id(request)].append(request)
    decoder_lost = _decoder_lost(evidence)
    rows = [_response(rid, requests[rid], by_rid.get(rid, []), decoder_lost) for rid in sorted(requests)]
    columns = {f.name: pa.array([row[f.name] for row in rows], _storage(f.type)).cast(f.type) for f in RESPONSE_COLUMNS}
    return pa.table(columns, schema=RESPONSE_COLUMNS)


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _decoder_lost(evidence: Evidence) -> bool:
    """Whether rows of requests are lost at a decode worker: one that is not known there may have been."""
    roles = zip(*(evidence.requests[name].to_pylist() for name in ("worker", "epoch", "role")), strict=True)
    others = {(worker, epoch) for worker, epoch, role in roles if role != "decode"}
    return any(m.table == "requests" and not m.alive and m.worker not in others for m in evidence.missing)


def _response(rid: str, requests: list[Row], findings: list[Row], decoder_lost: bool) -> Row:
    doubts = _doubts(requests, findings, decoder_lost)
    supported = [(verdict_of(f), f) for f in findings]
    verdict = min([v for v, _ in supported] + [Verdict.UNKNOWN] * bool(doubts) + [Verdict.CLEAN], key=lambda v: v.rank)
    support = [f for v, f in supported if v == verdict]
    foreign = [f for f in findings if f["kind"] == Kind.FOREIGN]
    roles = {(r["worker"], r["epoch"]): r["role"] for r in requests}
    leading = min(support, key=lambda f: _first(f, roles), default=None) if verdict is not Verdict.CLEAN else None
    reasons = sorted(
        {f["reason"] for f in support if f["reason"]} | (set(doubts) if verdict is Verdict.UNKNOWN else set())
    )
    identity = next((r for r in requests if r["tenant"] is not None), requests[0])
    # The status the client saw is the gateway's, where it is known.
    ended = sorted((r for r in requests if r["status"]), key=lambda r: (r["role"] != "gateway", r["worker"]))
    return {
        "rid": rid,
        "tenant": identity["tenant"],
        "purpose": next((r["purpose"] for r in requests if r["purpose"]), None),
        "verdict": verdict.value,
        "proof": _proof(verdict, support, bool(doubts)).value,
        "derived": bool(support) and all(f["derived"] for f in support) and support[0]["kind"] == Kind.FOREIGN,
        "mechanism": leading["mechanism"] if leading else "",
        "donors": sorted({f["donor_rid"] for f in foreign if f["donor_rid"]}),
        "pages": len({(f["worker"], f["pool"], page) for f in foreign for page in f["page_list"] or ()}),
        "first_step": leading["first_step"] if leading else None,
        "first_step_last": leading["first_step_last"] if leading else None,
        "first_worker": leading["worker"] if leading else None,
        "started": min((r["started"] for r in requests if r["started"] is not None), default=None),
        "finished": max((r["finished"] for r in requests if r["finished"] is not None), default=None),
        "status": ended[0]["status"] if ended else "running",
        "reason": "; ".join(reasons),
    }


def _first(finding: Row, roles: dict[tuple[str, int], str]) -> tuple[Any, ...]:
    """Earliest first: attempts in order, prefill before decode, then by step."""
    stage = STAGES.get(roles.get((finding["worker"], finding["epoch"]), ""), len(STAGES))
    step = finding["first_step"] if finding["first_step"] is not None else 1 << 62
    seq = finding["first_seq"] if finding["first_seq"] is not None else 1 << 62
    return (
        finding["attempt"] or 0,
        stage,
        step,
        finding["worker"],
        seq,
        finding["mechanism"],
        finding["donor_rid"] or "",
    )


def _doubts(requests: list[Row], findings: list[Row], decoder_lost: bool) -> list[str]:
    """Reasons for which the response cannot be called clean, whatever its findings say."""
    is_lost = any(not r["rows_complete"] or r["owner"] < 0 for r in requests)
    is_lost = is_lost or (decoder_lost and not any(r["role"] == "decode" for r in requests))
    doubts = [OWN_ROWS_LOST] if is_lost else []
    if _unread(requests, findings):
        doubts.append(NO_RECORD)
    return doubts


def _unread(requests: list[Row], findings: list[Row]) -> bool:
    """Whether tokens left, or may have, of which no read is known. Prefill computes the first, every other takes a decode
    pass."""
    read = {(f["worker"], f["epoch"], f["req"]) for f in findings}
    decoders = [r for r in requests if r["role"] == "decode"]
    unread = [r for r in decoders if (r["worker"], r["epoch"], r["req"]) not in read]
    most = max((_least_left(r) for r in requests), default=0)
    if all(r["output_tokens"] is None for r in requests) and any(_is_answered(r) for r in requests):
        most = max(most, 1)
    first_alone = most == 1 and any(r["output_tokens"] == 1 for r in unread)
    return any(_least_left(r) > 1 or (r["output_tokens"] is None and _least_left(r) > 0) for r in unread) or (
        most >= 1 and len(unread) == len(decoders) and not first_alone
    )


def _least_left(request: Row) -> int:
    """How many tokens left at least, as one row says: where it does not count them, one if it knows when the last did."""
    return max(request["output_tokens"] or 0, int(request["last_token"] is not None))


def _is_answered(request: Row) -> bool:
    """Whether a request ended, and not by what its row calls a failure."""
    return request["ended_seq"] is not None and request["status"] in (None, "200")


def _proof(verdict: Verdict, support: list[Row], doubted: bool) -> Proof:
    proofs = {f["proof"] for f in support}
    if verdict is Verdict.CLEAN:
        return Proof.INFERRED if Proof.INFERRED in proofs else Proof.PROVED
    if verdict is Verdict.UNKNOWN and (doubted or not proofs):
        return Proof.PROVED
    return Proof.PROVED if Proof.PROVED in proofs else Proof.INFERRED


def counts(table: pa.Table) -> dict[Verdict, int]:
    """Responses by verdict, every verdict named."""
    found = table["verdict"].to_pylist()
    return {verdict: found.count(verdict.value) for verdict in Verdict}
