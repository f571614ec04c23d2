"""What a seed of the campaign plays: faults, defences, load, clocks, and what of the record is lost.

Invariant: a seed gives the same scenario for ever, on any machine; every draw is small enough to play and judge in
about a second, and made so that pages are reused while others still read or write them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.defences import DETECTORS
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import Scenario, parse_scenario

FAULTS = (
    "short-handoff", "fail-open", "late-write", "early-ack", "lost-ack", "source-reuse", "early-post", "early-free",
    "double-free", "leak", "slow-drain", "room-collision", "shifted-pages",
)  # fmt: skip
"""Those that work with the kv component alone."""
OF_ABORTS = frozenset({"late-write", "early-ack", "lost-ack", "slow-drain"})
SECONDS = 4
REST = 12
"""Seconds in which the owners of an idle worker's pages are audited."""
PAGE_TOKENS = 16


@dataclass(frozen=True)
class Drawn:
    """One run. `defended`: every defence enforced; `losses`: kinds of what of the record is lost."""

    seed: int
    text: str
    faults: tuple[str, ...]
    defences: str
    clocks: str
    step_run_us: int
    losses: tuple[str, ...]

    @cached_property
    def scenario(self) -> Scenario:
        """As `engine simulate` would read it."""
        return parse_scenario(self.text, f"seed-{self.seed}", KNOWN)

    @property
    def defended(self) -> bool:
        """Whether every defence is enforced."""
        return self.defences == "all=enforce"

    @property
    def decidable(self) -> bool:
        """Whether the record is whole and fine, and its clocks can be used."""
        return not self.losses and self.step_run_us == 0 and self.clocks != "unmeasured"

    def __str__(self) -> str:
        parts = (
            "+".join(self.faults) or "no fault", self.defences, f"clocks {self.clocks}", f"steps {self.step_run_us} us",
            "+".join(self.losses) or "whole",
        )  # fmt: skip
        return ", ".join(parts)


def draw(seed: int, faults: tuple[str, ...] | None = None, mode: str = "off", defence: str | None = None) -> Drawn:
    """The run of a seed. With `faults` it is those alone, every defence (or `defence`, the others off) in `mode`, true
    clocks, a whole and fine record, and time enough to come to rest."""
    source = random.Random(f"campaign/{seed}")
    given, fixed = faults, faults is not None
    faults = given if given is not None else _faults(source)
    defences, modes = _fixed_defences(mode, defence) if fixed else _defences(source)
    clocks, clock = ("true", {}) if fixed else _clock(source)
    step_run = 0 if fixed else source.choice([0, 0, 0, 1_000_000])
    fleet = _fleet(source)
    if not fixed and random.Random(f"crowd/{seed}").random() < 0.2:
        fleet[1]["max_batch"] = 3  # more run than a pass takes
    losses = [] if fixed else _losses(source, fleet)
    plan = {
        "name": f"seed-{seed}", "seed": seed, "duration": f"{SECONDS + REST * fixed}s", "clock": clock,
        "recording": {"step_run": f"{step_run}us", "heartbeat": source.choice(["50ms", "250ms", "1s"])},
        "fleet": fleet, "defences": {"modes": modes, **_release(source, faults)}, "costs": _costs(source, faults),
        "traffic": [_stream(source, faults, fleet)], "faults": [_fault(source, name) for name in faults], "losses": losses,
    }  # fmt: skip
    if not fixed and seed % 4 == 3:
        _cached(random.Random(f"cache/{seed}"), fleet, plan["traffic"][0])
    kinds = tuple(loss["kind"] for loss in losses)
    return Drawn(seed, json.dumps(plan, indent=1), faults, defences, clocks, step_run, kinds)


def _faults(source: random.Random) -> tuple[str, ...]:
    count = source.choices([0, 1, 2], [1, 12, 7])[0]
    return tuple(sorted(source.sample(FAULTS, count)))


def _fault(source: random.Random, name: str) -> dict[str, Any]:
    """A fault, as likely to strike as it takes to do harm in a run of this size."""
    fault: dict[str, Any] = {"name": name, "probability": source.choice([0.15, 0.5, 1.0])}
    if name == "room-collision":
        fault["probability"] = source.choice([0.2, 0.5])
    elif name in OF_ABORTS:
        delays = {"lost-ack": [80, 150, 250], "slow-drain": [20, 120, 500]}.get(name, [20, 60, 120])
        fault |= {"probability": source.choice([0.6, 1.0]), "parameters": {"delay": f"{source.choice(delays)}ms"}}
    elif name in ("early-free", "double-free"):
        fault["parameters"] = {"pages": source.choice([1, 1, 2, 4]) if name == "double-free" else 1}
    return fault


def _defences(source: random.Random) -> tuple[str, dict[str, str]]:
    """A name for the setting, and the modes: mostly all off, else one alone, all in log, or all enforced."""
    kind = source.choices(["off", "one", "log", "enforce"], [11, 4, 2, 3])[0]
    if kind == "one":
        name, mode = source.choice(list(DETECTORS)), source.choice(["log", "enforce"])
        return f"{name}={mode}", {**dict.fromkeys(DETECTORS, "off"), name: mode}
    return f"all={kind}", dict.fromkeys(DETECTORS, kind)


def _fixed_defences(mode: str, defence: str | None) -> tuple[str, dict[str, str]]:
    if defence is None:
        return f"all={mode}", dict.fromkeys(DETECTORS, mode)
    return f"{defence}={mode}", {**dict.fromkeys(DETECTORS, "off"), defence: mode}


def _release(source: random.Random, faults: tuple[str, ...]) -> dict[str, Any]:
    """How long pages are held; where acks are lost, mostly less long than the writes take."""
    timeout = source.choice([5, 20, 60] if "lost-ack" in faults else [50, 500, 30_000])
    return {
        "on_timeout": "release" if "lost-ack" in faults else source.choice(["release", "quarantine"]),
        "hold_timeout": f"{timeout}ms", "scrub": source.random() < 0.1,
    }  # fmt: skip


def _clock(source: random.Random) -> tuple[str, dict[str, Any]]:
    kind = source.choices(["true", "skewed", "unmeasured"], [4, 5, 1])[0]
    if kind == "true":
        return kind, {}
    offset = source.choice([2, 300, 4_000])
    return kind, {
        "offset": [f"-{offset}ms", f"{offset}ms"], "drift_ppm": [-80, 80], "measured": kind != "unmeasured",
    }  # fmt: skip


def _fleet(source: random.Random) -> list[dict[str, Any]]:
    """Pools that hold a few requests at a time, so that pages change hands quickly."""
    prefill, decode = source.choice([10, 16, 32]), source.choice([20, 30, 48])
    chunk = source.choice([64, 256, 8192])
    return [
        {
            "group": "prefill", "role": "prefill", "count": source.choice([1, 1, 2]), "pages": {"kv": prefill},
            "page_tokens": PAGE_TOKENS, "context_tokens": 1024, "chunk_tokens": chunk, "batch_tokens": max(chunk, 512),
            "transfer_pages": source.choice([1, 2, 4, 64]),
        },
        {
            "group": "decode", "role": "decode", "count": source.choice([1, 1, 2]), "pages": {"kv": decode},
            "page_tokens": PAGE_TOKENS, "context_tokens": 1024, "max_batch": source.choice([16, 64]),
        },
    ]  # fmt: skip


def _cached(source: random.Random, fleet: list[dict[str, Any]], stream: dict[str, Any]) -> None:
    """Prompts that begin alike, and prefix caches on prefill, on decode or on both; under prefill's, mostly a host tier."""
    prefill, decode = fleet
    where = source.choice([[prefill], [decode], [prefill, decode]])
    for group in where:
        group["prefix_cache"] = {"enabled": True}
    if prefill in where and source.random() < 0.6:
        prefill["host_pages"] = source.choice([4, 12, 40])
    tokens = source.choice([16, 24, 40])
    for prompt in stream["prompt"]:
        prompt["max"] = max(prompt["max"] - tokens, prompt["min"])
    shared = {"per": source.choice(["tenant", "tenant", "global"]), "share": 0.8}
    stream["prefixes"] = [{"name": "house", "tokens": {"kind": "fixed", "value": tokens}, **shared}]


def _costs(source: random.Random, faults: tuple[str, ...]) -> dict[str, Any]:
    """A page of 1 MiB takes from 26 us to 10 ms; where aborts are to hit writes under way, 5 ms at least."""
    aborts = bool(OF_ABORTS & set(faults))
    bandwidths = ["100M", "200M"] if aborts else ["100M", "400M", "2G", "40G"]
    return {
        "prefill": {"base": source.choice(["1ms", "4ms", "15ms"]), "per_token_us": source.choice([5, 20, 60])},
        "decode": {"base": source.choice(["2ms", "4ms"] if aborts else ["2ms", "8ms"])},
        "transfer": {
            "latency": "30us",
            "bandwidth": source.choice(bandwidths),
            "jitter": source.choice(["0us", "200us"]),
        },
        "message": {"latency": source.choice(["100us", "1ms"]), "jitter": source.choice(["0us", "50us", "2ms"])},
    }


def _stream(source: random.Random, faults: tuple[str, ...], fleet: list[dict[str, Any]]) -> dict[str, Any]:
    prefill, decode = (group["pages"]["kv"] * PAGE_TOKENS for group in fleet)
    aborts = bool(OF_ABORTS & set(faults))
    largest = min(decode // (5 if aborts else 2), prefill - 1)
    prompt = [
        {"kind": "uniform", "min": 5, "max": largest, "weight": 5},
        {"kind": "uniform", "min": 5, "max": 60, "weight": 3},
    ]
    if "short-handoff" in faults and decode - 40 > prefill + 1:
        prompt.append({"kind": "uniform", "min": prefill + 1, "max": decode - 40, "weight": 3})
    stream: dict[str, Any] = {
        "name": "r", "prompt": prompt, "max_count": source.choice([12, 24, 36]), "tenants": {"count": 4},
        "output": [{"kind": "uniform", "min": 1, "max": 12}, {"kind": "uniform", "min": 20, "max": 90, "weight": 3 if aborts else 1}],
        "window": {"from": "0us", "to": f"{SECONDS - 1}s"}, "arrivals": _arrivals(source, faults),
    }  # fmt: skip
    if aborts or "leak" in faults or source.random() < 0.5:
        in_handoff = {"kind": "uniform", "min": "4ms", "max": source.choice(["60ms", "150ms"])}
        decoding = {"kind": "lognormal", "median": "200ms", "sigma": 1}
        weights = (5, 1) if aborts else (1, 5) if "leak" in faults else (2, 1)
        after = [kind | {"weight": weight} for kind, weight in zip((in_handoff, decoding), weights, strict=True)]
        stream["disconnects"] = {"probability": 0.5 if aborts or "leak" in faults else 0.15, "after": after}
    return stream


def _arrivals(source: random.Random, faults: tuple[str, ...]) -> dict[str, Any]:
    """Rooms collide only where two requests come at about the same time."""
    if "room-collision" in faults or source.random() < 0.3:
        count, every = source.choice([3, 6]), source.choice([150, 400])
        return {"kind": "burst", "count": count, "over": f"{source.choice([1, 1, 20])}ms", "every": f"{every}ms"}
    return {"kind": "poisson", "rate_per_s": source.choice([20, 40] if OF_ABORTS & set(faults) else [8, 20, 60])}


def _losses(source: random.Random, fleet: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mostly none."""
    kind = source.choices(["none", "rows", "kill", "clock-jump"], [14, 3, 2, 1])[0]
    workers = [f"{group['group']}-{n}" for group in fleet for n in range(group["count"])]
    at = f"{source.randrange(500, 2500)}ms"
    if kind == "rows":
        tables = source.choice(
            [["pages"], ["transfers"], ["steps"], ["requests"], ["pages", "transfers", "steps", "requests"]]
        )
        return [{"kind": "rows", "tables": tables, "probability": source.choice([0.005, 0.03])}]
    if kind == "kill":
        loss = {
            "kind": "kill",
            "worker": source.choice(workers),
            "at": at,
            "unsynced": source.choice(["0us", "50ms", "200ms"]),
        }
        return [loss | ({"restart_after": "300ms"} if source.random() < 0.6 else {})]
    if kind == "clock-jump":
        return [
            {
                "kind": "clock-jump",
                "worker": source.choice(workers),
                "at": at,
                "by": source.choice(["-2s", "500ms", "-30ms"]),
            }
        ]
    return []
