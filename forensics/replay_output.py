"""From findings on pages to rows of FINDING_COLUMNS: the gravest kind of each page, grouped, sorted.

Invariant: every page that a request read stands in at least one row, and only under its gravest kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from forensics.replay_facts import Facts, Ints
from forensics.replay_findings import Found
from forensics.replay_records import NONE
from forensics.verdict import FINDING_COLUMNS, Kind, Proof

GRAVEST_FIRST = list(Kind)
"""foreign, unknown, corrupt, exposed, clean."""

Group = tuple[Any, ...]
Row = dict[str, Any]


def findings_table(facts: Facts, found: list[Found], cleared_rq: Ints, cleared_page: Ints) -> pa.Table:
    """Rows of FINDING_COLUMNS. `cleared_rq`, `cleared_page`: the reads found clean and proved many at a time."""
    gravest = _gravest(found)
    groups: dict[Group, list[Found]] = defaultdict(list)
    clean: list[tuple[int, int]] = []
    for one in found:
        if gravest[one.rq, one.page] != one.kind:
            continue
        if one.kind is Kind.CLEAN and one.proof is Proof.PROVED:
            clean.append((one.rq, one.page))
            continue
        groups[_group(facts, one)].append(one)
    rows = [_row(facts, one[0], sorted({f.page for f in one}), one) for one in groups.values()]
    graver = {key for key, kind in gravest.items() if kind is not Kind.CLEAN}
    rows += _clean_rows(facts, clean, graver, cleared_rq, cleared_page)
    rows.sort(key=_sort_key)
    columns = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in FINDING_COLUMNS}
    return pa.table(columns, schema=FINDING_COLUMNS)


def _gravest(found: list[Found]) -> dict[tuple[int, int], Kind]:
    gravest: dict[tuple[int, int], Kind] = {}
    for one in found:
        key = (one.rq, one.page)
        if key not in gravest or GRAVEST_FIRST.index(one.kind) < GRAVEST_FIRST.index(gravest[key]):
            gravest[key] = one.kind
    return gravest


def _group(facts: Facts, one: Found) -> Group:
    pool = int(facts.page_pool[one.page])
    return (
        one.rq, pool, one.kind, one.proof, one.derived, one.delivered, one.mechanism,
        -2 if one.donor is None else one.donor, one.reason,
    )  # fmt: skip


def _clean_rows(
    facts: Facts, clean: list[tuple[int, int]], graver: set[tuple[int, int]], rqs: Ints, pages: Ints
) -> Iterable[Row]:
    """One row per request and pool; made from arrays, since nearly every page of nearly every ledger is here."""
    more = np.array(clean, np.int64).reshape(-1, 2)
    width = max(facts.page_count, 1)
    keys = np.unique(np.concatenate([rqs * width + pages, more[:, 0] * width + more[:, 1]]))
    if graver:
        keys = np.setdiff1d(keys, np.array([rq * width + page for rq, page in graver], np.int64), assume_unique=True)
    rq, page = np.divmod(keys, width)
    pool = facts.page_pool[page]
    order = np.lexsort((page, pool, rq))
    rq, page, pool = rq[order], page[order], pool[order]
    bounds = [0, *(np.flatnonzero((rq[1:] != rq[:-1]) | (pool[1:] != pool[:-1])) + 1).tolist(), len(rq)]
    for start, stop in pairwise(bounds if len(rq) else []):
        one = Found(int(rq[start]), int(page[start]), Kind.CLEAN, Proof.PROVED)
        yield _row(facts, one, page[start:stop], [one])


def _row(facts: Facts, one: Found, pages: list[int] | Ints, group: list[Found]) -> Row:
    """One row, of all the pages that `pages` stand for."""
    request = facts.requests[one.rq]
    numbers = np.sort(facts.members_of(pages))
    rid, tenant = _donor(facts, one.donor)
    row: Row = {
        "rid": request.rid, "attempt": request.attempt, "tenant": request.tenant, "worker": request.worker,
        "epoch": request.epoch, "req": request.req, "pool": facts.pools[int(facts.page_pool[one.page])],
        "kind": one.kind.value, "proof": one.proof.value, "derived": one.derived, "delivered": one.delivered,
        "mechanism": one.mechanism, "donor_rid": rid, "donor_tenant": tenant, "pages": len(numbers),
        "page_list": numbers, "reason": one.reason,
    }  # fmt: skip
    for name in ("first_step", "first_step_last", "first_seq"):
        row[name] = min((value for f in group if (value := getattr(f, name)) is not None), default=None)
    row["first_step_proof"] = one.proof.value if row["first_step"] is not None else None
    return row


def _donor(facts: Facts, donor: int | None) -> tuple[str | None, str | None]:
    if donor is None:
        return None, None
    return ("?", None) if donor == NONE else facts.donors.get(donor, ("?", None))


def _sort_key(row: Row) -> tuple[Any, ...]:
    donor, first = row["donor_rid"], row["first_seq"]
    return (
        row["rid"], row["worker"], row["epoch"], row["req"], row["pool"], row["kind"], row["mechanism"],
        (donor is None, donor or ""), row["reason"], (first is None, first or 0), str(row["page_list"].tolist()),
        row["proof"], row["derived"], row["delivered"],
    )  # fmt: skip
