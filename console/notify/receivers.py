"""Who is told of incidents: a TOML file of receivers.

Invariant: no secret stands in the file, only the name of a file that holds it; a receiver that cannot work is refused
before anything is served.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.core.filter_language import ORDERED
from console.core.marks import Severity
from console.notify.errors import NotifyError

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
SHORTEST_SECRET = 16


class Kind(StrEnum):
    """How a receiver is spoken to."""

    WEBHOOK = "webhook"
    ALERTMANAGER = "alertmanager"
    PAGERDUTY = "pagerduty"


_SECRETS = {Kind.WEBHOOK: "secret_file", Kind.ALERTMANAGER: "token_file", Kind.PAGERDUTY: "routing_key_file"}
_ALLOWED = {kind: {"name", "kind", "url", "at_least", secret} for kind, secret in _SECRETS.items()}


@dataclass(frozen=True)
class Receiver:
    """`secret`: signs a webhook, is Alertmanager's bearer token ("" = none) or PagerDuty's routing key. `at_least`: the
    least severity that it is told of.
    """

    name: str
    kind: Kind
    url: str
    secret: str
    at_least: Severity

    def __repr__(self) -> str:
        return f"Receiver({self.name!r}, {self.kind.value}, {self.url!r})"


@dataclass(frozen=True)
class Receivers:
    """All of a file. `console_url`: where people reach this console, for links; "" = no links."""

    console_url: str
    receivers: tuple[Receiver, ...]


def load_receivers(path: Path) -> Receivers:
    """Raises NotifyError, which says what to change."""
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        raise NotifyError(f"{path}: cannot be read ({error.strerror}); give a TOML file of receivers") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NotifyError(f"{path}: cannot be read as TOML ({error})") from error
    strange = sorted(set(given) - {"console_url", "receiver"})
    rows = given.get("receiver")
    if strange or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not rows:
        wrong = f"does not know {', '.join(strange)}" if strange else "names no receiver"
        raise NotifyError(f"{path}: {wrong}; write console_url = URL and one [[receiver]] or more")
    console_url = given.get("console_url", "")
    if console_url:
        _check_url(f"{path}: console_url", console_url)
    receivers = tuple(_receiver(f"{path}, receiver {number}", row) for number, row in enumerate(rows, start=1))
    names = [receiver.name for receiver in receivers]
    if len(set(names)) < len(names):
        raise NotifyError(f"{path}: two receivers have one name; the outbox needs to tell them apart")
    return Receivers(str(console_url).rstrip("/"), receivers)


def _receiver(where: str, row: Mapping[str, Any]) -> Receiver:
    try:
        kind = Kind(row.get("kind", ""))
    except ValueError as error:
        raise NotifyError(f"{where}: kind is one of {', '.join(Kind)}") from error
    strange = sorted(set(row) - _ALLOWED[kind])
    if strange:
        raise NotifyError(
            f"{where}: {kind} takes no {', '.join(strange)}; it takes {', '.join(sorted(_ALLOWED[kind]))}"
        )
    name = row.get("name", "")
    if not isinstance(name, str) or not name or len(name) > 40 or not name.isprintable():
        raise NotifyError(f"{where}: name it in 1 to 40 printable characters")
    words = row.get("at_least", "medium")
    if words not in ORDERED["severity"]:
        raise NotifyError(f"{where}: at_least is one of {', '.join(ORDERED['severity'])}")
    url = row.get("url", PAGERDUTY if kind is Kind.PAGERDUTY else "")
    _check_url(f"{where}: url", url)
    return Receiver(name, kind, url.rstrip("/"), _secret(where, kind, row), Severity.of_word(words))


def _secret(where: str, kind: Kind, row: Mapping[str, Any]) -> str:
    key = _SECRETS[kind]
    if key not in row:
        if kind is Kind.ALERTMANAGER:
            return ""
        raise NotifyError(f"{where}: {key} is missing; name a file that holds it")
    try:
        secret = Path(row[key]).read_text().strip()
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise NotifyError(f"{where}: {key} {row[key]!r} cannot be read ({error})") from error
    if len(secret) < SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise NotifyError(f"{where}: what {key} holds is no plain ASCII of {SHORTEST_SECRET} characters or more")
    return secret


def _check_url(where: str, url: Any) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise NotifyError(f"{where}: write http://HOST or https://HOST, without a user in it")
