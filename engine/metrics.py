"""Prometheus metrics of one process, read from its live state at each scrape. No tenant or request labels."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.defences import DETECTORS, Checks
from engine.request import RequestStatus
from engine.role import Role


class RoleCollector(Collector):
    """Pool, limits, load and check failures of a worker."""

    def __init__(self, role: Role) -> None:
        self._role = role

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        parts, counts = self._role.parts, self._role.pool.counts()
        values = {
            "kvwitness_pool_pages": ("Pages that requests can have", self._role.pool.usable_pages),
            "kvwitness_pool_tokens": ("Tokens that the pool can hold", parts.limits.pool_tokens),
            "kvwitness_page_tokens": ("Tokens per page", self._role.pool.page_tokens),
            "kvwitness_context_tokens": ("Advertised context", parts.limits.context_tokens),
            "kvwitness_prompt_limit_tokens": (
                "Longest prompt that this role can take",
                parts.limits.prompt_limit_tokens,
            ),
            "kvwitness_running_requests": ("Requests that are not at an end", self._role.running()),
            "kvwitness_free_pages": ("Free pages", counts["free"]),
            "kvwitness_used_pages": ("Pages that requests use", counts["used"]),
            "kvwitness_cached_pages": ("Pages of the prefix cache that nobody reads", counts["cached"]),
            "kvwitness_shared_pages": ("Pages of the prefix cache that requests read", counts["shared"]),
            "kvwitness_held_pages": ("Pages held for a remote writer", counts["held"]),
            "kvwitness_quarantined_pages": ("Pages held past their deadline", counts["quarantined"]),
            "kvwitness_hold_deadline_seconds": (
                "Seconds until the first deadline of held pages; 0 where none are held",
                self._first_deadline(),
            ),
            "kvwitness_acks_outstanding": (
                "Handoffs that ended here and whose writer has not said that it has drained",
                self._in_state(RequestStatus.HELD),
            ),
            "kvwitness_retracted_requests": (
                "Requests whose pages wait in the host pool",
                self._in_state(RequestStatus.RETRACTED),
            ),
            "kvwitness_paused": ("1 while passes are paused by an operator", int(self._role.paused)),
            "kvwitness_ledger_broken": (
                "1 while the ledger cannot be written",
                int(parts.recorder.problem is not None),
            ),
        }
        for name, (words, value) in values.items():
            yield GaugeMetricFamily(name, words, value=value)
        heard = CounterMetricFamily("kvwitness_messages", "Messages of peers acted on, by kind", labels=["kind"])
        for kind, count in sorted(self._role.heard.copy().items()):
            heard.add_metric([kind], count)
        yield heard
        if parts.prefix is not None:
            for name, words, count in (
                ("kvwitness_prefix_hit_tokens", "Prompt tokens found in the prefix cache", parts.prefix.hit_tokens),
                ("kvwitness_prefix_asked_tokens", "Prompt tokens of all requests", parts.prefix.asked_tokens),
            ):
                yield CounterMetricFamily(name, words, value=count)
            tier = parts.prefix.tier
            if tier is not None:
                words = "Pages that the prefix cache has in the host pool"
                yield GaugeMetricFamily("kvwitness_host_cached_pages", words, value=tier.stored_pages)
        yield _failures(parts.checks)

    def _in_state(self, status: RequestStatus) -> int:
        return sum(request.status is status for request in list(self._role.requests.values()))

    def _first_deadline(self) -> float:
        now = self._role.parts.clock.now_us()
        deadlines = [
            request.hold_deadline_us
            for request in list(self._role.requests.values())
            if request.status is RequestStatus.HELD and request.hold_deadline_us is not None
        ]
        return max(min((each for each in deadlines if each > now), default=now) - now, 0) / 1e6


class GatewayCollector(Collector):
    """Answers of the gateway by HTTP status, and its limits."""

    def __init__(self, answers: dict[int, int], checks: Checks, context_tokens: int, prompt_limit_tokens: int) -> None:
        self._answers, self._checks, self._context_tokens, self._limit = (
            answers,
            checks,
            context_tokens,
            prompt_limit_tokens,
        )

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        yield GaugeMetricFamily("kvwitness_context_tokens", "Advertised context", value=self._context_tokens)
        yield GaugeMetricFamily("kvwitness_prompt_limit_tokens", "Longest prompt that is let in", value=self._limit)
        answers = CounterMetricFamily("kvwitness_answers", "Answers by HTTP status", labels=["status"])
        for status, count in sorted(self._answers.items()):
            answers.add_metric([str(status)], count)
        yield answers
        yield _failures(self._checks)


def _failures(checks: Checks) -> Metric:
    failures = CounterMetricFamily("kvwitness_check_failures", "Failed checks by detector", labels=["detector"])
    for detector in sorted(set(DETECTORS.values())):
        failures.add_metric([detector], checks.failures[detector])
    return failures


def render(collector: Collector) -> bytes:
    """The exposition text of one collector."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)
