"""Notifications: what is told when, and an outbox that loses nothing."""

import asyncio
import json
import sqlite3
from dataclasses import replace

import httpx
import pytest
from scripted_ledger import ACME, BRIO, CYAN, Scene, late_write, ordinary

from console.core.desk import Desk
from console.core.marks import Severity
from console.core.source import LedgerSource
from console.core.triage import TriageBook
from console.notify.errors import NotifyError
from console.notify.notifier import GIVE_UP_US, TAKEN_BACK, Notifier, cue_of, retry_us
from console.notify.outbox import UNTOLD, LastTold, Outbox, outbox_path
from console.notify.receivers import PAGERDUTY, Kind, Receiver, Receivers
from console.notify.told import TRANSITIONS, Action, Cue, Told
from console.notify.trial import try_receivers
from console.notify.wire import REPEAT_US

NOW = 1_790_000_100_000_000
SECRET = "a-secret-for-tests-only"
HOOK = Receiver("hook", Kind.WEBHOOK, "http://hook.test/in", SECRET, Severity.P3)
MANAGER = Receiver("am", Kind.ALERTMANAGER, "http://am.test", "", Severity.P3)
DUTY = Receiver("duty", Kind.PAGERDUTY, PAGERDUTY, SECRET, Severity.P1)


class World:
    """A notifier over scripted readings, with receivers that answer what the test says."""

    def __init__(self, directory, finished, receivers=(HOOK,)):
        self.now, self.words, self.sent = NOW, [], []
        self.answer = lambda request: httpx.Response(200)
        self.outbox = Outbox(directory / "outbox.sqlite")
        self.book = TriageBook(directory / "triage", finished.ledger.path, who="kl", now_us=lambda: self.now)
        self.rollup = replace(finished.rollup, head={**finished.rollup.head, "writing": True})
        self.receivers = Receivers("https://console.test", receivers)
        self.notifier = self.restarted()

    def restarted(self, one_of=""):
        return Notifier(
            self.receivers, self.outbox, now_us=lambda: self.now, entries=self.book.entries, say=self.words.append,
            transport=httpx.MockTransport(self._take), one_of=one_of,
        )  # fmt: skip

    def _take(self, request):
        self.sent.append(request)
        return self.answer(request)

    def see(self, *incidents, writing=True):
        """The notifier looks at exactly these incidents."""
        known = replace(self.rollup, head={**self.rollup.head, "writing": writing})
        known.__dict__["incidents"] = incidents
        self.notifier.take(known)

    async def send(self):
        """One round of sending; gives the bodies of what went out."""
        self.sent.clear()
        async with httpx.AsyncClient(transport=httpx.MockTransport(self._take)) as client:
            for receiver in self.receivers.receivers:
                await self.notifier.send_due(client, receiver)
        return [json.loads(request.content) for request in self.sent]

    def state(self):
        return {(c.receiver, c.state): c.messages for c in self.outbox.counts()}


@pytest.fixture
def world(tmp_path, finished):
    return World(tmp_path, finished)


@pytest.fixture
def incident(finished):
    """The M3 incident of the finished ledger, as if it grew."""
    return replace(next(i for i in finished.incidents if i.cause == "M3"), growing=True)


def test_the_table_is_whole_and_tells_no_end_before_a_beginning():
    assert set(TRANSITIONS) == {(told, cue) for told in Told for cue in Cue}
    for (told, _), (after, action) in TRANSITIONS.items():
        assert (action is Action.OVER) <= (told is Told.GROWS)
        assert (after is Told.ENDED) <= (told in (Told.GROWS, Told.ENDED))
        assert after is not Told.NOTHING


def test_an_incident_is_told_once_and_its_end_once(world, incident):
    for _ in range(3):
        world.see(incident)
    assert [m.notice.action for m in world.outbox.due("hook", NOW)] == [Action.OPEN]
    world.see(replace(incident, growing=False))
    world.see(replace(incident, growing=False))
    assert world.outbox.told("hook")[incident.id].told is Told.ENDED
    assert world.state() == {("hook", "waiting"): 2}


async def test_one_of_several_ledgers_tells_which_it_is(world, incident):
    world.notifier = world.restarted(one_of="prod-b")
    world.see(incident)
    (body,) = await world.send()
    told = body["data"]
    link = f"https://console.test/incidents/{incident.id}?ledger=prod-b"
    assert (told["incident"], told["ledger"], told["url"]) == (incident.id, "prod-b", link)


async def test_the_end_never_overtakes_the_beginning(world, incident):
    world.see(incident)
    world.see(replace(incident, growing=False))
    world.answer = lambda request: httpx.Response(503)
    assert [body["type"] for body in await world.send()] == ["incident.open"]
    world.answer = lambda request: httpx.Response(204)
    world.now += 20_000_000
    assert [body["type"] for body in await world.send()] == ["incident.open"]
    assert [body["type"] for body in await world.send()] == ["incident.over"]
    assert await world.send() == []


def test_graver_is_told_and_less_grave_is_not(world, incident):
    world.see(replace(incident, severity=Severity.P3))
    world.see(incident)
    world.see(replace(incident, severity=Severity.P2))
    told = world.outbox.told("hook")[incident.id]
    assert (told.number, told.notice.action, told.notice.before) == (2, Action.WORSE, "medium")


def test_an_end_of_the_record_is_no_end_of_the_incident(world, incident):
    world.see(incident)
    world.see(replace(incident, growing=False), writing=False)
    assert world.outbox.told("hook")[incident.id].told is Told.GROWS
    assert cue_of(replace(incident, growing=False), LastTold(1, Told.GROWS, incident.severity, None), False) is None


def test_history_calls_nobody_and_what_came_last_before_a_crash_does(world, incident):
    world.see(replace(incident, growing=False), writing=False)
    assert world.state() == {}
    world.see(writing=True)
    world.see(replace(incident, growing=False), writing=False)
    assert world.outbox.told("hook")[incident.id].told is Told.PAST


def test_an_incident_that_the_record_takes_back_is_taken_back(world, incident):
    world.see(incident)
    world.see(writing=False)
    assert world.outbox.told("hook")[incident.id].told is Told.GROWS
    world.see()
    told = world.outbox.told("hook")[incident.id]
    assert (told.told, told.notice.action, told.notice.verdict) == (Told.ENDED, Action.OVER, TAKEN_BACK)


def test_a_silenced_incident_is_not_told_until_the_silence_ends(world, incident):
    world.book.silence(incident, 60_000_000, "known")
    world.see(incident)
    assert world.state() == {}
    world.now += 61_000_000
    world.see(incident)
    assert world.state() == {("hook", "waiting"): 1}


def test_where_silences_cannot_be_read_nothing_is_silent(world, incident):
    world.book.silence(incident, 60_000_000, "known")
    world.book.path.unlink()
    world.book.path.mkdir()
    world.see(incident)
    world.see(incident)
    assert world.state() == {("hook", "waiting"): 1}
    assert len(world.words) == 1
    assert world.words[0].startswith("no silence holds: ")


def test_receivers_hear_what_is_grave_enough_for_them(tmp_path, finished, incident):
    world = World(tmp_path, finished, (HOOK, DUTY))
    world.see(replace(incident, severity=Severity.P2))
    assert set(world.outbox.told("hook")) == {incident.id}
    assert world.outbox.told("duty") == {}


async def test_a_message_outlives_the_console(world, incident):
    world.see(incident)
    world.notifier = world.restarted()
    world.outbox = Outbox(world.outbox.path)
    world.see(incident)
    assert len(await world.send()) == 1


async def test_tries_come_later_and_later_with_one_key_and_end_after_three_days(world, incident):
    world.answer = lambda request: httpx.Response(500)
    world.see(incident)
    keys, waits = set(), []
    while world.now < NOW + GIVE_UP_US + 400_000_000:
        before = world.now
        await world.send()
        keys |= {request.headers["webhook-id"] for request in world.sent}
        if not world.state().get(("hook", "waiting")):
            break
        with sqlite3.connect(world.outbox.path) as connection:
            (world.now,) = connection.execute("SELECT due_us FROM messages").fetchone()
        waits.append((world.now - before) // 1_000_000)
        if len(waits) == 10:
            world.now = NOW + GIVE_UP_US
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert keys == {f"{incident.id}.1"}
    assert world.state() == {("hook", "given_up"): 1}
    assert len(world.words) == 2
    assert retry_us(10_000) == 300_000_000


@pytest.mark.parametrize("status", [400, 422])
async def test_what_is_refused_is_said_and_not_sent_again(world, incident, status):
    world.answer = lambda request: httpx.Response(status, text=SECRET)
    world.see(incident)
    await world.send()
    assert world.state() == {("hook", "refused"): 1}
    assert world.words == [f"hook refused {incident.id}.1: HTTP {status}; it is not sent again"]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 429, 502])
async def test_everything_else_is_tried_again(world, incident, status):
    world.answer = lambda request: httpx.Response(status, headers={"retry-after": "100", "location": "http://x.test/"})
    world.see(incident)
    await world.send()
    assert world.state() == {("hook", "waiting"): 1}
    assert world.outbox.due("hook", world.now + 99_000_000) == ()
    assert len(world.outbox.due("hook", world.now + 100_000_000)) == 1
    assert {request.url.host for request in world.sent} == {"hook.test"}


async def test_two_consoles_over_one_ledger_tell_it_once(world, incident):
    world.see(incident)
    other = world.restarted()
    other._was_live = True
    world.notifier, first = other, world.notifier
    world.see(incident)
    assert world.state() == {("hook", "waiting"): 1}
    (message,) = world.outbox.due("hook", NOW)
    assert world.outbox.claim(message, NOW, NOW + 15_000_000)
    assert not world.outbox.claim(message, NOW, NOW + 15_000_000)
    world.notifier = first
    assert await world.send() == []


async def test_alertmanager_hears_again_of_what_goes_on_and_no_more_of_what_is_over(tmp_path, finished, incident):
    world = World(tmp_path, finished, (MANAGER,))
    world.see(incident)
    assert len(await world.send()) == 1
    world.now += REPEAT_US - 1
    world.see(incident)
    assert await world.send() == []
    world.now += 1
    world.see(incident)
    ((alert,),) = await world.send()
    assert alert["labels"]["incident"] == incident.id
    world.see(replace(incident, growing=False))
    await world.send()
    world.now += 10 * REPEAT_US
    world.see(replace(incident, growing=False))
    assert await world.send() == []


async def test_a_receiver_that_hangs_delays_no_other_and_no_look(tmp_path, finished, incident):
    world = World(tmp_path, finished, (HOOK, MANAGER))
    stuck = asyncio.Event()

    async def answer(request):
        if request.url.host == "hook.test":
            await stuck.wait()
        world.sent.append(request)
        return httpx.Response(200)

    looks = 0
    known = replace(world.rollup)
    known.__dict__["incidents"] = (incident,)

    async def look():
        nonlocal looks
        looks += 1
        shown = type("Shown", (), {"rollup": known})()
        return replace(Desk(), shown=shown)

    notifier = Notifier(
        world.receivers, world.outbox, now_us=lambda: NOW, entries=tuple, say=world.words.append,
        transport=httpx.MockTransport(answer),
    )  # fmt: skip
    running = asyncio.create_task(notifier.run(look))
    async with asyncio.timeout(30):
        while looks < 3 or not world.sent:
            await asyncio.sleep(0.02)
    assert {request.url.host for request in world.sent} == {"am.test"}
    running.cancel()


async def test_an_outbox_that_breaks_is_said_and_looked_at_again(world, incident):
    world.outbox.path.unlink()
    world.outbox.path.mkdir()
    with pytest.raises(NotifyError, match=r"outbox .* cannot be used"):
        world.see(incident)

    async def look():
        return replace(Desk(), shown=type("Shown", (), {"rollup": world.rollup})())

    running = asyncio.create_task(world.notifier.run(look))
    async with asyncio.timeout(30):
        while world.notifier.faults < 2:
            await asyncio.sleep(0.02)
    assert any(words.startswith("notifications wait: the outbox") for words in world.words)
    world.outbox.path.rmdir()
    Outbox(world.outbox.path)
    async with asyncio.timeout(30):
        while not world.state().get(("hook", "sent")):
            await asyncio.sleep(0.02)
    running.cancel()


def test_the_outbox_is_beside_no_evidence_and_its_owners_alone(tmp_path):
    ledger = tmp_path / "ledger"
    (ledger / "wal").mkdir(parents=True)
    with pytest.raises(NotifyError, match="inside the ledger"):
        outbox_path(ledger / "state", ledger)
    outbox = Outbox(outbox_path(tmp_path / "state", ledger))
    assert outbox.path.stat().st_mode & 0o777 == 0o600
    assert outbox_path(tmp_path / "state", tmp_path / "other" / "ledger") != outbox.path
    assert outbox.told("anyone") == {}
    assert UNTOLD.told is Told.NOTHING


def test_a_trial_tells_and_ends_and_says_who_did_not_take_it():
    seen = []

    def answer(request):
        seen.append((request.url.host, json.loads(request.content)))
        return httpx.Response(401 if request.url.host == "hook.test" else 202)

    tried = try_receivers(Receivers("", (HOOK, MANAGER, DUTY)), NOW, httpx.MockTransport(answer))
    assert [(each.name, each.took) for each in tried] == [("hook", False), ("am", True), ("duty", True)]
    assert tried[0].words == "did not take the message of open (HTTP 401)"
    assert [host for host, _ in seen] == [
        "hook.test",
        "am.test",
        "am.test",
        "events.pagerduty.com",
        "events.pagerduty.com",
    ]
    assert [body["event_action"] for host, body in seen[3:]] == ["trigger", "resolve"]
    assert seen[3][1]["dedup_key"] == seen[4][1]["dedup_key"] == f"I-test-{NOW}"


async def test_a_live_ledger_is_told_from_its_rows_to_its_receiver(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "resp-a1", ACME, 1, 6)
    scene.beat()
    scene.flush()
    source = LedgerSource(scene.directory, now_us=lambda: scene.now + 60_000_000, engine="replay")
    sent = []

    def take(request):
        body = json.loads(request.content)
        # A look between two rows of the record may find another response undecided for a moment.
        if body["data"]["cause"] == "M3":
            sent.append(body)
        return httpx.Response(200)

    notifier = Notifier(
        Receivers("", (HOOK,)), Outbox(tmp_path / "o.sqlite"), now_us=source.now_us, entries=tuple, say=print,
        transport=httpx.MockTransport(take),
    )  # fmt: skip

    async def look():
        return Desk().offer(await asyncio.to_thread(source.read))

    async def until(count):
        async with asyncio.timeout(60):
            while len(sent) < count:
                await asyncio.sleep(0.02)

    running = asyncio.create_task(notifier.run(look))
    late_write(scene, "resp-a2", "resp-b2", (ACME, BRIO), 30)
    scene.beat()
    scene.flush()
    await until(1)
    scene.wait(11 * 60_000)
    ordinary(scene, "resp-c9", CYAN, 20, 6)
    scene.beat()
    scene.flush()
    await until(2)
    running.cancel()
    scene.close()
    assert [(body["type"], body["data"]["severity"]) for body in sent] == [
        ("incident.open", "critical"),
        ("incident.over", "critical"),
    ]
