"""Lines of SGLang's log: what each says, and what stands in a line of another shape."""

import pytest
from reading import AT_US, said, sglang

from engine.adapters.notes import Notes
from engine.adapters.observed import Observed

WHY = " with exception KVTransferError(bootstrap_room=77): Aborted by AbortReq."
CANARY = (
    "kv_canary violation: launch_tag=HEAD_K_FULL fail_reason=verify_position+verify_token slot_idx=130 position=2 "
    "stored_token=11 expected_token=12 stored_chain_hash=0x0123456789abcdef expected_aux=0x0123456789abcdef"
)
CASES = [
    (
        "max_total_num_tokens=681280, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=256, "
        "context_len=1048576, available_gpu_mem=12.31 GB",
        [("workers", "config", None, None, {"pool_tokens": 681280, "context_tokens": 1048576})],
    ),
    (
        "Input length (691168 tokens) exceeds the maximum allowed length (681275 tokens). Use a shorter input or enable "
        "--allow-auto-truncate., self.rid='r-1'",
        [
            (
                "requests", "reject", "r-1", None,
                {"prompt_tokens": 691168, "limit_tokens": 681274, "status": "400", "reason": "over_limit"},
            ),
            ("workers", "config", None, None, {"prompt_limit_tokens": 681274}),
        ],
    ),
    (
        "Request r-1 exceeds the maximum number of tokens: 691168 > 681280",
        [
            (
                "requests", "reject", "r-1", None,
                {"prompt_tokens": 691168, "limit_tokens": 681280, "status": "400", "reason": "over_pool"},
            )
        ],
    ),
    (
        f"Prefill transfer failed for request rank=0 req.rid='r-1' req.bootstrap_room=77{WHY}",
        [
            ("identity", {"role": "prefill"}),
            ("transfers", "fail", "r-1", 77, {"dir": "push"}),
            ("requests", "abort", "r-1", 77, {"status": "500", "reason": "transfer_failed"}),
        ],
    ),
    (
        f"Decode handshake failed for request rank=0 decode_req.req.rid='r-1' decode_req.req.bootstrap_room=77{WHY}",
        [
            ("identity", {"role": "decode"}),
            ("requests", "abort", "r-1", 77, {"status": "500", "reason": "handshake_failed"}),
        ],
    ),
    (
        "len(chunked_dst_kv_indice) = 1, len(kv_chunk.prefill_kv_indices) = 8",
        [("checks", "mismatch", None, None, {"detector": "page-count", "pool": "kv", "expected": 1, "found": 8, "n": 1})],
    ),
    (
        "Context corruption detected: Request r-1 (bootstrap_room=77) received metadata from bootstrap_room=78. Metadata "
        "buffer index: 3.",
        [
            (
                "checks", "mismatch", "r-1", None,
                {"detector": "metadata-room", "pool": "kv", "expected": 77, "found": 78, "n": 1},
            )
        ],
    ),
    (
        "KV checksum mismatch req=r-1 bootstrap_room=77 expected=0x1a2b got=0xff",
        [
            (
                "checks", "mismatch", "r-1", 77,
                {"detector": "kv-checksum", "pool": "kv", "expected": 0x1A2B, "found": 0xFF, "n": 1},
            )
        ],
    ),
    (
        "Deferred KV release for room 77 timed out after 30.0s without a full drain ack from prefill; releasing anyway.",
        [("transfers", "expire", None, 77, {"status": "released"})],
    ),
    (
        CANARY,
        [
            (
                "checks", "mismatch", None, None,
                {
                    "detector": "kv-canary verify_position+verify_token", "pool": "kv", "slot": 130, "n": 1,
                    "expected": 12, "found": 11,
                },
            )
        ],
    ),
    (
        "Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, full token usage: 0.01, swa token usage: 0.02, "
        "#running-req: 2, #queue-req: 3, #pending-token: 0, #bootstrap-req: 0, #inflight-req: 1, #optimistic-req: 0, "
        "cuda graph: False, input throughput (token/s): 12.50",
        [("gauges", "sample", None, None, {"pool": "kv", "running": 2, "waiting": 3})],
    ),
    (
        "Decode batch [40], #running-req: 4, #token: 512, token usage: 0.01, pre-allocated usage: 0.00, #prealloc-req: 0, "
        "#transfer-req: 0, #retracted-req: 0, cuda graph: True, gen throughput (token/s): 80.12, #queue-req: 5",
        [("gauges", "sample", None, None, {"pool": "kv", "running": 4, "waiting": 5})],
    ),
    (
        "ReqTimeStats(rid=r-1, bootstrap_room=77, input_len=1, cached_input_len=0, output_len=1, attempts=0, type=prefill): "
        "bootstrap_duration=1.00ms, queue_duration=0.10ms, forward_duration=6.00ms, entry_time=1789387204.250, "
        "transfer_speed=20.00 GB/s, transfer_total=4.00 MB",
        [
            ("identity", {"role": "prefill"}),
            ("requests", "receive", "r-1", 77, {"prompt_tokens": 1, "cached_tokens": 0}),
            ("transfers", "done", "r-1", 77, {"dir": "push", "bytes": 4 << 20}),
            ("requests", "finish", "r-1", 77, {"prompt_tokens": 1, "cached_tokens": 0}),
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), CASES, ids=[message[:40] for message, _ in CASES])
def test_a_line_says_what_it_says(message, expected):
    notes = Notes()
    assert [said(row) for row in sglang(message, notes=notes)] == expected
    assert not notes.skipped and not notes.unknown


@pytest.mark.parametrize(
    "message", [message for message, _ in CASES if not message.startswith(("Request ", "kv_canary"))]
)
def test_a_line_that_only_begins_so_is_told(message):
    notes = Notes()
    assert sglang(message[: max(len(message) // 3, 32)], notes=notes) == []
    assert sum(notes.skipped.values()) == 1 and notes.skips[0].where == "server.log:1"


def test_times_are_of_the_zone_and_the_entry_time_is_finer():
    stats = CASES[-1][0]
    received, finished = [row for row in sglang(stats) if isinstance(row, Observed) and row.table == "requests"]
    assert received.t_us == 1_789_387_204_250_000
    assert finished.t_us == AT_US


def test_chatter_and_continuations_are_unread_and_bad_times_skipped():
    notes = Notes()
    assert sglang("Load weight begin.", notes=notes) == []
    assert sglang("  File x.py, line 3", prefix="", notes=notes) == []
    assert sglang("anything", prefix="[2026-99-14 12:00:05] ", notes=notes) == []
    assert notes.unread == {"other lines of SGLang": 1, "lines without SGLang's prefix": 1}
    assert notes.skipped == {"line with an impossible time": 1}


def test_an_unknown_field_of_the_timing_line_is_counted():
    notes = Notes()
    sglang(CASES[-1][0] + ", colour=red", notes=notes)
    assert notes.unknown == {"ReqTimeStats.colour": 1}
