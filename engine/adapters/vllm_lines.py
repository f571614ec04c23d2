"""What vLLM 0.32 says in its log about pools, requests and transfers: the patterns.

Invariant: a row says what the line says. Prompts, answers and cache salts that stand in a line are skipped over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.adapters.json_values import digits
from engine.adapters.log_patterns import Build, Match, Pattern, pattern, rows
from engine.adapters.notes import Notes
from engine.adapters.observed import Identity, Observed, Said
from engine.adapters.vllm_names import external_id
from engine.adapters.vllm_transfer_params import lease, printed

_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "unified"}


def _request(op: str, columns: dict[str, object]) -> Build:
    def build(match: Match, t_us: int | None) -> Iterator[Said]:
        yield Observed(t_us, "requests", op, columns, external_id(match["rid"]))

    return build


def _requests(match: Match, t_us: int | None) -> Iterator[Said]:
    for rid in re.split(r",\s*", match["rids"].strip("[]")):
        yield Observed(t_us, "requests", "abort", {"reason": "aborted"}, external_id(rid.strip("'\"")))


def _generated(match: Match, t_us: int | None) -> Iterator[Said]:
    reason = match["reason"]
    ended = reason in ("stop", "length")
    columns = {"status": "200" if ended else None, "reason": None if ended else reason}
    yield Observed(t_us, "requests", "finish" if ended else "abort", columns, external_id(match["rid"]))


def _failed(match: Match, t_us: int | None) -> Iterator[Said]:
    yield Observed(t_us, "requests", "abort", {"reason": match["why"] or "failed"}, external_id(match["rid"]))


def _pool(match: Match, t_us: int | None) -> Iterator[Said]:
    yield Observed(t_us, "workers", "config", {"pool_tokens": digits(match["tokens"])})


def _context(match: Match, t_us: int | None) -> Iterator[Said]:
    yield Observed(t_us, "workers", "config", {"context_tokens": digits(match["context"])})


def _arguments(match: Match, t_us: int | None) -> Iterator[Said]:
    role = re.search(r"kv_role='(\w+)'", match["args"])
    if role is not None and role[1] in _ROLES:
        yield Identity({"role": _ROLES[role[1]]})
    page = re.search(r"'block_size': (\d+)", match["args"])
    if page is not None:
        yield Observed(t_us, "workers", "config", {"page_tokens": digits(page[1])})


def _version(match: Match, t_us: int | None) -> Iterator[Said]:
    yield Identity({"engine": "vllm", "version": match["version"]})


def _sample(match: Match, t_us: int | None) -> Iterator[Said]:
    yield Observed(
        t_us, "gauges", "sample", {"pool": "kv", "running": digits(match["run"]), "waiting": digits(match["wait"])}
    )


def _check(detector: str) -> Build:
    def build(match: Match, t_us: int | None) -> Iterator[Said]:
        said = match.groupdict()
        rid = said.get("rid")
        columns = {
            "detector": detector, "pool": "kv", "n": 1, "expected": digits(said.get("want")), "found": digits(said.get("got")),
        }  # fmt: skip
        yield Observed(t_us, "checks", "mismatch", columns, external_id(rid) if rid else None)

    return build


def _nixl_failure(match: Match, t_us: int | None) -> Iterator[Said]:
    said = printed(match["context"]) or {}
    rid = said.get("request_id")
    columns = {"dir": "pull", "bytes": None, "n": said.get("num_local_blocks"), "asked": said.get("num_remote_blocks")}
    whole = {name: value if type(value) is int or name == "dir" else None for name, value in columns.items()}
    yield Observed(t_us, "transfers", "fail", whole, external_id(rid) if isinstance(rid, str) else None)


def _finished(notes: Notes) -> Build:
    def build(match: Match, t_us: int | None) -> Iterator[Said]:
        leased = lease(printed(match["params"]), notes)
        if leased is not None:
            yield Observed(t_us, "transfers", "grant", leased, external_id(match["rid"]))

    return build


def patterns(notes: Notes) -> tuple[Pattern, ...]:
    """The patterns; fields of a printed dictionary that are not known are counted in `notes`."""
    return (
        pattern("version", "Initializing a V1 LLM engine (v", r"(?P<version>[^)]+)\) with config: .*", _version),
        pattern("arguments", "non-default args: ", r"(?P<args>.*)", _arguments),
        pattern(
            "pool", "",
            r"\w+(?: \+ host)? KV cache size: (?P<tokens>[\d,]+) tokens, Maximum concurrency for [\d,]+ tokens per "
            r"request: [\d.]+x", _pool,
        ),
        pattern("context", "Using max model len ", r"(?P<context>\d+)", _context),
        pattern("blocks overridden", "Overriding num_gpu_blocks=", r"\d+ with num_gpu_blocks_override=\d+"),
        pattern(
            "request received", "Received request ", r"(?P<rid>\S+): params: .*, lora_request: .*\.", _request("receive", {})
        ),
        pattern(
            "response generated", "Generated response ",
            r"(?P<rid>\S+)(?: \(streaming (?:delta|complete)\))?: output: .*, finish_reason: (?P<reason>\S+)", _generated,
        ),
        pattern("request aborted", "", r"Request (?P<rid>\S+) aborted\.", _request("abort", {"reason": "aborted"})),
        pattern("request failed", "", r"Request (?P<rid>\S+) failed(?: \((?P<why>[a-z ]+)\)| due to .*)?\.", _failed),
        pattern("requests aborted", "Aborted request(s) ", r"(?P<rids>.*)\.", _requests),
        pattern(
            "interval", "",
            r"Engine \d+: Avg prompt throughput: [\d.]+ tokens/s, .*Running: (?P<run>\d+) reqs, Waiting: (?P<wait>\d+) reqs.*",
            _sample,
        ),
        pattern("transfer interval", "KV Transfer metrics: ", r".*"),
        pattern(
            "KV load failed", "",
            r"Failing (?P<got>\d+) request\(s\) due to KV load failure \(failure_policy=fail, \d+ tokens affected\)\. .*",
            _check("kv-load"),
        ),
        pattern(
            "KV load recovered", "",
            r"Recovered from KV load failure: (?P<got>\d+) request\(s\) rescheduled \(\d+ tokens affected\).*",
            _check("kv-load"),
        ),
        pattern("engine died", "EngineCore encountered a fatal error", r"\..*", _check("engine")),
        pattern("NIXL failure", "NIXL transfer failure: ", r".*? \| Context: (?P<context>\{.*\})", _nixl_failure),
        pattern(
            "lease expired", "Releasing expired KV blocks for request ", r"(?P<rid>\S+) which were retrieved by .*",
            lambda match, t_us: iter([Observed(t_us, "transfers", "expire", {"dir": "pull"}, external_id(match["rid"]))]),
        ),
        pattern(
            "reader behind its lease", "Potentially invalid KV blocks for unrecognized request ",
            r"(?P<rid>\S+) were retrieved by a decode worker.*", _check("lease"),
        ),
        pattern(
            "block counts differ", "",
            r"req (?P<rid>\S+): local blocks\((?P<got>\d+)\) < remote blocks\((?P<want>\d+)\) in a KV cache group.*",
            _check("page-count"),
        ),
        pattern(
            "group counts differ", "",
            r"req (?P<rid>\S+): KV group count mismatch: local=(?P<got>\d+), remote=(?P<want>\d+).*", _check("group-count"),
        ),
        pattern(
            "Mooncake send failed", "", r"Sending to \S+ failed \(ret=-?\d+\) after .*",
            rows("transfers", "fail", lambda match: {"dir": "push", "bytes": None}),
        ),
        pattern(
            "transfer looked up", "NIXLConnector get_num_new_matched_tokens: ",
            r"num_computed_tokens=\d+, kv_transfer_params=.*",
        ),
        pattern(
            "transfer allocated", "NIXLConnector update_state_after_alloc: ",
            r"num_external_tokens=\d+, kv_transfer_params=.*",
        ),
        pattern(
            "transfer finished", "NIXLConnector request_finished(",
            r"(?P<rid>\S+)\), request_status=\S+, kv_transfer_params=(?P<params>.*)", _finished(notes),
        ),
        pattern("lease begun", "NIXLConnector request_finished(", r"\S+\) waiting for \d+ seconds before releasing blocks"),
    )  # fmt: skip
