"""SGLang's request logs (--log-requests, JSON or text) and exporter files (--export-metrics-to-file).

Invariant: prompts and answers are never kept, at whatever level they were logged. A request that was rejected in the
scheduler shows `prompt_tokens` 1, the placeholder's length; that number is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

from engine.adapters.json_values import digits, mapping, parsed, text, whole
from engine.adapters.keyed import Keyed
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed, Said
from engine.adapters.times import from_text, from_unix

RECEIVED, FROM_OPENAI, FINISHED = "request.received", "request.received.openai", "request.finished"
STATUS_EVENT = "scheduler.status"
TEXT_STARTS = ("Receive: obj=", "Receive OpenAI: obj=", "Finish: obj=")
_LINE_FIELDS = frozenset({"timestamp", "event", "rid", "obj", "headers", "out"})
_META_FIELDS = frozenset(
    {
        "id", "finish_reason", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens",
        "cached_tokens_details", "weight_version", "num_retractions", "dp_rank", "e2e_latency", "queue_time",
        "forward_entry_time", "prefill_finished_time", "request_received_ts", "first_token_latency",
        "api_server_dispatch_finish_ts", "response_sent_to_client_ts", "request_finished_ts", "decode_throughput",
        "image_tokens", "storage_prefetch_wait", "storage_staging_wait", "total_retractions",
    }
)  # fmt: skip
_OUT_FIELDS = frozenset({"text", "output_ids", "meta_info", "embedding", "index"})
_ROUTING_HEADER = "x-smg-routing-key"


def read_json_line(line: str, where: str, zone: ZoneInfo, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of one line of a JSON request log."""
    record = parsed(line)
    if record is None:
        notes.skip(where, "line is no JSON object")
        return
    event = record.get("event")
    if event in (FROM_OPENAI, STATUS_EVENT):
        notes.unread[f"{event} lines"] += 1
        return
    t_us, obj = from_text(record.get("timestamp"), zone), mapping(record.get("obj"))
    rid = text(record.get("rid")) or text(obj.get("rid"))
    if event not in (RECEIVED, FINISHED) or t_us is None or not obj:
        notes.skip(where, "JSON line is no request log: no known event, time or obj")
        return
    if rid is None:
        notes.skip(where, "request log of a batch: one line for several requests")
        return
    notes.know("request log", set(record), _LINE_FIELDS)
    notes.take("request log")
    headers = mapping(record.get("headers"))
    said = _of_object(obj, text(headers.get(_ROUTING_HEADER)), keyed)
    room = whole(obj.get("bootstrap_room"))
    if event == RECEIVED:
        yield Observed(t_us, "requests", "receive", said, rid, room)
        return
    out = mapping(record.get("out"))
    notes.know("request log out", set(out), _OUT_FIELDS)
    yield from _finished(mapping(out.get("meta_info")), t_us, said, rid, room, notes)


def read_exporter(lines: Iterable[tuple[int, str]], where: str, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of an exporter file: one JSON line per finished request, what it was asked with nested as a string."""
    for number, line in lines:
        place = f"{where}:{number}"
        record = parsed(line)
        asked = parsed(record["request_parameters"]) if record and text(record.get("request_parameters")) else None
        if record is None or asked is None:
            notes.skip(place, "line is no exporter record")
            continue
        rid = text(asked.get("rid")) or text(record.get("id"))
        ended = from_unix(record.get("request_finished_ts")) or from_unix(record.get("response_sent_to_client_ts"))
        if rid is None:
            notes.skip(place, "exporter record names no single request")
            continue
        notes.take("exporter record")
        meta = {name: value for name, value in record.items() if name != "request_parameters"}
        yield from finished_request(meta, ended, asked, rid, whole(asked.get("bootstrap_room")), keyed, notes)


def finished_request(
    meta: dict[str, Any],
    t_us: int | None,
    asked: dict[str, Any],
    rid: str,
    room: int | None,
    keyed: Keyed,
    notes: Notes,
) -> Iterator[Said]:
    """Rows of a request from its `meta_info` and from what it asked; one that has not ended has no end."""
    yield from _finished(meta, t_us, _of_object(asked, None, keyed), rid, room, notes)


def _finished(
    meta: dict[str, Any], t_us: int | None, said: dict[str, Any], rid: str, room: int | None, notes: Notes
) -> Iterator[Said]:
    notes.know("meta_info", set(meta), _META_FIELDS)
    began = from_unix(meta.get("request_received_ts"))
    if began is not None:
        yield Observed(began, "requests", "receive", said, rid, room)
    if meta.get("finish_reason") is None and t_us is None:
        return  # it has not ended
    status, reason = _outcome(meta.get("finish_reason"))
    output = whole(meta.get("completion_tokens"))
    left = from_unix(meta.get("response_sent_to_client_ts")) or from_unix(meta.get("request_finished_ts"))
    columns = {
        "prompt_tokens": whole(meta.get("prompt_tokens")), "cached_tokens": whole(meta.get("cached_tokens")),
        "output_tokens": output, "last_token": left if output else None, "status": status, "reason": reason,
    }  # fmt: skip
    op = "finish" if status == "200" or (status, reason) == (None, None) else "abort"
    yield Observed(t_us, "requests", op, {**said, **columns}, rid, room)


def _of_object(obj: dict[str, Any], routing_header: str | None, keyed: Keyed) -> dict[str, Any]:
    """Whose request it is, where the log says it: routing key and adapter."""
    routing = text(obj.get("routing_key")) or routing_header
    named = {
        "tenant": keyed.tenant(routing) if routing else None,
        "adapter": text(obj.get("lora_path")) or text(obj.get("lora_id")),
    }
    return {name: value for name, value in named.items() if value is not None}


def _outcome(finish_reason: object) -> tuple[str | None, str | None]:
    """HTTP status and reason; an abort without a status code has none."""
    reason = mapping(finish_reason)
    kind = text(reason.get("type"))
    if kind in ("stop", "length"):
        return "200", None
    code = whole(reason.get("status_code"))
    return (str(code) if code is not None else None), ("aborted" if kind == "abort" else kind)


def read_text_line(message: str, t_us: int, where: str, keyed: Keyed, notes: Notes) -> Iterator[Said]:
    """Rows of one line of a text request log; text and tokens in it are skipped over."""
    if message.startswith("Receive OpenAI"):
        notes.unread["Receive OpenAI lines"] += 1
        return
    head, _, out = message.rpartition(", out=") if message.startswith("Finish") else (message, "", "")
    rid = re.search(r"[(,] ?rid='(?P<rid>[^']+)'", head)
    if rid is None or (message.startswith("Finish") and not out):
        notes.skip(where, "text request log of a batch, or of an unknown shape")
        return
    notes.take("request log")
    room = digits(_last(r"bootstrap_room=(\d+)", head))
    routing = _last(r"routing_key='([^']+)'", head) or _last(rf"'{_ROUTING_HEADER}': '([^']+)'", head)
    said = {"tenant": keyed.tenant(routing)} if routing else {}
    if not out:
        yield Observed(t_us, "requests", "receive", said, rid["rid"], room)
        return
    meta: dict[str, Any] = {
        name: digits(_last(rf"'{name}': (\d+)", out))
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    }
    kind = _last(r"'finish_reason': \{'type': '(\w+)'", out)
    meta["finish_reason"] = {"type": kind, "status_code": digits(_last(r"'status_code': (?:<[^>]*: )?(\d+)", out))}
    yield from _finished(meta, t_us, said, rid["rid"], room, notes)


def _last(expression: str, message: str) -> str | None:
    """The last occurrence: what stands before may be a prompt that quotes one."""
    found = re.findall(expression, message)
    return found[-1] if found else None
