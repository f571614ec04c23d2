"""The gateway's core: tenants from credentials, the admission gate, one body to both roles, decode's answer.

Invariant: what a client says about its own identity is never believed; a request id names one request, whoever
sends it; a refusal of either role reaches the client with its own status and words.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx

from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.defences import ADMISSION_GATE, Checks, Defences, Limits
from engine.ledger.recorder import Recorder
from engine.openai_api import MODEL
from engine.request import RequestError
from engine.tenants import Tenants
from engine.tokenizer import ByteTokenizer

log = logging.getLogger(__name__)

_RID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PURPOSES = ("customer", "probe")
REMEMBERED_RIDS = 1 << 16
ABORTED = 499
TOLD_TO_DECODE = (HTTPStatus.BAD_REQUEST, ABORTED)  # refusals of which prefill itself tells decode
UNAUTHORIZED = RequestError(401, "unauthorized", "no or unknown API key: send 'Authorization: Bearer KEY'")


class Refused(Exception):
    """A request that ends with a typed error."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass
class Call:
    """One client request on its way; `sent` tokens have left for the client, the last at `last_token` (us)."""

    rid: str
    req: int
    tokens: list[int]
    budget: int
    tenant: str
    purpose: str
    sent: int = 0
    last_token: int | None = None
    ended: bool = False


class Gateway:
    """Carries requests to one prefill and one decode worker."""

    def __init__(self, config: ProcessConfig, recorder: Recorder, clock: RealClock) -> None:
        self.config, self.recorder, self.clock = config, recorder, clock
        self.tokenizer = ByteTokenizer()
        self.tenants = Tenants(config.engine.tenants, config.ledger_key)
        self.checks = Checks(Defences.parse(config.engine.defences), recorder)
        self.answers: Counter[int] = Counter()
        self.http = httpx.AsyncClient(timeout=httpx.Timeout(10, read=None), limits=httpx.Limits(max_connections=None))
        self.pools: dict[str, int] = {}
        self._next_req = 1
        self._rids: OrderedDict[str, None] = OrderedDict()

    async def learn_limits(self) -> None:
        """Ask both roles for their pools. An advertised context that does not fit is told, and cut off by the gate."""
        for url in (self.config.prefill_url, self.config.decode_url):
            info = (await self.http.get(f"{url}/server_info")).json()
            self.pools[info["disaggregation_mode"]] = info["max_total_num_tokens"]
        context = self.config.engine.context_tokens
        for role, pool in self.pools.items():
            if pool < context:
                enforced = self.checks.failed(ADMISSION_GATE, None, expected=pool, found=context, action="warn")
                log.warning(
                    "the advertised context of %d tokens is larger than the %s KV pool of %d tokens: %s",
                    context, role, pool,
                    "longer prompts are refused here" if enforced else "set --defence admission-gate=enforce",
                )  # fmt: skip

    def limit(self) -> int:
        """The longest prompt that every role can take."""
        return min([*self.pools.values(), self.config.engine.context_tokens - 1])

    def receive(self, headers: Mapping[str, str], text: str, budget: int) -> Call:
        """Identity and admission of one request. Raises Refused."""
        tenant = self.tenants.from_authorization(headers.get("authorization"))
        if tenant is None:
            raise Refused(UNAUTHORIZED)
        rid = self._take_rid(headers.get("x-request-id", ""))
        tokens = self.tokenizer.encode(text)
        purpose = headers.get("x-kvwitness-purpose", "customer")
        if purpose not in PURPOSES:
            raise Refused(RequestError(400, "bad_purpose", f"x-kvwitness-purpose: one of {', '.join(PURPOSES)}"))
        call = Call(rid, self._next_req, tokens, budget, self.tenants.pseudonym(tenant), purpose)
        self._next_req += 1
        self.recorder.record(
            "requests", "receive", req=call.req, rid=call.rid, attempt=1, choice=0, tenant=call.tenant, purpose=purpose,
            weights=MODEL, kv_format="float32", prompt_tokens=len(tokens), limit_tokens=self.limit(),
        )  # fmt: skip
        error = self._refusal(call)
        if error is not None:
            self.recorder.record(
                "requests", "reject", req=call.req, status=str(error.status), reason=error.code, output_tokens=0
            )
            raise Refused(error)
        self.recorder.record("requests", "admit", req=call.req)
        return call

    def _take_rid(self, given: str) -> str:
        """The id of a request: the client's, if it is well-formed and was not used before, or a fresh one.

        The ledger knows content by its owner's id: two tenants under one id would be one owner there, and on the
        workers one would get the other's tokens.
        """
        if given and not _RID.fullmatch(given):
            raise Refused(RequestError(400, "bad_request_id", "x-request-id: use at most 64 of A-Z a-z 0-9 . _ -"))
        if given in self._rids:
            words = f"x-request-id {given} was used before; send a new one, or none"
            raise Refused(RequestError(HTTPStatus.CONFLICT, "request_id_in_use", words))
        rid = given or secrets.token_hex(8)
        self._rids[rid] = None
        if len(self._rids) > REMEMBERED_RIDS:
            self._rids.popitem(last=False)
        return rid

    def _refusal(self, call: Call) -> RequestError | None:
        if not call.tokens:
            return RequestError(400, "empty_prompt", "the prompt has no tokens")
        for role, pool in self.pools.items():
            refusal = Limits(role, pool, self.config.engine.context_tokens).refusal(len(call.tokens), call.budget)
            if refusal is not None and self.checks.failed(
                ADMISSION_GATE, call.req, expected=refusal.limit, found=refusal.found
            ):
                return refusal.error
        return None

    def end(self, call: Call, error: RequestError | None) -> None:
        """The last row of a request; once it is written, nothing."""
        if call.ended:
            return
        call.ended = True
        self.recorder.record(
            "requests", "abort" if error else "finish", req=call.req, status=str(error.status if error else 200),
            reason=error.code if error else None, output_tokens=call.sent, last_token=call.last_token, page_rows=0,
        )  # fmt: skip

    async def tokens(self, call: Call) -> AsyncGenerator[int]:
        """Tokens of one request as decode lets them go. Raises Refused; not run to its end, it aborts both sides."""
        room = secrets.randbits(62)
        self.recorder.record("requests", "room", req=call.req, room=room)
        body = {
            "input_ids": call.tokens, "sampling_params": {"max_new_tokens": call.budget}, "rid": call.rid,
            "bootstrap_room": room, "bootstrap_host": "127.0.0.1", "bootstrap_port": self._wire_port(),
        }  # fmt: skip
        headers = {
            "x-kvwitness-hop": self.config.hop_key, "x-kvwitness-tenant": call.tenant,
            "x-kvwitness-purpose": call.purpose,
        }  # fmt: skip
        prefill = asyncio.create_task(self._prefill(body, headers))
        finished = False
        try:
            async with self.http.stream(
                "POST", f"{self.config.decode_url}/generate", json={**body, "stream": True}, headers=headers
            ) as answer:
                if answer.status_code != 200:
                    raise Refused(_error_of(json.loads(await answer.aread()), answer.status_code))
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event = json.loads(line[6:])
                    for token in event["output_ids"]:
                        yield token
                    reason = event["meta_info"]["finish_reason"]
                    if "error" in event:
                        raise Refused(_original(prefill, _error_of(event, reason["status_code"])))
                    finished = finished or reason is not None
        except httpx.HTTPError as failure:
            raise Refused(
                RequestError(502, "worker_unreachable", f"a worker went away: {type(failure).__name__}")
            ) from failure
        finally:
            if not finished:
                await self._abort(call.rid, headers)
            if not prefill.done():
                prefill.cancel()

    async def _prefill(self, body: dict[str, Any], headers: dict[str, str]) -> RequestError | None:
        """Prefill's half: its refusal, or None. Where it cannot be reached decode is told, or it would wait."""
        try:
            answer = await self.http.post(f"{self.config.prefill_url}/generate", json=body, headers=headers)
        except httpx.HTTPError as failure:
            await self._abort(body["rid"], headers)
            return RequestError(502, "worker_unreachable", f"prefill went away: {type(failure).__name__}")
        if answer.status_code == HTTPStatus.OK:
            return None
        if answer.status_code not in TOLD_TO_DECODE:
            await self._abort(body["rid"], headers)
        return _error_of(answer.json(), answer.status_code)

    def _wire_port(self) -> int:
        return int(self.config.prefill_wire.rpartition(":")[2])

    async def _abort(self, rid: str, headers: dict[str, str]) -> None:
        for url in (self.config.decode_url, self.config.prefill_url):
            try:
                await self.http.post(f"{url}/abort_request", json={"rid": rid}, headers=headers)
            except httpx.HTTPError:
                log.warning("abort of %s did not reach %s", rid, url)


def _original(prefill: asyncio.Task[RequestError | None], error: RequestError) -> RequestError:
    """Prefill's own refusal where there is one: decode only knows that its handoff failed."""
    told = prefill.result() if prefill.done() else None
    return told if told is not None and told.status != ABORTED else error


def _error_of(body: dict[str, Any], status: int) -> RequestError:
    error = body.get("error") or {}
    return RequestError(
        status, error.get("code") or "worker_error", error.get("message") or "a worker refused the request"
    )
