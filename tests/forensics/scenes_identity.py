"""Identities that two requests have at once (M11), two writers of one page (rule 4.3), and pulls under a lease."""

from __future__ import annotations

from typing import Any

from fault_scenes import Scenes, begun, goes_on, prior, scene
from site_ledger import Handoff, Site

CONTAMINATED, CLEAN = "contaminated", ("clean", "")
SCENES: Scenes = {}


def pair(site: Site, room: int | None = None) -> tuple[Handoff, Handoff]:
    """Two requests, granted and computed, both in `room` if one is given."""
    asked = []
    for rid, page, there in (("first", 1, 11), ("second", 5, 15)):
        asked.append(
            Handoff(site, rid, {"kv": [page]}, {"kv": [there]}, tenant=f"t-{rid}", room=room)
        )  # fmt: skip
        asked[-1].grant()
        asked[-1].compute()
    return asked[0], asked[1]


def into(asked: Handoff, other: Handoff) -> None:
    """What `asked` computed goes out under the grant of `other`."""
    row = asked.row("kv") | {
        "xfer": other.xfers["kv"],
        "dst_pages": other.dst_pages["kv"],
        "dst_tag": other.dst_tags["kv"],
    }
    asked.post(row)
    asked.done(row)


@scene(SCENES, "m11-one-room", first=("corrupt", "M11"), second=(CONTAMINATED, "M11"))
def _(site: Site) -> None:
    """The second grant takes the place of the first: the first's content lands in the second's page."""
    first, second = pair(site, room=777)
    into(first, second)
    goes_on(first)
    goes_on(second)


@scene(SCENES, "m11-one-room-and-its-own-content-last", first=("corrupt", "M11"), second=("exposed", "M11"))
def _(site: Site) -> None:
    first, second = pair(site, room=777)
    into(first, second)
    second.send()
    goes_on(first)
    goes_on(second)


@scene(SCENES, "m11-not-with-rooms-of-their-own", first=("corrupt", "M1"), second=(CONTAMINATED, "M11"))
def _(site: Site) -> None:
    """Two owners' handoffs under one transfer id, and nothing wrong with their rooms; the first's own was short."""
    first, second = pair(site)
    into(first, second)
    goes_on(first)
    second.send(first=1)
    goes_on(second)


@scene(SCENES, "room-used-again-after-its-end", first=CLEAN, second=CLEAN)
def _(site: Site) -> None:
    for rid in ("first", "second"):
        Handoff(site, rid, {"kv": [1, 2]}, {"kv": [1, 2]}, tenant=f"t-{rid}", room=777).through()


@scene(SCENES, "room-shared-and-everything-right", first=CLEAN, second=CLEAN)
def _(site: Site) -> None:
    """Ownership alone decides nothing."""
    first, second = pair(site, room=777)
    for asked in (first, second):
        asked.send()
        goes_on(asked)


@scene(SCENES, "attempts-share-a-room", first=CLEAN)
def _(site: Site) -> None:
    asked = begun(site, "first", 2, room=777)
    asked.abort()
    again = Handoff(site, "first", {"kv": [5, 6]}, {"kv": [15, 16]}, tenant="t-first", room=777, attempt=2)
    again.grant()
    again.compute()
    again.send()
    goes_on(again)
    asked.ack()
    asked.free_source()


@scene(SCENES, "m11-written-under-another's-tag", owner=(CONTAMINATED, "M11"), writer=CLEAN)
def _(site: Site) -> None:
    """A local write of one request under the tag of another's page."""
    owner = begun(site, "owner", 1)
    owner.send()
    owner.ack()
    owner.free_source()
    writer = site.decode.receive("writer", "t-writer")
    site.decode.pages("write", "kv", writer, owner.dst_tags["kv"], [1])
    owner.commit()
    site.decode.run()
    owner.finish(1)
    site.decode.end(writer)


STAGES = {
    "names": ("gateway-0", "prefill-0", "prefill-1", "decode-0"), "pools": ("kv", "slot"),
    "prefill_0": {"pp_rank": 0, "pp_size": 2}, "prefill_1": {"pp_rank": 1, "pp_size": 2},
}  # fmt: skip


def staged(
    name: str, expected: tuple[str, str], order: tuple[int, int], digests: tuple[Any, Any], told: bool = True
) -> None:
    """Both pipeline stages write the slot, in `order`; `told`: the second has seen the first's row before it posts."""

    @scene(SCENES, name, STAGES, victim=expected)
    def _(site: Site) -> None:
        asked = Handoff(site, "victim", {"kv": [1], "slot": [3]}, {"kv": [1], "slot": [1]}, tenant="t-victim")
        other = site["prefill-1"]
        there = other.receive("victim", "t-victim", room=asked.room)
        asked.grant(writers=["prefill-0", "prefill-1"])
        asked.compute()
        tag = other.fill("slot", there, [9])
        asked.send("kv")
        row = asked.row("slot")
        rows = [row | {"digests": [digests[0]], "digest_at": "post"} if digests[0] else row]
        rows.append(row | {"req": there, "src_pages": [9], "src_tag": tag})
        rows[1] |= {"digests": [digests[1]], "digest_at": "post"} if digests[1] else {}
        for stage in order:
            side = site[f"prefill-{stage}"]
            if told:  # decode must have seen the first's done, and then the second decode's row
                site.beat()
                site.beat()
            side.rec.record("transfers", "post", **rows[stage])
            site.wait(0.5)
            side.rec.record("transfers", "done", **rows[stage])
        if told:
            site.beat()
        for stage in (0, 1):
            side, ack = site[f"prefill-{stage}"], {"room": asked.room, "outstanding": 0}
            for pool, xfer in asked.xfers.items():
                ack |= {"xfer": xfer, "dst_tag": asked.dst_tags[pool]}
                side.rec.record("transfers", "ack", status="sent", peer="decode-0", req=rows[stage]["req"], **ack)
                site.decode.rec.record("transfers", "ack", status="received", peer=side.name, req=asked.here, **ack)
        asked.free_source()
        other.end(there)
        asked.commit()
        site.decode.run()
        asked.finish(1)


staged("two-stages-the-last-one-last", CLEAN, (0, 1), (8, 9))
staged("two-stages-the-wrong-one-last", ("corrupt", "M11"), (1, 0), (8, 9))
staged("two-stages-with-equal-bytes", CLEAN, (1, 0), (8, 8))
staged("two-stages-without-digests", ("corrupt", "M11"), (1, 0), (None, None))
staged("two-stages-order-not-known", ("unknown", ""), (0, 1), (8, 9), told=False)


# --- pulls -------------------------------------------------------------------------------------------------------


class Pull:
    """Decode reads prefill's pages itself, under a lease."""

    def __init__(self, site: Site, rid: str = "victim", there: tuple[int, ...] = (11, 12)) -> None:
        self.site = site
        self.asked = Handoff(site, rid, {"kv": [1, 2]}, {"kv": list(there)}, tenant=f"t-{rid}")
        self.asked.compute()
        asked, src = self.asked, self.asked.src
        self.xfer = src.rec.ordinal << 50 | src.rec.epoch << 38 | src.rec.seq + 1
        src.rec.record(
            "transfers", "grant", xfer=self.xfer, req=asked.there, dir="pull", peer="decode-0", src_pool="kv",
            src_pages=list(there), src_tag=asked.src_tags["kv"], n=2, writers=["decode-0"],
        )  # fmt: skip
        src.pages("hold", "kv", asked.there, asked.src_tags["kv"], there, cause="lease")
        self.tag = asked.dst_tags["kv"] = asked.dst.reserve("kv", asked.here, [1, 2])
        asked.xfers["kv"] = self.xfer
        self.row = {
            "xfer": self.xfer, "req": asked.here, "dir": "pull", "chunk": 0, "peer": "prefill-0", "src_pool": "kv",
            "dst_pool": "kv", "src_pages": list(there), "dst_pages": [1, 2], "src_tag": asked.src_tags["kv"],
            "dst_tag": self.tag, "pos": 0, "n": 2,
        }  # fmt: skip

    def post(self) -> None:
        self.asked.dst.rec.record("transfers", "post", **self.row)

    def done(self) -> None:
        self.site.wait(1)
        self.asked.dst.rec.record("transfers", "done", **self.row)

    def ack(self) -> None:
        asked, row = self.asked, {"xfer": self.xfer, "outstanding": 0}
        asked.dst.rec.record("transfers", "ack", status="sent", peer="prefill-0", req=asked.here, **row)
        self.site.wait(0.2)
        asked.src.rec.record("transfers", "ack", status="received", peer="decode-0", req=asked.there, **row)

    def expire(self) -> None:
        self.asked.src.rec.record("transfers", "expire", xfer=self.xfer, req=self.asked.there)
        self.free("lease")

    def free(self, cause: str) -> None:
        asked = self.asked
        asked.src.pages("unbind", "kv", asked.there, asked.src_tags["kv"], asked.src_pages["kv"], cause=cause)
        asked.src.pages("free", "kv", asked.there, asked.src_tags["kv"], asked.src_pages["kv"], cause=cause)
        asked.src.end(asked.there)

    def read(self) -> None:
        self.asked.commit()
        self.asked.dst.run()
        self.asked.finish(1)


@scene(SCENES, "pull", victim=CLEAN)
def _(site: Site) -> None:
    pull = Pull(site)
    pull.post()
    pull.done()
    pull.ack()
    pull.free("drained")
    pull.read()


@scene(SCENES, "pull-by-a-reader-that-knows-no-tags", victim=CLEAN)
def _(site: Site) -> None:
    pull = Pull(site)
    pull.row["src_tag"] = None
    pull.post()
    pull.done()
    pull.ack()
    pull.free("drained")
    pull.read()


@scene(
    SCENES,
    "pull-of-anothers-pages-by-a-reader-that-knows-no-tags",
    donor=CLEAN,
    victim=(CONTAMINATED, "mechanism unknown"),
)
def _(site: Site) -> None:
    donor = site.prefill.receive("donor", "t-donor")
    site.prefill.fill("kv", donor, [21, 22])
    pull = Pull(site)
    pull.row |= {"src_tag": None, "src_pages": [21, 22]}
    pull.post()
    pull.done()
    pull.ack()
    pull.free("drained")
    site.prefill.end(donor)
    pull.read()


@scene(SCENES, "pull-of-pages-that-nobody-was-known-to-have", victim=("unknown", ""))
def _(site: Site) -> None:
    pull = Pull(site)
    pull.row |= {"src_tag": None, "src_pages": [41, 42]}
    pull.post()
    pull.done()
    pull.ack()
    pull.free("drained")
    pull.read()


@scene(SCENES, "m5-lease-expired-and-the-source-was-rewritten", thief=CLEAN, victim=(CONTAMINATED, "M5"))
def _(site: Site) -> None:
    pull = Pull(site)
    pull.expire()
    thief = site.prefill.receive("thief", "t-thief")
    site.prefill.fill("kv", thief, [11, 12])
    site.prefill.end(thief)
    site.beat()
    pull.post()
    pull.done()
    site.beat()
    pull.read()


@scene(SCENES, "m5-lease-expired-while-it-was-read", victim=("exposed", "M5"))
def _(site: Site) -> None:
    pull = Pull(site)
    site.beat()
    pull.post()
    site.beat()
    pull.expire()
    site.beat()
    pull.done()
    pull.read()


@scene(SCENES, "lease-expired-some-time", victim=CLEAN)
def _(site: Site) -> None:
    """Whether the lease expired before or after the read nothing says; the bytes were whole in any case."""
    pull = Pull(site)
    pull.post()
    pull.done()
    pull.expire()
    pull.read()


@scene(SCENES, "m2-of-a-pull", donor=CLEAN, victim=(CONTAMINATED, "M2"))
def _(site: Site) -> None:
    prior(site, pages=2)
    pull = Pull(site)
    pull.post()
    site.decode.rec.record("transfers", "fail", **pull.row, bytes=0)
    pull.ack()
    pull.free("drained")
    pull.read()
