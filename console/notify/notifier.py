"""The notifier: looks at incidents as they come, and sends what receivers have not been told.

Invariant: nothing here is waited for by anybody who reads or judges; a receiver that is slow or gone delays itself only.
A ledger of which no writer was ever seen alive is history, and nobody is called for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx

from console.core.desk import Desk
from console.core.incidents import Incident
from console.core.rollup import Rollup
from console.core.triage import Entry, State, TriageError, standing
from console.notify.errors import NotifyError
from console.notify.notice import notice_of
from console.notify.outbox import UNTOLD, Count, Ending, LastTold, Message, Outbox
from console.notify.receivers import Kind, Receiver, Receivers
from console.notify.told import TRANSITIONS, Cue, Told
from console.notify.wire import REPEAT_US, outgoing

LOOK_SECONDS = 1.0
TIMEOUT_S = 5.0
FIRST_RETRY_US, LONGEST_RETRY_US = 1_000_000, 300_000_000
CLAIM_US = 15_000_000
"""Longer than a try lasts: where the console ends in the middle of one, another makes it then."""
GIVE_UP_US = 3 * 86_400_000_000
"""Three days: a weekend without the receiver loses nothing."""
TAKEN_BACK = "the record, which is more complete now, no longer shows it"
_REFUSALS = frozenset({400, 413, 422})
"""Answers that say that the message itself will not do; the same message again would be refused again."""


class Notifier:
    """`entries`: what people said of incidents (silences hold messages back). `say`: words for stderr. `one_of`: the ledger's
    name where several are served. `faults` counts looks and tries that failed here, not at a receiver.
    """

    def __init__(
        self,
        receivers: Receivers,
        outbox: Outbox,
        *,
        now_us: Callable[[], int],
        entries: Callable[[], tuple[Entry, ...]],
        say: Callable[[str], None],
        transport: httpx.AsyncBaseTransport | None = None,
        one_of: str = "",
    ) -> None:
        self._receivers, self._outbox, self._now_us, self._entries = receivers, outbox, now_us, entries
        self._say, self._transport = say, transport
        self._was_live, self._one_of = False, one_of
        self.faults = 0
        self._said: set[str] = set()

    async def run(self, look: Callable[[], Awaitable[Desk]]) -> None:
        """Until cancelled. `look` gives the newest desk."""
        async with httpx.AsyncClient(timeout=TIMEOUT_S, transport=self._transport, follow_redirects=False) as client:
            await asyncio.gather(
                self._watch(look), *(self._deliver(client, receiver) for receiver in self._receivers.receivers)
            )

    async def _watch(self, look: Callable[[], Awaitable[Desk]]) -> None:
        async def once() -> None:
            desk = await look()
            # A picture of an earlier opening calls nobody.
            if desk.shown is not None:
                await asyncio.to_thread(self.take, desk.shown.rollup)

        while True:
            await self._guarded(once())
            await asyncio.sleep(LOOK_SECONDS)

    async def _deliver(self, client: httpx.AsyncClient, receiver: Receiver) -> None:
        while True:
            await self._guarded(self.send_due(client, receiver))
            await asyncio.sleep(LOOK_SECONDS)

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Whatever fails is said once and tried again: the console goes on without it."""
        try:
            await work
        except Exception as error:  # a fault in telling must not end the telling
            words = str(error) if isinstance(error, NotifyError) else f"{type(error).__name__}: {error}"
            self._fault(f"notifications wait: {words}")

    def _fault(self, words: str) -> None:
        self.faults += 1
        if words not in self._said:
            self._said.add(words)
            self._say(words)

    def take(self, known: Rollup) -> None:
        """Queue what the receivers have not been told yet of these incidents. Raises NotifyError."""
        self._was_live |= known.writing
        if not self._was_live:
            return
        entries, now = self._said_of(), self._now_us()
        heard = [i for i in known.incidents if standing(i, entries, now).state is not State.SILENCED]
        for receiver in self._receivers.receivers:
            told = self._outbox.told(receiver.name)
            for incident in heard:
                last = told.get(incident.id, UNTOLD)
                if incident.severity <= receiver.at_least or last is not UNTOLD:
                    self._tell(receiver, incident, last, known)
            if known.writing:
                there = {incident.id for incident in known.incidents}
                for last in (told[gone] for gone in told.keys() - there):
                    self._take_back(receiver, last)
            if receiver.kind is Kind.ALERTMANAGER:
                self._outbox.repeat(receiver.name, (i.id for i in heard), now, now - REPEAT_US)

    def _said_of(self) -> tuple[Entry, ...]:
        """What people said of incidents. Where that cannot be read nothing is silent."""
        try:
            return self._entries()
        except TriageError as error:
            self._fault(f"no silence holds: {error}")
            return ()

    def _tell(self, receiver: Receiver, incident: Incident, last: LastTold, known: Rollup) -> None:
        cue = cue_of(incident, last, known.writing)
        if cue is None:
            return
        told, action = TRANSITIONS[last.told, cue]
        if action is not None:
            ledger, of_several = self._one_of or known.name, bool(self._one_of)
            notice = notice_of(incident, action, last.severity, ledger, of_several=of_several)
            self._outbox.queue(receiver.name, last.number + 1, told, incident.severity, notice, self._now_us())

    def _take_back(self, receiver: Receiver, last: LastTold) -> None:
        """An incident that was told and is none any more, now that more rows have come."""
        told, action = TRANSITIONS[last.told, Cue.OVER]
        if action is not None and last.notice is not None and last.severity is not None:
            notice = replace(last.notice, action=action, verdict=TAKEN_BACK, growing=False)
            self._outbox.queue(receiver.name, last.number + 1, told, last.severity, notice, self._now_us())

    async def send_due(self, client: httpx.AsyncClient, receiver: Receiver) -> None:
        """Try every message to one receiver that is due. Raises NotifyError."""
        for message in await asyncio.to_thread(self._outbox.due, receiver.name, self._now_us()):
            now = self._now_us()
            if await asyncio.to_thread(self._outbox.claim, message, now, now + CLAIM_US):
                await self._send(client, receiver, message)

    async def _send(self, client: httpx.AsyncClient, receiver: Receiver, message: Message) -> None:
        request = outgoing(receiver, message.notice, message.key, self._receivers.console_url, self._now_us())
        try:
            answer = await client.post(request.url, content=request.content, headers=request.headers)
        except httpx.HTTPError as error:
            await self._failed(receiver, message, type(error).__name__, 0)
            return
        if answer.is_success:
            await asyncio.to_thread(self._outbox.end, message, Ending.SENT, self._now_us())
        elif answer.status_code in _REFUSALS:
            self._say(f"{receiver.name} refused {message.key}: HTTP {answer.status_code}; it is not sent again")
            problem = f"HTTP {answer.status_code}"
            await asyncio.to_thread(self._outbox.end, message, Ending.REFUSED, self._now_us(), problem)
        else:
            await self._failed(receiver, message, f"HTTP {answer.status_code}", _wait_us(answer))

    async def _failed(self, receiver: Receiver, message: Message, problem: str, wait_us: int) -> None:
        now = self._now_us()
        if now - message.queued_us > GIVE_UP_US:
            self._say(f"{receiver.name} did not take {message.key} for three days ({problem}); given up")
            await asyncio.to_thread(self._outbox.end, message, Ending.GIVEN_UP, now, problem)
            return
        if not message.attempts:
            self._say(f"{receiver.name} did not take {message.key} ({problem}); it is tried again")
        again = now + max(retry_us(message.attempts), wait_us)
        await asyncio.to_thread(self._outbox.fail, message, problem, again)

    def counts(self) -> tuple[Count, ...]:
        """Messages by receiver and state. Raises NotifyError."""
        return self._outbox.counts()

    @property
    def names(self) -> tuple[str, ...]:
        """The receivers."""
        return tuple(receiver.name for receiver in self._receivers.receivers)


def cue_of(incident: Incident, last: LastTold, writing: bool) -> Cue | None:
    """How the incident stands against what was told. None: without writers nothing is known of whether it goes on."""
    worse = last.severity is not None and incident.severity < last.severity
    if incident.growing:
        return Cue.GROWS_WORSE if worse else Cue.GROWS
    if not writing and last.told is Told.GROWS and not worse:
        return None
    return Cue.OVER_WORSE if worse else Cue.OVER


def retry_us(attempts: int) -> int:
    """How long after a try that came to nothing the next one is made: twice as long each time."""
    return int(min(FIRST_RETRY_US * 2 ** min(attempts, 20), LONGEST_RETRY_US))


def _wait_us(answer: httpx.Response) -> int:
    """What a Retry-After in seconds asks for, an hour at most."""
    asked = answer.headers.get("retry-after", "")
    return min(int(asked), 3600) * 1_000_000 if asked.isascii() and asked.isdigit() else 0
