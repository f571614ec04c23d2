"""Where the SGLang recorder attaches: functions of SGLang 0.5.20 to 0.5.23, what they must take, what they give.

Invariant: a hook reads what the engine already holds on the host (page lists as arrays, lengths, rooms). None asks the
device for anything, none changes an argument or a result.
"""

from __future__ import annotations

from dataclasses import dataclass

BEFORE, AFTER = "BEFORE", "AFTER"
ROOT = "sglang.srt."


@dataclass(frozen=True)
class Hook:
    """One function. `needs`: parameters by name that the handler reads; `table`: whose rows are missed without it.

    `backend`: the transfer backend that it belongs to, None = all. `since`: the first version that has it.
    """

    handler: str
    path: str
    kind: str
    needs: tuple[str, ...]
    table: str
    backend: str | None = None
    since: str = "0.5.20"

    @property
    def target(self) -> str:
        """Its dotted name."""
        return ROOT + self.path


_DECODE, _COMMON = "disaggregation.decode.", "disaggregation.common.conn."

HOOKS: tuple[Hook, ...] = (
    Hook("begin", "managers.scheduler.Scheduler.__init__", AFTER, ("self",), "workers"),
    Hook("received", "disaggregation.prefill.PrefillBootstrapQueue.add", AFTER, ("self", "req"), "requests"),
    Hook("received", _DECODE + "DecodePreallocQueue.add", AFTER, ("self", "req"), "requests"),
    Hook(
        "rejected", "managers.schedule_batch.Req.set_finish_with_abort", BEFORE, ("self", "error_msg", "status_code"), "requests"
    ),
    Hook("aborted", "disaggregation.utils.prepare_abort", BEFORE, ("req", "error_message", "status_code"), "requests"),
    Hook(
        "granted", "disaggregation.mooncake.conn.MooncakeKVReceiver.send_metadata", AFTER, ("self", "kv_indices"), "transfers",
        "mooncake",
    ),
    Hook("granted", "disaggregation.nixl.conn.NixlKVReceiver.send_metadata", AFTER, ("self", "kv_indices"), "transfers", "nixl"),
    Hook(
        "posted", "disaggregation.mooncake.conn.MooncakeKVManager.add_transfer_request", BEFORE,
        ("self", "bootstrap_room", "kv_indices", "index_slice", "is_last_chunk"), "transfers", "mooncake",
    ),
    Hook(
        "posted", "disaggregation.nixl.conn.NixlKVManager.add_transfer_request", BEFORE,
        ("self", "bootstrap_room", "kv_indices", "index_slice"), "transfers", "nixl",
    ),
    Hook("concluded", _COMMON + "CommonKVManager.conclude_transfer", AFTER, ("self", "bootstrap_room", "status"), "transfers"),
    Hook("committed", _DECODE + "DecodeTransferQueue._commit_transfer_to_req", AFTER, ("self", "decode_req"), "requests"),
    Hook("abort_sent", _COMMON + "CommonKVReceiver._send_abort_notification", AFTER, ("self",), "transfers"),
    Hook("drained", _COMMON + "CommonKVManager.note_abort_ack", AFTER, ("self", "bootstrap_room", "prefill_rank"), "transfers"),
    Hook("held", _DECODE + "DecodeTransferQueue._defer_release", AFTER, ("self", "decode_req"), "pages"),
    Hook("let_go", _DECODE + "DecodeTransferQueue._do_release", BEFORE, ("self", "decode_req", "idx"), "transfers"),
    Hook("released", "mem_cache.common.release_kv_cache", BEFORE, ("req", "tree_cache"), "pages"),
    Hook("ran", "managers.scheduler.Scheduler.run_batch", BEFORE, ("self", "batch"), "pages"),
    Hook(
        "streamed", "managers.scheduler_components.output_streamer.SchedulerOutputStreamer.stream_output", AFTER,
        ("self", "reqs"), "requests",
    ),
    Hook(
        "mismatched", _DECODE + "SchedulerDisaggregationDecodeMixin._handle_kv_checksum_mismatch", BEFORE, ("self", "req", "msg"),
        "checks", since="0.5.21",
    ),
)  # fmt: skip
