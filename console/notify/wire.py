"""Notices as each kind of receiver wants them: a signed webhook, Alertmanager's API v2, PagerDuty's Events API v2.

Invariant: the dedup key is the incident's id everywhere, with its ledger's name where several are served, so that a message
which arrives twice is one incident; a body is made when it is sent, since an Alertmanager alert says until when it holds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from console.core.times import moment
from console.notify.notice import Notice
from console.notify.receivers import Kind, Receiver
from console.notify.told import Action

REPEAT_US = 60_000_000
"""How often an alert that goes on is posted to Alertmanager again."""
HOLDS_US = 5 * REPEAT_US
PAST_HOLDS_US = 24 * 3_600_000_000
"""How long an alert holds there without being repeated: one that goes on, and one that was over when it was told."""
_PAGERDUTY_SEVERITY = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}


@dataclass(frozen=True)
class Outgoing:
    """One POST."""

    url: str
    headers: dict[str, str]
    content: bytes


def outgoing(receiver: Receiver, notice: Notice, key: str, console_url: str, now_us: int) -> Outgoing:
    """The request for one message. `key` names the message of its ledger, the same at every try."""
    link = console_url + notice.path if console_url else ""
    if receiver.kind is Kind.ALERTMANAGER:
        headers = {"authorization": f"Bearer {receiver.secret}"} if receiver.secret else {}
        return _post(f"{receiver.url}/api/v2/alerts", _alerts(notice, link, now_us), headers)
    if receiver.kind is Kind.PAGERDUTY:
        return _post(receiver.url, _event(receiver, notice, link, console_url, now_us), {})
    sent = _post(receiver.url, _webhook(notice, link, now_us), {})
    key = f"{notice.ledger}:{key}" if notice.of_several else key
    return Outgoing(sent.url, sent.headers | _signed(receiver.secret, key, now_us, sent.content), sent.content)


def _post(url: str, body: Any, headers: dict[str, str]) -> Outgoing:
    content = json.dumps(body, ensure_ascii=False).encode()
    return Outgoing(url, {"content-type": "application/json", **headers}, content)


def _signed(secret: str, key: str, now_us: int, content: bytes) -> dict[str, str]:
    """Headers of the Standard Webhooks scheme: HMAC-SHA-256 over id, time in seconds, and body."""
    at = str(now_us // 1_000_000)
    digest = hmac.new(secret.encode(), f"{key}.{at}.".encode() + content, hashlib.sha256).digest()
    return {"webhook-id": key, "webhook-timestamp": at, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


def _webhook(notice: Notice, link: str, now_us: int) -> dict[str, Any]:
    data = {
        "incident": notice.incident, "severity": notice.severity, "severity_before": notice.before or None, "cause": notice.cause,
        "title": notice.title, "summary": notice.summary, "verdict": notice.verdict, "ledger": notice.ledger,
        "detectors": notice.detectors, "workers": notice.workers, "growing": notice.growing,
        "first_seen": _when(notice.first_seen_us), "last_seen": _when(notice.last_seen_us), "url": link or None,
    }  # fmt: skip
    return {"type": f"incident.{notice.action}", "timestamp": _iso(now_us), "data": data}


def _alerts(notice: Notice, link: str, now_us: int) -> list[dict[str, Any]]:
    """The alert as it stands; where its severity has changed, the one with the former severity ends."""
    lasts = HOLDS_US if notice.growing else PAST_HOLDS_US
    ends = now_us if notice.action is Action.OVER else now_us + lasts
    alerts = [_alert(notice, notice.severity, link, ends)]
    if notice.before and notice.before != notice.severity:
        alerts.append(_alert(notice, notice.before, link, now_us))
    return alerts


def _alert(notice: Notice, severity: str, link: str, ends_us: int) -> dict[str, Any]:
    labels = {
        "alertname": "KvIncident", "incident": notice.incident, "cause": notice.cause, "severity": severity, "ledger": notice.ledger,
    }  # fmt: skip
    annotations = {"summary": notice.summary, "description": notice.story}
    alert = {"labels": labels, "annotations": annotations, "endsAt": _iso(ends_us)}
    if notice.first_seen_us is not None:
        # Alertmanager refuses an alert that ends before it begins, as by a clock that is set back.
        alert["startsAt"] = _iso(min(notice.first_seen_us, ends_us))
    return alert | ({"generatorURL": link} if link else {})


def _event(receiver: Receiver, notice: Notice, link: str, console_url: str, now_us: int) -> dict[str, Any]:
    event: dict[str, Any] = {
        "routing_key": receiver.secret, "dedup_key": notice.key,
        "event_action": "resolve" if notice.action is Action.OVER else "trigger",
    }  # fmt: skip
    if notice.action is not Action.OVER:
        event["payload"] = {
            "summary": notice.summary, "source": ", ".join(notice.workers) or notice.ledger,
            "severity": _PAGERDUTY_SEVERITY[notice.severity], "timestamp": _when(notice.first_seen_us) or _iso(now_us),
            "component": notice.ledger, "class": notice.cause,
            "custom_details": {"verdict": notice.verdict, "story": notice.story, "detectors": ", ".join(notice.detectors)},
        }  # fmt: skip
        event |= {"client": "KV Witness", "links": [{"href": link, "text": notice.incident}]} if link else {}
        event |= {"client_url": console_url} if console_url else {}
    return event


def _when(us: int | None) -> str | None:
    return None if us is None else _iso(us)


def _iso(us: int) -> str:
    """RFC 3339."""
    return moment(us).replace(" ", "T")
