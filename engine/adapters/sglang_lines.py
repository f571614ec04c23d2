"""What SGLang 0.5.20 to 0.5.23 says in its log about pools, lengths, handoffs and damage: the patterns.

Invariant: a row says what the line says. A line that names no request or room (page counts, canary, retraction) gives a
row without one.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.adapters.json_values import digits
from engine.adapters.log_patterns import Build, Match, Pattern, pattern, rows
from engine.adapters.observed import Identity, Observed, Said


def _pool(match: Match, t_us: int | None) -> Iterator[Said]:
    said = {"pool_tokens": digits(match["tokens"]), "context_tokens": digits(match["context"])}
    yield Observed(t_us, "workers", "config", said)


def _too_long(match: Match, t_us: int | None) -> Iterator[Said]:
    """The scheduler refuses the bound itself, too: the longest prompt is one token shorter."""
    least = digits(match["least"])
    limit = least - 1 if least is not None else None
    columns = {"prompt_tokens": digits(match["n"]), "limit_tokens": limit, "status": "400", "reason": "over_limit"}
    yield Observed(t_us, "requests", "reject", columns, match["rid"])
    yield Observed(t_us, "workers", "config", {"prompt_limit_tokens": limit})


def _failed(side: str, what: str) -> Pattern:
    """Prefill is the mover and says that the transfer failed; what decode says is the end of its request."""

    def build(match: Match, t_us: int | None) -> Iterator[Said]:
        rid, room = match["rid"], digits(match["room"])
        yield Identity({"role": side.lower()})
        if (side, what) == ("Prefill", "transfer"):
            yield Observed(t_us, "transfers", "fail", {"dir": "push", "bytes": None}, rid, room)
        yield Observed(t_us, "requests", "abort", {"status": "500", "reason": f"{what}_failed"}, rid, room)

    rest = r"\d+ (?:decode_req\.)?req\.rid='(?P<rid>[^']+)' (?:decode_req\.)?req\.bootstrap_room=(?P<room>\d+)(?: .*)?"
    return pattern(f"{side.lower()} {what} failed", f"{side} {what} failed for request rank=", rest, build)


def _canary(match: Match, t_us: int | None) -> Iterator[Said]:
    columns = {
        "detector": f"kv-canary {match['reason']}", "pool": "kv", "slot": digits(match["slot"]), "n": 1,
        "expected": digits(match["expected"]), "found": digits(match["stored"]),
    }  # fmt: skip
    yield Observed(t_us, "checks", "mismatch", columns)


def _sample(match: Match, t_us: int | None) -> Iterator[Said]:
    seen = {"pool": "kv", "running": digits(match["run"]), "waiting": digits(match["wait"])}
    yield Observed(t_us, "gauges", "sample", seen)


def _found(detector: str, op: str = "mismatch") -> Build:
    """A check's row; groups `want` and `got` are what was expected and found, in decimal or hexadecimal."""

    def columns(match: Match) -> dict[str, object]:
        said = match.groupdict()
        numbers = {"expected": _number(said.get("want")), "found": _number(said.get("got"))}
        return {"detector": detector, "pool": "kv", "n": 1, **numbers}

    return rows("checks", op, columns, rid="rid", room="room")


def _number(text: str | None) -> int | None:
    """A hexadecimal of more than 60 bits does not fit for certain and is left out."""
    if text is None or not text.startswith("0x"):
        return digits(text)
    return int(text, 16) if len(text) <= 17 else None


def _reject(reason: str) -> Build:
    def columns(match: Match) -> dict[str, object]:
        said = match.groupdict()
        lengths = {"prompt_tokens": digits(said.get("n")), "limit_tokens": digits(said.get("limit"))}
        return {**lengths, "status": "400", "reason": reason}

    return rows("requests", "reject", columns, rid="rid")


_EXPIRED = rows("transfers", "expire", lambda match: {"status": "released"}, room="room")
_COUNTS = r"(?P<want>\d+), len\({}\) = (?P<got>\d+)"

PATTERNS: tuple[Pattern, ...] = (
    pattern(
        "pool and context", "max_total_num_tokens=",
        r"(?P<tokens>\d+), chunked_prefill_size=\S+, max_prefill_tokens=\d+, max_running_requests=\d+, "
        r"context_len=(?P<context>\d+), available_(?:gpu|cpu)_mem=[\d.]+ GB", _pool,
    ),
    pattern("memory pool end", "Memory pool end. ", r"avail mem=[\d.]+ GB"),
    pattern("decode radix state", "", r"(?:EXPERIMENTAL: Radix cache is enabled|Radix cache is disabled) for decode server"),
    pattern(
        "over limit", "Input length (",
        r"(?P<n>\d+) tokens\) exceeds the maximum allowed length \((?P<least>\d+) tokens\)\. .*, self\.rid='(?P<rid>[^']+)'",
        _too_long,
    ),
    pattern(
        "truncated", "Request length is longer than the KV cache pool size or the max context length. Truncated. ",
        r"len\(req\.origin_input_ids\)=\d+, max_req_input_len=\d+\.", _found("truncated-prompt"),
    ),
    pattern(
        "over pool", "", r"Request (?P<rid>\S+) exceeds the maximum number of tokens: (?P<n>\d+) > (?P<limit>\d+)",
        _reject("over_pool"),
    ),
    pattern(
        "over window pool", "",
        r"Request (?P<rid>\S+) requires too many SWA KV tokens for decode preallocation: \d+ > \d+",
        _reject("over_window_pool"),
    ),
    pattern(
        "over byte budget", "", r"Request (?P<rid>\S+) exceeds the unified FULL/SWA KV byte budget: full=\d+, swa=\d+.*",
        _reject("over_byte_budget"),
    ),
    pattern(
        "no room", "Disaggregated request received without bootstrap room id. ", r"req\.rid='(?P<rid>[^']+)'",
        _reject("no_room"),
    ),
    _failed("Prefill", "transfer"), _failed("Prefill", "bootstrap"),
    _failed("Decode", "transfer"), _failed("Decode", "handshake"),
    pattern(
        "page counts differ", "len(chunked_dst_kv_indice) = ", _COUNTS.format(r"kv_chunk\.prefill_kv_indices"),
        _found("page-count"),
    ),
    pattern(
        "state counts differ", "len(prefill_state_indices) = ", _COUNTS.format("dst_state_indices"), _found("state-count")
    ),
    pattern(
        "metadata of another room", "Context corruption detected: Request ",
        r"(?P<rid>\S+) \(bootstrap_room=(?P<want>\d+)\) received metadata from bootstrap_room=(?P<got>\d+)\. .*",
        _found("metadata-room"),
    ),
    pattern(
        "metadata missing", "Metadata unexpectedly not ready after readiness gate: request ",
        r"(?P<rid>\S+), bootstrap_room=(?P<room>\d+), metadata_buffer_index=\d+", _found("metadata-missing"),
    ),
    pattern(
        "checksum mismatch", "KV checksum mismatch ",
        r"(?:on a peer rank )?req=(?P<rid>\S+) bootstrap_room=(?P<room>\d+)"
        r"(?: expected=(?P<want>0x[0-9a-f]+) got=(?P<got>0x[0-9a-f]+))?", _found("kv-checksum"),
    ),
    pattern("checksum skipped", "KV checksum skipped: ", r".*", _found("kv-checksum", "skipped")),
    pattern(
        "aux buffers differ", "", r"Decode \S+ registered (?P<got>\d+) metadata buffers but this prefill has (?P<want>\d+);.*",
        _found("aux-buffers"),
    ),
    pattern(
        "released by timeout", "Deferred KV release for room ",
        r"(?P<room>\d+) timed out after [\d.]+s without a full drain ack from prefill; releasing anyway\.", _EXPIRED,
    ),
    pattern("release failed", "Deferred KV release failed for room ", r"(?P<room>\d+)", _EXPIRED),
    pattern("acknowledgement without generation", "Generation-less ABORT_ACK received", r".*", _found("abort-ack")),
    pattern("session dead", "", r"Session \S+ failed\."),
    pattern("session back", "", r"Session \S+ recovered via probe.*"),
    pattern("prefill lost", "Lost connection with prefill instance ", r".*"),
    pattern("prefill info", "Could not fetch prefill parallel info from ", r".*"),
    pattern("abort by stage", "Abort ", r"(?:queued|bootstrap queue|inflight queue|prealloc queue|transfer queue|running) .*"),
    pattern(
        "abort notified", "Sent abort notification for room ", r"(?P<room>\d+) to .*",
        rows("transfers", "abort", lambda match: {"status": "sent"}, room="room"),
    ),
    pattern(
        "abort heard", "Received abort notification for room ", r"(?P<room>\d+), .*",
        rows("transfers", "abort", lambda match: {"status": "received"}, room="room"),
    ),
    pattern("chunk skipped", "Skipping chunk for room ", r"\d+ because it has already failed or been aborted.*"),
    pattern("retraction", "", r"(?:KV cache pool is full\. Retract requests\.|Testing retraction\.) #retracted_reqs: \d+, .*"),
    pattern("retraction aborts", "retract_decode: aborted ", r".*"),
    pattern("out of memory", "Out of memory. Try to lower your batch size.", r".*"),
    pattern(
        "prefill batch", "Prefill batch",
        r"(?: \[\d+\])?, #new-seq: \d+, #new-token: \d+, #cached-token: \d+, .*?#running-req: (?P<run>\d+), "
        r"#queue-req: (?P<wait>\d+), #pending-token: \d+, .*: (?:True|False), input throughput \(token/s\): [\d.]+.*", _sample,
    ),
    pattern(
        "decode batch", "Decode batch",
        r"(?: \[\d+\])?, #running-req: (?P<run>\d+), .*: (?:True|False), gen throughput \(token/s\): [\d.]+, "
        r"#queue-req: (?P<wait>\d+).*", _sample,
    ),
    pattern("canary installed", "install_canary: ", r"disaggregation_mode=\S+ config=.*"),
    pattern(
        "canary violation", "",
        r".*kv_canary violation: launch_tag=\S+ fail_reason=(?P<reason>\S+) slot_idx=(?P<slot>-?\d+) position=-?\d+ "
        r"stored_token=(?P<stored>-?\d+) expected_token=(?P<expected>-?\d+) stored_chain_hash=0x[0-9a-f]{16} "
        r"expected_aux=0x[0-9a-f]{16}.*", _canary,
    ),
    pattern("canary counts", "[canary] step=", r"\d+ protected_tokens=\d+ .*"),
    pattern(
        "canary overflow", "kv-canary: per-forward verify skipped this step due to overflow ", r".*",
        _found("kv-canary", "skipped"),
    ),
    pattern(
        "double free", "", r".*KV double free: sub-pool \d+ has (?P<got>\d+) duplicate pages\..*", _found("double-free")
    ),
    pattern("memory check", "[Mem Check (BUSY)] ", r".*"),
    pattern("pool leak", "", r"(?:Full|SWA) Pool Mem Leak Detected! .*", _found("pool-leak")),
)  # fmt: skip
