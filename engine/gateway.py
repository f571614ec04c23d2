"""The gateway's core: tenants from credentials, the admission gate, and the first and last row of every request.

Invariant: what a client says about its own identity is never believed; a request id names one request, whoever
sends it.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus

import httpx

from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.defences import ADMISSION_GATE, Checks, Defences, Limits
from engine.faults import Faults
from engine.fleet import Fleet, Worker
from engine.ledger.recorder import Recorder
from engine.openai_api import MODEL
from engine.relay import ABORTED, Call, Refused, Relay
from engine.request import RequestError
from engine.tenants import Tenants
from engine.tokenizer import ByteTokenizer

log = logging.getLogger(__name__)

_RID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PURPOSES = ("customer", "probe")
REMEMBERED_RIDS = 1 << 16
UNAUTHORIZED = RequestError(401, "unauthorized", "no or unknown API key: send 'Authorization: Bearer KEY'")


class Gateway:
    """Takes requests in, has them carried by a prefill and a decode worker each, and writes how they ended."""

    def __init__(self, config: ProcessConfig, recorder: Recorder, clock: RealClock) -> None:
        self.config, self.recorder, self.clock = config, recorder, clock
        self.tokenizer = ByteTokenizer()
        self.tenants = Tenants(config.engine.tenants, config.ledger_key)
        self.checks = Checks(Defences.parse(config.engine.defences), recorder)
        self.faults = Faults()
        for name in config.engine.faults:
            self.faults.switch(name, True)
        self.answers: Counter[int] = Counter()
        # Connections are given up before a worker's door does so (5 s): a request never meets one that just closed.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2)
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(10, read=None), limits=limits, trust_env=False)
        self.fleet = Fleet(config.workers, self._http, self._learn)
        self._relay = Relay(self.fleet, self._http, config.hop_key, self.faults.room_collision)
        self.pools: dict[str, int] = {}  # role -> tokens of its smallest pool
        self._next_req = 1
        self._rids: OrderedDict[str, None] = OrderedDict()

    async def start(self) -> None:
        """Look for the workers; those that are not up are waited for by no one, but watched."""
        await self.fleet.start()

    async def close(self) -> None:
        """Let what was begun end."""
        await self._relay.close()
        await self.fleet.close()
        await self._http.aclose()

    def _learn(self, worker: Worker) -> None:
        """Take a worker's pool over. An advertised context that does not fit is told, and cut off by the gate."""
        role, pool, context = worker.address.role, worker.pool_tokens, self.config.engine.context_tokens
        if pool >= self.pools.get(role, pool + 1):
            return
        self.pools[role] = pool
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

    def receive(self, headers: Mapping[str, str], text: str, budget: int, user: str | None = None) -> Call:
        """Identity and admission of one request. Raises Refused."""
        tenant = self.tenants.from_authorization(headers.get("authorization"))
        if tenant is None:
            raise Refused(UNAUTHORIZED)
        rid = self._take_rid(headers.get("x-request-id", ""))
        tokens = self.tokenizer.encode(text)
        purpose = headers.get("x-kvwitness-purpose", "customer")
        if purpose not in PURPOSES:
            raise Refused(RequestError(400, "bad_purpose", f"x-kvwitness-purpose: one of {', '.join(PURPOSES)}"))
        owner = self.tenants.identity(tenant, user)
        call = Call(rid, self._next_req, tokens, budget, owner.tenant, purpose, owner.organisation, owner.user)
        self._next_req += 1
        self.recorder.record(
            "requests", "receive", req=call.req, rid=call.rid, attempt=1, choice=0, tenant=call.tenant, purpose=purpose,
            weights=MODEL, kv_format="float32", prompt_tokens=len(tokens), limit_tokens=self.limit(),
        )  # fmt: skip
        error = self._refusal(call)
        if error is not None:
            self._reject(call, error)
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
        """The last row of a request; once it is written, nothing. What a worker refused is rejected here too."""
        if call.ended:
            return
        call.ended = True
        if error is not None and not call.sent and HTTPStatus.BAD_REQUEST <= error.status < ABORTED:
            self._reject(call, error)
            return
        self.recorder.record(
            "requests", "abort" if error else "finish", req=call.req, status=str(error.status if error else 200),
            reason=error.code if error else None, output_tokens=call.sent, last_token=call.last_token, page_rows=0,
        )  # fmt: skip

    def tokens(self, call: Call) -> AsyncGenerator[int]:
        """Tokens of one request as they come. Raises Refused; not run to its end, it aborts the request."""
        return self._relay.tokens(call, lambda room: self.recorder.record("requests", "room", req=call.req, room=room))

    def _reject(self, call: Call, error: RequestError) -> None:
        self.recorder.record(
            "requests", "reject", req=call.req, status=str(int(error.status)), reason=error.code, output_tokens=0
        )
