"""The vLLM recorder on stand-ins: what it writes, what forensics makes of it, and that it harms nothing."""

import random

import pytest
import vllm_stand_in
from vllm_stand_in import PAGE, Request

from engine.adapters.meter import Meter
from engine.adapters.nixl_handoffs import xfer_of
from engine.adapters.recorder_settings import Settings
from engine.adapters.vllm_hooks import HOOKS
from engine.adapters.vllm_names import api_id
from engine.adapters.vllm_passes import Passes
from engine.adapters.vllm_plugin import start
from engine.adapters.vllm_recorder import VllmRecorder
from engine.adapters.vllm_settings import VllmSettings
from engine.ledger.reader import read_ledger
from forensics.foreign_reads import foreign_reads


class Site:
    """Workers of one ledger, each on stand-ins of its own, with one clock."""

    def __init__(self, place, one_rid=True):
        self.place, self.one_rid, self.t = place, one_rid, 1_800_000_000_000_000
        self.recorders, self.engines = [], []

    def now(self):
        self.t += 1000
        return self.t

    def worker(self, role=None, blocks=16, groups=1, ranks=1, without=()):
        settings = Settings(self.place, "" if role else "alone", len(self.recorders), b"k" * 16)
        recorder = VllmRecorder(VllmSettings(settings, one_rid=self.one_rid), self.now, Meter(now_ns=lambda: 0))
        engine = vllm_stand_in.StandIn()

        def resolve(target):
            if any(target.endswith(name) for name in without):
                raise AttributeError(target)
            return engine.resolve(target)

        start(recorder, resolve)
        self.recorders.append(recorder)
        self.engines.append(engine)
        return engine.scheduler(role, blocks, groups, ranks)

    def close(self):
        for recorder in self.recorders:
            recorder.close()
        return read_ledger(self.place)

    def verdicts(self):
        ledger = self.close()
        assert not [recorder.failures for recorder in self.recorders if recorder.failures]
        found = foreign_reads(ledger, engine="both")
        return {
            one["rid"]: (one["verdict"], one["mechanism"] or "", list(one["donors"] or ()))
            for one in found.responses.to_pylist()
        }


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "ledger")


def run(scheduler, request, steps=6):
    scheduler.add_request(request)
    for _ in range(steps):
        scheduler.step()
    scheduler.finish(request)


def rows(ledger, table, op=None):
    return [row for row in ledger.tables[table].to_pylist() if op is None or row["op"] == op]


def pair(site, ranks=1):
    return site.worker("kv_producer", ranks=ranks), site.worker("kv_consumer", ranks=ranks)


def prefill(scheduler, name, prompt):
    """Prefill computes a prompt and lends its blocks; what the proxy hands to decode."""
    request = Request(name, prompt)
    scheduler.add_request(request)
    scheduler.step()
    blocks = [block.block_id for block in scheduler.blocks(request).blocks[0]]
    scheduler.lent = {
        "do_remote_prefill": True, "remote_block_ids": [blocks], "remote_engine_id": "producer",
        "remote_request_id": name, "remote_num_tokens": len(prompt), "remote_host": "h", "remote_port": 1,
    }  # fmt: skip
    scheduler.finish(request)
    lent, scheduler.lent = scheduler.lent, None
    return lent


def decode(scheduler, name, prompt, params, steps=5):
    request = Request(name, prompt, params=dict(params))
    scheduler.add_request(request)
    scheduler.step()
    scheduler.step(received=[name])
    for _ in range(steps):
        scheduler.step()
    scheduler.finish(request)


def test_a_request_that_computes_and_decodes_is_clean(site):
    run(site.worker(), Request("cmpl-a-0-0123abcd", range(10)), steps=9)
    assert site.verdicts() == {"cmpl-a-0": ("clean", "", [])}


def test_the_rows_of_a_request_name_its_blocks_and_its_slots(site):
    run(site.worker(), Request("a", range(6)), steps=4)
    ledger = site.close()
    assert [(row["op"], row["pos"], row["tokens"]) for row in rows(ledger, "pages")] == [
        ("reserve", 0, None), ("write", 0, 6), ("bind", 0, 6), ("write", 1, 4), ("append", 2, None),
        ("unbind", None, None), ("unbind", None, None), ("free", None, None),
    ]  # fmt: skip
    assert [row["op"] for row in rows(ledger, "requests")] == ["receive", "admit", "first_token", "finish"]
    end = rows(ledger, "requests", "finish")[0]
    assert (end["prompt_tokens"], end["output_tokens"], end["page_rows"]) == (6, 4, len(rows(ledger, "pages")))


@pytest.mark.parametrize(
    ("salts", "tenants", "verdict"),
    [
        ((None, None), ("x", "y"), ("exposed", "P0", [])),
        ((None, None), ("x", "x"), ("clean", "", [])),
        (("s", "t"), ("x", "y"), ("clean", "", [])),
        (("s", "s"), ("x", "y"), ("exposed", "P0", [])),
    ],
)
def test_a_prefix_between_tenants_is_told_by_tenant_and_salt(site, salts, tenants, verdict):
    scheduler = site.worker()
    for name, salt, tenant in zip("ab", salts, tenants, strict=True):
        run(scheduler, Request(name, range(10), salt, tenant))
    assert site.verdicts() == {"a": ("clean", "", []), "b": verdict}


def test_two_requests_of_one_pass_share_what_it_writes(site):
    scheduler = site.worker()
    first, second = Request("a", range(10)), Request("b", range(10))
    scheduler.add_request(first)
    scheduler.step()
    scheduler.add_request(second)
    for _ in range(7):
        scheduler.step()
    scheduler.finish(first)
    scheduler.step()
    scheduler.finish(second)
    assert site.verdicts() == {"a": ("clean", "", []), "b": ("clean", "", [])}


def test_blocks_filed_for_a_pass_that_never_came_stand_in_no_cache_row(site):
    scheduler = site.worker()
    request, pool = Request("preempted", range(10)), scheduler.kv_cache_manager.block_pool
    scheduler.add_request(request)
    pool.cache_full_blocks(request, [pool.get_new_block(), pool.get_new_block()], 0, 2, PAGE, 0)
    scheduler.waiting.remove(request)
    run(scheduler, Request("b", range(50, 60)))
    assert {row["req"] for row in rows(site.close(), "cache", "insert")} == {2}


def test_blocks_of_a_small_pool_go_from_request_to_request(site):
    scheduler = site.worker(blocks=7)
    for i in range(6):
        run(scheduler, Request(f"r{i}", range(i * 100, i * 100 + 9), tenant=f"t{i}"), steps=5)
    verdicts = site.verdicts()
    assert verdicts == {f"r{i}": ("clean", "", []) for i in range(6)}
    assert rows(read_ledger(site.place), "cache", "evict")


def test_a_preempted_request_is_judged_by_its_new_blocks(site):
    scheduler = site.worker()
    request, other = Request("a", range(6)), Request("b", range(50, 59))
    scheduler.add_request(request)
    scheduler.step()
    scheduler.step()
    scheduler.preempt(request)
    scheduler.waiting.remove(request)
    scheduler.add_request(other)
    scheduler.step()
    scheduler.waiting.append(request)
    for _ in range(4):
        scheduler.step()
    scheduler.finish(other)
    scheduler.step()
    scheduler.finish(request)
    assert site.verdicts() == {"a": ("clean", "", []), "b": ("clean", "", [])}
    ledger = read_ledger(site.place)
    assert [row["op"] for row in rows(ledger, "requests") if row["op"] in ("pause", "resume")] == ["pause", "resume"]


def test_a_handoff_is_clean_and_its_source_was_held_for_it(site):
    producer, consumer = pair(site)
    params = prefill(producer, "cmpl-a-0-0000000a", range(8))
    decode(consumer, "cmpl-a-0-0000000b", range(8), params)
    producer.step(sent=["cmpl-a-0-0000000a"])
    assert site.verdicts() == {"cmpl-a-0": ("clean", "", [])}
    ledger = read_ledger(site.place)
    assert {row["xfer"] for row in rows(ledger, "transfers")} == {xfer_of("producer", "cmpl-a-0-0000000a")}
    ops = [(row["worker"], row["op"]) for row in rows(ledger, "transfers")]
    assert sorted(ops) == [
        ("consumer", "ack"), ("consumer", "done"), ("consumer", "post"), ("producer", "ack"), ("producer", "grant"),
    ]  # fmt: skip


def test_the_lease_says_which_life_of_prefill_was_read(site):
    earlier = site.worker("kv_producer")
    run(earlier, Request("old", range(60, 70)), steps=1)
    site.recorders[0].close()
    producer, consumer = pair(site)
    params = prefill(producer, "a", range(8))
    decode(consumer, "a", range(8), params)
    producer.step(sent=["a"])
    assert site.verdicts()["a"] == ("clean", "", [])
    assert {row["epoch"] for row in rows(read_ledger(site.place), "transfers", "grant")} == {2}


def test_a_decode_given_another_requests_blocks_and_those_who_find_them_are_named(site):
    producer, consumer = pair(site)
    params = prefill(producer, "donor", range(8))
    decode(consumer, "thief", range(100, 108), params)
    producer.step(sent=["donor"])
    run(consumer, Request("later", [*range(100, 108), 1, 2]))
    run(consumer, Request("other", range(200, 208)))
    assert site.verdicts() == {
        "donor": ("unknown", "", []), "thief": ("contaminated", "M11", ["donor"]),
        "later": ("contaminated", "M11", ["donor"]), "other": ("clean", "", []),
    }  # fmt: skip


def test_where_two_ids_of_one_request_are_usual_nobody_is_accused_for_them(tmp_path):
    site = Site(tmp_path / "ledger", one_rid=False)
    producer, consumer = pair(site)
    params = prefill(producer, "p-1", range(8))
    decode(consumer, "d-1", range(8), params)
    producer.step(sent=["p-1"])
    assert site.verdicts()["d-1"][0] == "unknown"


def test_an_expired_lease_is_no_acknowledgement(site):
    producer, consumer = pair(site)
    params = prefill(producer, "a", range(8))
    producer.step(sent=["a"], stats={"num_kv_expired_reqs": [1], "num_notifications_after_expiry": [1]})
    run(producer, Request("thief", range(300, 360)), steps=1)
    decode(consumer, "a", range(8), params)
    verdicts = site.verdicts()
    assert verdicts["a"][0] != "clean"
    ledger = read_ledger(site.place)
    assert [row["op"] for row in rows(ledger, "transfers") if row["worker"] == "producer"] == ["grant", "expire"]
    assert rows(ledger, "checks", "mismatch")[0]["detector"] == "nixl notification after expiry"


def test_a_read_that_failed_is_no_success_although_it_is_over(site):
    producer, consumer = pair(site)
    params = prefill(producer, "a", range(8))
    request = Request("a", range(8), params=dict(params))
    consumer.add_request(request)
    consumer.step()
    consumer.finish(request, "FINISHED_ERROR")
    consumer.step(failed=["a"])
    ledger = site.close()
    assert [row["op"] for row in rows(ledger, "transfers") if row["worker"] == "consumer"] == ["post", "fail"]
    assert not rows(ledger, "requests", "commit") and not rows(ledger, "pages", "receipt")
    assert [row["cause"] for row in rows(ledger, "pages", "free")] == ["finish"]


def test_blocks_of_a_request_that_is_aborted_while_they_are_read_are_held_until_the_read_is_over(site):
    producer, consumer = pair(site)
    params = prefill(producer, "a", range(8))
    request = Request("a", range(8), params=dict(params))
    consumer.add_request(request)
    consumer.step()
    consumer.finish(request, "FINISHED_ABORTED")
    run(consumer, Request("b", range(50, 60)), steps=3)
    consumer.step(received=["a"])
    producer.step(sent=["a"])
    run(consumer, Request("c", range(70, 80)), steps=3)
    verdicts = site.verdicts()
    assert verdicts["b"] == verdicts["c"] == ("clean", "", [])
    ledger = read_ledger(site.place)
    mine = next(
        row["req"] for row in rows(ledger, "requests", "receive") if row["rid"] == "a" and row["worker"] == "consumer"
    )
    told = [(row["seq"], row["op"]) for table in ("requests", "pages", "transfers") for row in rows(ledger, table)
            if row["worker"] == "consumer" and row["req"] == mine]  # fmt: skip
    assert [op for _, op in sorted(told)] == [
        "receive", "admit", "reserve", "post", "hold", "abort", "done", "ack", "unbind", "free",
    ]  # fmt: skip


def test_a_handoff_between_servers_of_several_ranks_is_one_handoff(site):
    producer, consumer = pair(site, ranks=2)
    params = prefill(producer, "a", range(8))
    decode(consumer, "a", range(8), params)
    producer.step(sent=["a"])
    assert site.verdicts() == {"a": ("clean", "", [])}
    assert {row["tp_size"] for row in rows(read_ledger(site.place), "workers", "start")} == {2}


def test_a_lease_that_one_of_several_ranks_let_expire_is_not_acknowledged_by_the_others(site):
    producer, consumer = pair(site, ranks=2)
    params = prefill(producer, "a", range(8))
    producer.step(stats={"num_kv_expired_reqs": [1]})  # one rank
    producer.step(sent=["a"])  # of the other, the reader has said that it is done
    run(producer, Request("thief", range(300, 360)), steps=1)
    decode(consumer, "a", range(8), params)
    assert site.verdicts()["a"][0] != "clean"
    ledger = read_ledger(site.place)
    assert [row["op"] for row in rows(ledger, "transfers") if row["worker"] == "producer"] == ["grant", "expire"]


def test_a_read_of_fewer_blocks_than_were_asked_for_says_both_numbers(site):
    producer, consumer = pair(site)
    params = prefill(producer, "stub", [1])
    request = Request("stub", range(20), params=dict(params))
    consumer.add_request(request)
    consumer.schedule()
    try:
        raise AssertionError("as the worker does")
    except AssertionError:
        site.engines[1].parts["EngineCore"]().shutdown()
    site.recorders[0].close()
    ledger = read_ledger(site.place)
    post = rows(ledger, "transfers", "post")[0]
    assert (post["n"], post["asked"]) == (1, 5)
    assert rows(ledger, "checks", "mismatch")[0]["action"] == "the engine died of AssertionError"
    assert any(gap.reason == "dead writer" for gap in ledger.gaps)
    found = foreign_reads(ledger, engine="both")
    assert found.responses["verdict"].to_pylist() == ["unknown"]


def test_tables_that_are_not_followed_clear_nobody(site):
    run(site.worker(groups=2), Request("a", range(10)))
    assert site.verdicts()["a"][0] == "unknown"


def test_blocks_that_an_unfollowed_connector_has_filled_clear_nobody(site):
    scheduler = site.worker()
    request = Request("a", range(10))
    request.num_computed_tokens = 2 * PAGE
    run(scheduler, request)
    assert site.verdicts()["a"][0] == "unknown"


def test_a_hook_that_does_not_fit_is_told_and_its_table_is_missing(site):
    run(site.worker(without=("_free_request",)), Request("a", range(10)))
    ledger = site.close()
    assert [row["detector"] for row in rows(ledger, "checks", "skipped")] == [
        "hook v1.core.sched.scheduler.Scheduler._free_request"
    ]
    assert "requests" in {gap.table for gap in ledger.gaps}


def test_a_handler_that_fails_harms_no_request_and_leaves_a_gap(site, monkeypatch):
    scheduler = site.worker()
    request = Request("a", range(10))
    scheduler.add_request(request)
    monkeypatch.setattr(site.recorders[0], "_passes", None)
    scheduler.step()
    assert request.num_output_tokens == 1
    assert site.recorders[0].failures


@pytest.mark.parametrize("seed", range(4))
def test_passes_that_repeat_are_told_as_if_each_had_been_noted(seed, tmp_path, monkeypatch):
    def played(place):
        draw, site = random.Random(seed), Site(place)
        scheduler, live = site.worker(blocks=40), []
        for i in range(100):
            if len(live) < 1 + i % 2 and draw.random() < 0.3:
                live.append(Request(f"r{i}", range(i * 100, i * 100 + draw.randint(1, 11))))
                scheduler.add_request(live[-1])
            scheduler.step()
            if live and draw.random() < 0.1:
                scheduler.finish(live.pop(draw.randrange(len(live))))
        assert site.recorders[0].steps > 40
        ledger = site.close()
        return {name: table.to_pylist() for name, table in ledger.tables.items()}

    told = played(tmp_path / "told")
    monkeypatch.setattr(Passes, "repeat", lambda *_: False)
    noted = played(tmp_path / "noted")
    assert told == noted and any(row["n"] > 1 for row in told["steps"])


def test_every_hook_has_its_handler_and_is_named_once():
    assert len({(hook.path, hook.kind) for hook in HOOKS}) == len(HOOKS)
    assert all(callable(getattr(VllmRecorder, hook.handler)) for hook in HOOKS)


@pytest.mark.parametrize(
    ("internal", "name"),
    [
        ("cmpl-x-0-0123abcd", "cmpl-x-0"), ("chatcmpl-x-0123abcd", "chatcmpl-x"), ("chatcmpl-x-deadbeef-0123abcd", "chatcmpl-x-deadbeef"),
        ("1_cmpl-x-0-0123abcd", "cmpl-x-0"), ("0_chatcmpl-x-0123abcd", "chatcmpl-x"), ("cmpl-7_x-0-0123abcd", "cmpl-7_x-0"),
    ],
)  # fmt: skip
def test_the_engines_ids_are_told_by_the_apis(internal, name):
    assert api_id(internal) == name


def test_ids_without_random_digits_are_left_as_they_are():
    assert api_id("chatcmpl-x-deadbeef", is_random=False) == "chatcmpl-x-deadbeef"


def test_both_choices_of_a_request_are_its_own(site):
    producer, consumer = pair(site)
    params = prefill(producer, "cmpl-a-0-0000000a", range(8))
    for choice in (0, 1):
        decode(consumer, f"{choice}_cmpl-a-0-0000000b", range(8), params)
    producer.step(sent=["cmpl-a-0-0000000a"])
    assert site.verdicts()["cmpl-a-0"] == ("clean", "", [])
