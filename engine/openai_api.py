"""OpenAI's completions and chat completions: bodies in, bodies and stream chunks out.

Invariant: `usage` counts the tokens that left, whatever text they render to.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MODEL = "induction-llama"
DEFAULT_BUDGET = 16  # output tokens, as OpenAI's completions have it


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool = False


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str = MODEL
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] = 1
    user: str | None = None  # the tenant's own name for its end user: it parts users of one tenant, never tenants

    @property
    def include_usage(self) -> bool:
        """Whether a stream is to end with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(_Body):
    """`POST /v1/completions`."""

    prompt: str
    max_tokens: int | None = Field(default=None, ge=1)

    @property
    def budget(self) -> int:
        """Output tokens asked for."""
        return self.max_tokens or DEFAULT_BUDGET

    def text(self) -> str:
        """The prompt as one text."""
        return self.prompt


class TextPart(BaseModel):
    """One part of a message's content; the model reads text only."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a conversation."""

    role: str
    content: str | list[TextPart]

    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatBody(_Body):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)

    @property
    def budget(self) -> int:
        """Output tokens asked for."""
        return self.max_completion_tokens or self.max_tokens or DEFAULT_BUDGET

    def text(self) -> str:
        """The contents one after another: the byte-level copier knows no chat template."""
        return "".join(message.text() for message in self.messages)


@dataclass(frozen=True)
class Shape:
    """How one endpoint names and wraps things."""

    prefix: str
    object: str
    chunk_object: str

    def choice(self, text: str) -> dict[str, Any]:
        """The one choice of a whole answer."""
        if self.object == "text_completion":
            return {"index": 0, "text": text, "finish_reason": "length", "logprobs": None}
        message = {"role": "assistant", "content": text}
        return {"index": 0, "message": message, "finish_reason": "length", "logprobs": None}

    def delta(self, text: str, finish: str | None) -> dict[str, Any]:
        """The one choice of a stream chunk."""
        if self.object == "text_completion":
            return {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
        delta = {"role": "assistant", "content": text} if finish is None else {"content": text} if text else {}
        return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


COMPLETION = Shape("cmpl", "text_completion", "text_completion")
CHAT = Shape("chatcmpl", "chat.completion", "chat.completion.chunk")


def usage(prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> dict[str, Any]:
    """OpenAI's usage object; `cached_tokens` of the prompt were not computed for this request."""
    return {
        "prompt_tokens": prompt_tokens, "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens, "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }  # fmt: skip


class Answer:
    """Builds the answer of one request from its tokens; multi-byte characters may be split between tokens."""

    def __init__(self, shape: Shape, rid: str, created: int, model: str) -> None:
        self._shape = shape
        self._head = {"id": f"{shape.prefix}-{rid}", "created": created, "model": model}
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def text(self, token: int, final: bool = False) -> str:
        """Text that one more token completes; padding (0) renders as nothing."""
        return self._decoder.decode(bytes([token]) if token else b"", final)

    def whole(self, text: str, counts: dict[str, Any]) -> dict[str, Any]:
        """The body of an unstreamed answer."""
        return {**self._head, "object": self._shape.object, "choices": [self._shape.choice(text)], "usage": counts}

    def chunk(self, text: str, finish: str | None = None) -> bytes:
        """One stream chunk."""
        return sse({**self._head, "object": self._shape.chunk_object, "choices": [self._shape.delta(text, finish)]})

    def usage_chunk(self, counts: dict[str, Any]) -> bytes:
        """The chunk that `include_usage` asks for."""
        return sse({**self._head, "object": self._shape.chunk_object, "choices": [], "usage": counts})


def sse(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(body)}\n\n".encode()
