"""Rows of the ledger's `cache` table: one per run of pages of one tag, with the identity of whom they are about.

Invariant: `asked` and `returned` add up, over the rows of one operation, to what was asked for and what was had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.block_pool import tag_runs
from engine.ledger.recorder import Recorder
from engine.page_keys import Identity

SaltFp = Callable[[Identity], int]
"""Keyed fingerprint of the owner that an identity's keys are to be kept apart by."""


@dataclass(frozen=True, eq=False)
class Match:
    """Cached pages of a prompt's beginning: `keys` int64, `pages` int32, `tags` int64, all [n]; `asked` keys were
    looked up."""

    keys: np.ndarray
    pages: np.ndarray
    tags: np.ndarray
    asked: int

    def __len__(self) -> int:
        return len(self.pages)

    def head(self, count: int) -> Match:
        """The first `count` pages only."""
        return Match(self.keys[:count], self.pages[:count], self.tags[:count], self.asked)


class CacheRows:
    """Writes the `cache` rows of one tier and component."""

    def __init__(self, recorder: Recorder, tier: str, component: str, salt_fp: SaltFp | None = None) -> None:
        self._recorder, self._tier, self._component, self._salt_fp = recorder, tier, component, salt_fp

    def write(
        self, op: str, pool: str, run: Match, *, req: int | None, identity: Identity | None, pos: int = 0,
        counted: bool = False,
    ) -> None:  # fmt: skip
        """One row per run of one tag. Where `counted`, `asked` and `returned` of all rows together are those of `run`:
        what was asked for and not found stands on the last row."""
        common = {"tier": self._tier, "component": self._component, "req": req, "pool": pool, **self._who(identity)}
        missing = run.asked - len(run)
        with self._recorder.lock:
            for tag, start, stop in tag_runs(run.tags):
                count = stop - start
                columns = common | {"tag": tag, "pos": pos + start, "n": count}
                if counted:
                    columns |= {"asked": count + (missing if stop == len(run) else 0), "returned": count}
                keys, pages = run.keys[start:stop], run.pages[start:stop]
                self._recorder.record("cache", op, keys=keys, pages=pages, **columns)
            if counted and missing and not len(run):
                self._recorder.record("cache", op, keys=[], pages=[], pos=pos, n=0, asked=missing, returned=0, **common)

    def _who(self, identity: Identity | None) -> dict[str, str | int | None]:
        if identity is None:
            return {}
        return {
            "tenant": identity.tenant, "adapter": identity.adapter, "media": identity.media,
            "weights": identity.weights, "kv_format": identity.kv_format,
            "salt_fp": self._salt_fp(identity) if self._salt_fp is not None else None,
        }  # fmt: skip
