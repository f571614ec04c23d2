"""Messages in virtual time: each takes a while, and those of one pair arrive in the order in which they were sent.

Invariant: a message that was sent is delivered once, or never where its receiver is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.simulation.world import World
from engine.wire import Message


class Post:
    """The network of one world: who is reached at which address, and how long a message takes."""

    def __init__(self, world: World, latency_us: Callable[[], int]) -> None:
        self.world, self._latency_us = world, latency_us
        self._wires: dict[str, SimWire] = {}
        self._last: dict[tuple[str, str], int] = {}

    def join(self, wire: SimWire) -> None:
        """A wire can be reached from now on; it takes the place of a former one at its address."""
        self._wires[wire.address] = wire

    def leave(self, wire: SimWire) -> None:
        """A wire can be reached no more."""
        if self._wires.get(wire.address) is wire:
            del self._wires[wire.address]

    def carry(self, sender: str, address: str, message: Message) -> None:
        """Deliver after the latency, and not before what the same sender sent there earlier."""
        due = max(self.world.now + self._latency_us(), self._last.get((sender, address), 0))
        self._last[sender, address] = due

        def deliver() -> None:
            wire = self._wires.get(address)
            if wire is not None:
                wire.take(message)

        self.world.at(due, deliver)


class SimWire:
    """See `Wire`. `on_message` is called with each delivery."""

    def __init__(self, post: Post, address: str, now_us: Callable[[], int], on_message: Callable[[], None]) -> None:
        self._post, self._address, self._now_us, self._on_message = post, address, now_us, on_message
        self._heard: list[Message] = []
        post.join(self)

    @property
    def address(self) -> str:
        """See `Wire`."""
        return self._address

    def send(self, address: str, message: Message) -> None:
        """See `Wire`."""
        self._post.carry(self._address, address, message)

    def receive(self) -> list[Message]:
        """See `Wire`."""
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        """See `Wire`."""
        self._post.leave(self)

    def take(self, message: Message) -> None:
        """A message has come."""
        self._heard.append({**message, "heard": self._now_us()})
        self._on_message()
