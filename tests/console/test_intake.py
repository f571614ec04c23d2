"""Alerts that come in: who may send them, what is written down, what is refused."""

import json

import httpx
import pytest

from console.core.source import LedgerSource
from console.core.triage import TriageBook
from console.web.app import create_app
from console.web.errors import ServeError
from console.web.gate import Gate, Role
from console.web.intake import MOST_ALERTS, MOST_BYTES, MOST_WORDS, PATH, Intake
from console.web.outside import load_intake

TOKEN, INTAKE_TOKEN = "a-token-for-tests-only", "an-intake-token-for-tests"
GATE = Gate({TOKEN: Role.FORENSIC}, can_write=True)
NOW = 1_790_000_100_000_000
BEARER = {"authorization": f"Bearer {INTAKE_TOKEN}"}


@pytest.fixture
def book(tmp_path, finished_ledger) -> TriageBook:
    return TriageBook(tmp_path / "state", finished_ledger, who="alert intake", now_us=lambda: NOW)


@pytest.fixture
async def client(finished_ledger, book):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    app = create_app(source, GATE, ("127.0.0.1",), book.path.parent, patience_s=60, intake=Intake(book, INTAKE_TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as one:
        yield one


def group(*alerts, **more):
    return {
        "version": "4",
        "status": "firing",
        "receiver": "console",
        "truncatedAlerts": 0,
        "alerts": list(alerts),
    } | more


def alert(status="firing", summary="Responses read pages that were not theirs", **labels):
    return {
        "status": status, "labels": {"alertname": "KvForeignReads", **labels}, "annotations": {"summary": summary},
        "startsAt": "2026-09-21T14:13:25.123456789Z", "endsAt": "2026-09-21T14:20:00Z", "fingerprint": "f00d", "valueString": "x",
    }  # fmt: skip


async def test_an_alert_is_noted_once_on_the_incident_of_its_cause(client, book, finished):
    late = next(i for i in finished.incidents if i.cause == "M3")
    for expected in ({"notes": 1, "known": 0}, {"notes": 0, "known": 1}):
        answer = await client.post(PATH, json=group(alert(cause="M3")), headers=BEARER)
        assert answer.status_code == 200
        assert answer.json() == {**expected, "unmatched": 0, "truncated": 0}
    (note,) = book.entries()
    assert (note.incident, note.who) == (late.id, "alert intake")
    assert note.words == (
        "alert KvForeignReads firing since 2026-09-21T14:13:25+00:00: Responses read pages that were not theirs"
    )
    await client.post(PATH, json=group(alert("resolved", cause="M3")), headers=BEARER)
    assert "resolved since 2026-09-21T14:20:00+00:00" in book.entries()[-1].words


async def test_what_an_alert_is_about(client, book, finished):
    short = next(i for i in finished.incidents if i.cause == "M1")
    labels = [
        {"incident": short.id},
        {"detector": short.detectors[0], "alertname": "Other"},
        {"cause": "M9"},
        {},
        {"incident": "I-0"},
    ]
    answer = await client.post(PATH, json=group(*(alert(**each) for each in labels), truncatedAlerts=7), headers=BEARER)
    assert answer.json()["unmatched"] == 3
    assert answer.json()["truncated"] == 7
    assert book.entries()[0].incident == short.id
    assert short.detectors[0] in next(i for i in finished.incidents if i.id == book.entries()[1].incident).detectors


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": f"Bearer {TOKEN}"}, {"authorization": f"Basic {INTAKE_TOKEN}"}]
)
async def test_only_the_intake_token_lets_alerts_in(client, book, headers):
    answer = await client.post(PATH, json=group(alert(cause="M3")), headers=headers)
    assert answer.status_code == 401
    name, _, rest = GATE.set_cookie(TOKEN).partition("=")
    client.cookies.set(name, rest.split(";")[0])
    assert (await client.post(PATH, json=group(alert(cause="M3")), headers=headers)).status_code == 401
    assert book.entries() == ()


async def test_the_intake_token_opens_nothing_else(client):
    for path in ("/incidents", "/metrics", "/api/pages"):
        assert (await client.get(path, headers=BEARER)).status_code == 401
    assert (await client.get(PATH, headers=BEARER)).status_code == 405


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", json.dumps(group({"status": "odd"})).encode(), json.dumps(group(alert(x=1))).encode(),
        json.dumps(group(*[alert(cause="M3")] * (MOST_ALERTS + 1))).encode(),
    ],
)  # fmt: skip
async def test_what_is_no_webhook_is_refused_in_words(client, book, body):
    answer = await client.post(PATH, content=body, headers=BEARER)
    assert answer.status_code == 400
    assert "this is no Alertmanager webhook" in answer.json()["error"]["message"]
    assert book.entries() == ()


async def test_too_much_is_refused(client):
    assert (await client.post(PATH, content=b" " * (MOST_BYTES + 1), headers=BEARER)).status_code == 413


async def test_words_from_elsewhere_are_kept_short_and_printable(client, book):
    evil = "\x1b[2J<script>\u202e" + "x" * 5000
    await client.post(PATH, json=group(alert(summary=evil, cause="M3")), headers=BEARER)
    (note,) = book.entries()
    assert len(note.words) == MOST_WORDS
    assert note.words.isprintable()


async def test_without_a_token_of_its_own_there_is_no_intake(finished_ledger, tmp_path):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    app = create_app(source, GATE, ("127.0.0.1",), tmp_path, patience_s=60)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as one:
        assert (await one.post(PATH, json=group(alert(cause="M3")), headers=BEARER)).status_code in (404, 405)


async def test_a_book_that_cannot_be_written_is_a_503(client, book):
    book.path.parent.mkdir(parents=True)
    book.path.mkdir()
    answer = await client.post(PATH, json=group(alert(cause="M3")), headers=BEARER)
    assert answer.status_code == 503


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TOKEN, "a token of the console"), ("short", "too short"), (f"{INTAKE_TOKEN}\n{INTAKE_TOKEN}2", "holds 2 tokens"),
        ("", "holds no token"),
    ],
)  # fmt: skip
def test_a_token_that_will_not_do_is_refused_in_words(finished_ledger, tmp_path, content, words):
    file = tmp_path / "token"
    file.write_text(content)
    source = LedgerSource(finished_ledger, now_us=lambda: NOW)
    with pytest.raises(ServeError, match=words):
        load_intake(source, tmp_path / "state", file, {TOKEN: Role.VIEWER})
    with pytest.raises(ServeError, match="inside the ledger"):
        file.write_text(INTAKE_TOKEN)
        load_intake(source, finished_ledger / "state", file, {TOKEN: Role.VIEWER})
