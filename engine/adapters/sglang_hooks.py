"""Where the SGLang recorder attaches: functions of SGLang 0.5.20 to 0.5.23, what they must take, what they give.

Invariant: page lists are taken only where the engine holds them as arrays on the host.
"""

from __future__ import annotations

from functools import partial

from engine.adapters.hooks import AFTER, BEFORE, Hook

ROOT = "sglang.srt."
_at = partial(Hook, since="0.5.20", root=ROOT)

_DECODE, _COMMON = "disaggregation.decode.", "disaggregation.common.conn."

HOOKS: tuple[Hook, ...] = (
    _at("begin", "managers.scheduler.Scheduler.__init__", AFTER, ("self",), "workers"),
    _at("received", "disaggregation.prefill.PrefillBootstrapQueue.add", AFTER, ("self", "req"), "requests"),
    _at("received", _DECODE + "DecodePreallocQueue.add", AFTER, ("self", "req"), "requests"),
    _at(
        "rejected", "managers.schedule_batch.Req.set_finish_with_abort", BEFORE, ("self", "error_msg", "status_code"), "requests"
    ),
    _at("aborted", "disaggregation.utils.prepare_abort", BEFORE, ("req", "error_message", "status_code"), "requests"),
    _at(
        "granted", "disaggregation.mooncake.conn.MooncakeKVReceiver.send_metadata", AFTER, ("self", "kv_indices"), "transfers",
        "mooncake",
    ),
    _at("granted", "disaggregation.nixl.conn.NixlKVReceiver.send_metadata", AFTER, ("self", "kv_indices"), "transfers", "nixl"),
    _at(
        "posted", "disaggregation.mooncake.conn.MooncakeKVManager.add_transfer_request", BEFORE,
        ("self", "bootstrap_room", "kv_indices", "index_slice", "is_last_chunk"), "transfers", "mooncake",
    ),
    _at(
        "posted", "disaggregation.nixl.conn.NixlKVManager.add_transfer_request", BEFORE,
        ("self", "bootstrap_room", "kv_indices", "index_slice"), "transfers", "nixl",
    ),
    _at("concluded", _COMMON + "CommonKVManager.conclude_transfer", AFTER, ("self", "bootstrap_room", "status"), "transfers"),
    _at("committed", _DECODE + "DecodeTransferQueue._commit_transfer_to_req", AFTER, ("self", "decode_req"), "requests"),
    _at("abort_sent", _COMMON + "CommonKVReceiver._send_abort_notification", AFTER, ("self",), "transfers"),
    _at("drained", _COMMON + "CommonKVManager.note_abort_ack", AFTER, ("self", "bootstrap_room", "prefill_rank"), "transfers"),
    _at("held", _DECODE + "DecodeTransferQueue._defer_release", AFTER, ("self", "decode_req"), "pages"),
    _at("let_go", _DECODE + "DecodeTransferQueue._do_release", BEFORE, ("self", "decode_req", "idx"), "transfers"),
    _at("released", "mem_cache.common.release_kv_cache", BEFORE, ("req", "tree_cache"), "pages"),
    _at("ran", "managers.scheduler.Scheduler.run_batch", BEFORE, ("self", "batch"), "pages"),
    _at(
        "streamed", "managers.scheduler_components.output_streamer.SchedulerOutputStreamer.stream_output", AFTER,
        ("self", "reqs"), "requests",
    ),
    _at(
        "mismatched", _DECODE + "SchedulerDisaggregationDecodeMixin._handle_kv_checksum_mismatch", BEFORE, ("self", "req", "msg"),
        "checks", since="0.5.21",
    ),
)  # fmt: skip
