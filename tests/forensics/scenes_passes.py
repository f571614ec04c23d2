"""Who takes part in which pass: first tokens alone, places in a full batch, tokens that no pass accounts for."""

from __future__ import annotations

from fault_scenes import Scenes, begun, goes_on, prior, scene
from site_ledger import Handoff, Site

CONTAMINATED, CLEAN = "contaminated", ("clean", "")
SCENES: Scenes = {}


def committed(site: Site, rid: str, first: int, at: int) -> Handoff:
    """A request whose pages on decode, two from `first` on, are its own and bound."""
    asked = begun(site, rid, 2, first=first, at=at)
    asked.send()
    asked.ack()
    asked.free_source()
    asked.commit()
    return asked


@scene(SCENES, "the-first-token-alone", short=CLEAN)
def _(site: Site) -> None:
    committed(site, "short", 1, 11).finish(1)


@scene(SCENES, "more-tokens-than-passes-are-known-of", odd=("unknown", ""))
def _(site: Site) -> None:
    committed(site, "odd", 1, 11).finish(2)


@scene(SCENES, "a-first-token-among-passes-of-others", short=CLEAN, long=CLEAN)
def _(site: Site) -> None:
    long = committed(site, "long", 1, 11)
    site.decode.run()
    committed(site, "short", 3, 13).finish(1)
    site.decode.run()
    long.finish(3)


def freed_early(site: Site, waiting: bool) -> None:
    """A victim loses a page to a thief while it waits for a place in the passes (or reads), and never runs again."""
    victim, other = committed(site, "victim", 1, 11), committed(site, "other", 3, 13)
    if waiting:
        site.decode.rec.record("requests", "pause", req=victim.here, reason="batch_full")
    site.decode.pages("free", "kv", victim.here, victim.dst_tags["kv"], [1], cause="left_window")
    thief = committed(site, "thief", 1, 15)
    site.decode.run()
    site.decode.pages("unbind", "kv", victim.here, victim.dst_tags["kv"], [1, 2], cause="abort")
    site.decode.pages("free", "kv", victim.here, victim.dst_tags["kv"], [2], cause="abort")
    victim.ended(2 - waiting, "abort", "499")
    for one in (other, thief):
        one.finish(2)


@scene(SCENES, "m7-freed-while-read-by-one-of-a-batch", victim=(CONTAMINATED, "M7"), other=CLEAN, thief=CLEAN)
def _(site: Site) -> None:
    freed_early(site, waiting=False)


@scene(SCENES, "freed-while-it-waited-for-a-place", victim=CLEAN, other=CLEAN, thief=CLEAN)
def _(site: Site) -> None:
    freed_early(site, waiting=True)


@scene(SCENES, "paused-twice-and-resumed-once", waiting=CLEAN, other=CLEAN)
def _(site: Site) -> None:
    waiting, other = committed(site, "waiting", 1, 11), committed(site, "other", 3, 13)
    for reason in ("batch_full", "retracted"):
        site.decode.rec.record("requests", "pause", req=waiting.here, reason=reason)
        site.decode.run()
    site.decode.rec.record("requests", "resume", req=waiting.here)
    site.decode.run()
    waiting.finish(2)
    other.finish(4)


@scene(SCENES, "m13-rest-of-a-last-page-in-a-wrong-place", donor=CLEAN, victim=(CONTAMINATED, "M13"))
def _(site: Site) -> None:
    prior(site, pages=2)
    victim = begun(site, "victim", 2, first=5, at=1, sources=0)
    victim.src_pages = {"kv": [1, 2]}
    victim.src_tags["kv"] = site.prefill.fill("kv", victim.there, [1, 2], pos=0, tokens=5)
    victim.send(first=1, stop=2, dst_pages=[5])
    victim.send(first=0, stop=1, dst_pages=[6])
    goes_on(victim)
