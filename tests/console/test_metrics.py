"""What `/metrics` exposes: figures of a reading, nothing that names a customer, and what the docs say of it."""

import math
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from scripted_ledger import ACME, BRIO, CYAN

import console.core.source as source_module
from console.core.desk import Desk
from console.core.held_capacity import Forecast, HeldFigure, Rates
from console.core.looks import LastLook
from console.core.source import Failure, LedgerSource
from console.notify.notice import word_of
from console.notify.outbox import Count
from console.web.app import create_app
from console.web.gate import Gate, Role
from console.web.metrics import RecordCollector

TOKEN = "a-token-for-tests-only"
NOW = 1_790_000_100_000_000
ENGINE_METRICS = {
    "kvwitness_context_tokens", "kvwitness_page_tokens", "kvwitness_pool_tokens", "kvwitness_ledger_broken",
}  # fmt: skip


class Told:
    """A notifier with one receiver that has taken two messages and not the third."""

    names, faults = ("hook",), 0

    def counts(self):
        return (Count("hook", "waiting", 1, NOW - 90_000_000), Count("hook", "sent", 2, NOW))


def samples(desk: Desk, notifier=None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(RecordCollector(desk, NOW, notifier))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for m in registry.collect() for s in m.samples}


def test_the_figures_are_those_of_the_core(finished):
    found = samples(Desk().offer(finished))
    assert found["kvwitness_console_readable", ()] == 1
    assert found["kvwitness_record_writing", ()] == 0
    for verdict, count in finished.counts.items():
        assert found["kvwitness_record_responses", (("verdict", verdict.value),)] == count
    for detector in finished.rollup.detectors:
        assert found["kvwitness_record_detections", (("detector", detector.code),)] == detector.hits
    assert found["kvwitness_record_age_seconds", ()] == (NOW - finished.data_us) / 1e6


def test_writers_that_end_do_not_end_an_incident(finished):
    found = samples(Desk().offer(finished))
    assert not finished.writing
    assert not any(incident.growing for incident in finished.incidents)
    severities = {i.cause: word_of(i.severity) for i in finished.incidents}
    for cause in ("M1", "M3"):
        labels = (("cause", cause), ("severity", severities[cause]))
        assert found["kvwitness_record_growing_incidents", labels] == 1
    assert sum(v for (name, labels), v in found.items() if name == "kvwitness_record_incidents") == 2
    assert found["kvwitness_record_incidents", (("severity", "critical"), ("state", "over"))] == 0


def held_desk(finished) -> Desk:
    """A reading with one pool of 100 pages of which 40 are held, full in ten minutes at the earliest."""
    forecast = Forecast((), (), (), (30.0, 130.0), (600.0, None), 90)
    stacked = {"held": (10.0, 40.0), "quarantined": (0.0, 2.0), "in_transfer": (5.0, 6.0)}
    figure = HeldFigure("decode-0", "kv", (NOW - 1, NOW), 1, stacked, (80, 52), 100, Rates(1, 1, 1, 1), forecast, ())
    known = replace(finished)
    known.rollup.__dict__["held"] = (figure,)
    return Desk().offer(known)


def test_held_capacity_comes_with_its_forecast(finished):
    found = samples(held_desk(finished))
    pool = (("pool", "kv"), ("worker", "decode-0"))
    assert found["kvwitness_record_pool_pages", pool] == 100
    assert found["kvwitness_record_free_pages", pool] == 52
    assert found["kvwitness_record_kept_pages", (pool[0], ("reason", "held"), pool[1])] == 40
    assert found["kvwitness_record_held_steady_pages", (pool[0], ("rate", "high"), pool[1])] == 130
    assert found["kvwitness_record_full_seconds", (("bound", "soonest"), *pool)] == 600
    assert found["kvwitness_record_full_seconds", (("bound", "latest"), *pool)] == math.inf


def test_no_figure_of_what_was_not_read_now(finished):
    remembered = samples(Desk(remembered=finished.rollup))
    assert remembered == {("kvwitness_console_readable", ()): 0}
    failed = samples(Desk().offer(finished).offer(Failure("gone", "look", NOW)))
    assert failed["kvwitness_console_readable", ()] == 0
    assert failed["kvwitness_record_responses", (("verdict", "clean"),)] == finished.counts["clean"]


def test_what_waits_to_be_told_is_counted(finished):
    found = samples(Desk(), Told())
    assert found["kvwitness_console_notifications", (("receiver", "hook"), ("state", "waiting"))] == 1
    assert found["kvwitness_console_notifications", (("receiver", "hook"), ("state", "refused"))] == 0
    assert found["kvwitness_console_notification_wait_seconds", (("receiver", "hook"),)] == 90


def app_of(ledger, state):
    source = LedgerSource(ledger, now_us=lambda: NOW, engine="replay")
    return create_app(source, Gate({TOKEN: Role.VIEWER}), ("127.0.0.1",), state, patience_s=60)


async def test_scrapes_need_the_token_and_get_the_format_they_ask_for(finished_ledger, tmp_path):
    app = app_of(finished_ledger, tmp_path)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
        assert (await client.get("/metrics")).status_code == 401
        bearer = {"authorization": f"Bearer {TOKEN}"}
        plain = await client.get("/metrics", headers=bearer)
        assert plain.headers["content-type"].startswith("text/plain; version=")
        names = {family.name for family in text_string_to_metric_families(plain.text)}
        assert "kvwitness_record_detections" in names
        accepted = bearer | {"accept": "application/openmetrics-text; version=1.0.0"}
        opened = await client.get("/metrics", headers=accepted)
        assert {family.name for family in open_metrics(opened.text)} == names
        for private in (ACME, BRIO, CYAN, "resp-", "I-"):
            assert private not in plain.text


async def test_a_ledger_that_cannot_be_judged_is_not_readable(finished_ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "foreign_reads", lambda *_, **__: 1 / 0)
    app = app_of(finished_ledger, tmp_path)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1", headers=headers
    ) as client:
        text = (await client.get("/metrics")).text
    assert "kvwitness_console_readable 0.0" in text
    assert "kvwitness_record_" not in text


@pytest.fixture
def exposed(finished) -> set[str]:
    """Names of all metrics that there can be."""
    registry = CollectorRegistry()
    desk = replace(held_desk(finished), last_look=LastLook(0.0, False))
    registry.register(RecordCollector(desk, NOW, Told()))
    return {metric.name for metric in registry.collect()}


def test_the_docs_list_every_metric_and_no_other(exposed):
    text = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text()
    assert set(re.findall(r"^\| `(kvwitness_[a-z_]+)", text, re.M)) == exposed


def test_rules_use_only_metrics_that_are_exposed(exposed):
    rules = "".join(path.read_text() for path in (Path(__file__).parents[2] / "console" / "alerts").glob("*.yml"))
    used = set(re.findall(r"(?<![\w:])kvwitness_[a-z_]+", re.sub(r"#.*|name: .*", "", rules)))
    assert used <= exposed | ENGINE_METRICS
    engine = (Path(__file__).parents[2] / "engine" / "metrics.py").read_text()
    assert all(f'"{name}"' in engine for name in ENGINE_METRICS)
