"""Lines of vLLM's log."""

import pytest
from reading import AT_US, said, vllm

from engine.adapters.notes import Notes

PARAMS = (
    "{'do_remote_prefill': True, 'do_remote_decode': False, 'remote_block_ids': [[15, 16, 1]], "
    "'remote_engine_id': 'e', 'remote_request_id': 'cmpl-ok-0-b78c9276', 'remote_num_tokens': 90}"
)
CASES = [
    (
        "GPU KV cache size: 1,048,576 tokens, Maximum concurrency for 4,096 tokens per request: 256.00x",
        [("workers", "config", None, None, {"pool_tokens": 1048576})],
    ),
    ("Using max model len 512", [("workers", "config", None, None, {"context_tokens": 512})]),
    (
        "Received request cmpl-ok-0: params: SamplingParams(n=1), lora_request: None.",
        [("requests", "receive", "cmpl-ok-0", None, {})],
    ),
    (
        "Generated response cmpl-ok-0 (streaming complete): output: 'a secret', finish_reason: length",
        [("requests", "finish", "cmpl-ok-0", None, {"status": "200"})],
    ),
    ("Request cmpl-ok-0-b78c9276 aborted.", [("requests", "abort", "cmpl-ok-0", None, {"reason": "aborted"})]),
    (
        "Request cmpl-ok-0-b78c9276 failed (engine dead).",
        [("requests", "abort", "cmpl-ok-0", None, {"reason": "engine dead"})],
    ),
    ("Request cmpl-ok-0-b78c9276 failed due to no room.", [("requests", "abort", "cmpl-ok-0", None, {"reason": "failed"})]),
    (
        "EngineCore encountered a fatal error.",
        [("checks", "mismatch", None, None, {"detector": "engine", "pool": "kv", "n": 1})],
    ),
    (
        f"NIXLConnector request_finished(cmpl-ok-0-b78c9276), request_status=FINISHED, kv_transfer_params={PARAMS}",
        [
            (
                "transfers", "grant", "cmpl-ok-0", None,
                {"dir": "pull", "src_pool": "kv", "src_pages": [15, 16, 1], "n": 3, "tokens": 90},
            )
        ],
    ),
    (
        "Releasing expired KV blocks for request cmpl-ok-0-b78c9276 which were retrieved by 0 remote worker(s) before "
        "lease expired",
        [("transfers", "expire", "cmpl-ok-0", None, {"dir": "pull"})],
    ),
    (
        "Potentially invalid KV blocks for unrecognized request cmpl-ok-0-b78c9276 were retrieved by a decode worker",
        [("checks", "mismatch", "cmpl-ok-0", None, {"detector": "lease", "pool": "kv", "n": 1})],
    ),
    (
        "req cmpl-ok-0: local blocks(1) < remote blocks(7) in a KV cache group",
        [
            (
                "checks", "mismatch", "cmpl-ok-0", None,
                {"detector": "page-count", "pool": "kv", "expected": 7, "found": 1, "n": 1},
            )
        ],
    ),
    (
        "NIXL transfer failure: lost | Context: {'failure_type': 'x', 'request_id': 'cmpl-ok-0-b78c9276', "
        "'num_local_blocks': 3, 'num_remote_blocks': 7}",
        [("transfers", "fail", "cmpl-ok-0", None, {"dir": "pull", "n": 3, "asked": 7})],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), CASES, ids=[message[:40] for message, _ in CASES])
def test_a_line_says_what_it_says(message, expected):
    notes = Notes()
    rows = vllm(message, notes=notes)
    assert [said(row) for row in rows] == expected
    assert all(row.t_us == AT_US for row in rows)
    assert not notes.skipped and not notes.unknown and "secret" not in repr(rows)


def test_without_a_year_no_line_is_placed():
    notes = Notes()
    assert vllm(CASES[1][0], notes=notes, year=None) == []
    assert notes.skipped == {"vLLM's lines carry no year: give one (--year)": 1}


def test_block_ids_that_a_caller_made_up_are_none():
    made_up = PARAMS.replace("[[15, 16, 1]]", "[[15, -1]]")
    message = (
        f"NIXLConnector request_finished(cmpl-ok-0-b78c9276), request_status=FINISHED, kv_transfer_params={made_up}"
    )
    assert vllm(message) == []
