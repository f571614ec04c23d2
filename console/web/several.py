"""Several ledgers behind one address: an application of each, one of all of them, and which of them is asked.

Invariant: what is asked of one ledger reaches the application of that ledger alone; an address that names none is of the first,
but nothing is written for one that names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from console.core.ledger_names import ALL_LEDGERS
from console.core.run_start import RunSetting
from console.core.saved_views import views_file
from console.core.source import LedgerSource
from console.notify.notifier import Notifier
from console.web.app import Parts, add_writing, app_of
from console.web.feed import AnyFeed, Feed
from console.web.gate import Gate
from console.web.intake import Intake
from console.web.merged_feed import MergedFeed
from console.web.metrics import add_metrics
from console.web.run_forms import RunForms
from console.web.triage_forms import TriageForms

_READS = frozenset({"GET", "HEAD"})
_OF_ALL = ("/login",)


class SeveralLedgers:
    """An ASGI application. `sources`, and what is told and heard of each, by the ledgers' names; the rest as `create_app` has
    it.
    """

    def __init__(
        self, sources: Mapping[str, LedgerSource], gate: Gate, hosts: tuple[str, ...], state: Path, *,
        runs: RunSetting | None = None, patience_s: float | None = None, notifiers: Mapping[str, Notifier] | None = None,
        intakes: Mapping[str, Intake] | None = None, views: Path | None = None,
    ) -> None:  # fmt: skip
        ledgers, setting = (*sources, ALL_LEDGERS), runs or RunSetting(state / "runbooks")
        views, notifiers = views or views_file(), notifiers or {}
        feeds: dict[str, Feed] = {}
        self._apps: dict[str, FastAPI] = {}
        for name, source in sources.items():
            run_forms, forms = RunForms(setting, source.path), TriageForms(state, source)
            feeds[name] = feed = Feed(source, patience_s, beside=run_forms.state, name=name, ledgers=ledgers)
            feed.entries = forms.entries
            self._apps[name] = app = app_of(feed, Parts(gate, hosts, run_forms, views), notifiers.get(name))
            add_writing(app, feed, gate, forms, run_forms, (intakes or {}).get(name))
            add_metrics(app, feeds, notifiers)
        merged = MergedFeed(feeds)
        parts = Parts(gate, hosts, RunForms(setting, next(iter(sources.values())).path), views)
        self._apps[ALL_LEDGERS] = app_of(merged, parts)
        self.feeds: tuple[AnyFeed, ...] = (*feeds.values(), merged)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        name = _asked_of(scope)
        if name is None and scope["method"] not in _READS and scope["path"] not in _OF_ALL:
            words = "several ledgers are served: the address has to name one of them, ?ledger=NAME"
            await PlainTextResponse(words, 400)(scope, receive, send)
            return
        # One that there is not is refused in words by the first, behind its guard.
        await self._apps.get(name or "", next(iter(self._apps.values())))(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """All applications live as long as this one."""
        message: Message = await receive()
        async with AsyncExitStack() as lives:
            for app in self._apps.values():
                await lives.enter_async_context(app.router.lifespan_context(app))
            await send({"type": "lifespan.startup.complete"})
            message = await receive()
        assert message["type"] == "lifespan.shutdown"
        await send({"type": "lifespan.shutdown.complete"})


def _asked_of(scope: Scope) -> str | None:
    """The ledger that an address names, itself or in the address that it is about."""
    query = parse_qs(scope["query_string"].decode("utf-8", "replace"))
    about = parse_qs(urlsplit(query.get("at", [""])[0]).query) if scope["path"] == "/api/address" else {}
    names = query.get("ledger") or about.get("ledger")
    return names[0] if names else None
