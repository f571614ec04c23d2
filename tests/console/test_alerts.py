"""The rules that are shipped: what promtool says of them, where they lead, and a real Prometheus and Alertmanager."""

import os
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import httpx
import pytest
import yaml
from alerting_processes import ALERTS, alertmanager, prometheus, served, wait_for
from scripted_ledger import ACME, BRIO, CYAN, Scene, late_write, ordinary

from console.core.source import LedgerSource
from console.core.triage import TriageBook
from console.web.app import create_app
from console.web.gate import Gate, Role
from console.web.intake import PATH, Intake
from runbooks.lint import lint_files
from runbooks.lookup import library_files

TOKEN, INTAKE_TOKEN = "a-token-for-tests-only", "an-intake-token-for-tests"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tools():
    """Debian's Prometheus and Alertmanager; skipped where they are not, unless they must be there."""
    missing = [name for name in ("prometheus", "promtool", "prometheus-alertmanager") if shutil.which(name) is None]
    if missing:
        words = f"{', '.join(missing)} not installed: apt-get install prometheus prometheus-alertmanager"
        if os.environ.get("CI") or os.environ.get("KVWITNESS_REQUIRE_SYSTEM_PACKAGES"):
            pytest.fail(words)
        pytest.skip(words)


def alert_rules() -> list[dict]:
    groups = yaml.safe_load((ALERTS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_leads_to_its_runbook_and_back():
    runbooks, _ = lint_files(library_files(), date(2026, 12, 1))
    led_from = {alert: runbook for runbook in runbooks for alert in runbook.head.alerts}
    assert set(led_from) == {rule["alert"] for rule in alert_rules()}
    for rule in alert_rules():
        runbook = led_from[rule["alert"]]
        assert rule["labels"]["runbook_id"] == runbook.head.id
        assert (ROOT / rule["annotations"]["runbook_url"]).samefile(runbook.path)
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


def test_every_alert_and_recording_rule_has_a_unit_test():
    tested = (Path(__file__).parent / "alert_rules_test.yml").read_text()
    for rule in alert_rules():
        assert re.search(rf"alertname: {rule['alert']}\n +exp_alerts:", tested), rule["alert"]
    # A recording rule is tested by the alert, or the expression, that uses it.
    for group in yaml.safe_load((ALERTS / "recording.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["record"] in tested + (ALERTS / "alerts.yml").read_text()


def test_promtool_finds_nothing_wrong_and_the_rules_say_what_they_should(tools, tmp_path):
    files = sorted(str(path) for path in ALERTS.glob("*.yml"))
    checked = subprocess.run(["promtool", "check", "rules", *files], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    unit = tmp_path / "test.yml"
    unit.write_text((Path(__file__).parent / "alert_rules_test.yml").read_text().replace("RULES", str(ALERTS)))
    tested = subprocess.run(["promtool", "test", "rules", str(unit)], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_foreign_read_fires_an_alert_is_noted_and_resolves_when_it_is_over(tools, tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "resp-a1", ACME, 1, 6)
    scene.beat()
    scene.flush()
    source = LedgerSource(scene.directory, now_us=lambda: scene.now + 60_000_000, engine="replay")
    book = TriageBook(tmp_path / "state", scene.directory, who="alert intake", now_us=source.now_us)
    app = create_app(
        source, Gate({TOKEN: Role.VIEWER}), ("127.0.0.1",), tmp_path / "state", intake=Intake(book, INTAKE_TOKEN)
    )
    with (
        served(app) as console,
        alertmanager(tmp_path, f"http://{console}{PATH}", INTAKE_TOKEN) as manager,
        prometheus(tmp_path, console, TOKEN, manager) as server,
    ):

        def firing(name: str) -> list[dict]:
            try:
                answer = httpx.get(f"http://{server}/api/v1/alerts").raise_for_status()
            except httpx.HTTPError:
                return []
            alerts = answer.json()["data"]["alerts"]
            return [a for a in alerts if a["labels"]["alertname"] == name and a["state"] == "firing"]

        def value(query: str) -> str | None:
            try:
                answer = httpx.get(f"http://{server}/api/v1/query", params={"query": query}).raise_for_status()
            except httpx.HTTPError:
                return None
            result = answer.json()["data"]["result"]
            return result[0]["value"][1] if result else None

        wait_for("the first scrape", lambda: value("kvwitness_console_readable") == "1")
        assert value('kvwitness_record_responses{verdict="clean"}') == "1"
        assert firing("KvForeignReads") == []

        late_write(scene, "resp-a2", "resp-b2", (ACME, BRIO), 30)
        scene.beat()
        scene.flush()
        (alert,) = wait_for("the alert", lambda: firing("KvForeignReads"))
        assert (alert["labels"]["cause"], alert["labels"]["runbook_id"]) == ("M3", "RB-10")
        held = wait_for(
            "Alertmanager's alert",
            lambda: [
                a
                for a in httpx.get(f"http://{manager}/api/v2/alerts").json()
                if a["labels"]["alertname"] == "KvForeignReads"
            ],
        )
        assert held[0]["annotations"]["runbook_url"].startswith("runbooks/library/RB-10")
        (note,) = wait_for("the note", lambda: [e for e in book.entries() if "KvForeignReads firing" in e.words])
        assert note.who == "alert intake"

        scene.wait(11 * 60_000)
        ordinary(scene, "resp-c9", CYAN, 20, 6)
        scene.beat()
        scene.flush()
        wait_for("the end of the alert", lambda: not firing("KvForeignReads"))
        resolved = wait_for("its note", lambda: [e for e in book.entries() if "KvForeignReads resolved" in e.words])
        assert resolved[0].incident == note.incident
        assert value('sum(kvwitness_record_incidents{severity="critical", state="over"})') == "1"
    scene.close()
