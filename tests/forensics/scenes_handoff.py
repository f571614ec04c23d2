"""Handoffs that bring too little, too early or to the wrong place: M1, M2, M6, M13, M14, parts, components, slots."""

from __future__ import annotations

from fault_scenes import Scenes, begun, goes_on, prior, scene
from site_ledger import Handoff, Site

CONTAMINATED, CLEAN = "contaminated", ("clean", "")
SCENES: Scenes = {}


@scene(SCENES, "m1-short", donor=CLEAN, victim=(CONTAMINATED, "M1"))
def _(site: Site) -> None:
    prior(site)
    asked = begun(site, sources=1)
    asked.send()
    goes_on(asked)


@scene(SCENES, "m1-on-fresh-pages", victim=("corrupt", "M1"))
def _(site: Site) -> None:
    asked = begun(site)
    asked.send(stop=2)
    goes_on(asked)


@scene(SCENES, "m1-not-when-whole", donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    prior(site)
    asked = begun(site)
    asked.send()
    goes_on(asked)


@scene(SCENES, "m1-no-token-left", donor=CLEAN, victim=("exposed", "M1"))
def _(site: Site) -> None:
    prior(site)
    asked = begun(site)
    asked.send(stop=3)
    asked.ack()
    asked.free_source()
    asked.commit()
    site.decode.run()
    asked.finish(0)


@scene(SCENES, "m2-failed-batch", donor=CLEAN, victim=(CONTAMINATED, "M2"))
def _(site: Site) -> None:
    prior(site)
    asked = begun(site)
    asked.send(stop=2)
    row = asked.row("kv", 2)
    asked.post(row)
    site.prefill.rec.record("transfers", "fail", **row, bytes=0)
    goes_on(asked)


@scene(SCENES, "m2-retried", donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    prior(site)
    asked = begun(site)
    row = asked.row("kv")
    asked.post(row)
    site.prefill.rec.record("transfers", "fail", **row, bytes=0)
    asked.send()
    goes_on(asked)


@scene(SCENES, "m2-failed-with-unknown-bytes", donor=CLEAN, victim=("unknown", ""))
def _(site: Site) -> None:
    prior(site)
    asked = begun(site)
    row = asked.row("kv")
    asked.post(row)
    site.prefill.rec.record("transfers", "fail", **row)
    goes_on(asked)


@scene(SCENES, "m6-posted-before-computed", victim=("corrupt", "M6"))
def _(site: Site) -> None:
    there = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]})
    there.grant()
    there.src_tags["kv"] = site.prefill.reserve("kv", there.there, [11, 12])
    there.send()
    site.prefill.pages("write", "kv", there.there, there.src_tags["kv"], [11, 12])
    site.prefill.pages("bind", "kv", there.there, there.src_tags["kv"], [11, 12])
    site.prefill.run("prefill")
    site.prefill.first_token(there.there)
    goes_on(there)


@scene(SCENES, "m6-of-a-reused-source", donor=CLEAN, victim=(CONTAMINATED, "M6"))
def _(site: Site) -> None:
    prior(site, first=11)
    there = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-victim")
    there.grant()
    there.src_tags["kv"] = site.prefill.reserve("kv", there.there, [11, 12])
    there.send()
    site.prefill.pages("write", "kv", there.there, there.src_tags["kv"], [11, 12])
    site.prefill.pages("bind", "kv", there.there, there.src_tags["kv"], [11, 12])
    site.prefill.run("prefill")
    site.prefill.first_token(there.there)
    goes_on(there)


@scene(SCENES, "m6-computed-while-it-was-sent", victim=("unknown", ""))
def _(site: Site) -> None:
    there = Handoff(site, "victim", {"kv": [1]}, {"kv": [11]})
    there.grant()
    tag = there.src_tags["kv"] = site.prefill.reserve("kv", there.there, [11])
    row = there.row("kv")
    there.post(row)
    site.prefill.pages("write", "kv", there.there, tag, [11])
    there.done(row)
    site.prefill.pages("bind", "kv", there.there, tag, [11])
    site.prefill.run("prefill")
    site.prefill.first_token(there.there)
    goes_on(there)


@scene(SCENES, "m6-bound-before-it-landed", donor=CLEAN, victim=(CONTAMINATED, "M6"))
def _(site: Site) -> None:
    prior(site)
    asked = begun(site)
    asked.commit()
    site.decode.run()
    site.beat()
    asked.send()
    asked.ack()
    site.decode.run()
    asked.free_source()
    asked.finish(2)


@scene(SCENES, "m13-shifted-by-one", donor=CLEAN, bystander=(CONTAMINATED, "M13"), victim=(CONTAMINATED, "M13"))
def _(site: Site) -> None:
    """The victim's pages go to the pages behind its own: the last one is a bystander's, who reads it."""
    prior(site)
    other = begun(site, "bystander", 1, first=4, at=21)
    other.send()
    other.ack()
    other.free_source()
    other.commit()
    site.decode.run()
    asked = begun(site, pages=3)
    asked.send(dst_pages=[2, 3, 4])
    asked.ack()
    asked.free_source()
    asked.commit()
    site.decode.run()
    site.decode.run()
    other.finish(3)
    asked.finish(2)


@scene(SCENES, "m13-in-another-place-of-its-own-table", victim=("corrupt", "M13"))
def _(site: Site) -> None:
    asked = begun(site, pages=2)
    asked.send(dst_pages=[2, 1])
    goes_on(asked)


def registered(site: Site, **prefill: object) -> None:
    base = {"page_bytes": 4096, "kv_format": "bf16", "kv_heads": 8, "head_dim": 64}
    site.prefill.pool("kv", **base | prefill)
    site.decode.pool("kv", **base)


def with_geometry(name: str, expected: tuple[str, str], **prefill: object) -> None:
    @scene(SCENES, name, {"pools": ()}, victim=expected)
    def _(site: Site) -> None:
        registered(site, **prefill)
        asked = begun(site, pages=2)
        asked.send()
        goes_on(asked)


with_geometry("m13-same-geometry", CLEAN)
with_geometry("m13-another-format", ("corrupt", "M13"), kv_format="fp8")
with_geometry("m13-another-head-split", ("corrupt", "M13"), kv_heads=4)
with_geometry("m13-pages-of-another-size", ("unknown", "M13"), page_bytes=8192)


@scene(SCENES, "each-of-two-ranks-has-its-share-of-a-page", {"pools": (), "decode_0": {"tp_size": 2}}, victim=CLEAN)
def _(site: Site) -> None:
    registered(site, page_bytes=8192)
    asked = begun(site, pages=2)
    asked.send()
    goes_on(asked)


RANKS = {"names": ("gateway-0", "prefill-0", "prefill-1", "decode-0")}


@scene(
    SCENES,
    "m13-size-may-hit-a-neighbour",
    RANKS | {"pools": ()},
    neighbour=("unknown", "M13"),
    victim=("unknown", "M13"),
)
def _(site: Site) -> None:
    """A page of the sender is two of the receiver's: whoever has the next one cannot be cleared."""
    registered(site, page_bytes=8192)
    site["prefill-1"].pool("kv", page_bytes=4096)
    other = Handoff(site, "neighbour", {"kv": [5]}, {"kv": [21]}, src="prefill-1")
    other.grant()
    other.compute()
    other.send()
    other.ack()
    other.free_source()
    other.commit()
    site.decode.run()
    asked = begun(site, pages=2, first=3)
    asked.send()
    asked.ack()
    asked.free_source()
    asked.commit()
    site.decode.run()
    other.finish(3)
    asked.finish(2)


BOTH = ("kv", "index")


@scene(SCENES, "m14-index-short", {"pools": BOTH}, donor=CLEAN, victim=(CONTAMINATED, "M14"))
def _(site: Site) -> None:
    prior(site, pools=BOTH)
    asked = begun(site, pools=BOTH)
    asked.send("kv")
    asked.send("index", stop=2)
    goes_on(asked)


@scene(SCENES, "m14-not-where-both-are-short", {"pools": BOTH}, donor=CLEAN, victim=(CONTAMINATED, "M1"))
def _(site: Site) -> None:
    prior(site, pools=BOTH)
    asked = begun(site, pools=BOTH)
    asked.send("kv", stop=2)
    asked.send("index", stop=2)
    goes_on(asked)


@scene(
    SCENES, "components-whole", {"pools": ("kv", "index", "swa", "draft", "state", "slot")}, donor=CLEAN, victim=CLEAN
)
def _(site: Site) -> None:
    pools = ("kv", "index", "swa", "draft")
    for rid in ("donor", "victim"):
        pages = {pool: [1, 2] for pool in pools} | {"state": [1], "slot": [1]}
        Handoff(site, rid, pages, pages, tenant=f"t-{rid}").through()


@scene(SCENES, "m14-state-missing", {"pools": ("kv", "state")}, donor=CLEAN, victim=(CONTAMINATED, "M14"))
def _(site: Site) -> None:
    pages = {"kv": [1, 2], "state": [1]}
    Handoff(site, "donor", pages, pages, tenant="t-donor").through()
    asked = Handoff(site, "victim", pages, pages, tenant="t-victim")
    asked.grant()
    asked.compute()
    asked.send("kv")
    goes_on(asked)


@scene(SCENES, "slot-read-once", {"pools": ("kv", "slot")}, late=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    """What comes to a slot after its content was accepted is read by nobody."""
    pages = {"kv": [1], "slot": [3]}
    late = Handoff(site, "late", {"kv": [5], "slot": [3]}, {"kv": [5], "slot": [5]}, tenant="t-late")
    late.grant()
    late.compute()
    late.abort()
    asked = Handoff(site, "victim", pages, {"kv": [1], "slot": [1]}, tenant="t-victim")
    asked.grant()
    asked.compute()
    asked.send()
    asked.ack()
    asked.free_source()
    asked.commit()
    site.decode.pages("unbind", "slot", asked.here, asked.dst_tags["slot"], [3])
    site.decode.pages("free", "slot", asked.here, asked.dst_tags["slot"], [3], cause="finish")
    site.beat()
    late.send("slot")
    late.ack()
    late.free_source()
    site.decode.run()
    site.decode.pages("unbind", "kv", asked.here, asked.dst_tags["kv"], [1], cause="finish")
    site.decode.pages("free", "kv", asked.here, asked.dst_tags["kv"], [1], cause="finish")
    asked.ended(1)


@scene(SCENES, "slot-of-a-late-writer", {"pools": ("kv", "slot")}, late=CLEAN, victim=(CONTAMINATED, "M3"))
def _(site: Site) -> None:
    late = Handoff(site, "late", {"kv": [5], "slot": [3]}, {"kv": [5], "slot": [5]}, tenant="t-late")
    late.grant()
    late.compute()
    late.abort()
    asked = Handoff(site, "victim", {"kv": [1], "slot": [3]}, {"kv": [1], "slot": [1]}, tenant="t-victim")
    asked.grant()
    asked.compute()
    asked.send()
    asked.ack()
    site.beat()
    late.send("slot")
    late.ack()
    late.free_source()
    asked.free_source()
    asked.commit()
    site.decode.run()
    asked.finish(1)


@scene(SCENES, "swa-page-left-its-window", {"pools": ("kv", "swa")}, victim=CLEAN, next=CLEAN)
def _(site: Site) -> None:
    """A page of the window is unbound and freed while the request goes on; its next owner writes it unread."""
    pages = {"kv": [1, 2], "swa": [1, 2]}
    asked = Handoff(site, "victim", pages, pages, tenant="t-victim")
    asked.grant()
    asked.compute()
    asked.send()
    asked.ack()
    asked.free_source()
    asked.commit()
    site.decode.run()
    tag = asked.dst_tags["swa"]
    site.decode.pages("unbind", "swa", asked.here, tag, [1], cause="left_window")
    site.decode.pages("free", "swa", asked.here, tag, [1], cause="left_window")
    Handoff(site, "next", {"swa": [1], "kv": [7]}, {"swa": [9], "kv": [9]}, tenant="t-next").through()
    site.decode.run()
    asked.dst_pages["swa"] = [2]
    asked.finish(2)


def two_ranks(site: Site, *ranks: int) -> None:
    """Each rank of prefill fills its half of every page; `ranks` do, the others are forgotten."""
    asked = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-victim")
    other = site["prefill-1"]
    there = other.receive("victim", "t-victim", room=asked.room)
    asked.grant(writers=["prefill-0", "prefill-1"])
    asked.compute()
    tag = other.fill("kv", there, [21, 22])
    rows = [asked.row("kv", part=0, parts=2)]
    rows.append(rows[0] | {"req": there, "src_pages": [21, 22], "src_tag": tag, "part": 1})
    for rank in ranks:
        rec = (site.prefill, other)[rank].rec
        rec.record("transfers", "post", **rows[rank])
        site.wait(0.3)
        rec.record("transfers", "done", **rows[rank])
    for rank, rec in enumerate((site.prefill.rec, other.rec)):
        row = {"xfer": asked.xfers["kv"], "room": asked.room, "outstanding": 0, "dst_tag": asked.dst_tags["kv"]}
        rec.record("transfers", "ack", status="sent", peer="decode-0", req=rows[rank]["req"], **row)
        site.decode.rec.record("transfers", "ack", status="received", peer=f"prefill-{rank}", req=asked.here, **row)
    asked.free_source()
    other.end(there)
    asked.commit()
    site.decode.run()
    asked.finish(1)


@scene(SCENES, "parts-whole", RANKS, donor=CLEAN, victim=CLEAN)
def _(site: Site) -> None:
    prior(site)
    two_ranks(site, 0, 1)


@scene(SCENES, "parts-one-missing", RANKS, donor=CLEAN, victim=(CONTAMINATED, "M1"))
def _(site: Site) -> None:
    prior(site)
    two_ranks(site, 0)
