"""A test message to every receiver, and its end, so that nothing stays open there.

Invariant: it is sent as a real message would be, by the same code, and says that it is a test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import httpx

from console.notify.notice import Notice
from console.notify.receivers import Receiver, Receivers
from console.notify.told import Action
from console.notify.wire import outgoing

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Tried:
    """What became of the test message to one receiver."""

    name: str
    took: bool
    words: str


def try_receivers(receivers: Receivers, now_us: int, transport: httpx.BaseTransport | None = None) -> tuple[Tried, ...]:
    """Every receiver in turn."""
    with httpx.Client(timeout=TIMEOUT_S, transport=transport) as client:
        return tuple(_try(client, receivers, receiver, now_us) for receiver in receivers.receivers)


def _try(client: httpx.Client, receivers: Receivers, receiver: Receiver, now_us: int) -> Tried:
    incident = f"I-test-{now_us}"
    opened = Notice(
        action=Action.OPEN, incident=incident, severity="low", before="", cause="test", title="test message",
        story="somebody tries out who is told of incidents; nothing happened", verdict="nothing happened", ledger="none",
        detectors=(), workers=(), first_seen_us=now_us, last_seen_us=now_us, growing=True,
    )  # fmt: skip
    for number, notice in enumerate((opened, replace(opened, action=Action.OVER, growing=False)), start=1):
        request = outgoing(receiver, notice, f"{incident}.{number}", receivers.console_url, now_us)
        try:
            answer = client.post(request.url, content=request.content, headers=request.headers)
        except httpx.HTTPError as error:
            return Tried(receiver.name, False, f"cannot be reached ({type(error).__name__})")
        if not answer.is_success:
            return Tried(
                receiver.name, False, f"did not take the message of {notice.action} (HTTP {answer.status_code})"
            )
    return Tried(receiver.name, True, "took the test message and its end")
