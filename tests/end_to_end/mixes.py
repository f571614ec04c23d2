"""Seeded mixes of requests, aborts and faults against a live engine, and what each response said."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TENANTS = {"acme": "key-acme", "brio": "key-brio", "cyan": "key-cyan"}


def text_of(rid: str, length: int) -> str:
    """A text that no other request shares eight characters with: random words, said twice so that it continues."""
    source = random.Random(rid)
    words, size = [], 0
    body = max(length * 2 // 3, 40)
    while size < body:
        word = "".join(source.choices(LETTERS, k=source.randrange(4, 9)))
        words.append(word)
        size += len(word) + 1
    once = " ".join(words) + ". "
    return (once * 3)[:length]


@dataclass
class Said:
    """What a client saw of one request."""

    rid: str
    prompt: str
    status: int = 0
    code: str | None = None
    message: str = ""
    text: str = ""
    tokens: int = 0
    usage: dict | None = None
    aborted: bool = False


@dataclass
class LiveEngine:
    """A started engine as a client and an operator see it."""

    state: dict
    said: list[Said] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gateway = self.state["gateway"]
        self.hop = {"x-kvwitness-hop": Path(self.state["hop_key_file"]).read_text()}

    async def ask(self, client: httpx.AsyncClient, said: Said, tenant: str, max_tokens: int, stop_after: int | None = None,
                  progress: asyncio.Event | None = None, at: int = 1) -> Said:  # fmt: skip
        """Stream one completion; `stop_after` tokens the client hangs up; `progress` is set after `at` tokens."""
        self.said.append(said)
        body = {"model": "m", "prompt": said.prompt, "max_tokens": max_tokens, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        headers = {"authorization": f"Bearer {TENANTS[tenant]}", "x-request-id": said.rid}
        async with client.stream("POST", f"{self.gateway}/v1/completions", json=body, headers=headers) as answer:
            said.status = answer.status_code
            if said.status != 200:
                error = json.loads(await answer.aread())["error"]
                said.code, said.message = error["code"], error["message"]
                return said
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    said.code, said.message = event["error"]["code"], event["error"]["message"]
                elif event["choices"]:
                    said.text += event["choices"][0]["text"]
                    said.tokens += event["choices"][0]["finish_reason"] is None
                else:
                    said.usage = event["usage"]
                if progress is not None and said.tokens >= at:
                    progress.set()
                if stop_after is not None and said.tokens >= stop_after:
                    said.aborted = True
                    return said
        return said

    async def operate(self, client: httpx.AsyncClient, url: str, path: str, body: dict | None = None) -> dict:
        """One call to a worker's operator door."""
        if body is None:
            return (await client.get(url + path, headers=self.hop)).json()
        return (await client.post(url + path, json=body, headers=self.hop)).json()

    async def heard(self, client: httpx.AsyncClient, url: str, kind: str) -> int:
        """Messages of a kind that a worker has acted on."""
        found = re.search(
            rf'kvwitness_messages_total{{kind="{kind}"}} (\d+)', (await client.get(f"{url}/metrics")).text
        )
        return int(found[1]) if found else 0

    async def pause(self, client: httpx.AsyncClient, url: str, seen_by: str) -> None:
        """Stop a worker between two passes, and wait until a heartbeat row of the other worker can say so."""
        await self.operate(client, url, "/pause_generation", {})

        async def paused() -> bool:
            return (await self.operate(client, url, "/server_info"))["paused"]

        await self.until(paused, "the pause")
        beats = await self.heard(client, seen_by, "beat")

        async def told() -> bool:  # one beat may have been under way, and a beat right after a recorded one has no row
            return await self.heard(client, seen_by, "beat") >= beats + 3

        await self.until(told, "heartbeats of the paused worker")

    async def until(self, condition, what: str, seconds: float = 20) -> None:
        """Poll an async condition with a deadline."""
        deadline = time.monotonic() + seconds
        while not await condition():
            assert time.monotonic() < deadline, f"still waiting for {what}"
            await asyncio.sleep(0.005)


async def late_write(
    engine: LiveEngine, client: httpx.AsyncClient, seed: str, source: random.Random, racing: bool = False
) -> None:
    """M3: a handoff is aborted while its writes are gated; they land over the next owner in the middle of its answer:
    between two of its passes, or (`racing`) whenever they come, which may be while a pass writes its slots."""
    prefill, decode = engine.state["prefill"][0], engine.state["decode"][0]
    donor = Said(f"{seed}-late-donor", text_of(f"{seed}-late-donor", source.randrange(100, 230)))
    victim = Said(f"{seed}-late-victim", text_of(f"{seed}-late-victim", source.randrange(100, 230)))
    await engine.operate(client, prefill, "/faults/late-write", {"arm": 1})
    asking = asyncio.create_task(engine.ask(client, donor, "acme", 30))

    async def gated() -> bool:
        return donor.rid in (await engine.operate(client, prefill, "/faults"))["late-write"]["gated"] or asking.done()

    await engine.until(gated, "the gated handoff")
    await engine.operate(client, decode, "/abort_request", {"rid": donor.rid})
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)

    async def given_up() -> bool:
        gauges = (await client.get(f"{decode}/metrics")).text
        return "kvwitness_running_requests 0.0" in gauges or "kvwitness_held_pages 0.0" not in gauges

    await engine.until(given_up, "decode to give up the donor")
    progress = asyncio.Event()
    at = source.randrange(3, 30)
    at += -(len(victim.prompt) + at) % 16 + 1  # just behind the beginning of a page: the landing is not to hit one
    reading = asyncio.create_task(engine.ask(client, victim, "brio", 200, progress=progress, at=at))
    await asyncio.wait({asyncio.create_task(progress.wait()), reading}, return_when=asyncio.FIRST_COMPLETED)
    if not racing:
        await engine.pause(client, decode, seen_by=prefill)
    acks = await engine.heard(client, decode, "ack")
    await engine.operate(client, prefill, "/faults/late-write", {"release": True})
    if not racing:

        async def drained() -> bool:
            return await engine.heard(client, decode, "ack") > acks

        await engine.until(drained, "decode to hear that the writes are drained")
        await engine.operate(client, decode, "/continue_generation", {})
    await reading


async def racing_late_write(engine: LiveEngine, client: httpx.AsyncClient, seed: str, source: random.Random) -> None:
    """M3, the landing in a race with the victim's passes."""
    await late_write(engine, client, seed, source, racing=True)


async def short_handoff(engine: LiveEngine, client: httpx.AsyncClient, seed: str, source: random.Random) -> None:
    """M1: a prompt larger than the prefill pool."""
    said = Said(f"{seed}-over-pool", text_of(f"{seed}-over-pool", source.randrange(520, 700)))
    await engine.ask(client, said, "cyan", source.randrange(20, 80))


async def ordinary(engine: LiveEngine, client: httpx.AsyncClient, seed: str, source: random.Random) -> None:
    """A few requests at once; some clients hang up."""
    asking = []
    for i in range(source.randrange(2, 5)):
        said = Said(f"{seed}-plain-{i}", text_of(f"{seed}-plain-{i}", source.randrange(30, 300)))
        stop = source.randrange(1, 20) if source.random() < 0.3 else None
        asking.append(engine.ask(client, said, source.choice(list(TENANTS)), source.randrange(2, 60), stop))
    await asyncio.gather(*asking)


async def run_mix(engine: LiveEngine, seed: int, racing: bool = False) -> list[Said]:
    """One mix; which parts, in which order and how large is drawn from `seed`. `racing`: late writes alone, unpaused."""
    source = random.Random(seed)
    before = len(engine.said)
    parts = [ordinary, *source.choices([ordinary, short_handoff, late_write], k=source.randrange(2, 4))]
    if racing:
        parts = [racing_late_write]
    async with httpx.AsyncClient(timeout=30) as client:
        for i, part in enumerate(parts):
            await part(engine, client, f"s{seed}-{i}", source)

        async def idle() -> bool:
            pages = [(await client.get(engine.state[role][0] + "/metrics")).text for role in ("prefill", "decode")]
            return all("kvwitness_running_requests 0.0" in page for page in pages)

        await engine.until(idle, "the engine to be idle")
    return engine.said[before:]


def candidates_by_text(said: Said, everyone: list[Said], size: int = 8) -> list[set[str]]:
    """Whose words stand in an answer: for every run of `size` letters that is not the reader's own, everybody who had it
    in a prompt, or in an answer (what a contaminated answer repeats, its own pages hold too)."""
    own = said.prompt + said.prompt
    grams = {said.text[i : i + size] for i in range(len(said.text) - size + 1)}
    named = []
    for gram in sorted(gram for gram in grams if gram not in own):
        prompts = {other.rid for other in everyone if other is not said and gram in other.prompt}
        if prompts:
            answers = {other.rid for other in everyone if other is not said and gram in other.text}
            named.append(prompts | answers)
    return named
