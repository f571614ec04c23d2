"""A proxy's or client's own record of OpenAI-style calls: what was asked, what came back, with `kv_transfer_params`.

Invariant: of a response, counts, status and prefill's block ids are kept; text and token ids are not.

A JSON list of `{"rid" or "tag", "n", "url"?, "kw"?, "sent_ktp"?, "resp"}`; `resp` is the response, or `{"http", "body"}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engine.adapters.json_values import mapping, text, whole
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed, Said
from engine.adapters.times import from_unix
from engine.adapters.vllm_transfer_params import KNOWN as KNOWN_PARAMS
from engine.adapters.vllm_transfer_params import lease

_CALL = frozenset({"rid", "tag", "n", "url", "kw", "sent_ktp", "resp"})
_RESPONSE = frozenset(
    {
        "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage",
        "kv_transfer_params", "ec_transfer_params", "metrics", "http", "body",
    }
)  # fmt: skip


def read_transcript(data: str, where: str, notes: Notes) -> Iterator[Said]:
    """Rows of a transcript."""
    try:
        calls = json.loads(data)
    except (ValueError, RecursionError):
        notes.skip(where, "transcript is no JSON")
        return
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        place = f"{where} call {index}"
        if not isinstance(call, dict) or not isinstance(call.get("resp"), dict):
            notes.skip(place, "call without a response")
            continue
        notes.know("call", set(call), _CALL)
        notes.know("response", set(call["resp"]), _RESPONSE)
        notes.take("call")
        yield from _call(call, call["resp"], place, notes)


def _call(call: dict[str, Any], response: dict[str, Any], where: str, notes: Notes) -> Iterator[Said]:
    named = text(response.get("id")) or text(call.get("rid")) or text(call.get("tag"))
    if named is None:
        notes.skip(where, "call without a name")
        return
    rid = f"{named}-0"  # as the engine names the first prompt of a call
    sent = mapping(call.get("sent_ktp"))
    notes.know("kv_transfer_params", {str(name) for name in sent}, KNOWN_PARAMS)
    t_us = from_unix(response.get("created"))
    leased = lease(response.get("kv_transfer_params"), notes)
    if leased is not None:
        yield Observed(t_us, "transfers", "grant", leased, rid)
    if sent.get("do_remote_decode") is True:
        return  # prefill's half of a call: its answer goes to no client
    asked = {"prompt_tokens": whole(call.get("n"))}
    if sent.get("do_remote_prefill") is True:
        asked["covered_tokens"] = whole(sent.get("remote_num_tokens"))
    yield Observed(t_us, "requests", "receive", asked, rid)
    code = whole(response.get("http"))
    if code is not None:
        yield Observed(t_us, "requests", "abort", {"status": str(code), "output_tokens": 0}, rid)
        return
    usage = mapping(response.get("usage"))
    counts = {"prompt_tokens": usage.get("prompt_tokens"), "output_tokens": usage.get("completion_tokens")}
    yield Observed(t_us, "requests", "finish", {"status": "200", **{name: whole(n) for name, n in counts.items()}}, rid)
