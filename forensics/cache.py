"""What a prefix cache gave to whom: shares, hits, and whether the key they went by was complete.

Invariant: a `hit` or a `share` of (page, tag) is a taking; its identity compares who wrote the content with who took
it. A missing lock (a hit without a share) changes no entitlement.
"""

from __future__ import annotations

from dataclasses import dataclass

from forensics.lives import PageKey
from forensics.order import INF
from forensics.rows import Row, WorkerRows

IDENTITY_OF_OWNER = "tenant"
IDENTITY_OF_MEANING = ("adapter", "media", "weights", "kv_format")

COMPLETE, INCOMPLETE, UNKNOWN = "complete", "incomplete", "unknown"
"""Whether a tier's key carries the tenant: both rows name one salt; two salts met under one key; not recorded."""


@dataclass(frozen=True, slots=True)
class Taking:
    """`req` takes `page` under `tag` at `seq`; `given` and `taken` are the cache rows that tell of the key, if any."""

    page: PageKey
    tag: int
    req: int
    seq: int
    end_seq: int
    given: Row | None = None
    taken: Row | None = None


def takings(worker: WorkerRows) -> list[Taking]:
    """Every share (closed by its unshare) and every hit of a page."""
    return [*_shares(worker), *_hits(worker)]


def _shares(worker: WorkerRows) -> list[Taking]:
    open_shares: dict[tuple[PageKey, int, int], int] = {}
    closed: list[Taking] = []
    for row in worker.pages:
        if row["op"] not in ("share", "unshare") or None in (row["pages"], row["req"], row["tag"]):
            continue
        for number in row["pages"]:
            at = ((worker.key, row["pool"], number), row["tag"], row["req"])
            if row["op"] == "share":
                open_shares.setdefault(at, row["seq"])
            elif at in open_shares:
                closed.append(Taking(*at, open_shares.pop(at), row["seq"]))
    return closed + [Taking(*at, seq, INF) for at, seq in open_shares.items()]


def _hits(worker: WorkerRows) -> list[Taking]:
    """Hits with what filed the key: the page's `insert` in that tier, or the last `offload` of the key to it."""
    filed: dict[tuple[str | None, int | None, int, PageKey], Row] = {}
    stored: dict[tuple[str | None, str | None, int | None], Row] = {}
    found: list[Taking] = []
    for row in worker.cache:
        if row["pages"] is None or row["tag"] is None:
            continue
        for index, number in enumerate(row["pages"]):
            page, key = (worker.key, row["pool"], number), key_at(row, index)
            if row["op"] == "insert":
                filed[row["tier"], key, row["tag"], page] = row
            elif row["op"] == "offload":
                stored[row["tier"], row["component"], key] = row
            elif row["op"] == "hit" and row["req"] is not None:
                given = filed.get((row["tier"], key, row["tag"], page))
                given = given or stored.get((row["tier"], row["component"], key))
                found.append(Taking(page, row["tag"], row["req"], row["seq"], INF, given, row))
    return found


def key_at(row: Row, index: int) -> int | None:
    """The key of the row's page at `index`."""
    keys = row["keys"]
    return keys[index] if keys is not None and index < len(keys) else None


def identity(giver: Row | None, taker: Row | None, given: Row | None, taken: Row | None) -> str:
    """'same', 'tenant', 'meaning' or 'both': what differs between two `receive` rows, or between two cache rows.

    A null in a cache row is no word on the matter; in a `receive` it means that there is none.
    """
    pairs = [(giver, taker, False)] if giver is not None and taker is not None else []
    if given is not None and taken is not None:
        pairs.append((given, taken, True))

    def differs(name: str) -> bool:
        return any(
            one[name] != other[name] and not (silent and None in (one[name], other[name]))
            for one, other, silent in pairs
        )

    tenant, meaning = differs(IDENTITY_OF_OWNER), any(differs(name) for name in IDENTITY_OF_MEANING)
    return {(False, False): "same", (True, False): "tenant", (False, True): "meaning", (True, True): "both"}[
        tenant, meaning
    ]


def key_state(given: Row | None, taken: Row | None) -> str:
    """Whether the key under which `taken` found what `given` put there carries the tenant's salt."""
    if given is None or taken is None:
        return UNKNOWN
    return COMPLETE if given["salt_fp"] == taken["salt_fp"] else INCOMPLETE
