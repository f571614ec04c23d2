"""SGLang's `/generate`: bodies in, answers and stream lines out.

Invariant: what passes these bodies cannot make a forward pass fail: token ids are in the vocabulary, a prompt has at
least one token, rooms fit the ledger's integers. Stream lines are disjoint segments (SGLang's `stream_output`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, model_validator

from engine.request import GenerateRequest
from engine.role import Ended, TokenLeft
from engine.tokenizer import VOCABULARY, ByteTokenizer

MAX_ROOM = (1 << 63) - 1


class SamplingParams(BaseModel):
    """The part of SGLang's sampling parameters that greedy decoding knows."""

    max_new_tokens: int = Field(default=16, ge=1, le=1 << 20)


class GenerateBody(BaseModel):
    """`POST /generate`. Either `input_ids` or `text`."""

    input_ids: list[int] | None = None
    text: str | None = None
    sampling_params: SamplingParams = Field(default_factory=SamplingParams)
    rid: str = Field(default_factory=lambda: secrets.token_hex(8), min_length=1, max_length=128)
    bootstrap_room: int = Field(ge=0, le=MAX_ROOM)
    bootstrap_host: str = "127.0.0.1"
    bootstrap_port: int = Field(ge=1, le=65535)
    stream: bool = False

    @model_validator(mode="after")
    def _one_prompt(self) -> GenerateBody:
        if (self.input_ids is None) == (self.text is None):
            raise ValueError("send either input_ids or text")
        tokens = self.tokens()
        if not tokens:
            raise ValueError("the prompt has no tokens")
        if min(tokens) < 0 or max(tokens) >= VOCABULARY:
            raise ValueError(f"token ids must be 0..{VOCABULARY - 1}")
        return self

    def tokens(self) -> list[int]:
        """The prompt as token ids."""
        return self.input_ids if self.input_ids is not None else ByteTokenizer().encode(self.text or "")

    def request(self, headers: Mapping[str, str]) -> GenerateRequest:
        """What the control plane needs of it; whose it is the gateway says in `headers`."""
        return GenerateRequest(
            self.rid, headers.get("x-kvwitness-tenant", "t-unknown"), self.bootstrap_room, tuple(self.tokens()),
            self.sampling_params.max_new_tokens, f"tcp://{self.bootstrap_host}:{self.bootstrap_port}",
            headers.get("x-kvwitness-purpose", "customer"), headers.get("x-kvwitness-organisation"),
            headers.get("x-kvwitness-user"),
        )  # fmt: skip


class AbortBody(BaseModel):
    """`POST /abort_request`; with a room, only the request of this id that has this room."""

    rid: str = Field(min_length=1)
    bootstrap_room: int | None = None


class GenerateAnswer:
    """Builds what `/generate` answers for one request from its tokens."""

    def __init__(self, given: GenerateRequest) -> None:
        self._given = given
        self._tokens: list[int] = []
        self._cached_tokens = 0

    def token(self, left: TokenLeft) -> bytes:
        """Take one more token; returns its stream line."""
        self._tokens.append(left.token)
        self._cached_tokens = left.cached_tokens
        return _line(self._body([left.token], None))

    def whole(self, ended: Ended) -> dict[str, Any]:
        """The answer of an unstreamed request that went well."""
        self._cached_tokens = ended.cached_tokens
        return self._body(self._tokens, {"type": "length", "length": len(self._tokens)})

    def last(self, ended: Ended) -> bytes:
        """The stream line that says how the request ended."""
        self._cached_tokens = ended.cached_tokens
        if ended.error is None:
            return _line(self._body([], {"type": "length", "length": len(self._tokens)}))
        error = ended.error
        reason = {
            "type": "abort", "message": error.message, "status_code": int(error.status), "err_type": error.code,
        }  # fmt: skip
        return _line({**self._body([], reason), **error.body()})

    def _body(self, tokens: list[int], finish_reason: dict[str, Any] | None) -> dict[str, Any]:
        meta = {
            "id": self._given.rid, "prompt_tokens": len(self._given.tokens), "completion_tokens": len(self._tokens),
            "cached_tokens": self._cached_tokens, "finish_reason": finish_reason,
        }  # fmt: skip
        return {"text": ByteTokenizer().decode(tokens), "output_ids": tokens, "meta_info": meta}


def _line(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()
