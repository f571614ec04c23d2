"""Prometheus metrics of one process, read from its live state at each scrape. No tenant or request labels."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.defences import DETECTORS, Checks
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
            "kvwitness_held_pages": ("Pages held for a remote writer", counts["held"]),
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
        yield _failures(parts.checks)


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
