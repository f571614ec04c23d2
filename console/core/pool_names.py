"""A pool's name in views and addresses, and which pool a name means.

Invariant: every screen of both skins writes and reads pools here. `worker:pool` is a worker's pool over all its lives,
`worker:epoch:pool` that of one of them; either opens a screen that knows the other. `worker/pool`, as older addresses
have it, is read too.
"""

from __future__ import annotations

from collections.abc import Sequence

Pool = tuple[str, int | None, str]
"""Worker, epoch (None = all its lives), pool."""


def pool_name(worker: str, pool: str, epoch: int | None = None) -> str:
    """`decode-0:1:kv`, or `decode-0:kv` of all the worker's lives."""
    return f"{worker}:{pool}" if epoch is None else f"{worker}:{epoch}:{pool}"


def pool_named(name: str | None, known: Sequence[Pool]) -> int | None:
    """Which of `known` a name means: the place in it, None where it means none. A worker's name may hold colons, so that
    what fits exactly goes first; of several lives of a worker that is named alone, the latest.
    """
    if name is None:
        return None
    exact = [n for n, (worker, epoch, pool) in enumerate(known) if name == pool_name(worker, pool, epoch)]
    fits = [n for n, each in enumerate(known) if _fits(name, *each)]
    return max(exact or fits, key=lambda n: known[n][1] or 0, default=None)


def _fits(name: str, worker: str, epoch: int | None, pool: str) -> bool:
    if name in (pool_name(worker, pool), f"{worker}/{pool}"):
        return True
    life = name.removeprefix(f"{worker}:").removesuffix(f":{pool}")
    return epoch is None and life.isdecimal() and name == f"{worker}:{life}:{pool}"
