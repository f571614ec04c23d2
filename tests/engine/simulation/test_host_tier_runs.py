"""A prefix cache over a host tier in virtual time: what is evicted comes back under the same keys, and is right."""

import pytest
import yaml

from engine.ledger.reader import read_ledger
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate
from engine.truth import read_truth
from forensics.foreign_reads import foreign_reads

CONTEXT = 4096


def scenario(host_pages):
    """Conversations of two tenants that come back long after a small prefill pool has evicted them."""
    shape = {"context_tokens": CONTEXT, "page_tokens": 16}
    return {
        "name": "tier", "seed": 5, "duration": "50s",
        "fleet": [
            {"group": "prefill", "role": "prefill", "pages": {"kv": 240}, "host_pages": host_pages,
             "prefix_cache": {"enabled": True, "scope": "tenant"}, **shape},
            {"group": "decode", "role": "decode", "pages": {"kv": 600}, **shape},
        ],
        "traffic": [{
            "name": "chat", "arrivals": {"kind": "poisson", "rate_per_s": 1.5},
            "prompt": {"kind": "uniform", "min": 100, "max": 400}, "output": {"kind": "uniform", "min": 10, "max": 40},
            "tenants": ["acme", "brio"],
            "conversations": {"turns": 3, "think": "8s", "context_tokens": 2048},
        }],
    }  # fmt: skip


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """By host pages: (ledger, truth, what stood in the prefill worker at the end)."""
    runs = {}
    for host_pages in (0, 2000, 40):
        ledger, ends = tmp_path_factory.mktemp("tier") / "ledger", []
        simulate(
            parse_scenario(yaml.safe_dump(scenario(host_pages))), ledger,
            at_end=lambda fleet, ends=ends: ends.append(fleet.workers["prefill-0"].role),
        )  # fmt: skip
        runs[host_pages] = read_ledger(ledger), read_truth(ledger / "truth"), ends[0]
    return runs


def cached_tokens(ledger):
    rows = ledger.tables["requests"].to_pylist()
    return sum(row["cached_tokens"] or 0 for row in rows if row["op"] == "commit")


def test_what_was_evicted_is_found_again_and_need_not_be_computed(played):
    found = {host_pages: cached_tokens(ledger) for host_pages, (ledger, _, _) in played.items()}
    assert found[0] < found[40] < found[2000]
    rows = played[2000][0].tables["cache"].to_pylist()
    loads = [row for row in rows if row["op"] == "load"]
    assert sum(row["n"] for row in loads) * 16 == found[2000] - sum(
        row["n"] * 16 for row in rows if row["op"] == "hit" and row["tier"] == "device"
    )
    assert sum(row["n"] for row in loads) > 100
    stored = [row for row in rows if row["op"] == "offload"]
    keys = {(row["tenant"], key) for row in stored for key in row["keys"]}
    assert {(row["tenant"], key) for row in loads for key in row["keys"]} <= keys


@pytest.mark.parametrize("host_pages", [40, 2000])
def test_every_answer_is_clean_in_truth(played, host_pages):
    truth = played[host_pages][1]
    assert len(truth) >= 60
    assert not any(one.contaminated or one.unwritten or one.misplaced or one.perhaps for one in truth.values())


def test_every_answer_is_clean_by_the_ledger(played):
    counts = foreign_reads(played[40][0]).counts
    assert [verdict.value for verdict, count in counts.items() if count] == ["clean"]


@pytest.mark.parametrize("host_pages", [40, 2000])
def test_the_audit_accounts_for_every_page_of_both_pools(played, host_pages):
    role = played[host_pages][2]
    assert role.prefix.tree.audit() == role.prefix.tier.audit() == ()
    for pool in (role.pool, role.parts.host):
        found = pool.audit({req: request.pages for req, request in role.requests.items()} if pool is role.pool else {})
        assert found.wrong == ()
        assert sum(found.counts.values()) == pool.usable_pages
    assert role.parts.host.counts()["cached"] == role.prefix.tier.stored_pages > 0


def test_with_scrubbing_what_is_evicted_is_zeroed_once_the_tier_has_it(tmp_path):
    simulate(parse_scenario(yaml.safe_dump(scenario(40) | {"defences": {"scrub": True}})), tmp_path / "ledger")
    tables = read_ledger(tmp_path / "ledger").tables
    rows = [row for name in ("cache", "pages", "transfers") for row in tables[name].to_pylist()]
    rows = sorted((row for row in rows if row["worker"] == "prefill-0"), key=lambda row: row["seq"])
    evicted = [row for row in rows if row["op"] == "evict" and row["tier"] == "device"]
    assert len(evicted) > 5
    for gone in evicted:
        (zeroed,) = [row for row in rows if row["op"] == "scrub" and row["seq"] < gone["seq"]][-1:]
        assert set(gone["pages"]) <= set(zeroed["pages"])
        copied = [
            row["seq"] for row in rows if row["op"] == "done" and row["dst_pool"] == "host" and row["seq"] < gone["seq"]
        ]
        assert copied[-1] < zeroed["seq"]
    truth = read_truth(tmp_path / "ledger" / "truth")
    assert not any(one.contaminated or one.unwritten for one in truth.values())
