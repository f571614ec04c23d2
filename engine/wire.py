"""Messages between workers, and what each tells of its sender's place in the order and of its clock.

Invariant: every message names its sender's epoch, the last seq the sender had taken and the sender's time, and
echoes the last message it had from the receiver; that is what heartbeats and clock offsets are made of.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgpack
import zmq

Message = dict[str, Any]

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


class ZmqWire:
    """PUSH/PULL over loopback, one socket per peer, msgpack bodies, a shared hop key in every message."""

    def __init__(self, hop_key: str, address: str = "tcp://127.0.0.1:*") -> None:
        self._hop_key = hop_key
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.LINGER, 0)
        self._inbox.bind(address)
        self.address = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        self._peers: dict[str, zmq.Socket[bytes]] = {}

    def send(self, address: str, message: Message) -> None:
        """See `Wire`. A peer that is gone loses its messages; its grants stay open."""
        if address not in self._peers:
            socket = self._context.socket(zmq.PUSH)
            socket.setsockopt(zmq.LINGER, 200)
            socket.connect(address)
            self._peers[address] = socket
        try:
            self._peers[address].send(msgpack.packb({**message, "hop": self._hop_key}), zmq.NOBLOCK)
        except zmq.Again:
            return

    def receive(self) -> list[Message]:
        """See `Wire`. Messages without the hop key are dropped."""
        found: list[Message] = []
        while True:
            try:
                message = msgpack.unpackb(self._inbox.recv(zmq.NOBLOCK))
            except zmq.Again:
                return found
            if hmac.compare_digest(str(message.pop("hop", "")), self._hop_key):
                found.append(message)

    def close(self) -> None:
        """Close all sockets."""
        for socket in (self._inbox, *self._peers.values()):
            socket.close()


@dataclass(frozen=True)
class ClockReading:
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


@dataclass(frozen=True)
class Heartbeat:
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

    def hear(self, message: Message) -> Heartbeat:
        """Note who sent a message and return what it proves."""
        now = self._now_us()
        old = self.known.get(message["from"])
        view = PeerView(message["at"], message["epoch"], message["seq"], message["t"], now)
        if old is not None:
            view.beat_t, view.told_t = old.beat_t, old.told_t
            view.clock = old.clock.aged(now) if old.clock is not None and old.epoch == view.epoch else None
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
