"""Memory of the ranks of one simulated worker, and what a batch of a handoff copies between those of two.

A page of a pool has as many parts as the most writers that one may have; a local pass fills and reads all of them.

Invariant: page numbers are the same on every rank; tags differ in their ordinal alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import lcm

from engine.ledger.tag import EPOCH_BITS, SEQ_BITS
from engine.ranks import Ranks
from engine.simulation.headers import HeaderStore
from engine.simulation.memory import PageStore
from engine.simulation.planes import Plane
from engine.simulation.scenario import Group
from engine.simulation.transport import Lane
from engine.simulation.truth import SimTruth
from engine.transport import WriteBatch

KV, HOST = "kv", "host"


class Shards:
    """The pools of every rank of a worker; what lies in them is kept where `content` says so."""

    def __init__(self, group: Group, ranks: Ranks, parts: int, content: bool) -> None:
        kind = PageStore if content else HeaderStore
        self.ranks, self.parts = ranks, parts
        pools = group.pages.present() | ({HOST: group.host_pages} if group.host_pages else {})
        self.stores = {
            (pool, rank, part): kind(pages + 1, group.page_tokens)
            for pool, pages in pools.items()
            for rank in range(ranks.size)
            for part in range(parts)
        }

    def first(self, pool: str) -> PageStore | None:
        """A pool of the first rank, of its pages the first part; None where there is no such pool."""
        return self.stores.get((pool, 0, 0))

    def planes(self, truths: Sequence[SimTruth]) -> list[Plane]:
        """Everything but `kv` and host of the first part of the first rank; one truth a rank."""
        return [
            Plane(
                pool, store, truths[rank], rank if self.ranks.size > 1 else None, part, rank << (EPOCH_BITS + SEQ_BITS)
            )
            for (pool, rank, part), store in self.stores.items()
            if rank or part or pool not in (KV, HOST)
        ]


def lanes(batch: WriteBatch, source: Shards, target: Shards) -> list[Lane]:
    """What a batch copies: from each rank of its source into the part of each partner's pages that it fills."""
    found = []
    for rank in range(source.ranks.size):
        part, parts = source.ranks.part(rank, target.ranks)
        each = target.parts // parts
        for partner in source.ranks.partners(rank, target.ranks):
            for place in range(part * each, (part + 1) * each):
                found.append(
                    Lane(
                        source.stores[batch.pool, rank, 0], target.stores[batch.pool, partner, place],
                        target.ranks.tag(batch.dst_tag, partner), rank,
                    )
                )  # fmt: skip
    return found


def parts_of(group: Group, fleet: Iterable[Group]) -> int:
    """Parts of a page of a group's workers: decode's are filled by as many ranks as any prefill worker has for one."""
    if group.role == "prefill":
        return 1
    return lcm(*(max(other.tp_size // group.tp_size, 1) for other in fleet if other.role == "prefill"))
