"""The ledger's eight tables: names, columns, types and the words each `op` column may hold.

Invariant: this module is the only place that names a ledger column. Recorder, compactor, reader and
forensics all take their columns from `TABLES`; a change of meaning is a new `SCHEMA_VERSION`.

Integers are signed (Spark reads unsigned 64-bit columns as decimals). `worker` is no column of a file:
it comes from the path, and the reader adds it. Times are microseconds, UTC.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1

TIME = pa.timestamp("us", tz="UTC")
PAGE_LIST = pa.list_(pa.int32())
DIGEST_LIST = pa.list_(pa.int64())
TEXT_LIST = pa.list_(pa.string())
SEQ_LIST = pa.list_(pa.int64())

COMMON: tuple[tuple[str, pa.DataType], ...] = (
    ("epoch", pa.int32()),
    ("seq", pa.int64()),
    ("prev", pa.int64()),
    ("t", TIME),
)


def _table(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*COMMON, ("op", pa.string()), *columns])


TABLES: dict[str, pa.Schema] = {
    "workers": _table(
        ("role", pa.string()),
        ("ordinal", pa.int32()),
        ("host", pa.string()),
        ("model", pa.string()),
        ("build", pa.string()),
        ("engine", pa.string()),
        ("version", pa.string()),
        ("tp_rank", pa.int32()),
        ("tp_size", pa.int32()),
        ("pp_rank", pa.int32()),
        ("pp_size", pa.int32()),
        ("dp_rank", pa.int32()),
        ("pool", pa.string()),
        ("pool_pages", pa.int64()),
        ("page_tokens", pa.int32()),
        ("page_bytes", pa.int64()),
        ("kv_format", pa.string()),
        ("layers", pa.int32()),
        ("kv_heads", pa.int32()),
        ("head_dim", pa.int32()),
        ("context_tokens", pa.int64()),
        ("prompt_limit_tokens", pa.int64()),
        ("defences", TEXT_LIST),  # "name=off|log|enforce"
        ("peer", pa.string()),  # heartbeat: whom it saw; null = UTC
        ("peer_epoch", pa.int32()),
        ("peer_seq", pa.int64()),
        ("clock_offset_us", pa.int64()),  # peer's clock minus this worker's; null = clocks unusable
        ("clock_error_us", pa.int64()),
        ("chains", TEXT_LIST),  # close: "table" or "table/pool"
        ("chain_seqs", SEQ_LIST),  # close: last seq of each of `chains`
        ("lost", pa.int64()),  # loss: rows dropped because the ring was full
        ("status", pa.string()),
    ),
    "requests": _table(
        ("req", pa.int64()),
        ("rid", pa.string()),
        ("attempt", pa.int32()),
        ("choice", pa.int32()),
        ("room", pa.int64()),
        ("tenant", pa.string()),
        ("purpose", pa.string()),
        ("adapter", pa.string()),
        ("media", pa.string()),
        ("weights", pa.string()),
        ("kv_format", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("covered_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("limit_tokens", pa.int64()),
        ("page_rows", pa.int64()),
        ("last_token", TIME),
        ("status", pa.string()),
        ("reason", pa.string()),
    ),
    "pages": _table(
        ("pool", pa.string()),
        ("req", pa.int64()),
        ("tag", pa.int64()),
        ("n", pa.int32()),
        ("pages", PAGE_LIST),
        ("pos", pa.int32()),
        ("tok_off", pa.int32()),
        ("tokens", pa.int64()),
        ("part", pa.int32()),
        ("parts", pa.int32()),
        ("xfer", pa.int64()),
        ("stream", pa.string()),
        ("ref_seq", pa.int64()),
        ("ref_off", pa.int32()),
        ("fingerprint", pa.int64()),
        ("since_seq", pa.int64()),
        ("digests", DIGEST_LIST),
        ("deadline", TIME),
        ("cause", pa.string()),
    ),
    "transfers": _table(
        ("xfer", pa.int64()),
        ("room", pa.int64()),
        ("req", pa.int64()),
        ("dir", pa.string()),
        ("chunk", pa.int32()),
        ("peer", pa.string()),
        ("src_pool", pa.string()),
        ("dst_pool", pa.string()),
        ("src_pages", PAGE_LIST),
        ("dst_pages", PAGE_LIST),
        ("src_tag", pa.int64()),
        ("dst_tag", pa.int64()),
        ("pos", pa.int32()),
        ("tok_off", pa.int32()),
        ("tokens", pa.int64()),
        ("part", pa.int32()),
        ("parts", pa.int32()),
        ("n", pa.int32()),
        ("asked", pa.int32()),
        ("writers", TEXT_LIST),
        ("bytes", pa.int64()),
        ("digests", DIGEST_LIST),
        ("digest_at", pa.string()),
        ("outstanding", pa.int32()),
        ("status", pa.string()),
    ),
    "cache": _table(
        ("tier", pa.string()),
        ("component", pa.string()),
        ("keys", SEQ_LIST),
        ("req", pa.int64()),
        ("tenant", pa.string()),
        ("salt_fp", pa.int64()),
        ("adapter", pa.string()),
        ("media", pa.string()),
        ("weights", pa.string()),
        ("kv_format", pa.string()),
        ("pool", pa.string()),
        ("tag", pa.int64()),
        ("pages", PAGE_LIST),
        ("pos", pa.int32()),
        ("n", pa.int32()),
        ("asked", pa.int32()),
        ("returned", pa.int32()),
    ),
    "steps": _table(
        ("since_seq", pa.int64()),
        ("step", pa.int64()),  # number of the run's first forward pass in this epoch
        ("n", pa.int64()),
        ("t_end", TIME),  # start of the run's last pass
        ("batch", pa.int32()),
        ("tokens", pa.int64()),
        ("micros", pa.int64()),  # from the first pass's start to the last pass's end
    ),
    "checks": _table(
        ("detector", pa.string()),
        ("req", pa.int64()),
        ("pool", pa.string()),
        ("page", pa.int32()),
        ("step", pa.int64()),
        ("expected", pa.int64()),
        ("found", pa.int64()),
        ("n", pa.int64()),
        ("action", pa.string()),
    ),
    "gauges": _table(
        ("pool", pa.string()),
        ("free", pa.int64()),
        ("used", pa.int64()),
        ("cached", pa.int64()),
        ("shared", pa.int64()),
        ("held", pa.int64()),
        ("quarantined", pa.int64()),
        ("in_transfer", pa.int64()),
        ("running", pa.int64()),
        ("waiting", pa.int64()),
    ),
}

OPS: dict[str, tuple[str, ...]] = {
    "workers": ("start", "config", "heartbeat", "close", "loss"),
    "requests": (
        "receive", "admit", "reject", "room", "commit", "first_token", "pause", "resume", "finish", "abort",
    ),
    "pages": (
        "reserve", "write", "receipt", "bind", "append", "share", "unshare", "hold", "unbind", "free", "scrub", "audit",
    ),
    "transfers": ("grant", "post", "done", "fail", "abort", "ack", "expire"),
    "cache": ("insert", "hit", "evict", "offload", "load"),
    "steps": ("prefill", "decode"),
    "checks": ("mismatch", "skipped", "passed", "probe"),
    "gauges": ("sample",),
}  # fmt: skip

CAUSES = (
    "finish", "abort", "drained", "timeout", "lease", "evict", "sent", "left_window", "retract", "error",
    "quarantine", "operator",
)  # fmt: skip

TABLE_NAMES: tuple[str, ...] = tuple(TABLES)
POOL_TABLES: frozenset[str] = frozenset(name for name, schema in TABLES.items() if "pool" in schema.names)
"""Tables whose `prev` chain runs per pool (a null pool is a chain of its own)."""
