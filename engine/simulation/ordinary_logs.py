"""The ordinary logs that a SGLang fleet would have left of a recorded run: no pages, no tags, no truth.

Invariant: every line has the shape of SGLang 0.5.23 and says only what an engine without a recorder knows: lengths,
rooms, status, bytes that its own sender counted, releases by timeout. What the recorder alone saw is not used. The flags
are --log-requests --log-requests-level 0 --log-requests-format json --enable-request-time-stats-logging.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.ledger.reader import Ledger

Row = dict[str, Any]
MEBIBYTE = 1 << 20
ROLES = ("prefill", "decode")


@dataclass
class _Told:
    """What one worker knows of one request."""

    rid: str = ""
    room: int | None = None
    prompt_tokens: int = 0
    limit_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    received: datetime | None = None
    first_token: datetime | None = None
    ended: datetime | None = None
    last_token: datetime | None = None
    status: str | None = None
    rejected: str | None = None
    posted: datetime | None = None
    moved: datetime | None = None
    moved_bytes: int = 0


@dataclass
class _Lines:
    """Lines of one file, each with its time."""

    lines: list[tuple[datetime, str]] = field(default_factory=list)

    def add(self, t: datetime, message: str, rank: str = "") -> None:
        self.lines.append((t, f"[{t.astimezone(UTC):%Y-%m-%d %H:%M:%S}{rank}] {message}"))

    def write(self, path: Path) -> None:
        ordered = sorted(self.lines, key=lambda line: line[0])
        path.write_text("".join(f"{line}\n" for _, line in ordered), encoding="utf-8")


def write_ordinary_logs(ledger: Ledger, out: Path) -> int:
    """Write `out`/WORKER/{server.log,requests.log,server_info.json} for every prefill and decode; how many workers."""
    workers = ledger.tables["workers"].to_pylist()
    roles = {row["worker"]: row["role"] for row in workers if row["op"] == "start" and row["role"] in ROLES}
    told = _told(ledger, roles)
    for worker, role in roles.items():
        folder = out / worker
        folder.mkdir(parents=True, exist_ok=True)
        server, requests = _Lines(), _Lines()
        config = next(
            row for row in workers if row["worker"] == worker and row["op"] == "config" and row["pool"] == "kv"
        )
        _start(server, folder, config, role)
        for request in told[worker].values():
            _request(server, requests, request, role)
        for t, line in _handoff_lines(ledger, worker, told[worker]):
            server.add(t, line, " TP0")
        server.write(folder / "server.log")
        requests.write(folder / "requests.log")
    return len(roles)


def _told(ledger: Ledger, roles: dict[str, str]) -> dict[str, dict[tuple[int, int], _Told]]:
    told: dict[str, dict[tuple[int, int], _Told]] = defaultdict(lambda: defaultdict(_Told))
    for row in ledger.tables["requests"].to_pylist():
        if row["worker"] in roles and row["req"] is not None:
            _tell(told[row["worker"]][row["epoch"], row["req"]], row)
    for row in ledger.tables["transfers"].to_pylist():
        # What carries the handoff's metadata is no part of the engine's total.
        if (
            row["worker"] in roles
            and row["peer"] != row["worker"]
            and row["req"] is not None
            and row["dst_pool"] != "slot"
        ):
            request = told[row["worker"]][row["epoch"], row["req"]]
            if row["op"] == "post" and request.posted is None:
                request.posted = row["t"]
            elif row["op"] == "done":
                request.moved, request.moved_bytes = row["t"], request.moved_bytes + (row["bytes"] or 0)
    return told


def _tell(request: _Told, row: Row) -> None:
    for name in ("rid", "room", "prompt_tokens", "limit_tokens", "cached_tokens", "output_tokens", "last_token"):
        if row[name] is not None:
            setattr(request, name, row[name])
    op, t = row["op"], row["t"]
    if op == "receive":
        request.received = t
    elif op == "first_token":
        request.first_token = t
    elif op == "reject":
        request.rejected, request.status, request.ended = row["reason"], row["status"], request.ended or t
    elif op in ("finish", "abort"):
        request.status, request.ended = row["status"], t


def _start(server: _Lines, folder: Path, config: Row, role: str) -> None:
    pages = (config["pool_pages"] or 1) - 1  # the first is padding and takes no tokens
    pool = pages * (config["page_tokens"] or 1)
    context = config["context_tokens"]
    server.add(
        config["t"],
        f"max_total_num_tokens={pool}, chunked_prefill_size=16384, max_prefill_tokens=16384, max_running_requests=256, "
        f"context_len={context}, available_gpu_mem=12.00 GB",
        " TP0",
    )
    info = {
        "disaggregation_mode": role, "page_size": config["page_tokens"], "context_length": context,
        "max_total_num_tokens": pool, "max_req_input_len": config["prompt_limit_tokens"] + 1,
        "disaggregation_enable_kv_checksum": False, "kv_canary": "none",
    }  # fmt: skip
    (folder / "server_info.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")


def _request(server: _Lines, requests: _Lines, request: _Told, role: str) -> None:
    """What is logged of a request that has ended; one that has not leaves its receive only."""
    if request.received is None:
        return
    obj = {"rid": request.rid, "bootstrap_room": request.room, "routing_key": None, "stream": True}
    _log_json(requests, request.received, "request.received", {"rid": request.rid, "obj": obj})
    # A rejection in prefill's scheduler puts one placeholder token where the prompt was; decode's door leaves it.
    is_placeholder = role == "prefill" and request.rejected is not None
    length = 1 if is_placeholder else request.prompt_tokens
    if request.rejected is not None and request.prompt_tokens > request.limit_tokens:
        server.add(request.received, _refusal(request, role), " TP0")
    if request.ended is None:
        return
    output = request.output_tokens if role == "decode" else 1 if request.first_token is not None else 0
    _stats(server, request, role, length, output)
    meta = {
        "id": request.rid, "finish_reason": _finish_reason(request, is_placeholder), "prompt_tokens": length,
        "completion_tokens": output, "cached_tokens": request.cached_tokens,
        "e2e_latency": (request.ended - request.received).total_seconds(),
        "request_received_ts": request.received.timestamp(), "request_finished_ts": request.ended.timestamp(),
    }  # fmt: skip
    if request.last_token is not None and output:
        meta["response_sent_to_client_ts"] = request.last_token.timestamp()
    said = {"rid": request.rid, "obj": obj, "out": {"meta_info": meta}}
    _log_json(requests, request.ended, "request.finished", said)


def _log_json(requests: _Lines, t: datetime, event: str, said: dict[str, Any]) -> None:
    stamp = t.astimezone(UTC).replace(tzinfo=None).isoformat()
    requests.add(t, json.dumps({"timestamp": stamp, "event": event, **said}))


def _refusal(request: _Told, role: str) -> str:
    if role == "decode":
        return f"Request {request.rid} exceeds the maximum number of tokens: {request.prompt_tokens} > {request.limit_tokens}"
    return (
        f"Input length ({request.prompt_tokens} tokens) exceeds the maximum allowed length ({request.limit_tokens + 1} "
        f"tokens). Use a shorter input or enable --allow-auto-truncate., self.rid='{request.rid}'"
    )


def _finish_reason(request: _Told, is_placeholder: bool) -> dict[str, Any]:
    if request.status == "200" and not is_placeholder:
        return {"type": "stop", "matched": None}
    status = "400" if is_placeholder else request.status
    code = int(status) if status is not None and status.isdigit() and status != "499" else None
    kind = "BadRequestError" if code == 400 else None
    return {"type": "abort", "message": "Aborted", "status_code": code, "err_type": kind}


def _stats(server: _Lines, request: _Told, role: str, length: int, output: int) -> None:
    ended, received = request.ended, request.received
    if ended is None or received is None:
        return
    room = f", bootstrap_room={request.room}" if request.room is not None else ""
    forward = ((request.first_token if role == "prefill" else ended) or received) - received
    head = (
        f"ReqTimeStats(rid={request.rid}{room}, input_len={length}, cached_input_len={request.cached_tokens}, "
        f"output_len={output}, attempts=0, type={role}): "
    )
    if role == "prefill":
        seconds = (request.moved - request.posted).total_seconds() if request.moved and request.posted else 0.0
        speed = request.moved_bytes / seconds / 1e9 if seconds else 0.0
        tail = (
            f"bootstrap_queue_duration=0.00ms, queue_duration=0.00ms, forward_duration={_ms(forward)}, "
            f"entry_time={received.timestamp():.3f}, transfer_speed={speed:.2f} GB/s, "
            f"transfer_total={request.moved_bytes / MEBIBYTE:.2f} MB"
        )
    else:
        tail = (
            f"prealloc_queue_duration=0.00ms, transfer_duration=0.00ms, queue_duration=0.00ms, "
            f"forward_duration={_ms(forward)}, entry_time={received.timestamp():.3f}"
        )
    server.add(ended, head + tail, " TP0")


def _ms(duration: Any) -> str:
    return f"{duration.total_seconds() * 1e3:.2f}ms"


def _handoff_lines(ledger: Ledger, worker: str, told: dict[tuple[int, int], _Told]) -> Iterator[tuple[datetime, str]]:
    for row in ledger.tables["transfers"].to_pylist():
        if row["worker"] == worker and row["op"] == "fail" and row["req"] is not None and row["peer"] != worker:
            request = told[row["epoch"], row["req"]]
            if request.room is not None:
                yield (
                    row["t"],
                    f"Prefill transfer failed for request rank=0 req.rid='{request.rid}' req.bootstrap_room={request.room}",
                )
    held: dict[tuple[int, int], datetime] = {}
    for row in ledger.tables["pages"].select(["worker", "epoch", "op", "req", "t", "cause"]).to_pylist():
        place = row["epoch"], row["req"]
        if row["worker"] != worker or row["req"] is None:
            continue
        if row["op"] == "hold":
            held.setdefault(place, row["t"])
        elif row["op"] == "free" and row["cause"] == "timeout" and place in held:
            seconds = (row["t"] - held.pop(place)).total_seconds()
            yield (
                row["t"],
                f"Deferred KV release for room {told[place].room} timed out after {seconds:.1f}s without a full drain ack "
                "from prefill; releasing anyway.",
            )
