"""What SGLang's own calls say, as ledger rows: requests, page lists of handoffs, counts on both sides, holds and ends.

Invariant: content is not witnessed. Which bytes a forward pass wrote or read is seen by no hook, so that every pass leaves
a missing `pages` row: verdicts stay `unknown`, while counts, owners of handed pages and releases are exact.
"""

from __future__ import annotations

import atexit
import socket
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from engine.adapters.keyed import Keyed
from engine.adapters.ledger_rows import LedgerRows
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed
from engine.adapters.sglang_hooks import Hook
from engine.adapters.sglang_settings import Settings
from engine.ledger.recorder import Recorder

FAILED, SUCCESS = 0, 4  # KVPoll
POOL = "kv"
UNWATCHED = ("cache", "gauges", "pages", "steps")
"""Tables of which no hook gives rows, or not all of them."""
MOST_OPEN = 1 << 16


def now_us() -> int:
    """The clock of this host, microseconds UTC."""
    return time.time_ns() // 1000


class SglangRecorder:
    """Handlers of HOOKS for one scheduler process. Inert until `begin`: other processes load the plugin, too."""

    def __init__(
        self, settings: Settings, ranks: Callable[[Any], Mapping[str, int | None]], clock: Callable[[], int] = now_us
    ) -> None:
        self._settings, self._ranks, self._clock = settings, ranks, clock
        self._missing: Mapping[Hook, str] = {}
        self._rows: LedgerRows | None = None
        self._granted: dict[int, tuple[int, int, np.ndarray]] = {}  # room -> req, tag, pages
        self._posted: dict[int, int] = {}  # room -> pages handed to the transfer
        self._acks: dict[int, int] = {}  # room -> ranks of prefill that said they are done with it
        self._mode: str | None = None
        self._unwatched = set(UNWATCHED)
        self._keyed = Keyed(settings.key) if settings.key else None
        self.failures = 0

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of this process, where it is a scheduler's."""
        return self._rows.recorder if self._rows is not None else None

    def attached(self, missing: Mapping[Hook, str]) -> None:
        """Told which hooks could not be attached, before `begin`."""
        self._missing = missing

    def begin(self, owner: Any, result: Any) -> None:
        """A scheduler stands: this process records from here on."""
        if self._rows is not None:
            return
        ranks = self._ranks(owner)
        mode = self._mode = _mode(owner)
        places = (f"{kind}{ranks.get(f'{kind}_rank') or 0}" for kind in ("dp", "pp", "tp"))
        name = "-".join(part for part in (self._settings.name, mode, *places) if part)
        ordinal = self._settings.first_ordinal + _place(ranks)
        recorder = Recorder(
            self._settings.ledger, name, ordinal=ordinal, now_us=self._clock, digest_key=self._settings.key
        )
        page = _number(owner, "page_size")
        self._rows = LedgerRows(recorder, Notes(), page)
        recorder.record(
            "workers", "start", role=mode, ordinal=ordinal, host=socket.gethostname(), engine="sglang", version=_version(),
            **{name: ranks.get(name) for name in ("tp_rank", "tp_size", "pp_rank", "pp_size", "dp_rank")},
        )  # fmt: skip
        tokens, least = _number(owner, "max_total_num_tokens"), _number(owner, "max_req_input_len")
        recorder.record(
            "workers", "config", pool=POOL, pool_pages=tokens // page if tokens and page else None, page_tokens=page,
            context_tokens=_number(getattr(owner, "model_config", None), "context_len"),
            prompt_limit_tokens=least - 1 if least is not None else None,
        )  # fmt: skip
        backend = getattr(getattr(owner, "transfer_backend", None), "value", None)
        for hook, why in self._missing.items():
            if hook.backend is None or backend is None or hook.backend == backend:
                recorder.record("checks", "skipped", detector=f"hook {hook.path}", pool=POOL, n=1, action=why)
                self._unwatched.add(hook.table)
        for table in sorted(self._unwatched):
            self._miss(table)
        atexit.register(self.close)

    def close(self) -> None:
        """The process ends in order: what was never watched is missing up to the end, too."""
        recorder = self.recorder
        if recorder is not None:
            for table in sorted(self._unwatched):
                self._miss(table)
            recorder.close()

    def failed(self, hook: Hook, why: str) -> None:
        """A handler raised: the row that it would have written is missing."""
        self.failures += 1
        if hook.table != "workers":
            self._miss(hook.table)

    def received(self, owner: Any, req: Any, result: Any) -> None:
        """A request stands in a role's queue; a retracted one that comes back is no new one."""
        rid, room = str(req.rid), _room(req)
        if self._rows is None or self._known(rid) is not None:
            return
        routing = getattr(req, "routing_key", None)
        tenant = self._keyed.tenant(str(routing)) if self._keyed is not None and routing else None
        adapter = getattr(req, "lora_id", None)
        columns = {
            "prompt_tokens": len(req.origin_input_ids),
            "tenant": tenant,
            "adapter": str(adapter) if adapter else None,
        }
        self._write("requests", "receive", columns, rid, room)
        if room is not None:
            self._write("requests", "room", {}, rid, room)

    def rejected(self, owner: Any, error_msg: str, status_code: Any, result: Any) -> None:
        """A request is refused in the scheduler: its length is read before a placeholder takes its place."""
        self._refused(owner, status_code)

    def aborted(self, req: Any, error_message: str, status_code: Any, result: Any) -> None:
        """A request is refused or given up on the way to its handoff."""
        self._refused(req, status_code)

    def granted(self, owner: Any, kv_indices: Any, result: Any) -> None:
        """Decode told prefill where to write: the pages are the request's, and open to the writer."""
        room, pages = int(owner.bootstrap_room), _pages(kv_indices)
        if self._rows is None:
            return
        recorder, req = self._rows.recorder, self._rows.request(None, room)
        with recorder.lock:
            if req is None:
                recorder.miss("requests")
                return
            tag = recorder.reserve(POOL, req, pages)
            self._write(
                "transfers", "grant",
                {**_handoff(room), "dst_pages": pages, "dst_tag": tag, "n": len(pages), "asked": len(pages)},
                None, room,
            )  # fmt: skip
            self._granted[room] = (req, tag, pages)
            if len(self._granted) > MOST_OPEN:
                self._granted.pop(next(iter(self._granted)))
                recorder.miss("pages", POOL)

    def posted(
        self, owner: Any, bootstrap_room: int, kv_indices: Any, index_slice: slice, result: Any, **_: Any
    ) -> None:
        """Prefill hands pages to the transfer: which ones, how many, at which place of the request."""
        room, pages = int(bootstrap_room), _pages(kv_indices)
        if self._rows is None:
            return
        columns = {**_handoff(room), "src_pages": pages, "n": len(pages), "pos": index_slice.start or 0}
        with self._rows.recorder.lock:
            self._write("transfers", "post", columns, None, room)
            self._posted[room] = self._posted.get(room, 0) + len(pages)
            if len(self._posted) > MOST_OPEN:
                self._posted.pop(next(iter(self._posted)))
                self._rows.recorder.miss("transfers")

    def concluded(self, owner: Any, bootstrap_room: int, status: Any, result: Any) -> None:
        """A handoff is over. Prefill is the mover and says what it moved; decode only believes it."""
        room, emitted = int(bootstrap_room), result
        if self._rows is None or emitted is None or self._mode != "prefill" or room not in self._posted:
            return
        with self._rows.recorder.lock:
            moved = self._posted.pop(room)
            if int(emitted) == SUCCESS:
                self._write("transfers", "done", {**_handoff(room), "n": moved, "status": "success"}, None, room)
            elif int(emitted) == FAILED:
                self._write(
                    "transfers", "fail", {**_handoff(room), "n": moved, "bytes": None, "status": "failed"}, None, room
                )

    def committed(self, owner: Any, decode_req: Any, result: Any) -> None:
        """Decode takes the handoff for whole: it will attend to the full length."""
        req = decode_req.req
        self._write("requests", "commit", {"covered_tokens": len(req.origin_input_ids)}, str(req.rid), _room(req))

    def abort_sent(self, owner: Any, result: Any) -> None:
        """Decode told prefill to stop writing."""
        room = int(owner.bootstrap_room)
        self._write("transfers", "abort", {"xfer": room, "status": "sent"}, None, room)

    def drained(self, owner: Any, bootstrap_room: int, prefill_rank: int, result: Any) -> None:
        """A rank of prefill says that nothing of the room is in flight any more."""
        room = int(bootstrap_room)
        self._acks[room] = self._acks.get(room, 0) + 1
        if len(self._acks) > MOST_OPEN:
            self._acks.pop(next(iter(self._acks)))
        self._write("transfers", "ack", {"xfer": room, "outstanding": 0, "status": "received"}, None, room)

    def held(self, owner: Any, decode_req: Any, result: Any) -> None:
        """Pages stay reserved after their request ended, since a write may be in flight."""
        self._of_grant("hold", _room(decode_req.req), {"cause": "abort"})

    def let_go(self, owner: Any, decode_req: Any, idx: int, result: Any) -> None:
        """The hold ends. Where not every rank that may write has said that it is done, a timer ended it."""
        room = _room(decode_req.req)
        writers = len(getattr(getattr(decode_req, "kv_receiver", None), "bootstrap_infos", None) or ()) or 1
        if room is not None and self._acks.pop(room, 0) < writers:
            self._write("transfers", "expire", {"xfer": room, "status": "released"}, None, room)

    def released(self, req: Any, tree_cache: Any, result: Any) -> None:
        """A request gives its pages back; into the prefix cache or to the free list is not seen."""
        room = _room(req)
        if room is not None and self._of_grant("unbind", room, {}):
            self._granted.pop(room, None)
            self._miss("pages")

    def ran(self, owner: Any, batch: Any, result: Any) -> None:
        """A forward pass reads and writes pages: nothing of it is witnessed."""
        self._miss("pages")

    def streamed(self, owner: Any, reqs: Any, result: Any) -> None:
        """Requests whose end has been handed to the client."""
        if self._rows is None:
            return
        for req in reqs:
            reason = getattr(req, "finished_reason", None)
            rid, room = str(req.rid), _room(req)
            if reason is None or self._known(rid) is None:
                continue
            status, why = _outcome(reason)
            columns = {
                "prompt_tokens": len(req.origin_input_ids), "output_tokens": len(req.output_ids), "status": status, "reason": why,
            }  # fmt: skip
            self._write("requests", "finish" if status == "200" else "abort", columns, rid, room)
            self._rows.forget(rid)

    def mismatched(self, owner: Any, req: Any, msg: str, result: Any) -> None:
        """The engine's own checksum of a handoff failed."""
        columns = {"detector": "kv-checksum", "pool": POOL, "n": 1, "action": "fail-request"}
        self._write("checks", "mismatch", columns, str(req.rid), _room(req))

    def _refused(self, req: Any, status_code: Any) -> None:
        code = getattr(status_code, "value", status_code)
        columns = {
            "prompt_tokens": len(req.origin_input_ids), "status": str(code) if code is not None else None, "reason": "refused",
        }  # fmt: skip
        self._write("requests", "reject", columns, str(req.rid), _room(req))

    def _of_grant(self, op: str, room: int | None, columns: dict[str, Any]) -> bool:
        grant = self._granted.get(room) if room is not None else None
        if grant is None or self._rows is None:
            return False
        req, tag, pages = grant
        self._rows.recorder.pages(op, POOL, req, tag, pages, **columns)
        return True

    def _miss(self, table: str) -> None:
        if self._rows is not None:
            self._rows.recorder.miss(table, POOL if table == "pages" else None)

    def _known(self, rid: str) -> int | None:
        return self._rows.request(rid) if self._rows is not None else None

    def _write(self, table: str, op: str, columns: dict[str, Any], rid: str | None, room: int | None) -> None:
        """One row; handlers run in the scheduler's and in the transfers' threads."""
        if self._rows is not None:
            with self._rows.recorder.lock:
                self._rows.write(Observed(None, table, op, columns, rid, room))


def _handoff(room: int) -> dict[str, Any]:
    return {"xfer": room, "dir": "push", "src_pool": POOL, "dst_pool": POOL}


def _pages(indices: Any) -> np.ndarray:
    """Page numbers (int32 [n]) that the engine holds as an array on the host. Raises TypeError for anything else."""
    if not isinstance(indices, np.ndarray):
        raise TypeError(f"page list is a {type(indices).__name__}, not an array on the host")
    return np.array(indices, np.int32)


def _room(req: Any) -> int | None:
    room = getattr(req, "bootstrap_room", None)
    return int(room) if room is not None else None


def _mode(scheduler: Any) -> str:
    mode = getattr(scheduler, "disaggregation_mode", None)
    value = getattr(mode, "value", mode)
    return value if value in ("prefill", "decode") else "unified"


def _number(owner: Any, name: str) -> int | None:
    value = getattr(owner, name, None)
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None


def _place(ranks: Mapping[str, int | None]) -> int:
    """The place of a rank among its server's: data parallel outermost, tensor parallel innermost."""
    dp, pp, tp = (ranks.get(f"{kind}_rank") or 0 for kind in ("dp", "pp", "tp"))
    return (dp * (ranks.get("pp_size") or 1) + pp) * (ranks.get("tp_size") or 1) + tp


def _version() -> str | None:
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def _outcome(reason: Any) -> tuple[str | None, str | None]:
    said = reason.to_json() if hasattr(reason, "to_json") else {}
    if said.get("type") != "abort":
        return "200", None
    code = getattr(said.get("status_code"), "value", said.get("status_code"))
    return (str(code) if code is not None else None), "aborted"
