"""Pages that change hands under somebody's eyes: M3, M4, M5, M7, M8, and what M9 and M10 leave alone."""

from __future__ import annotations

from fault_scenes import Scenes, begun, goes_on, prior, scene
from site_ledger import Handoff, Site

CONTAMINATED, CLEAN = "contaminated", ("clean", "")
SCENES: Scenes = {}


def late(site: Site, victim_reads: bool = True) -> tuple[Handoff, Handoff]:
    """A donor whose handoff is granted and computed; a victim will get its pages."""
    donor = begun(site, "donor", 2, first=1, at=21)
    return donor, Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-victim")


def whole(victim: Handoff) -> None:
    """The victim's handoff, up to its first pass."""
    victim.grant()
    victim.compute()
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    victim.dst.run()


def lands(donor: Handoff) -> None:
    """The donor's writes land after all; both sides know."""
    donor.site.beat()
    donor.send()
    donor.ack()
    donor.free_source()
    donor.site.beat()


@scene(SCENES, "m3-late-write", donor=CLEAN, victim=(CONTAMINATED, "M3"))
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort()
    whole(victim)
    lands(donor)
    site.decode.run()
    victim.finish(2)


@scene(SCENES, "m3-overwritten-before-it-was-read", donor=CLEAN, victim=("exposed", "M3"))
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort()
    victim.grant()
    lands(donor)
    victim.compute()
    victim.send()
    goes_on(victim)


@scene(SCENES, "m3-landed-before-the-reserve", donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort()
    lands(donor)
    whole(victim)
    victim.finish(1)


@scene(SCENES, "m3-landed-after-the-end", donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort()
    whole(victim)
    victim.finish(1)
    lands(donor)


@scene(SCENES, "m3-order-not-known", donor=CLEAN, victim=("unknown", ""))
def _(site: Site) -> None:
    """It lands while the victim decodes, and nothing says between which passes, or whether before the victim's own."""
    donor, victim = late(site)
    donor.abort()
    victim.grant()
    victim.compute()
    victim.send()
    row = donor.row("kv")
    site.prefill.rec.record("transfers", "post", **row)
    victim.ack()
    victim.commit()
    victim.dst.run(n=3)
    victim.free_source()
    victim.finish(3)
    donor.done(row)
    donor.ack()
    donor.free_source()


@scene(SCENES, "m4-hold-timed-out", donor=CLEAN, victim=(CONTAMINATED, "M4"))
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort(hold=True, cause="abort")
    site.wait(50)
    donor.release("timeout")
    whole(victim)
    lands(donor)
    site.decode.run()
    victim.finish(2)


@scene(SCENES, "m4-acked-too-early", donor=CLEAN, victim=(CONTAMINATED, "M4"))
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort(hold=True)
    donor.ack()
    donor.release("drained")
    whole(victim)
    lands(donor)
    site.decode.run()
    victim.finish(2)


@scene(SCENES, "m4-acked-while-outstanding", donor=CLEAN, victim=(CONTAMINATED, "M4"))
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort(hold=True)
    donor.ack(outstanding=1)
    donor.release("drained")
    whole(victim)
    lands(donor)
    site.decode.run()
    victim.finish(2)


@scene(SCENES, "m4-freed-at-once-on-an-early-ack", donor=CLEAN, victim=(CONTAMINATED, "M4"))
def _(site: Site) -> None:
    """No hold at all, but the mover had said that nothing was outstanding."""
    donor, victim = late(site)
    donor.ack()
    donor.abort()
    whole(victim)
    lands(donor)
    site.decode.run()
    victim.finish(2)


@scene(SCENES, "m10-held-until-drained", donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    donor, victim = late(site)
    donor.abort(hold=True)
    lands(donor)
    donor.release("drained")
    whole(victim)
    victim.finish(1)


@scene(SCENES, "m9-leak", donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    """Pages of a request that ended are never given back: nobody reads them."""
    donor = begun(site, "donor", 2, first=5, at=21)
    donor.send()
    donor.ack()
    donor.free_source()
    donor.commit()
    site.decode.run()
    donor.dst.pages("unbind", "kv", donor.here, donor.dst_tags["kv"], [5, 6], cause="abort")
    donor.ended(1, "abort", "499")
    Handoff(site, "victim", {"kv": [1]}, {"kv": [1]}, tenant="t-victim").through()


def source_lost(site: Site) -> tuple[Handoff, Handoff]:
    """A victim computed; its source pages are freed before anything is sent."""
    victim = begun(site, "victim", 2, first=1, at=11)
    thief = Handoff(site, "thief", {"kv": [5, 6]}, {"kv": [11, 12]}, tenant="t-thief")
    thief.grant()
    return victim, thief


@scene(SCENES, "m5-source-rewritten", thief=CLEAN, victim=(CONTAMINATED, "M5"))
def _(site: Site) -> None:
    victim, thief = source_lost(site)
    victim.free_source(end=False)
    thief.compute()
    victim.send()
    victim.ack()
    site.prefill.end(victim.there)
    victim.commit()
    victim.dst.run()
    victim.finish(1)
    thief.send()
    goes_on(thief, 1)


@scene(SCENES, "m5-source-freed-while-it-was-read", victim=("exposed", "M5"))
def _(site: Site) -> None:
    victim = begun(site, "victim", 2, first=1, at=11)
    row = victim.row("kv")
    victim.post(row)
    victim.free_source()
    victim.done(row)
    victim.ack()
    victim.commit()
    victim.dst.run()
    victim.finish(1)


@scene(SCENES, "m5-rewritten-within-the-window", thief=CLEAN, victim=("unknown", ""))
def _(site: Site) -> None:
    victim, thief = source_lost(site)
    row = victim.row("kv")
    victim.post(row)
    victim.free_source()
    thief.compute()
    victim.done(row)
    victim.ack()
    victim.commit()
    victim.dst.run()
    victim.finish(1)
    thief.send()
    goes_on(thief, 1)


@scene(SCENES, "m5-rewritten-after-it-was-read", thief=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    victim, thief = source_lost(site)
    victim.send()
    victim.free_source()
    thief.compute()
    victim.ack()
    victim.commit()
    victim.dst.run()
    victim.finish(1)
    thief.send()
    goes_on(thief, 1)


@scene(SCENES, "m7-freed-while-bound", victim=(CONTAMINATED, "M7"), next=CLEAN)
def _(site: Site) -> None:
    victim = begun(site, "victim", 2)
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    site.decode.run()
    site.decode.pages("free", "kv", victim.here, victim.dst_tags["kv"], [1], cause="left_window")
    taker = Handoff(site, "next", {"kv": [1]}, {"kv": [21]}, tenant="t-next")
    whole(taker)
    victim.dst_pages["kv"] = [2]
    site.decode.pages("unbind", "kv", victim.here, victim.dst_tags["kv"], [1], cause="finish")
    victim.finish(2)
    taker.finish(1)


@scene(SCENES, "m7-unbound-before-it-was-freed", victim=CLEAN, next=CLEAN)
def _(site: Site) -> None:
    victim = begun(site, "victim", 2)
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    site.decode.run()
    site.decode.pages("unbind", "kv", victim.here, victim.dst_tags["kv"], [1], cause="left_window")
    site.decode.pages("free", "kv", victim.here, victim.dst_tags["kv"], [1], cause="left_window")
    taker = Handoff(site, "next", {"kv": [1]}, {"kv": [21]}, tenant="t-next")
    whole(taker)
    victim.dst_pages["kv"] = [2]
    victim.finish(2)
    taker.finish(1)


@scene(SCENES, "m8-freed-by-another", victim=(CONTAMINATED, "M8"), other=CLEAN, next=CLEAN)
def _(site: Site) -> None:
    victim = begun(site, "victim", 2)
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    other = Handoff(site, "other", {"kv": [7]}, {"kv": [7]}, tenant="t-other").through()
    site.decode.pages("free", "kv", other.here, other.dst_tags["kv"], [1], cause="finish")
    taker = Handoff(site, "next", {"kv": [1]}, {"kv": [21]}, tenant="t-next")
    whole(taker)
    site.decode.pages("unbind", "kv", victim.here, victim.dst_tags["kv"], [1], cause="finish")
    victim.dst_pages["kv"] = [2]
    victim.finish(2)
    taker.finish(1)


@scene(SCENES, "m8-double-free", first=CLEAN, victim=(CONTAMINATED, "M8"), next=CLEAN)
def _(site: Site) -> None:
    """A page stands in the free list twice: the next two requests both get it."""
    first = prior(site, "first", 1)
    site.decode.pages("free", "kv", first.here, first.dst_tags["kv"], [1], cause="finish")
    victim = begun(site, "victim", 1)
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    site.decode.run()
    taker = Handoff(site, "next", {"kv": [1]}, {"kv": [21]}, tenant="t-next")
    whole(taker)
    victim.finish(2)
    taker.finish(1)


@scene(SCENES, "m8-double-free-alone", first=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    first = prior(site, "first", 1)
    site.decode.pages("free", "kv", first.here, first.dst_tags["kv"], [1], cause="finish")
    prior(site, "victim", 1)


@scene(SCENES, "m8-at-prefill", victim=(CONTAMINATED, "M8"), next=CLEAN)
def _(site: Site) -> None:
    """The double owner is at prefill: what is sent is another's, and decode's own pages are as they should be."""
    victim = begun(site, "victim", 1, at=11)
    taker = Handoff(site, "next", {"kv": [5]}, {"kv": [11]}, tenant="t-next")
    taker.grant()
    taker.compute()
    victim.send()
    goes_on(victim, 1)
    taker.send()
    goes_on(taker, 1)
