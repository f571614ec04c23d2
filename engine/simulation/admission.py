"""How a simulated client's request comes to the door.

Invariant: the control plane never sees content: a prompt has a length, and its tokens are all 0.
"""

from __future__ import annotations

import numpy as np

from engine.request import GenerateRequest
from engine.simulation.fleet import Fleet
from engine.simulation.people import Person
from engine.simulation.prompts import SyntheticPrompt
from engine.simulation.traffic import Arrival
from engine.truth import stamp_of

WEIGHTS = "simulated"


class PromptTokens:
    """A synthetic prompt in the place of token ids: it has a length, and every token is 0."""

    def __init__(self, prompt: SyntheticPrompt) -> None:
        self.prompt, self._length = prompt, len(prompt)

    def __len__(self) -> int:
        return self._length

    def page_digests(self, page_tokens: int) -> np.ndarray:
        """See `engine.page_keys.Prompt`."""
        return self.prompt.page_digests(page_tokens)

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(self._length)
        return np.zeros(stop - start, np.int32)


def admit(fleet: Fleet, arrival: Arrival, prefill: str | None = None, decode: str | None = None) -> None:
    """A client's request comes to the door; perhaps its client goes away later."""
    kv_format = fleet.scenario.fleet[0].kv_format
    given = GenerateRequest(
        rid=arrival.rid, tenant=fleet.pseudonym(arrival.tenant), room=0, tokens=PromptTokens(arrival.prompt),  # type: ignore[arg-type]
        max_tokens=arrival.max_tokens, organisation=arrival.organisation, user=arrival.user,
        purpose=arrival.purpose, adapter=arrival.adapter, media=arrival.media,
        weights=WEIGHTS, kv_format=kv_format,
    )  # fmt: skip
    person = Person(arrival.rid, given.tenant, (arrival.adapter, arrival.media, WEIGHTS, kv_format), arrival.prompt)
    fleet.people.add(stamp_of(arrival.rid), person)
    fleet.gateway.ask(given, prefill, decode, scripted=arrival.stream == "script")
    if arrival.disconnect_after_us is not None:
        fleet.world.at(fleet.world.now + arrival.disconnect_after_us, lambda: fleet.gateway.hang_up(arrival.rid))
