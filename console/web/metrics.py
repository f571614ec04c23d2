"""`/metrics`: what the record says, and whether anybody is in a position to read it, for Prometheus.

Invariant: figures are of a reading made by this process, never of a remembered one; where there is none, there are no
figures, and `kvwitness_console_readable` is 0. No tenant, request or incident is a label.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import FastAPI, Header
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

from console.core.desk import Desk
from console.core.marks import Severity
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot
from console.notify.errors import NotifyError
from console.notify.notice import word_of
from console.notify.notifier import Notifier
from console.notify.outbox import Ending
from console.web.feed import Feed

PATH = "/metrics"
_BOUNDS = ("soonest", "latest")
_WAITING = "waiting"


def add_metrics(app: FastAPI, feeds: Mapping[str, Feed], notifiers: Mapping[str, Notifier]) -> None:
    """Serve them; a scrape looks at each ledger as a browser does. `feeds` by the names of their ledgers: where there are
    several, every figure has a label `ledger`.
    """

    @app.get(PATH)
    async def metrics(accept: Annotated[str, Header()] = "") -> Response:
        desks = await asyncio.gather(*(feed.fresh() for feed in feeds.values()))
        found = {
            name: RecordCollector(desk, feed.source.now_us(), notifiers.get(name))
            for (name, feed), desk in zip(feeds.items(), desks, strict=True)
        }
        encode, kind = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(LedgersCollector(found) if len(found) > 1 else next(iter(found.values())))
        return Response(await asyncio.to_thread(encode, registry), headers={"content-type": kind})


class LedgersCollector(Collector):
    """One scrape of several ledgers, by name."""

    def __init__(self, parts: Mapping[str, Collector]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        families: dict[str, Metric] = {}
        for ledger, part in self._parts.items():
            for metric in part.collect():
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    family.add_sample(sample.name, {"ledger": ledger, **sample.labels}, sample.value)
        yield from families.values()


class RecordCollector(Collector):
    """One scrape. `now_us`: the clock of the console."""

    def __init__(self, desk: Desk, now_us: int, notifier: Notifier | None) -> None:
        self._desk, self._now_us, self._notifier = desk, now_us, notifier

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        shown = self._desk.shown
        readable = shown is not None and self._desk.failure is None
        yield _gauge("kvwitness_console_readable", "1 while the last reading of the ledger worked", int(readable))
        looked = self._desk.last_look
        if looked is not None:
            words = "How long ago a look at the ledger last came back that saw it"
            yield _gauge("kvwitness_console_look_age_seconds", words, looked.age_s)
        if shown is not None:
            yield from self._record(shown)
            yield from _incidents(shown.rollup)
            yield from _detectors(shown.rollup)
            yield from _held(shown.rollup)
        if self._notifier is not None:
            yield from _notifications(self._notifier, self._now_us)

    def _record(self, shown: Snapshot) -> Iterator[Metric]:
        known, ledger = shown.rollup, shown.ledger
        yield _gauge("kvwitness_record_writing", "1 while a writer of the ledger is alive", int(known.writing))
        if known.data_us is not None:
            age = (self._now_us - known.data_us) / 1e6
            yield _gauge("kvwitness_record_age_seconds", "Age of the newest row of the ledger", age)
        lost = sum(gap.before_seq is not None for gap in ledger.gaps)
        yield _gauge("kvwitness_record_gaps", "Stretches of rows that are lost", lost)
        problems = GaugeMetricFamily("kvwitness_record_problems", "What is wrong with files", labels=["severity"])
        broken = sum(problem.severity == "broken" for problem in ledger.problems)
        problems.add_metric(["broken"], broken)
        problems.add_metric(["other"], len(ledger.problems) - broken)
        yield problems
        if shown.reads.unattributed is not None:
            words = "Responses that may be missing from the record altogether, at most; absent: not known"
            yield _gauge("kvwitness_record_lost_responses", words, shown.reads.unattributed)
        yield _gauge("kvwitness_record_judging_responses", "Responses not judged yet", known.judging)
        responses = GaugeMetricFamily("kvwitness_record_responses", "Responses by verdict", labels=["verdict"])
        for verdict, count in known.counts.items():
            responses.add_metric([verdict.value], count)
        yield responses


def _incidents(known: Rollup) -> Iterator[Metric]:
    """By the record alone: writers that ended while an incident grew have not ended it."""
    found = Counter(
        (incident.cause, word_of(incident.severity), "growing" if growing == "yes" else "over")
        for incident, growing in zip(known.incidents, known.tables["incidents"]["growing"].to_pylist(), strict=True)
    )
    family = GaugeMetricFamily(
        "kvwitness_record_incidents", "Incidents; growing: the last 10 minutes of the record added to it",
        labels=["severity", "state"],
    )  # fmt: skip
    for severity in map(word_of, Severity):
        for state in ("growing", "over"):
            count = sum(n for (_, *those), n in found.items() if those == [severity, state])
            family.add_metric([severity, state], count)
    yield family
    causes = GaugeMetricFamily(
        "kvwitness_record_growing_incidents",
        "Incidents that grow, by cause; absent: none",
        labels=["cause", "severity"],
    )
    for (cause, severity, state), count in sorted(found.items()):
        if state == "growing":
            causes.add_metric([cause, severity], count)
    yield causes


def _detectors(known: Rollup) -> Iterator[Metric]:
    labels = ["detector"]
    hits = GaugeMetricFamily("kvwitness_record_detections", "What a detector saw in this record", labels=labels)
    looked = GaugeMetricFamily("kvwitness_record_comparisons", "What an engine compared; absent: off", labels=labels)
    skipped = GaugeMetricFamily("kvwitness_record_comparisons_skipped", "What an engine let pass", labels=labels)
    for detector in known.detectors:
        hits.add_metric([detector.code], detector.hits)
        if detector.looked is not None:
            looked.add_metric([detector.code], detector.looked)
            skipped.add_metric([detector.code], detector.skipped)
    yield from (hits, looked, skipped)


def _held(known: Rollup) -> Iterator[Metric]:
    labels = ["worker", "pool"]
    size = GaugeMetricFamily("kvwitness_record_pool_pages", "Pages of a pool", labels=labels)
    free = GaugeMetricFamily("kvwitness_record_free_pages", "Least free pages of the newest stretch", labels=labels)
    kept = GaugeMetricFamily(
        "kvwitness_record_kept_pages", "Pages kept from use, by reason: mean of the newest stretch",
        labels=[*labels, "reason"],
    )  # fmt: skip
    steady = GaugeMetricFamily(
        "kvwitness_record_held_steady_pages", "Where held pages settle at the low and the high rate of holds",
        labels=[*labels, "rate"],
    )  # fmt: skip
    full = GaugeMetricFamily(
        "kvwitness_record_full_seconds", "Seconds until held pages fill the pool; +Inf: not within the hour",
        labels=[*labels, "bound"],
    )  # fmt: skip
    for figure in known.held:
        if not figure.starts_us:
            continue
        pool = [figure.worker, figure.pool]
        if figure.limit is not None:
            size.add_metric(pool, figure.limit)
        free.add_metric(pool, figure.free[-1])
        for reason, pages in figure.stacked.items():
            kept.add_metric([*pool, reason], pages[-1])
        for rate, pages_at in zip(("low", "high"), figure.forecast.steady, strict=True):
            steady.add_metric([*pool, rate], pages_at)
        for bound, seconds in zip(_BOUNDS, figure.forecast.full_in_s, strict=True):
            full.add_metric([*pool, bound], math.inf if seconds is None else seconds)
    yield from (size, free, kept, steady, full)


def _notifications(notifier: Notifier, now_us: int) -> Iterator[Metric]:
    try:
        counts = {(count.receiver, count.state): count for count in notifier.counts()}
    except NotifyError:
        yield _gauge("kvwitness_console_outbox_usable", "1 while the outbox can be read", 0)
        return
    yield _gauge("kvwitness_console_outbox_usable", "1 while the outbox can be read", 1)
    yield _gauge("kvwitness_console_notify_faults", "Looks and tries that failed in this process", notifier.faults)
    messages = GaugeMetricFamily(
        "kvwitness_console_notifications", "Messages by what became of them", labels=["receiver", "state"]
    )
    oldest = GaugeMetricFamily(
        "kvwitness_console_notification_wait_seconds", "Age of the oldest message that waits", labels=["receiver"]
    )
    for name in notifier.names:
        for state in (_WAITING, *(ending.value for ending in Ending)):
            found = counts.get((name, state))
            messages.add_metric([name, state], found.messages if found else 0)
        waits = counts.get((name, _WAITING))
        oldest.add_metric([name], (now_us - waits.oldest_us) / 1e6 if waits else 0)
    yield from (messages, oldest)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)
