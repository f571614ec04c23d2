"""Writes into peers that may be started again: each life of a peer is another destination.

Invariant: a write that a former life of a peer granted never lands in the memory of its next life, which has the same
page numbers; it fails, and nothing has landed.
"""

from __future__ import annotations

from typing import Any

from engine.ledger.tag import split_tag
from engine.transport import Callbacks, SharedMemoryTransport, WriteBatch


class PeerLives(SharedMemoryTransport):
    """Shared memory of peers by their lives. A batch belongs to the life that made its tag."""

    def connect(self, peer: str, memory: dict[str, Any]) -> None:
        """See `Transport`. `memory` tells its epoch; what was known of other lives of the peer is let go."""
        name = _life(peer, memory["epoch"])
        super().connect(name, memory)
        self._peers = {other: pool for other, pool in self._peers.items() if other == name or not _is_of(other, peer)}

    def submit(self, batch: WriteBatch, callbacks: Callbacks) -> None:
        """See `Transport`."""
        super().submit(batch._replace(dst=_life(batch.dst, split_tag(batch.dst_tag).epoch)), callbacks)


def _life(peer: str, epoch: int) -> str:
    return f"{peer} (epoch {epoch})"


def _is_of(life: str, peer: str) -> bool:
    return life.startswith(f"{peer} (")
