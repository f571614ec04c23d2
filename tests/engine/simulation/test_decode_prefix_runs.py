"""Decode's own prefix cache in virtual time: verdicts against what the pages physically held."""

import json

import pytest

from engine.defences import DETECTORS
from engine.ledger.reader import read_ledger
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate
from engine.truth import read_truth
from forensics.foreign_reads import foreign_reads

OFF = dict.fromkeys(DETECTORS, "off")


def scenario(scope="tenant", modes=None, faults=(), per="tenant", beside=None, **decode):
    """Three tenants whose prompts begin alike, on a decode pool that holds a few requests at a time."""
    shape = {"page_tokens": 16, "context_tokens": 4096, "transfer_pages": 4}
    cache = {"prefix_cache": {"enabled": True, "scope": scope}} if scope else {}
    return {
        "name": "decode-cache", "seed": 5, "duration": "8s", "recording": {"step_run": "0us"},
        "fleet": [
            {"group": "prefill", "role": "prefill", "pages": {"kv": 240, **(beside or {})}, **shape},
            {"group": "decode", "role": "decode", "pages": {"kv": 90, **(beside or {})}, **cache, **shape, **decode},
        ],
        "defences": {"modes": modes or {}},
        "costs": {"decode": {"base": "5ms"}, "transfer": {"latency": "200us", "bandwidth": "200M"}},
        "traffic": [{
            "name": "chat", "arrivals": {"kind": "poisson", "rate_per_s": 8},
            "prompt": {"kind": "uniform", "min": 20, "max": 200}, "output": {"kind": "uniform", "min": 5, "max": 60},
            "tenants": {"count": 3}, "adapters": {"none": 1, "poet": 1},
            "prefixes": [{"name": "house", "per": per, "tokens": {"kind": "fixed", "value": 160}}],
            "disconnects": {"probability": 0.2, "after": {"kind": "uniform", "min": "10ms", "max": "600ms"}},
        }],
        "faults": [{"name": name, "parameters": parameters} for name, parameters in faults],
    }  # fmt: skip


class Played:
    """A run: its ledger, what was physically true, the verdicts, and the decode worker as it stood at the end."""

    def __init__(self, place, plan):
        ends = []
        simulate(parse_scenario(json.dumps(plan), known=KNOWN), place, at_end=ends.append)
        self.ledger, self.truth = read_ledger(place), read_truth(place / "truth")
        self.verdicts = {row["rid"]: row for row in foreign_reads(self.ledger).responses.to_pylist()}
        self.role = ends[0].workers["decode-0"].role

    def rows(self, table, op, worker="decode-0"):
        return [row for row in self.ledger.tables[table].to_pylist() if row["op"] == op and row["worker"] == worker]

    def pages(self, table, op, worker="decode-0"):
        return sum(row["n"] for row in self.rows(table, op, worker))

    def judged(self, verdict, mechanism=""):
        return {
            rid for rid, row in self.verdicts.items() if row["verdict"] == verdict and mechanism in row["mechanism"]
        }

    def assert_clean_truth(self):
        wrong = [
            one for one in self.truth.values() if one.contaminated or one.unwritten or one.misplaced or one.perhaps
        ]
        assert len(self.truth) > 20 and not wrong

    def assert_accounted(self):
        pool = self.role.pool
        found = pool.audit({req: request.claimed_pages for req, request in self.role.requests.items()})
        assert found.wrong == () and sum(found.counts.values()) == pool.usable_pages
        assert self.role.parts.prefix.tree.audit() == ()


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """Each scenario is played once."""
    runs = {}

    def played(**given):
        key = repr(sorted(given.items()))
        if key not in runs:
            runs[key] = Played(tmp_path_factory.mktemp("run") / "ledger", scenario(**given))
        return runs[key]

    return played


def test_fewer_pages_are_sent_and_every_answer_is_clean(play):
    without, cached = play(scope=None), play()
    found = cached.pages("cache", "hit")
    assert found > 50 and not without.rows("cache", "hit")
    granted = cached.rows("transfers", "grant")
    assert sum(row["pos"] or 0 for row in granted) == found
    assert cached.pages("transfers", "done", "prefill-0") < without.pages("transfers", "done", "prefill-0")
    assert cached.judged("clean") == set(cached.verdicts) and not cached.ledger.gaps
    cached.assert_clean_truth()
    assert not any(one.cross_tenant or one.wrong_meaning for one in cached.truth.values())
    cached.assert_accounted()


def test_what_is_found_differs_by_scope_and_never_by_prefill(play):
    shared, scoped = play(scope="global", per="global"), play(scope="tenant", per="global")
    assert shared.pages("cache", "hit") > scoped.pages("cache", "hit")
    assert {row["cached_tokens"] for row in shared.rows("requests", "commit")} == {0}
    crossed = {rid for rid, one in shared.truth.items() if one.cross_tenant}
    assert len(crossed) > 3 and shared.judged("exposed", "P0") == crossed
    shared.assert_clean_truth()


@pytest.mark.parametrize(
    ("fault", "parameters", "verdict", "mechanism"),
    [
        ("shared-scope", {}, "exposed", "P0"),
        ("incomplete-key", {"field": "tenant"}, "exposed", "M12"),
        ("incomplete-key", {"field": "adapter"}, "corrupt", "M12"),
    ],
)
def test_keys_that_are_too_wide_are_found_out_and_stopped(play, fault, parameters, verdict, mechanism):
    given = {"per": "global", "faults": [(fault, parameters)]}
    free = play(modes=OFF, **given)
    harmed = {
        rid for rid, one in free.truth.items() if (one.wrong_meaning if verdict == "corrupt" else one.cross_tenant)
    }
    assert len(harmed) >= 2 and free.judged(verdict, mechanism) == harmed
    assert free.judged("clean") == set(free.verdicts) - harmed
    stopped = play(modes={**OFF, "scoped-keys": "enforce"}, **given)
    assert stopped.judged("clean") == set(stopped.verdicts)
    assert not any(one.cross_tenant or one.wrong_meaning for one in stopped.truth.values())
    assert stopped.pages("cache", "hit") > 0


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_group_can_leave_a_field_out_of_its_keys(tmp_path, role):
    plan = scenario(scope=None)
    (group,) = [each for each in plan["fleet"] if each["role"] == role]
    group["prefix_cache"] = {"enabled": True, "key_fields": ["media", "weights", "kv_format"]}
    played = Played(tmp_path / "ledger", plan)
    harmed = {rid for rid, one in played.truth.items() if one.wrong_meaning}
    assert len(harmed) > 3
    answered = {rid for rid, one in played.truth.items() if one.output_tokens}
    assert played.judged("corrupt", "M12") & answered == harmed


def test_retracted_requests_that_had_cached_pages_run_on_and_are_right(play):
    played = play(pages={"kv": 60}, host_pages=200, reserved_tokens=4)
    req = {row["req"] for row in played.rows("pages", "share")}
    paused = {row["req"] for row in played.rows("requests", "pause")}
    assert req & paused and played.rows("requests", "resume")
    assert played.judged("clean") == set(played.verdicts)
    played.assert_clean_truth()
    played.assert_accounted()
    assert played.role.parts.host.audit(played.role.on_host()).wrong == ()


def test_a_full_pool_evicts_and_serves(play):
    played = play(pages={"kv": 40})
    assert played.pages("cache", "evict") > 50
    assert played.judged("clean") == set(played.verdicts)
    played.assert_clean_truth()
    played.assert_accounted()


def test_with_components_the_others_are_sent_whole(play):
    played = play(beside={"index": 240, "slot": 20})
    grants = played.rows("transfers", "grant")
    by_pool = {pool: {row["xfer"]: row for row in grants if row["dst_pool"] == pool} for pool in ("kv", "index")}
    some = [xfer for xfer, row in by_pool["kv"].items() if row["pos"]]
    assert some and all(
        by_pool["index"][xfer]["n"] == by_pool["kv"][xfer]["n"] + by_pool["kv"][xfer]["pos"] for xfer in some
    )
    assert played.judged("clean") == set(played.verdicts)
    played.assert_clean_truth()


def scripted(modes):
    """A donor's writes are let go when its pages are long the cache's, and read by somebody."""
    house = [{"seed": 7, "length": 320}, {"length": 8}]
    ask = {"action": "request", "prompt": house}
    return {
        "name": "late-on-cached", "seed": 1, "duration": "10s", "recording": {"step_run": 0, "heartbeat": "50ms"},
        "fleet": [
            {"group": "prefill", "role": "prefill", "pages": {"kv": 256}, "page_tokens": 16, "context_tokens": 4096},
            {"group": "decode", "role": "decode", "pages": {"kv": 64}, "page_tokens": 16, "context_tokens": 4096,
             "prefix_cache": {"enabled": True}},
        ],
        "defences": {"modes": modes}, "costs": {"decode": {"base": "10ms"}}, "faults": [{"name": "late-write"}],
        "script": [
            {"at": "1s", "action": "request", "rid": "donor", "tenant": "acme", "prompt": 320, "max_tokens": 8},
            {"at": "1s", "action": "gate", "rid": "donor"},
            {"at": "1300ms", "action": "abort", "rid": "donor"},
            {"at": "1400ms", **ask, "rid": "giver", "tenant": "brio", "max_tokens": 3},
            {"at": "2s", **ask, "rid": "taker", "tenant": "brio", "max_tokens": 100},
            {"at": "2400ms", "action": "post", "rid": "donor", "first": 2, "count": 4},
            {"at": "2500ms", "action": "land", "rid": "donor", "first": 2, "count": 4},
            {"at": "4s", **ask, "rid": "heir", "tenant": "brio", "max_tokens": 20},
            {"at": "5s", **ask, "rid": "stranger", "tenant": "cyan", "max_tokens": 20},
        ],
    }  # fmt: skip


def test_a_foreign_write_on_a_cached_page_harms_whoever_reads_it(tmp_path):
    played = Played(tmp_path / "ledger", scripted({"deferred-release": "off", "page-tag": "off"}))
    assert played.pages("cache", "hit") == 40
    assert {rid for rid, one in played.truth.items() if one.contaminated} == {"taker", "heir"}
    for rid in ("taker", "heir"):
        row = played.verdicts[rid]
        assert (row["verdict"], row["mechanism"], row["donors"]) == ("contaminated", "M3", ["donor"])
    findings = [
        row
        for row in foreign_reads(played.ledger).findings.to_pylist()
        if row["rid"] == "taker" and row["kind"] == "foreign"
    ]
    (insert, *_) = played.rows("cache", "insert")
    assert sorted(page for row in findings for page in row["page_list"]) == sorted(insert["pages"][2:6])
    assert {page for places in played.truth["taker"].donors.values() for _, page in places} == set(insert["pages"][2:6])
    assert played.verdicts["stranger"]["verdict"] == "clean"
    assert played.verdicts["giver"]["verdict"] == "exposed", "its page is in its life until it is evicted"


def test_the_page_tag_is_checked_on_cached_pages_too(tmp_path):
    played = Played(tmp_path / "ledger", scripted({"deferred-release": "off"}))
    assert not any(one.contaminated for one in played.truth.values())
    ends = {row["reason"] for row in played.rows("requests", "abort")}
    assert ends == {"aborted", "page_tag_mismatch"}
