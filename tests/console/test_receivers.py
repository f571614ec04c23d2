"""Receivers: the file that names them, and what each kind of them is sent."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest
from scripted_ledger import ACME, BRIO

from console.core.marks import Severity
from console.core.source import LedgerSource
from console.notify.errors import NotifyError
from console.notify.notice import Notice, notice_of
from console.notify.receivers import PAGERDUTY, Kind, Receiver, load_receivers
from console.notify.told import Action
from console.notify.wire import HOLDS_US, REPEAT_US, outgoing
from console.web.errors import ServeError
from console.web.outside import load_notifier
from forensics.verdict import Verdict

NOW = 1_790_000_100_000_000
SECRET = "a-secret-for-tests-only"
HOOK = Receiver("hook", Kind.WEBHOOK, "http://hook.test/in", SECRET, Severity.P3)
MANAGER = Receiver("am", Kind.ALERTMANAGER, "http://am.test", "", Severity.P3)
DUTY = Receiver("duty", Kind.PAGERDUTY, PAGERDUTY, SECRET, Severity.P1)


@pytest.fixture
def incident(finished):
    """The M3 incident of the finished ledger, as if it grew."""
    return replace(next(i for i in finished.incidents if i.cause == "M3"), growing=True)


def test_no_tenant_request_or_path_leaves_the_machine(finished, incident):
    for receiver in (HOOK, MANAGER, DUTY):
        for action in Action:
            notice = notice_of(incident, action, Severity.P2, finished.name)
            assert Notice.from_json(notice.to_json()) == notice
            body = outgoing(receiver, notice, "k", "https://console.test", NOW).content.decode()
            for private in (ACME, BRIO, "resp-a2", "resp-b2", str(finished.ledger.path)):
                assert private not in body


def test_a_webhook_is_signed_over_id_time_and_body(finished, incident):
    notice = notice_of(incident, Action.OPEN, None, finished.name)
    sent = outgoing(HOOK, notice, "I-1.1", "https://console.test", NOW)
    signed = f"I-1.1.{NOW // 1_000_000}.".encode() + sent.content
    right = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert (sent.headers["webhook-id"], sent.headers["webhook-signature"]) == ("I-1.1", f"v1,{right}")
    body = json.loads(sent.content)
    assert body["type"] == "incident.open"
    assert body["data"]["incident"] == incident.id
    assert body["data"]["url"] == f"https://console.test/incidents/{incident.id}"
    assert body["data"]["summary"] == "critical: M3 late write, 1 response contaminated"
    assert incident.counts[Verdict.CONTAMINATED] == 1


def test_one_of_several_ledgers_is_named_to_every_receiver(finished, incident):
    """The same id in another ledger is another incident there, and its link leads to its ledger."""
    notice = notice_of(incident, Action.OPEN, None, "prod a", of_several=True)
    assert Notice.from_json(notice.to_json()) == notice
    hook, manager, duty = (outgoing(r, notice, "I-1.1", "https://console.test", NOW) for r in (HOOK, MANAGER, DUTY))
    link = f"https://console.test/incidents/{incident.id}?ledger=prod%20a"
    assert (hook.headers["webhook-id"], json.loads(hook.content)["data"]["url"]) == ("prod a:I-1.1", link)
    assert json.loads(hook.content)["data"]["ledger"] == "prod a"
    assert json.loads(manager.content)[0]["labels"]["ledger"] == "prod a"
    assert json.loads(manager.content)[0]["generatorURL"] == link
    assert json.loads(duty.content)["dedup_key"] == f"prod a:{incident.id}"


def test_alertmanager_gets_an_alert_that_ends_and_the_former_severity_ended(finished, incident):
    notice = notice_of(incident, Action.WORSE, Severity.P3, finished.name)
    new, old = json.loads(outgoing(MANAGER, notice, "k", "", NOW).content)
    assert new["labels"] == {
        "alertname": "KvIncident", "incident": incident.id, "cause": "M3", "severity": "critical", "ledger": finished.name,
    }  # fmt: skip
    assert (old["labels"]["severity"], old["endsAt"]) == ("medium", "2026-09-21T14:15:00.000Z")
    assert HOLDS_US > 2 * REPEAT_US
    assert new["endsAt"] == "2026-09-21T14:20:00.000Z"
    over = notice_of(incident, Action.OVER, incident.severity, finished.name)
    (ended,) = json.loads(outgoing(MANAGER, over, "k", "", NOW).content)
    assert ended["endsAt"] == "2026-09-21T14:15:00.000Z"
    assert ended["startsAt"] <= ended["endsAt"]
    with_token = replace(MANAGER, secret=SECRET)
    assert outgoing(with_token, over, "k", "", NOW).headers["authorization"] == f"Bearer {SECRET}"


def test_pagerduty_gets_the_incident_as_its_dedup_key(finished, incident):
    opened = json.loads(outgoing(DUTY, notice_of(incident, Action.OPEN, None, "l"), "k", "https://c.test", NOW).content)
    assert (opened["event_action"], opened["dedup_key"], opened["routing_key"]) == ("trigger", incident.id, SECRET)
    assert (opened["payload"]["severity"], opened["payload"]["source"]) == ("critical", "decode-0")
    assert len(opened["payload"]["summary"]) <= 1024
    over = json.loads(outgoing(DUTY, notice_of(incident, Action.OVER, None, "l"), "k", "", NOW).content)
    assert over == {"routing_key": SECRET, "dedup_key": incident.id, "event_action": "resolve"}


GOOD = """
console_url = "https://console.test/"
[[receiver]]
name = "hook"
kind = "webhook"
url = "https://hook.test/in"
secret_file = "SECRET"
at_least = "high"
[[receiver]]
name = "am"
kind = "alertmanager"
url = "http://127.0.0.1:9093/"
[[receiver]]
name = "duty"
kind = "pagerduty"
routing_key_file = "SECRET"
"""


@pytest.fixture
def written(tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")

    def write(text):
        path = tmp_path / "receivers.toml"
        path.write_text(text.replace("SECRET", str(tmp_path / "secret")))
        return path

    return write


def test_receivers_of_a_file(written):
    found = load_receivers(written(GOOD))
    hook, manager, duty = found.receivers
    assert found.console_url == "https://console.test"
    assert hook == Receiver("hook", Kind.WEBHOOK, "https://hook.test/in", SECRET, Severity.P2)
    assert (manager.url, manager.secret, manager.at_least) == ("http://127.0.0.1:9093", "", Severity.P3)
    assert duty.url == PAGERDUTY
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[[receiver]]", "[[receivers]]"), "does not know receivers"),
        (("webhook", "pigeon"), "kind is one of webhook, alertmanager"),
        (('at_least = "high"', 'at_least = "P2"'), "at_least is one of critical, high"),
        (("https://hook.test/in", "hook.test"), "url: write http"),
        (("https://hook.test/in", "https://user:pw@hook.test"), "without a user"),
        (('secret_file = "SECRET"', ""), "secret_file is missing"),
        (("SECRET", "/nonexistent"), "cannot be read"),
        (('name = "am"', 'name = "hook"'), "two receivers have one name"),
        (('name = "am"', 'name = ""'), "name it"),
        (('url = "https://hook.test/in"', 'uri = "x"'), "webhook takes no uri"),
        (("console_url = ", "console = "), "does not know console"),
        (("[[receiver]]", "receiver"), "cannot be read as TOML"),
        (('"https://console.test/"', "7"), "console_url: write http"),
    ],
)
def test_a_wrong_file_is_refused_in_words(written, change, words):
    with pytest.raises(NotifyError, match=words):
        load_receivers(written(GOOD.replace(*change)))


def test_a_short_secret_and_an_empty_file_are_refused(written, tmp_path):
    (tmp_path / "secret").write_text("short")
    with pytest.raises(NotifyError, match="16 characters"):
        load_receivers(written(GOOD))
    with pytest.raises(NotifyError, match="names no receiver"):
        load_receivers(written(""))
    with pytest.raises(NotifyError, match="cannot be read"):
        load_receivers(tmp_path / "none.toml")


def test_what_the_command_line_names_is_loaded_or_refused_in_words(written, tmp_path, finished_ledger):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW)
    notifier = load_notifier(source, tmp_path / "state", written(GOOD))
    assert notifier.names == ("hook", "am", "duty")
    assert notifier.counts() == ()
    for state, file in ((tmp_path / "state", tmp_path / "none.toml"), (finished_ledger / "state", written(GOOD))):
        with pytest.raises(ServeError, match=r"none\.toml: cannot be read|inside the ledger"):
            load_notifier(source, state, file)
