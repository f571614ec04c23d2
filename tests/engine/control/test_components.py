"""Pools beside `kv` in the control plane: reserved all or none, handed over under one transfer, let go together."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from control_bench import PAGE, Bench, pages_of

from engine.block_pool import BlockPool
from engine.components import Components, Hooks, token_capacity
from engine.executor import TagMismatch
from engine.role import HoldPolicy

OTHERS = {"index": 33, "swa": 13, "state": 5, "draft": 33, "slot": 5}


class ComponentBench(Bench):
    """Both roles with pools beside `kv`. `beside`: pages of each at prefill and decode, the null block included."""

    def __init__(self, directory, *, prefill=OTHERS, decode=OTHERS, holds=None, **settings):
        self.beside, self.holds = {"prefill": prefill, "decode": decode}, holds or HoldPolicy()
        self.scrubbed, self.slots, self.slot_mismatch = defaultdict(list), [], ()
        super().__init__(directory, **settings)

    def _parts(self, role, *rest):
        parts = super()._parts(role, *rest)
        pools = [BlockPool(name, pages, PAGE, parts.recorder) for name, pages in self.beside[role].items()]
        for pool in pools:
            parts.recorder.record("workers", "config", pool=pool.name, pool_pages=pool.pages, page_tokens=PAGE)
        hooks = Hooks(lambda pool, pages: self.scrubbed[pool].extend(pages.tolist()), self._accept)
        return replace(parts, others=Components(parts.recorder, pools, hooks), holds=self.holds)

    def _accept(self, request, table, step, check):
        self.slots.append((request.given.rid, table.pages.tolist()))
        return self.slot_mismatch if check else ()

    def audit(self):
        """Every page of every pool is accounted for."""
        for role in (self.prefill, self.decode):
            assert not role.pool.audit({req: one.pages for req, one in role.requests.items()}).wrong
            assert not any(one.wrong for one in role.others.audit(role.requests).values())

    def idle(self):
        """Every page of every pool is free, and none is promised."""
        self.audit()
        for role in (self.prefill, self.decode):
            for pool in (role.pool, *role.others.pools.values()):
                assert pool.free_pages == pool.usable_pages, (role, pool.name)
            assert not any(role.others.promised.values())


@pytest.fixture
def engine(tmp_path):
    made = []

    def build(**settings):
        made.append(ComponentBench(tmp_path / f"ledger-{len(made)}", **settings))
        return made[-1]

    yield build
    for each in made:
        each.close()


def test_a_request_has_pages_of_every_pool_and_leaves_none(engine):
    bench = engine()
    bench.ask("a", prompt=30, output=9)
    bench.run()
    assert bench.code("a") == "" and len(bench.tokens("a")) == 9
    bench.idle()
    (reserve,) = bench.rows("pages", "decode", op="reserve", pool="swa")
    grants = bench.rows("transfers", "decode", op="grant")
    assert [row["dst_pool"] for row in grants] == ["kv", *OTHERS]
    assert [row["asked"] for row in grants] == [8, 8, 4, 1, 8, 1]
    assert [row["pos"] for row in grants if row["dst_pool"] == "swa"] == [4]
    assert len({row["xfer"] for row in grants}) == 1
    assert len(reserve["pages"]) == 4
    receipts = {row["pool"]: row["tokens"] for row in bench.rows("pages", "decode", op="receipt")}
    assert receipts == {"kv": 30, "index": 30, "swa": 14, "draft": 30, "state": None, "slot": None}


def test_prefill_writes_what_it_binds_and_the_metadata_last(engine):
    bench = engine()
    bench.ask("a", prompt=30)
    bench.run()
    rows = [(row["op"], row["pool"]) for row in bench.rows("pages", "prefill") if row["op"] in ("write", "bind")]
    assert [pool for op, pool in rows if op == "write"] == ["kv", "index", "swa", "state", "draft", "slot"]
    assert ("bind", "slot") not in rows
    sent = bench.transport.written
    assert [batch.chunk for batch in sent] == list(range(len(sent)))
    assert [batch.pool for batch in sent] == ["kv", "index", "swa", "state", "draft", "slot"]
    assert sent[2].tokens.tolist() == [4, 4, 4, 2] and sent[2].pos == 4
    granted = {row["dst_pool"]: row for row in bench.rows("transfers", "decode", op="grant")}
    for row in bench.rows("transfers", "prefill", op="post"):
        assert (row["dst_tag"], row["dst_pages"]) == tuple(
            granted[row["dst_pool"]][key] for key in ("dst_tag", "dst_pages")
        )


def test_the_metadata_is_read_once_and_its_page_goes_back_before_the_first_pass(engine):
    bench = engine()
    bench.ask("a", prompt=6, output=4)
    bench.run()
    assert [rid for rid, _ in bench.slots] == ["a"]
    story = bench.story("decode")
    rows = {row["seq"]: row for row in bench.rows("pages", "decode") if row["pool"] == "slot"}
    assert [row["op"] for row in rows.values()] == ["reserve", "receipt", "bind", "free"]
    assert story.index("steps/decode") > story.index("pages/bind")


def test_metadata_of_another_is_refused_before_anything_is_bound(engine):
    bench = engine()
    bench.slot_mismatch = (TagMismatch(1, 0, 5, 6, "slot"),)
    bench.ask("a")
    bench.run()
    assert bench.code("a") == "page_tag_mismatch" and not bench.tokens("a")
    bench.idle()
    assert not bench.rows("pages", "decode", op="bind")
    assert [(row["detector"], row["pool"]) for row in bench.rows("checks", op="mismatch")] == [("D4", "slot")]


@pytest.mark.parametrize("scarce", OTHERS)
def test_a_request_waits_for_the_pool_that_is_short(engine, scarce):
    small = {**OTHERS, scarce: {"index": 7, "swa": 5, "state": 2, "draft": 7, "slot": 2}[scarce]}
    bench = engine(decode=small)
    bench.transport.auto = False
    bench.ask("a", prompt=16, output=4)
    bench.ask("b", prompt=16, output=4)
    for _ in range(10):
        bench.turn()
    assert len(bench.decode.transfers) == 1 and len(bench.decode.prealloc) == 1
    for name, pool in bench.decode.others.pools.items():
        assert pool.usable_pages - pool.free_pages == {"swa": 4, "state": 1, "slot": 1}.get(name, 4)
    bench.transport.auto = True
    bench.run()
    assert bench.code("a") == bench.code("b") == ""
    bench.idle()


def test_growth_is_kept_free_in_every_pool(engine):
    """Two requests that fit at first, but not with what they grow to."""
    bench = engine(decode={**OTHERS, "index": 11})
    bench.ask("a", prompt=8, output=17)
    bench.ask("b", prompt=8, output=17)
    bench.until(lambda: bench.decode.transfers)
    assert len(bench.decode.transfers) == 1
    assert bench.decode.others.promised["index"] == 4
    bench.run()
    assert bench.code("a") == bench.code("b") == ""
    bench.idle()


def test_what_is_held_is_held_in_every_pool_until_it_has_drained(engine):
    bench = engine()
    bench.transport.auto = False
    bench.ask("a", prompt=20)
    bench.until(lambda: bench.transport.queue)
    bench.transport.post()
    bench.decode.abort("a")
    for _ in range(4):
        bench.turn()
    held = {name: pool.counts()["held"] for name, pool in bench.decode.others.pools.items()}
    assert held == {"index": 5, "swa": 4, "state": 1, "draft": 5, "slot": 1}
    bench.audit()
    bench.transport.land()
    bench.run()
    bench.idle()
    freed = [row["pool"] for row in bench.rows("pages", "decode", op="free", cause="drained")]
    assert sorted(freed) == sorted(["kv", *OTHERS])


@pytest.mark.parametrize("on_timeout", ["quarantine", "release"])
def test_what_a_timeout_does_it_does_to_every_pool(engine, on_timeout):
    bench = engine(holds=HoldPolicy(timeout_us=1000, on_timeout=on_timeout))
    bench.transport.auto = False
    bench.ask("a", prompt=20)
    bench.until(lambda: bench.transport.queue)
    bench.transport.post()
    bench.decode.abort("a")
    bench.turn()
    bench.clock.advance(2000)
    bench.turn()
    counts = [pool.counts() for pool in bench.decode.others.pools.values()]
    assert all(bool(one["quarantined"]) == (on_timeout == "quarantine") and not one["held"] for one in counts)
    bench.audit()


def test_scrubbing_reaches_every_pool(engine):
    bench = engine(holds=HoldPolicy(scrub=True))
    bench.executors["prefill"].scrub = bench.executors["decode"].scrub = lambda pages: None
    bench.ask("a", prompt=20)
    bench.run()
    assert set(bench.scrubbed) >= {"index", "swa", "state", "draft"}
    scrubs = bench.rows("pages", "prefill", op="scrub")
    assert {row["pool"] for row in scrubs} == {"kv", *OTHERS}


@pytest.mark.parametrize("component", ["kv", *OTHERS])
def test_partial_state_sends_less_of_one_pool_alone(engine, component):
    bench = engine(defences={"covered-count": "off"}, faults=["partial-state"])
    bench.prefill.faults.partial_state.component = component
    bench.ask("a", prompt=30, output=3)
    bench.run()
    assert bench.code("a") == ""
    sent = defaultdict(int)
    for batch in bench.transport.written:
        sent[batch.pool] += len(batch.dst_pages)
    granted = {row["dst_pool"]: row["n"] for row in bench.rows("transfers", "decode", op="grant")}
    assert {pool for pool in granted if sent[pool] < granted[pool]} == {component}
    bench.idle()


@pytest.mark.parametrize("component", OTHERS)
def test_the_count_is_checked_per_pool_before_anything_is_bound(engine, component):
    bench = engine(faults=["partial-state"])
    bench.prefill.faults.partial_state.component = component
    bench.ask("a", prompt=30, output=3)
    bench.run()
    assert bench.code("a") == "covered_less_than_reserved"
    (check,) = bench.rows("checks", op="mismatch")
    assert (check["detector"], check["pool"]) == ("D2", component) and check["found"] < check["expected"]
    assert not bench.rows("pages", "decode", op="bind")
    bench.idle()


def test_retraction_takes_every_pool_along_and_brings_it_back(engine):
    bench = engine(
        decode_pages=9,
        decode={"index": 9, "swa": 9, "state": 3, "draft": 9, "slot": 3},
        host_pages=40,
        reserved_tokens=1,
    )
    bench.ask("a", prompt=12, output=14)
    bench.ask("b", prompt=12, output=14)
    bench.run()
    assert bench.code("a") == bench.code("b") == ""
    bench.idle()
    copies = bench.executors["decode"].copies
    out, back = ([one for one in copies if (one[2] == "host") == there] for there in (True, False))
    assert {one[0] for one in out} == {"kv", "index", "swa", "state", "draft"} == {one[2] for one in back}
    assert sum(len(one[1]) for one in out) == sum(len(one[1]) for one in back)
    assert bench.decode.retraction.host.free_pages == 39
    binds = [row for row in bench.rows("pages", "decode", op="bind") if row["pool"] == "kv"]
    assert len(binds) > 2 and binds[-1]["tokens"] % PAGE == 0


def test_without_other_pools_nothing_is_said_of_them(bench):
    engine = bench()
    engine.ask("a", prompt=30)
    engine.run()
    assert {row["pool"] for row in engine.rows("pages")} == {"kv"}
    grant = next(message for _, _, message in engine.network.sent if message["kind"] == "grant")
    ack = next(message for _, _, message in engine.network.sent if message["kind"] == "ack")
    assert "others" not in grant and "covered_beside" not in ack
    assert len(pages_of(engine.rows("pages", "decode", op="bind"))) == 8


def test_capacity_is_that_of_the_smallest_pool_that_grows_with_the_prompt():
    assert token_capacity({"kv": 10, "index": 8, "state": 1, "slot": 1, "swa": 4}, 4) == 32
    assert token_capacity({"kv": 10, "swa": 3}, 4) == 12
    assert token_capacity({"kv": 10}, 16) == 160


def test_places_of_each_pool(engine):
    others = engine().decode.others
    spans = {tokens: [others.places(name, tokens) for name in OTHERS] for tokens in (1, 16, 17, 40)}
    assert spans[1] == [(0, 1), (0, 1), (0, 1), (0, 1), (0, 1)]
    assert spans[16] == [(0, 4), (0, 4), (0, 1), (0, 4), (0, 1)]
    assert spans[17] == [(0, 5), (1, 5), (0, 1), (0, 5), (0, 1)]
    assert spans[40] == [(0, 10), (6, 10), (0, 1), (0, 10), (0, 1)]
    assert np.all([others.fit(1), not others.fit(4 * 33)])
