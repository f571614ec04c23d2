"""Talking to a running engine over HTTP.

Invariant: every call ends by its deadline, reads at most `MAX_BYTES`, follows no redirect, uses no proxy, and keys
never appear in an error or a representation. The workers' hop key is not used: nothing here may command a worker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from runbooks.deadline import Deadline
from runbooks.errors import UsageError

MAX_BYTES = 16 << 20


class EngineFile(BaseModel):
    """The addresses and keys that `engine serve` writes to RUN_DIR/engine.json."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gateway: str
    prefill: list[str]
    decode: list[str]
    ledger: Path | None = None
    api_keys: dict[str, SecretStr] = {}

    def workers(self) -> list[tuple[str, str]]:
        """(role, address) of every worker."""
        return [("prefill", url) for url in self.prefill] + [("decode", url) for url in self.decode]


def read_engine_file(path: Path) -> EngineFile:
    """Read engine.json. Raises UsageError naming the file and the fault."""
    try:
        return EngineFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"--engine {path}: cannot be read ({error.strerror or error}); give the engine.json that `engine serve` "
            "writes into its run directory"
        ) from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(str(part) for part in e['loc']) or 'file'}: {e['msg']}" for e in error.errors())
        raise UsageError(f"--engine {path}: is no engine file ({faults})") from error


class HttpFailure(Exception):
    """No usable answer. `kind` is 'unreachable', 'timeout', 'broken' or 'status'; `status` where one came."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


@dataclass(frozen=True)
class Reply:
    """One HTTP answer: status, body and how long it took, in seconds."""

    status: int
    body: bytes = field(repr=False)
    seconds: float

    def json(self) -> Any:
        """The body as JSON, or None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class EngineClient:
    """HTTP access to one engine. Closing it closes its connections."""

    def __init__(self, engine: EngineFile) -> None:
        self.engine = engine
        self._http = httpx.Client(trust_env=False, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def read_json(self, url: str, deadline: Deadline) -> dict[str, Any]:
        """GET an object from a worker or the gateway. Raises HttpFailure."""
        answer = self._get(url, deadline).json()
        if not isinstance(answer, dict):
            raise HttpFailure("broken", f"{url} did not answer with a JSON object")
        return answer

    def read_text(self, url: str, deadline: Deadline) -> str:
        """GET text, for example Prometheus metrics. Raises HttpFailure."""
        return self._get(url, deadline).body.decode("utf-8", errors="replace")

    def post(self, url: str, tenant: str, rid: str, body: dict[str, Any], deadline: Deadline) -> Reply:
        """POST JSON to the gateway as `tenant`. Any status is an answer. Raises HttpFailure when none comes."""
        key = self.engine.api_keys[tenant].get_secret_value()
        # The purpose stands in the ledger, so that a report can tell probes from customers.
        headers = {"Authorization": f"Bearer {key}", "x-request-id": rid, "x-kvwitness-purpose": "probe"}
        return self._send("POST", url, headers, deadline, body)

    def _get(self, url: str, deadline: Deadline) -> Reply:
        reply = self._send("GET", url, {}, deadline, None)
        if reply.status != httpx.codes.OK:
            raise HttpFailure("status", f"{url} answered {reply.status}", reply.status)
        return reply

    def _send(self, method: str, url: str, headers: dict[str, str], deadline: Deadline, body: Any) -> Reply:
        budget = deadline.left()
        if budget <= 0:
            raise HttpFailure("timeout", f"{url}: no time left to ask")
        started = deadline.monotonic()
        try:
            with self._http.stream(method, url, headers=headers, json=body, timeout=budget) as response:
                content = _read_body(response, deadline, url)
                return Reply(response.status_code, content, deadline.monotonic() - started)
        except httpx.ConnectTimeout as error:
            raise HttpFailure("unreachable", f"{url}: no connection within {budget:.1f} s") from error
        except httpx.TimeoutException as error:
            raise HttpFailure("timeout", f"{url}: no answer within {budget:.1f} s") from error
        except httpx.ConnectError as error:
            raise HttpFailure("unreachable", f"{url}: cannot be reached ({error})") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HttpFailure("broken", f"{url}: the answer broke off ({type(error).__name__})") from error


def _read_body(response: httpx.Response, deadline: Deadline, url: str) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_BYTES:
            raise HttpFailure("broken", f"{url}: the answer is larger than {MAX_BYTES} bytes")
        if deadline.left() <= 0:
            raise HttpFailure("timeout", f"{url}: the answer did not end in time")
    return bytes(content)
