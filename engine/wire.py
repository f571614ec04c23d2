"""Messages between workers, and what each tells of its sender's place in the order and of its clock.

Invariant: every message names its sender's epoch, the last seq the sender had taken and the sender's time, and
echoes the last message it had from the receiver; that is what heartbeats and clock offsets are made of.
"""

from __future__ import annotations

import heapq
import hmac
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgpack
import zmq

Message = dict[str, Any]

POLL_MS = 100
MAX_DRIFT_PPM = 200  # more than clocks of machines in use drift against each other


class Wire(Protocol):
    """Sends and receives messages; neither blocks."""

    @property
    def address(self) -> str:
        """Where peers reach this worker."""

    def send(self, address: str, message: Message) -> None:
        """Queue a message."""

    def receive(self) -> list[Message]:
        """What has arrived since the last call."""

    def close(self) -> None:
        """Neither send nor receive any more."""


class ZmqWire:
    """PUSH/PULL over loopback, one socket per peer, msgpack bodies, a shared hop key in every message.

    A thread of its own takes messages in, so that each carries the time at which it came (`heard`, us) and not that at
    which a forward pass had ended; `on_message` is called in it.
    """

    def __init__(
        self, hop_key: str, now_us: Callable[[], int], address: str = "tcp://127.0.0.1:*",
        on_message: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._hop_key, self._now_us, self._on_message = hop_key.encode(), now_us, on_message
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.LINGER, 0)
        self._inbox.bind(address)
        self.address = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._heard: deque[Message] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="wire", daemon=True)
        self._thread.start()

    def send(self, address: str, message: Message) -> None:
        """See `Wire`. A peer that is gone loses its messages; its grants stay open."""
        if address not in self._peers:
            socket = self._context.socket(zmq.PUSH)
            socket.setsockopt(zmq.LINGER, 200)
            socket.connect(address)
            self._peers[address] = socket
        try:
            self._peers[address].send_multipart([self._hop_key, msgpack.packb(message)], zmq.NOBLOCK)
        except zmq.Again:
            return

    def receive(self) -> list[Message]:
        """See `Wire`. Messages without the hop key were dropped."""
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def close(self) -> None:
        """End the thread and close all sockets."""
        self._closing.set()
        self._thread.join()
        for socket in (self._inbox, *self._peers.values()):
            socket.close()

    def _listen(self) -> None:
        while not self._closing.is_set():
            if not self._inbox.poll(POLL_MS):
                continue
            key, *rest = self._inbox.recv_multipart()
            now = self._now_us()
            # The key is looked at before anything of a stranger's message is unpacked.
            if len(rest) == 1 and hmac.compare_digest(key, self._hop_key):
                self._heard.append({**msgpack.unpackb(rest[0]), "heard": now})
                self._on_message()


class ClockReading(NamedTuple):
    """A peer's clock minus ours at `t` (ours), and the error of that: half the round trip, and what drifted since."""

    offset_us: int
    error_us: int
    t: int

    def aged(self, now: int) -> ClockReading:
        """What this reading is still worth at `now`."""
        drift = (max(now - self.t, 0) * MAX_DRIFT_PPM + 999_999) // 1_000_000
        return ClockReading(self.offset_us, self.error_us + drift, now)


@dataclass
class PeerView:
    """What was last heard from one peer."""

    address: str
    epoch: int
    seq: int
    sent_t: int
    heard_t: int
    beat_t: int = 0  # when a heartbeat row was last written
    told_t: int = 0  # when something was last sent to it
    clock: ClockReading | None = None  # the best that is known


class Heartbeat(NamedTuple):
    """What a message proves: the peer's place in the order, its clock minus ours, and the error of that."""

    peer: str
    epoch: int
    seq: int
    offset_us: int | None
    error_us: int | None


class Peers:
    """Stamps outgoing messages and reads the stamps of incoming ones."""

    def __init__(
        self, worker: str, epoch: int, address: str, seq: Callable[[], int], now_us: Callable[[], int]
    ) -> None:
        self._worker, self._epoch, self._address, self._seq, self._now_us = worker, epoch, address, seq, now_us
        self.known: dict[str, PeerView] = {}
        self._told: list[tuple[int, str]] = []  # heap of (when it was last told something, peer), late to hear of it

    def stamp(self, peer: str | None, message: Message) -> Message:
        """A message with this worker's stamps, echoing what was last heard from `peer`."""
        now = self._now_us()
        view = self.known.get(peer) if peer else None
        if view is not None:
            view.told_t = now
        echo = [view.sent_t, now - view.heard_t] if view is not None else None
        return {
            **message, "from": self._worker, "epoch": self._epoch, "at": self._address, "seq": self._seq(), "t": now,
            "echo": echo,
        }  # fmt: skip

    def told_us(self) -> int | None:
        """When something was last sent to the peer that has waited longest; None where there is no peer."""
        while self._told:
            told, peer = self._told[0]
            since = self.known[peer].told_t
            if since == told:
                return told
            heapq.heapreplace(self._told, (since, peer))
        return None

    def hear(self, message: Message) -> Heartbeat:
        """Note who sent a message and return what it proves."""
        now = message.get("heard") or self._now_us()
        old = self.known.get(message["from"])
        view = PeerView(message["at"], message["epoch"], message["seq"], message["t"], now)
        if old is not None:
            view.beat_t, view.told_t = old.beat_t, old.told_t
            view.clock = old.clock.aged(now) if old.clock is not None and old.epoch == view.epoch else None
        else:
            heapq.heappush(self._told, (view.told_t, message["from"]))
        self.known[message["from"]] = view
        if message["echo"] is not None:
            sent, kept = message["echo"]
            round_trip = max(now - sent - kept, 0)
            # Long round trips say little: a message waited for a pass to end. The quickest one known counts.
            fresh = ClockReading(message["t"] - (now - round_trip // 2), round_trip // 2 + 1, now)
            if view.clock is None or fresh.error_us <= view.clock.error_us:
                view.clock = fresh
        clock = view.clock
        return Heartbeat(
            message["from"], message["epoch"], message["seq"],
            clock.offset_us if clock is not None else None, clock.error_us if clock is not None else None,
        )  # fmt: skip
