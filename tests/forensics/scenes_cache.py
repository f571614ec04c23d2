"""Prefix caches and tiers: hits, shares, identities (M12, P0), missing locks (M7), loads (M2, M5, M6)."""

from __future__ import annotations

from typing import Any

from fault_scenes import Scenes, scene
from site_ledger import ONE, TWO, Handoff, Side, Site

CONTAMINATED, CLEAN = "contaminated", ("clean", "")
SCENES: Scenes = {}
KEYS = [71, 72]
SALT_ONE, SALT_TWO = 901, 902


def identity(tenant: str, salt: int | None = None, **meaning: Any) -> dict[str, Any]:
    """The identity columns of a cache row."""
    return {"tenant": tenant, "salt_fp": salt, **meaning}


def inserted(
    site: Site, rid: str = "giver", pages: tuple[int, ...] = (1, 2), tenant: str = ONE, salt: int | None = SALT_ONE, **meaning: Any
) -> tuple[int, int]:  # fmt: skip
    """A request computes at prefill, and the cache keeps its pages: (req, tag)."""
    side = site.prefill
    req = side.receive(rid, tenant, **meaning)
    tag = side.fill("kv", req, pages, pos=0)
    side.pages("bind", "kv", req, tag, pages, pos=0)
    side.run("prefill")
    side.first_token(req)
    side.cache(
        "insert",
        "device",
        KEYS,
        req=req,
        pool="kv",
        tag=tag,
        pages=list(pages),
        pos=0,
        **identity(tenant, salt, **meaning),
    )
    side.pages("unbind", "kv", req, tag, pages, cause="finish")
    side.end(req)
    return req, tag


class Taker:
    """A request that takes cached pages at prefill, computes one page of its own and is sent to decode."""

    def __init__(self, site: Site, tag: int, pages: tuple[int, ...] = (1, 2), rid: str = "taker", tenant: str = ONE,
                 own: int = 11, **meaning: Any) -> None:  # fmt: skip
        self.site, self.tag, self.pages, self.own, self.side = site, tag, list(pages), own, site.prefill
        n = len(pages)
        self.asked = Handoff(site, rid, {"kv": [*range(1, n + 2)]}, {"kv": [*pages, own]}, tenant=tenant, **meaning)
        self.asked.grant()
        self.who = {"tenant": tenant, **meaning}
        self.own_tag = 0

    def hit(self, salt: int | None = SALT_ONE, keys: list[int] | None = None) -> None:
        self.side.cache(
            "hit", "device", keys or KEYS, req=self.asked.there, pool="kv", tag=self.tag, pages=self.pages, pos=0,
            asked=len(self.pages), returned=len(self.pages), salt_fp=salt, **self.who,
        )  # fmt: skip

    def share(self) -> None:
        self.side.pages("share", "kv", self.asked.there, self.tag, self.pages)

    def bind(self) -> None:
        """The cached pages are bound; the own page is computed and bound behind them."""
        side, req, n = self.side, self.asked.there, len(self.pages)
        side.pages("bind", "kv", req, self.tag, self.pages, pos=0)
        self.own_tag = side.reserve("kv", req, [self.own], pos=n)

    def compute(self) -> None:
        """The prefill pass."""
        side, req, n = self.side, self.asked.there, len(self.pages)
        side.pages("write", "kv", req, self.own_tag, [self.own], pos=n)
        side.pages("bind", "kv", req, self.own_tag, [self.own], pos=n)
        side.run("prefill")
        side.first_token(req)

    def send(self) -> None:
        """All pages go to decode, each under its own source tag; then the request decodes and ends."""
        asked, n = self.asked, len(self.pages)
        for first, stop, tag in ((0, n, self.tag), (n, n + 1, self.own_tag)):
            asked.src_tags["kv"] = tag
            asked.send(first=first, stop=stop)
        asked.ack()
        side, req = self.side, asked.there
        side.pages("unbind", "kv", req, self.tag, self.pages, cause="sent")
        side.pages("unbind", "kv", req, self.own_tag, [self.own], cause="sent")
        side.pages("free", "kv", req, self.own_tag, [self.own], cause="sent")
        side.end(req)
        asked.commit()
        asked.dst.run()
        asked.finish(1)

    def through(self, salt: int | None = SALT_ONE) -> None:
        """A hit with its lock, and all the rest."""
        self.hit(salt)
        self.share()
        self.bind()
        self.compute()
        self.send()


def taken(
    name: str, expected: tuple[str, str], given: dict[str, Any], took: dict[str, Any], salts: tuple[Any, Any]
) -> None:
    @scene(SCENES, name, giver=CLEAN, taker=expected)
    def _(site: Site) -> None:
        _, tag = inserted(site, salt=salts[0], **given)
        Taker(site, tag, **took).through(salts[1])


def lent_out_of_place(name: str, pages: tuple[int, ...], expected: tuple[str, str]) -> None:
    """The giver's pages are written in the reverse of the order in which they are bound, and lent as bound."""

    @scene(SCENES, name, giver=("corrupt", "M13"), taker=expected)
    def _(site: Site) -> None:
        side, table = site.prefill, [1, 2, 3]
        req = side.receive("giver", ONE)
        tag = side.reserve("kv", req, table)
        side.pages("write", "kv", req, tag, table[::-1], pos=0)
        side.pages("bind", "kv", req, tag, table, pos=0)
        side.run("prefill")
        side.first_token(req)
        keys = [901, 902, 903]
        side.cache("insert", "device", keys, req=req, pool="kv", tag=tag, pages=table, pos=0, **identity(ONE, SALT_ONE))
        side.pages("unbind", "kv", req, tag, table, cause="finish")
        side.end(req)
        taker = Taker(site, tag, pages)
        taker.hit(keys=keys[: len(pages)])
        taker.share()
        taker.bind()
        taker.compute()
        taker.send()


lent_out_of_place("m13-lent-in-another-place", (1, 2, 3), ("corrupt", "M13"))
lent_out_of_place("m13-lent-with-what-was-made-for-a-later-place", (1, 2), ("contaminated", "M13"))
A, B = {"tenant": ONE}, {"tenant": TWO}
taken("hit-same-identity", CLEAN, A, A, (SALT_ONE, SALT_ONE))
taken("p0-shared-scope", ("exposed", "P0"), A, B, (SALT_ONE, SALT_ONE))
taken("p0-no-salt-at-all", ("exposed", "P0"), A, B, (None, None))
taken("m12-key-without-tenant", ("exposed", "M12"), A, B, (SALT_ONE, SALT_TWO))
taken("m12-key-without-adapter", ("corrupt", "M12"), A, A | {"adapter": "lora-1"}, (SALT_ONE, SALT_ONE))
taken("m12-key-without-weights", ("corrupt", "M12"), A | {"weights": "v1"}, A | {"weights": "v2"}, (SALT_ONE, SALT_ONE))
taken("m12-key-without-media", ("corrupt", "M12"), A | {"media": "m1"}, A | {"media": "m2"}, (SALT_ONE, SALT_ONE))
taken(
    "m12-key-without-format",
    ("corrupt", "M12"),
    A | {"kv_format": "bf16"},
    A | {"kv_format": "fp8"},
    (SALT_ONE, SALT_ONE),
)
taken("m12-key-without-both", (CONTAMINATED, "M12"), A, B | {"adapter": "lora-1"}, (SALT_ONE, SALT_TWO))


@scene(SCENES, "share-without-cache-rows", giver=CLEAN, taker=("exposed", "mechanism unknown"))
def _(site: Site) -> None:
    _, tag = inserted(site)
    taker = Taker(site, tag, tenant=TWO)
    taker.share()
    taker.bind()
    taker.compute()
    taker.send()


@scene(SCENES, "hit-without-share", giver=CLEAN, taker=CLEAN)
def _(site: Site) -> None:
    """A missing lock alone takes nothing away from what the key promised."""
    _, tag = inserted(site)
    taker = Taker(site, tag)
    taker.hit()
    taker.bind()
    taker.compute()
    taker.send()


@scene(SCENES, "m7-missing-lock", giver=CLEAN, taker=(CONTAMINATED, "M7"), thief=CLEAN)
def _(site: Site) -> None:
    """The matched pages are evicted while they are bound, and another computes on them."""
    _, tag = inserted(site)
    taker = Taker(site, tag)
    taker.hit()
    taker.bind()
    side = site.prefill
    side.cache("evict", "device", KEYS, pool="kv", tag=tag, pages=[1, 2])
    side.pages("free", "kv", None, tag, [1, 2], cause="evict")
    thief = Handoff(site, "thief", {"kv": [8, 9]}, {"kv": [1, 2]}, tenant=TWO)
    thief.grant()
    thief.compute()
    taker.compute()
    taker.send()
    thief.send()
    thief.ack()
    thief.free_source()
    thief.commit()
    thief.dst.run()
    thief.finish(1)


@scene(SCENES, "neither-hit-nor-share", giver=CLEAN, taker=(CONTAMINATED, "mechanism unknown"))
def _(site: Site) -> None:
    """A block table that names another's pages without any right to them."""
    _, tag = inserted(site)
    taker = Taker(site, tag)
    taker.bind()
    taker.compute()
    taker.send()


@scene(SCENES, "hit-of-a-stale-node", giver=CLEAN, thief=CLEAN, taker=(CONTAMINATED, "M7"))
def _(site: Site) -> None:
    """The tree still names pages that were evicted and rewritten."""
    _, tag = inserted(site)
    side = site.prefill
    side.pages("free", "kv", None, tag, [1, 2], cause="evict")
    thief = side.receive("thief", TWO)
    stolen = side.fill("kv", thief, [1, 2])
    side.pages("bind", "kv", thief, stolen, [1, 2])
    side.run("prefill")
    side.first_token(thief)
    taker = Taker(site, tag)
    taker.hit()
    taker.share()
    taker.bind()
    taker.compute()
    taker.send()
    side.end(thief)


@scene(SCENES, "hit-chain-through-a-copy", giver=CLEAN, middle=("exposed", "P0"), taker=("exposed", "P0"))
def _(site: Site) -> None:
    """The second hits and copies the first's page, the third hits the copy: what was shared across tenants stays so."""
    copied(site, TWO)


@scene(SCENES, "hit-chain-of-one-tenant", giver=CLEAN, middle=CLEAN, taker=CLEAN)
def _(site: Site) -> None:
    copied(site, ONE)


def copied(site: Site, tenant: str) -> None:
    _, tag = inserted(site)
    side = site.prefill
    middle = side.receive("middle", tenant)
    side.cache("hit", "device", KEYS, req=middle, pool="kv", tag=tag, pages=[1, 2], **identity(tenant, SALT_ONE))
    side.pages("share", "kv", middle, tag, [1, 2])
    own = side.reserve("kv", middle, [5, 6])
    side.copy(middle, ("kv", tag, [1, 2]), ("kv", own, [5, 6]))
    side.pages("unshare", "kv", middle, tag, [1, 2])
    side.pages("bind", "kv", middle, own, [5, 6])
    side.run("prefill")
    side.first_token(middle)
    side.cache("insert", "device", KEYS, req=middle, pool="kv", tag=own, pages=[5, 6], **identity(tenant, SALT_ONE))
    side.end(middle)
    Taker(site, own, (5, 6), tenant=tenant).through()


# --- tiers with pages --------------------------------------------------------------------------------------------


def offloaded(site: Site, tag: int, req: int, host: tuple[int, ...] = (1, 2), **columns: Any) -> int:
    """The pages of a cached request are copied to the host tier, and leave the device; returns the host tag."""
    side = site.prefill
    there = side.reserve("host", req, host)
    side.copy(req, ("kv", tag, [1, 2]), ("host", there, list(host)))
    side.cache("offload", "host", KEYS, req=req, pool="kv", tag=tag, pages=[1, 2], **identity(ONE, SALT_ONE) | columns)
    return there


def evicted(site: Site, tag: int) -> None:
    site.prefill.pages("free", "kv", None, tag, [1, 2], cause="evict")


class Loader:
    """A request that loads pages 21, 22 from the host tier, binds them and is sent to decode."""

    def __init__(self, site: Site, host_tag: int, tenant: str = ONE, side: Side | None = None) -> None:
        self.site, self.host_tag, self.tenant = site, host_tag, tenant
        self.side = side or site.prefill
        self.asked = Handoff(site, "taker", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant=tenant, src=self.side.name)
        self.asked.grant()
        self.tag = self.asked.src_tags["kv"] = self.side.reserve("kv", self.asked.there, [21, 22])

    def hit(self, salt: int | None = SALT_ONE) -> None:
        req = self.asked.there
        self.side.cache(
            "hit", "host", KEYS, req=req, pool="host", tag=self.host_tag, pages=[1, 2], **identity(self.tenant, salt)
        )
        self.side.pages("share", "host", req, self.host_tag, [1, 2])

    def copy(self, n: int = 2) -> None:
        req = self.asked.there
        self.side.copy(req, ("host", self.host_tag, [1, 2][:n]), ("kv", self.tag, [21, 22][:n]))
        self.side.cache(
            "load", "host", KEYS[:n], req=req, pool="kv", tag=self.tag, pages=[21, 22][:n], n=n, asked=2, returned=n,
            **identity(self.tenant),
        )  # fmt: skip

    def read(self) -> None:
        """Bind both pages, and run."""
        req = self.asked.there
        self.side.pages("bind", "kv", req, self.tag, [21, 22], pos=0)
        self.side.run("prefill")
        self.side.first_token(req)

    def send(self) -> None:
        asked = self.asked
        asked.send()
        asked.ack()
        asked.free_source()
        asked.commit()
        asked.dst.run()
        asked.finish(1)


HOST = {"pools": ("kv", "host")}


def loaded(name: str, expected: tuple[str, str], tenant: str, salt: int) -> None:
    @scene(SCENES, name, HOST, giver=CLEAN, taker=expected)
    def _(site: Site) -> None:
        req, tag = inserted(site)
        host = offloaded(site, tag, req)
        evicted(site, tag)
        loader = Loader(site, host, tenant)
        loader.hit(salt)
        loader.copy()
        loader.read()
        loader.send()


loaded("tier-load", CLEAN, ONE, SALT_ONE)
loaded("p0-through-a-tier", ("exposed", "P0"), TWO, SALT_ONE)
loaded("m12-at-a-tier", ("exposed", "M12"), TWO, SALT_TWO)


@scene(SCENES, "m2-load-returned-less", HOST, giver=CLEAN, old=CLEAN, taker=(CONTAMINATED, "M2"))
def _(site: Site) -> None:
    old = site.prefill.receive("old", TWO)
    was = site.prefill.fill("kv", old, [22])
    site.prefill.pages("free", "kv", old, was, [22], cause="finish")
    site.prefill.end(old)
    req, tag = inserted(site)
    host = offloaded(site, tag, req)
    loader = Loader(site, host)
    loader.hit()
    loader.copy(1)
    loader.read()
    loader.send()


@scene(SCENES, "m2-load-returned-less-and-the-rest-was-computed", HOST, giver=CLEAN, taker=CLEAN)
def _(site: Site) -> None:
    req, tag = inserted(site)
    host = offloaded(site, tag, req)
    loader = Loader(site, host)
    loader.hit()
    loader.copy(1)
    site.prefill.pages("write", "kv", loader.asked.there, loader.tag, [22], pos=1)
    loader.read()
    loader.send()


@scene(SCENES, "m6-load-not-done-at-bind", HOST, giver=CLEAN, old=CLEAN, taker=(CONTAMINATED, "M6"))
def _(site: Site) -> None:
    old = site.prefill.receive("old", TWO)
    was = site.prefill.fill("kv", old, [21, 22])
    site.prefill.pages("free", "kv", old, was, [21, 22], cause="finish")
    site.prefill.end(old)
    req, tag = inserted(site)
    host = offloaded(site, tag, req)
    loader = Loader(site, host)
    loader.hit()
    loader.read()
    loader.copy()
    loader.send()


@scene(SCENES, "m5-offload-of-a-page-that-was-rewritten", HOST, giver=CLEAN, thief=CLEAN, taker=(CONTAMINATED, "M5"))
def _(site: Site) -> None:
    """The device page is evicted and rewritten before it is copied out: the damage returns under the old key."""
    req, tag = inserted(site)
    side = site.prefill
    evicted(site, tag)
    thief = side.receive("thief", TWO)
    side.fill("kv", thief, [1, 2])
    side.end(thief)
    host = offloaded(site, tag, req)
    loader = Loader(site, host)
    loader.hit()
    loader.copy()
    loader.read()
    loader.send()


# --- tiers without pages -----------------------------------------------------------------------------------------

PAIR = {"names": ("gateway-0", "prefill-0", "prefill-1", "decode-0")}


def stored(
    site: Site, req: int, tag: int, side: Side | None = None, pages: tuple[int, ...] = (1, 2), **who: Any
) -> None:
    """Pages go to a tier that workers share and that has no pages."""
    (side or site.prefill).cache(
        "offload", "pool", KEYS, req=req, pool="kv", tag=tag, pages=list(pages), n=len(pages), asked=len(pages),
        returned=len(pages), **identity(ONE, SALT_ONE) | who,
    )  # fmt: skip


class FarLoader(Loader):
    """Loads from the shared tier, on the other prefill worker."""

    def __init__(self, site: Site, tenant: str = ONE) -> None:
        super().__init__(site, 0, tenant, site["prefill-1"])

    def hit(self, salt: int | None = SALT_ONE) -> None:
        self.side.cache("hit", "pool", KEYS, req=self.asked.there, **identity(self.tenant, salt))

    def copy(self, n: int = 2) -> None:
        self.side.cache(
            "load", "pool", KEYS, req=self.asked.there, pool="kv", tag=self.tag, pages=[21, 22], n=2, asked=2, returned=n,
            pos=0, **identity(self.tenant),
        )  # fmt: skip

    def through(self, salt: int | None = SALT_ONE) -> None:
        self.hit(salt)
        self.copy()
        self.read()
        self.send()


def shared(name: str, expected: tuple[str, str], tenant: str, salt: int, told: bool = True) -> None:
    @scene(SCENES, name, PAIR, giver=CLEAN, taker=expected)
    def _(site: Site) -> None:
        req, tag = inserted(site)
        stored(site, req, tag)
        if told:
            site.beat()
        FarLoader(site, tenant).through(salt)


shared("shared-tier", CLEAN, ONE, SALT_ONE)
shared("shared-tier-without-heartbeats", CLEAN, ONE, SALT_ONE, told=False)
shared("shared-tier-p0", ("exposed", "P0"), TWO, SALT_ONE)
shared("shared-tier-m12", ("exposed", "M12"), TWO, SALT_TWO)


@scene(SCENES, "shared-tier-own-content", PAIR, taker=CLEAN)
def _(site: Site) -> None:
    """What a request stored itself it may load elsewhere without a hit."""
    req, tag = inserted(site, "taker")
    stored(site, req, tag)
    site.beat()
    loader = FarLoader(site)
    loader.copy()
    loader.read()
    loader.send()


@scene(SCENES, "shared-tier-without-a-hit", PAIR, giver=CLEAN, taker=(CONTAMINATED, "mechanism unknown"))
def _(site: Site) -> None:
    req, tag = inserted(site)
    stored(site, req, tag)
    site.beat()
    loader = FarLoader(site)
    loader.copy()
    loader.read()
    loader.send()


@scene(SCENES, "shared-tier-of-nobody", PAIR, taker=("unknown", ""))
def _(site: Site) -> None:
    """Loaded under a key that nobody is known to have stored."""
    FarLoader(site).through()


@scene(SCENES, "shared-tier-stored-twice", PAIR, giver=CLEAN, second=CLEAN, taker=CLEAN)
def _(site: Site) -> None:
    """Two requests of one tenant stored the same key; whichever it was, the taker may read it."""
    req, tag = inserted(site)
    stored(site, req, tag)
    other, other_tag = inserted(site, "second", (5, 6))
    stored(site, other, other_tag, pages=(5, 6))
    FarLoader(site).through()


def twice(site: Site) -> None:
    """The key was stored on two workers, once by another tenant."""
    req, tag = inserted(site)
    stored(site, req, tag)
    side = site["prefill-1"]
    other = side.receive("second", TWO)
    other_tag = side.fill("kv", other, [5, 6])
    side.end(other)
    stored(site, other, other_tag, side, (5, 6), tenant=TWO)


@scene(SCENES, "shared-tier-order-not-known", PAIR, giver=CLEAN, second=CLEAN, taker=("unknown", ""))
def _(site: Site) -> None:
    twice(site)
    FarLoader(site).through()


@scene(SCENES, "shared-tier-order-known", PAIR, giver=CLEAN, second=CLEAN, taker=("exposed", "P0"))
def _(site: Site) -> None:
    """The taker's own worker stored last, as far as its own seq goes, and the other certainly after the load."""
    side = site["prefill-1"]
    other = side.receive("second", TWO)
    other_tag = side.fill("kv", other, [5, 6])
    side.end(other)
    stored(site, other, other_tag, side, (5, 6), tenant=TWO)
    FarLoader(site).through()
    site.beat()
    req, tag = inserted(site)
    stored(site, req, tag)


@scene(SCENES, "m5-in-a-shared-tier", PAIR, giver=CLEAN, thief=CLEAN, taker=(CONTAMINATED, "M5"))
def _(site: Site) -> None:
    req, tag = inserted(site)
    evicted(site, tag)
    thief = site.prefill.receive("thief", TWO)
    site.prefill.fill("kv", thief, [1, 2])
    site.prefill.end(thief)
    stored(site, req, tag)
    site.beat()
    FarLoader(site).through()


@scene(SCENES, "m2-in-a-shared-tier", PAIR, giver=CLEAN, old=CLEAN, taker=(CONTAMINATED, "M2"))
def _(site: Site) -> None:
    side = site["prefill-1"]
    old = side.receive("old", TWO)
    was = side.fill("kv", old, [21, 22])
    side.pages("free", "kv", old, was, [21, 22], cause="finish")
    side.end(old)
    req, tag = inserted(site)
    stored(site, req, tag)
    site.beat()
    loader = FarLoader(site)
    loader.hit()
    loader.copy(1)
    loader.read()
    loader.send()
