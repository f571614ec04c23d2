"""The `traffic` section: streams of requests, and the requests themselves in the order of their times.

Invariant: a stream's requests depend on the scenario's seed, the stream's name and its own settings alone; two streams
share content only through `prefixes` of the same name. Memory is bounded by a block and the open conversations.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from engine.ledger.fingerprint import splitmix64
from engine.simulation.arrivals import BLOCK, Delays, Lengths, Process, Window, choose, draw, key_of, uniforms, words
from engine.simulation.prompts import SyntheticPrompt
from engine.simulation.scenario_source import (
    Micros,
    Misfit,
    Model,
    Name,
    NonEmpty,
    PositiveSize,
    Share,
    Weight,
    expected,
    misfits,
    repeated,
)

Scope = Literal["global", "organisation", "tenant", "user"]

NONE = "none"
MOST_TENANTS = 1_000_000
_AT = attrgetter("at_us")
SMALL_BLOCK = 512  # of conversations, whose later turns are drawn with them


def _weighted(weights: dict[str, float]) -> dict[str, float]:
    if not any(weights.values()):
        raise expected("at least one weight above 0")
    return weights


Weights = Annotated[dict[Name, Weight], AfterValidator(_weighted)]


class Tenant(Model):
    """One tenant: its share of the stream, whose it is (None: its own) and how many users it has."""

    name: Name
    weight: Weight = 1.0
    organisation: Name | None = None
    users: PositiveSize = 1


class Tenants(Model):
    """Either `named`, or `count` of them called `<prefix>-<n>`, the r-th with weight r ** -zipf, `per_organisation`
    of them in each organisation `<prefix>-org-<n>` and with `users` users each."""

    named: Annotated[tuple[Tenant, ...], NonEmpty] | None = None
    count: Annotated[PositiveSize, Field(le=MOST_TENANTS)] | None = None
    prefix: Name = "tenant"
    zipf: Weight = 0.0
    per_organisation: PositiveSize | None = None  # None: each tenant is its own organisation
    users: PositiveSize = 1

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A list of tenants, or of their names, is short for `named`."""
        if not isinstance(value, list | tuple):
            return value
        return {"named": [{"name": one} if isinstance(one, str) else one for one in value]}

    @model_validator(mode="after")
    def _either(self) -> Tenants:
        if (self.named is None) == (self.count is None):
            raise misfits([Misfit((), "neither or both", "either a list of tenants or a count")])
        if twice := repeated("named", self.named or ()):
            raise misfits(twice)
        if self.named:
            _weighted({one.name: one.weight for one in self.named})
        return self

    def listed(self) -> tuple[Tenant, ...]:
        """Every tenant with its organisation."""
        if self.named is not None:
            return tuple(one.model_copy(update={"organisation": one.organisation or one.name}) for one in self.named)
        group, users = self.per_organisation, self.users
        names = [f"{self.prefix}-{n}" for n in range(self.count or 0)]
        owners = [f"{self.prefix}-org-{n // group}" for n in range(len(names))] if group else names
        weights = (np.arange(1, len(names) + 1) ** -self.zipf).tolist()
        return tuple(
            Tenant.model_construct(name=name, weight=weight, organisation=owner, users=users)
            for name, weight, owner in zip(names, weights, owners, strict=True)
        )


class Prefix(Model):
    """Tokens at the head of prompts, the same for everybody of one `per`; `tokens` is drawn once for each of them,
    and a request has the prefix with probability `share`. Prefixes follow each other as listed."""

    name: Name
    per: Scope = "global"
    tokens: Lengths
    share: Share = 1.0


class Conversations(Model):
    """Each arrival opens a conversation. A later turn comes `think` after the earlier answer has been read, at
    `answer_pace` a token; its prompt is the earlier prompt, the answer, and `follow_up` (None: as `prompt`) more. It
    ends after `turns`, at a disconnect, and where prompt and answer would exceed `context_tokens`."""

    turns: Lengths
    think: Delays
    answer_pace: Micros = 20_000
    follow_up: Lengths | None = None
    context_tokens: PositiveSize | None = None


class Disconnects(Model):
    """Clients that go away `after` some time from their arrival, finished or not."""

    probability: Share
    after: Delays


class Stream(Model):
    """Requests of one kind. `prompt` counts the tokens after the prefixes. Names in `adapters` and `media` but `none`
    are what a request carries; `max_count` bounds the arrivals of the process."""

    name: Name
    rid_prefix: Name | None = None  # None: the name
    arrivals: Process
    window: Window = Window()
    max_count: PositiveSize | None = None
    prompt: Lengths
    output: Lengths
    tenants: Tenants
    prefixes: tuple[Prefix, ...] = ()
    conversations: Conversations | None = None
    purposes: Weights = Field(default_factory=lambda: {"customer": 1.0})
    adapters: Weights = Field(default_factory=lambda: {NONE: 1.0})
    media: Weights = Field(default_factory=lambda: {NONE: 1.0})
    disconnects: Disconnects | None = None

    @model_validator(mode="after")
    def _apart(self) -> Stream:
        if twice := repeated("prefixes", self.prefixes):
            raise misfits(twice)
        return self


class Arrival(NamedTuple):
    """One request as its client sends it. The answer's content is the segment (`answer_seed`, `max_tokens`), which
    the next turn of the conversation has in its prompt."""

    at_us: int  # UTC
    rid: str
    stream: str
    tenant: str
    organisation: str
    user: str
    prompt: SyntheticPrompt
    max_tokens: int  # the answer is as long
    purpose: str
    adapter: str | None
    media: str | None
    disconnect_after_us: int | None
    conversation: str | None
    turn: int
    answer_seed: int


def arrivals(traffic: Sequence[Stream], seed: int, start_us: int, end_us: int) -> Iterator[Arrival]:
    """Every request of all streams from `start_us` (the scenario's start, UTC) until before `end_us`, in order of
    time, those of the same time in the order of their streams."""
    return _merged([_stream(stream, seed, start_us, end_us) for stream in traffic])


def _merged(streams: Sequence[Iterator[list[Arrival]]]) -> Iterator[Arrival]:
    """Blocks of several streams as one sequence; where a block ends is not seen in it."""
    waiting = list(streams)
    heads: list[list[Arrival]] = [[] for _ in waiting]
    while True:
        for place in range(len(waiting) - 1, -1, -1):
            if not heads[place]:
                heads[place] = next(waiting[place], [])
                if not heads[place]:
                    del heads[place], waiting[place]
        if not heads:
            return
        # The stream whose block ends first may go on at that very time: the streams after it wait, those before do not.
        until, first = min((head[-1].at_us, place) for place, head in enumerate(heads))
        ready: list[Arrival] = []
        for place, head in enumerate(heads):
            cut = (bisect_right if place <= first else bisect_left)(head, until, key=_AT)
            ready += head[:cut]
            heads[place] = head[cut:]
        ready.sort(key=_AT)
        yield from ready


def _stream(stream: Stream, seed: int, start_us: int, end_us: int, block: int = 0) -> Iterator[list[Arrival]]:
    """The requests of one stream in the order of time, in lists that are not empty."""
    begin = start_us + stream.window.start
    end = end_us if stream.window.end is None else min(end_us, start_us + stream.window.end)
    sampler = _Sampler(stream, seed)
    if stream.conversations is None:
        for times, first in _openings(sampler, begin, end, block or BLOCK):
            yield sampler.openings(times, first)
    else:
        blocks = _openings(sampler, begin, end, block or SMALL_BLOCK)
        yield from _conversing(sampler, stream.conversations, blocks, end)


def _openings(sampler: _Sampler, begin: int, end: int, block: int) -> Iterator[tuple[np.ndarray, int]]:
    """Times (int64 [n], n > 0) and the number of the first of them in its stream."""
    first, most = 0, sampler.stream.max_count
    for drawn in sampler.stream.arrivals.times(sampler.key("times"), begin, end, block):
        times = drawn if most is None else drawn[: most - first]
        if len(times):
            yield times, first
        first += len(times)
        if first == most:
            return


class _Turn(NamedTuple):
    """What a later turn of a conversation was drawn to be."""

    think_us: int
    content_seed: int
    tokens: int
    max_tokens: int
    answer_seed: int
    disconnect_after_us: int | None


class _Sampler:
    """Draws the requests of one stream, a block at a time."""

    def __init__(self, stream: Stream, seed: int) -> None:
        self.stream = stream
        self._seed = seed
        self._keys: dict[str, int] = {}
        listed = stream.tenants.listed()
        self._tenants = [one.name for one in listed]
        self._organisations = [one.organisation or one.name for one in listed]
        self._users = np.array([one.users for one in listed])
        self._weights = np.array([one.weight for one in listed])
        self._scope_keys = [self._owner_keys(prefix) for prefix in stream.prefixes]

    def key(self, what: str) -> int:
        """The key of one kind of draw."""
        if what not in self._keys:
            self._keys[what] = key_of(self._seed, "stream", self.stream.name, what)
        return self._keys[what]

    def openings(self, times: np.ndarray, first: int) -> list[Arrival]:
        """The arrivals at `times` (int64 [n]), which are the stream's `first` and the following."""
        stream, size = self.stream, len(times)
        index = np.arange(first, first + size, dtype=np.uint64)
        tenant = choose(self._weights, self.key("tenant"), index)
        user = (uniforms(self.key("user"), index) * self._users[tenant]).astype(np.int64)
        number, tenants = tenant.tolist(), [self._tenants[one] for one in tenant.tolist()]
        prefix = stream.rid_prefix or stream.name
        names = [f"{prefix}-{one}" for one in range(first, first + size)]
        talking = stream.conversations is not None
        columns = (
            times.tolist(),
            [f"{name}.0" for name in names] if talking else names,
            [stream.name] * size,
            tenants,
            [self._organisations[one] for one in number],
            [f"{name}-u{one}" for name, one in zip(tenants, user.tolist(), strict=True)],
            self._prompts(index, tenant, user),
            self._tokens(stream.output, "output", index),
            self._named(stream.purposes, "purpose", index),
            self._named(stream.adapters, "adapter", index),
            self._named(stream.media, "media", index),
            self._disconnects("disconnect", index),
            names if talking else [None] * size,
            [0] * size,
            self._contents("answer", index),
        )
        return list(map(Arrival._make, zip(*columns, strict=True)))

    def later(self, conversations: Conversations, first: int, size: int) -> list[list[_Turn]]:
        """The later turns of `size` conversations from the stream's `first` on."""
        index = np.arange(first, first + size, dtype=np.uint64)
        counts = np.maximum(draw(conversations.turns, self.key("turns"), index), 1) - 1
        ends = np.cumsum(counts)
        number = np.arange(1, ends[-1] + 1) - np.repeat(ends - counts, counts)
        turn = words(self.key("turn"), np.repeat(index, counts)) + number.astype(np.uint64)
        follow_up = conversations.follow_up or self.stream.prompt
        columns = (
            draw(conversations.think, self.key("think"), turn).tolist(),
            self._contents("follow-up content", turn),
            self._tokens(follow_up, "follow-up", turn),
            self._tokens(self.stream.output, "turn output", turn),
            self._contents("turn answer", turn),
            self._disconnects("turn disconnect", turn),
        )
        turns = list(map(_Turn._make, zip(*columns, strict=True)))
        return [turns[end - count : end] for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]

    def _tokens(self, lengths: Lengths, what: str, index: np.ndarray) -> list[int]:
        drawn: list[int] = np.maximum(draw(lengths, self.key(what), index), 1).tolist()
        return drawn

    def _contents(self, what: str, index: np.ndarray) -> list[int]:
        seeds: list[int] = (words(self.key(what), index) >> np.uint64(1)).tolist()
        return seeds

    def _named(self, weights: dict[str, float], what: str, index: np.ndarray) -> list[str | None]:
        names = [None if name == NONE and what != "purpose" else name for name in weights]
        if len(names) == 1:
            return names * len(index)
        return [names[one] for one in choose(list(weights.values()), self.key(what), index).tolist()]

    def _disconnects(self, what: str, index: np.ndarray) -> list[int | None]:
        rule = self.stream.disconnects
        if rule is None:
            return [None] * len(index)
        leaves = (uniforms(self.key(what), index) < rule.probability).tolist()
        after = draw(rule.after, self.key(f"{what} after"), index).tolist()
        return [one if goes else None for goes, one in zip(leaves, after, strict=True)]

    def _owner_keys(self, prefix: Prefix) -> np.ndarray:
        """The content key of a prefix for each tenant, uint64; those `per` user are told apart by `_prompts`."""
        owners = self._organisations if prefix.per == "organisation" else self._tenants
        named = owners if prefix.per != "global" else [""] * len(owners)
        keys = {owner: key_of(self._seed, "prefix", prefix.name, prefix.per, owner) for owner in set(named)}
        return np.array([keys[owner] for owner in named], np.uint64)

    def _prompts(self, index: np.ndarray, tenant: np.ndarray, user: np.ndarray) -> list[SyntheticPrompt]:
        parts: list[list[tuple[int, int]]] = []
        for prefix, keys in zip(self.stream.prefixes, self._scope_keys, strict=True):
            content = keys[tenant]
            if prefix.per == "user":
                content = splitmix64(content + user.astype(np.uint64))
            tokens = draw(prefix.tokens, key_of(self._seed, "prefix", prefix.name, "tokens"), content)
            has = uniforms(self.key(f"prefix {prefix.name}"), index) < prefix.share
            seeds = (content >> np.uint64(1)).tolist()
            parts.append(list(zip(seeds, (tokens * has).tolist(), strict=True)))
        own = zip(self._contents("content", index), self._tokens(self.stream.prompt, "prompt", index), strict=True)
        return [SyntheticPrompt(segments) for segments in zip(*parts, own, strict=True)]


def _conversing(
    sampler: _Sampler, rules: Conversations, blocks: Iterator[tuple[np.ndarray, int]], end: int
) -> Iterator[list[Arrival]]:
    """First turns as they come, later ones between them as they are due."""
    due: list[tuple[Arrival, Iterator[_Turn]]] = []
    passed: list[Arrival] = []

    def send(arrival: Arrival, turns: Iterator[_Turn]) -> None:
        passed.append(arrival)
        later = _following(arrival, next(turns, None), rules)
        if later is not None and later.at_us < end:
            heapq.heappush(due, (later, turns))

    for times, first in blocks:
        plans = sampler.later(rules, first, len(times))
        for opening, plan in zip(sampler.openings(times, first), plans, strict=True):
            while due and due[0][0] < opening:
                send(*heapq.heappop(due))
            send(opening, iter(plan))
        yield passed
        passed = []
    while due:
        send(*heapq.heappop(due))
    if passed:
        yield passed


def _following(arrival: Arrival, turn: _Turn | None, rules: Conversations) -> Arrival | None:
    """The turn after `arrival`; None where the conversation ends."""
    if turn is None or arrival.disconnect_after_us is not None:
        return None
    prompt = arrival.prompt.extended((arrival.answer_seed, arrival.max_tokens), (turn.content_seed, turn.tokens))
    if rules.context_tokens is not None and len(prompt) + turn.max_tokens > rules.context_tokens:
        return None
    return arrival._replace(
        at_us=arrival.at_us + arrival.max_tokens * rules.answer_pace + turn.think_us,
        rid=f"{arrival.conversation}.{arrival.turn + 1}",
        prompt=prompt,
        max_tokens=turn.max_tokens,
        disconnect_after_us=turn.disconnect_after_us,
        turn=arrival.turn + 1,
        answer_seed=turn.answer_seed,
    )
