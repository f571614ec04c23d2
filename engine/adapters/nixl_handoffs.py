"""NIXL handoffs of vLLM as `transfers` rows: the lease that prefill gives, the read that decode asks for, and its end.

Invariant: decode names the blocks that its worker is told to read, whoever's they are; whose they were is for the
other side's record to say. So a read has no source tag, and where the caller's names do not show that prefill's request
is the reader's own, its source is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.adapters.block_tables import POOL, BlockTables, Life
from engine.adapters.vllm_transfer_params import block_ids
from engine.ledger.recorder import Recorder


def xfer_of(engine_id: object, request_id: object) -> int:
    """The number of a handoff, the same on both sides: of prefill's engine id and its id of the request."""
    name = f"{engine_id}/{request_id}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Read:
    """A read that decode has asked for: the columns of its rows, and how many tokens of the prompt it covers."""

    row: dict[str, Any]
    covered: int


class NixlHandoffs:
    """Handoffs of one worker, as prefill and as decode. `name`: the API's id of an engine's one."""

    def __init__(self, recorder: Recorder, tables: BlockTables, one_rid: bool, name: Callable[[str], str]) -> None:
        self._recorder, self._tables, self._one_rid, self._name = recorder, tables, one_rid, name
        self._reads: dict[str, Read] = {}
        self._leases: dict[str, int] = {}
        self._doubtful: set[str] = set()

    def lease(self, request_id: str, life: Life, params: dict[str, Any]) -> bool:
        """Prefill has ended and names the blocks that may be read; False where it names none."""
        pages = block_ids(params)
        if not pages:
            return False
        xfer = self._leases[request_id] = xfer_of(params.get("remote_engine_id"), params.get("remote_request_id"))
        common = {"xfer": xfer, "req": life.req, "dir": "pull", "src_pool": POOL}
        for tag, start, run in self._tables.tagged(pages):
            self._recorder.record(
                "transfers", "grant", **common, src_pages=np.array(run, np.int32), src_tag=tag, pos=start, n=len(run),
                tokens=params.get("remote_num_tokens") if not start else None,
            )  # fmt: skip
        self._tables.hold(life, "lease")
        return True

    def ask(self, request_id: str, life: Life, params: dict[str, Any], targets: list[int], covered: int) -> None:
        """Decode asks its worker to read prefill's blocks into `targets`, the end of the request's table."""
        theirs, named = block_ids(params), params.get("remote_request_id")
        row: dict[str, Any] = {
            "xfer": xfer_of(params.get("remote_engine_id"), named), "req": life.req, "dir": "pull", "chunk": 0,
            "peer": _worker_name(params.get("remote_engine_id")), "src_pool": POOL, "dst_pool": POOL,
            "src_pages": None, "dst_pages": np.array(targets, np.int32), "dst_tag": life.tags[-1],
            "pos": len(life.pages) - len(targets), "n": min(len(theirs), len(targets)), "asked": len(targets),
        }  # fmt: skip
        if self._one_rid or self._name(str(named)) == life.rid:
            row["src_pages"] = np.array(theirs[-len(targets) :], np.int32)
        self._reads[request_id] = Read(row, covered)
        self._recorder.record("transfers", "post", **row)

    def found_all(self, life: Life, params: dict[str, Any]) -> None:
        """Decode needs nothing: its own cache had the whole prompt, and it only says so."""
        xfer = xfer_of(params.get("remote_engine_id"), params.get("remote_request_id"))
        self._recorder.record("transfers", "ack", xfer=xfer, req=life.req, outstanding=0, status="sent")

    def read(self, request_id: str, life: Life) -> None:
        """Decode's worker says that everything it was asked to read is there; who has ended meanwhile takes none of it."""
        asked = self._reads.pop(request_id, None)
        if asked is None:
            return
        row, xfer = asked.row, asked.row["xfer"]
        self._recorder.record("transfers", "done", **row, status="success")
        self._recorder.record(
            "transfers", "ack", xfer=xfer, req=life.req, peer=row["peer"], outstanding=0, status="sent"
        )
        if life.ended:
            return
        self._recorder.pages("receipt", POOL, life.req, row["dst_tag"], row["dst_pages"], pos=row["pos"], xfer=xfer)
        self._recorder.record("requests", "commit", req=life.req, covered_tokens=asked.covered)

    def failed(self, request_id: str) -> None:
        """Decode's worker could not read, or not all of it."""
        asked = self._reads.pop(request_id, None)
        if asked is not None:
            self._recorder.record("transfers", "fail", **asked.row, bytes=None, status="failed")

    def doubt(self) -> None:
        """One of several ranks has let a lease expire, and may say so long before the last lets it go: any can be it."""
        self._doubtful |= self._leases.keys()

    def let_go(self, request_id: str, life: Life, acknowledged: bool) -> None:
        """Prefill's blocks are kept no more: every reader said that it is done, or else a timer may have ended it."""
        xfer = self._leases.pop(request_id, None)
        if xfer is None:
            return
        acknowledged = acknowledged and request_id not in self._doubtful
        self._doubtful.discard(request_id)
        life.cause = "drained" if acknowledged else "lease"
        if acknowledged:
            self._recorder.record("transfers", "ack", xfer=xfer, req=life.req, outstanding=0, status="received")
        else:
            self._recorder.record("transfers", "expire", xfer=xfer, req=life.req, dir="pull", status="released")


def _worker_name(engine_id: object) -> str | None:
    return engine_id if isinstance(engine_id, str) and engine_id else None
