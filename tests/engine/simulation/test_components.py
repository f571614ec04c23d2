"""Pools beside `kv` in virtual time: their rows, their admission, their faults, and what they really hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

from engine.ledger.reader import read_ledger
from engine.ledger.refs import expand_pages
from engine.simulation.fault_plan import KNOWN
from engine.simulation.fleet import Fleet
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate
from engine.truth import read_truth
from forensics.foreign_reads import foreign_reads

ALL = "{kv: 96, index: 96, swa: 40, state: 8, draft: 96, slot: 8}"
TIGHT = "{kv: 40, index: 40, swa: 24, state: 5, draft: 40, slot: 3}"
OTHERS = ("index", "swa", "state", "draft", "slot")
ALONG = ("index", "draft")
SCENARIO = """
name: components
seed: {seed}
duration: 2s
fleet:
  - {{group: prefill, role: prefill, pages: {prefill}, page_tokens: 4, page_bytes: 64Ki, component_bytes: {{index: 4Ki}},
      context_tokens: 4096, chunk_tokens: 12, batch_tokens: 48, transfer_pages: 4}}
  - {{group: decode, role: decode, pages: {decode}, page_tokens: 4, page_bytes: 64Ki, component_bytes: {{index: 4Ki}},
      context_tokens: 4096, max_batch: 8{more}}}
defences: {{hold_timeout: {timeout}, modes: {{{modes}}}}}
costs: {{transfer: {{bandwidth: {bandwidth}}}}}
traffic:
  - name: api
    arrivals: {{kind: poisson, rate_per_s: 20}}
    prompt: {{kind: uniform, min: 2, max: 60}}
    output: {{kind: uniform, min: 1, max: 40}}
    tenants: [acme, globex]
    {disconnects}
faults: [{faults}]
"""
LEAVE = "disconnects: {probability: 0.4, after: {kind: uniform, min: 1ms, max: 200ms}}"


@contextmanager
def auditing(wrong):
    """Fleets that close meanwhile account for every page of every pool; what is wrong goes into `wrong`."""
    close = Fleet.close

    def audit_and_close(fleet):
        for worker in fleet.workers.values():
            role = worker.role
            audits = {"kv": role.pool.audit({req: one.pages for req, one in role.requests.items()})}
            audits |= role.others.audit(role.requests)
            wrong.extend((worker.name, pool, audit.findings) for pool, audit in audits.items() if audit.wrong)
            for name, pool in role.others.pools.items():
                promised = sum(one.others[name].promised for one in role.requests.values() if name in one.others)
                assert role.others.promised[name] == promised
                assert role.requests or pool.free_pages == pool.usable_pages
        close(fleet)

    with mock.patch.object(Fleet, "close", audit_and_close):
        yield


class Run:
    """One scenario, played into a ledger; its rows, its truth and its verdicts."""

    def __init__(
        self, directory, *, seed=1, prefill=ALL, decode=ALL, more="", modes="", leave=False, faults="", timeout="30s"
    ):
        text = SCENARIO.format(
            seed=seed, prefill=prefill, decode=decode, more=more, modes=modes, faults=faults, timeout=timeout,
            disconnects=LEAVE if leave else "", bandwidth="10M" if leave else "40G",
        )  # fmt: skip
        self.path = directory / "ledger"
        scenario, self.wrong = parse_scenario(text, "components", KNOWN), []
        with auditing(self.wrong):
            self.answers = simulate(scenario, self.path).answers
        assert faults or not self.wrong
        self.ledger = read_ledger(self.path)
        assert not self.ledger.gaps and not self.ledger.problems
        self.truth = read_truth(self.path / "truth")

    def rows(self, table, **having):
        rows = self.ledger.tables[table]
        rows = (expand_pages(rows) if table == "pages" else rows).to_pylist()
        return [row for row in rows if all(row[key] == value for key, value in having.items())]

    def verdicts(self):
        """rid -> verdict, and rid -> places (as the truth names them) of what was foreign."""
        reads = foreign_reads(self.ledger)
        places = defaultdict(set)
        for row in reads.findings.to_pylist():
            if row["kind"] == "foreign":
                pool = row["pool"]
                pages = (page if pool == "kv" else f"{pool}/{page}" for page in row["page_list"])
                places[row["rid"]] |= {(row["worker"], page) for page in pages}
        return {row["rid"]: str(row["verdict"]) for row in reads.responses.to_pylist()}, places

    def contaminated(self):
        return {rid: set().union(*one.donors.values()) for rid, one in self.truth.items() if one.contaminated}


def test_every_pool_has_its_rows(tmp_path):
    run = Run(tmp_path)
    finished = run.rows("requests", worker="decode-0", op="finish")
    assert len(finished) > 20
    grants = defaultdict(list)
    for row in run.rows("transfers", op="grant"):
        grants[row["xfer"]].append(row)
    for rows in grants.values():
        assert [row["dst_pool"] for row in rows] == ["kv", *OTHERS]
        assert len({row["dst_tag"] for row in rows}) == 6
        assert all(
            row["asked"] == row["n"] == len(row["dst_pages"]) and row["writers"] == ["prefill-0"] for row in rows
        )
        count = {row["dst_pool"]: row["n"] for row in rows}
        assert count["index"] == count["draft"] == count["kv"]
        assert (count["swa"], count["state"], count["slot"]) == (min(count["kv"], 4), 1, 1)
    ops = Counter((row["op"], row["pool"]) for row in run.rows("pages", worker="decode-0"))
    for pool in OTHERS:
        assert ops["receipt", pool] == ops["bind", pool] == ops["receipt", "kv"]
    for pool in ("index", "swa", "draft"):
        assert ops["append", pool] == ops["append", "kv"] and ops["write", pool] == ops["write", "kv"]
    assert not ops["write", "state"] and not ops["append", "state"]


def test_chunks_go_on_across_pools_and_each_batch_is_of_one(tmp_path):
    run = Run(tmp_path)
    posted = defaultdict(list)
    for row in run.rows("transfers", op="post"):
        assert row["src_pool"] == row["dst_pool"]
        posted[row["xfer"]].append(row)
    for rows in posted.values():
        assert [row["chunk"] for row in rows] == list(range(len(rows)))
        pools = [row["dst_pool"] for row in rows]
        assert pools == sorted(pools, key=["kv", *OTHERS].index)
        assert pools[-1] == "slot"
    written = Counter(
        (row["xfer"], row["dst_pool"]) for row in run.rows("transfers", op="done") for _ in row["dst_pages"]
    )
    granted = {(row["xfer"], row["dst_pool"]): row["n"] for row in run.rows("transfers", op="grant")}
    assert {key: written[key] for key in written} == {key: granted[key] for key in written}


def test_the_window_slides(tmp_path):
    run = Run(tmp_path)
    left = run.rows("pages", worker="decode-0", op="free", pool="swa", cause="left_window")
    gone = run.rows("pages", worker="decode-0", op="unbind", pool="swa", cause="left_window")
    assert left and [(row["req"], row["pages"], row["tag"]) for row in left] == [
        (row["req"], row["pages"], row["tag"]) for row in gone
    ]
    table = {}
    for row in run.rows("pages", worker="decode-0", pool="swa"):
        kept = table.setdefault(row["req"], [])
        if row["op"] in ("reserve", "append"):
            kept.extend(row["pages"])
        elif row["op"] == "free":
            assert kept[: len(row["pages"])] == row["pages"] or row["cause"] != "left_window"
            table[row["req"]] = [page for page in kept if page not in row["pages"]]
        assert len(table[row["req"]]) <= 4


@pytest.mark.parametrize("pools", [ALL, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("seed", [1, 2])
def test_healthy_runs_are_clean(tmp_path, pools, seed):
    run = Run(tmp_path, seed=seed, prefill=pools, decode=pools, leave=True)
    verdicts, _ = run.verdicts()
    assert set(verdicts.values()) == {"clean"}
    assert not run.contaminated() and not any(one.unwritten for one in run.truth.values())
    assert not run.rows("checks", op="mismatch")
    assert run.answers[200] > 5


def test_pages_of_every_pool_are_held_together_and_come_back_together(tmp_path):
    run = Run(tmp_path, leave=True)
    rows = run.rows("pages", worker="decode-0")
    held = {
        pool: {row["req"] for row in rows if row["op"] == "hold" and row["pool"] == pool} for pool in ("kv", *OTHERS)
    }
    assert held["kv"] and all(held[pool] == held["kv"] for pool in OTHERS)
    drained = {pool: {row["req"] for row in rows if row["cause"] == "drained" and row["pool"] == pool} for pool in held}
    assert drained["kv"] and all(drained[pool] == drained["kv"] for pool in OTHERS)


def test_a_hold_that_times_out_quarantines_every_pool(tmp_path):
    run = Run(
        tmp_path,
        leave=True,
        faults="{name: lost-ack, parameters: {delay: 1s}}",
        modes="drain-count: off",
        timeout="10ms",
    )
    rows = run.rows("pages", worker="decode-0", op="hold", cause="quarantine")
    kept = {pool: {row["req"] for row in rows if row["pool"] == pool} for pool in ("kv", *OTHERS)}
    assert kept["kv"] and all(kept[pool] == kept["kv"] for pool in OTHERS)
    assert not run.contaminated()


@pytest.mark.parametrize("component", OTHERS)
def test_partial_state_is_true_and_is_found_by_its_class(tmp_path, component):
    run = Run(
        tmp_path, modes="covered-count: off, page-tag: off",
        faults=f"{{name: partial-state, probability: 0.4, parameters: {{component: {component}}}}}",
    )  # fmt: skip
    wrong = run.contaminated()
    assert wrong
    assert all(place.startswith(f"{component}/") for places in wrong.values() for _, place in places)
    verdicts, places = run.verdicts()
    assert {rid for rid, verdict in verdicts.items() if verdict == "contaminated"} == set(wrong)
    assert all(true <= places[rid] for rid, true in wrong.items())
    findings = foreign_reads(run.ledger, engine="replay").findings.to_pylist()
    assert {row["mechanism"] for row in findings if row["kind"] == "foreign"} == {"M14"}


@pytest.mark.parametrize("component", OTHERS)
def test_the_count_check_finds_partial_state_before_anything_is_read(tmp_path, component):
    run = Run(
        tmp_path, modes="page-tag: off",
        faults=f"{{name: partial-state, probability: 0.4, parameters: {{component: {component}}}}}",
    )  # fmt: skip
    found = run.rows("checks", op="mismatch")
    assert found and {(row["detector"], row["pool"], row["action"]) for row in found} == {("D2", component, "refuse")}
    assert all(row["found"] < row["expected"] for row in found)
    assert run.answers[502] == len(found)
    assert not run.contaminated() and not any(one.unwritten for one in run.truth.values())
    verdicts, _ = run.verdicts()
    assert set(verdicts.values()) == {"clean"}
    bound = {row["req"] for row in run.rows("pages", worker="decode-0", op="bind")}
    assert not bound & {row["req"] for row in found}


@pytest.mark.parametrize("component", OTHERS)
def test_the_tag_check_finds_what_the_count_check_is_not_asked(tmp_path, component):
    run = Run(
        tmp_path, modes="covered-count: off",
        faults=f"{{name: partial-state, probability: 0.4, parameters: {{component: {component}}}}}",
    )  # fmt: skip
    found = run.rows("checks", op="mismatch")
    assert found and {(row["detector"], row["pool"]) for row in found} == {("D4", component)}
    assert not run.contaminated()


def test_a_component_that_is_not_there_is_not_handed_over_in_part(tmp_path):
    run = Run(
        tmp_path, prefill="{kv: 96}", decode="{kv: 96}", modes="covered-count: off, page-tag: off",
        faults="{name: partial-state}",
    )  # fmt: skip
    assert not run.contaminated()
    assert {row["pool"] for row in run.rows("pages")} == {"kv"}


FAULTS = {
    "late-write": "{name: late-write, parameters: {delay: 5ms}}",
    "early-ack": "{name: early-ack, parameters: {delay: 5ms}}",
    "fail-open": "{name: fail-open, probability: 0.5}",
    "source-reuse": "{name: source-reuse}",
    "early-post": "{name: early-post, probability: 0.5}",
    "early-free": "{name: early-free, probability: 0.05}",
    "double-free": "{name: double-free, probability: 0.3}",
}


@pytest.mark.parametrize("name", FAULTS)
def test_verdicts_are_those_of_the_truth_in_every_pool(tmp_path, name):
    """No accusation without a cause, and no contamination that is called clean."""
    off = ", ".join(
        f"{one}: off"
        for one in (
            "covered-count",
            "page-tag",
            "deferred-release",
            "drain-count",
            "source-hold",
            "compute-order",
            "owner-free",
        )
    )
    run = Run(
        tmp_path, prefill=TIGHT, decode=TIGHT, leave=name in ("late-write", "early-ack"), modes=off, faults=FAULTS[name]
    )
    wrong, (verdicts, places) = run.contaminated(), run.verdicts()
    for rid in wrong:
        assert verdicts[rid] in ("contaminated", "unknown"), rid
    for rid, verdict in verdicts.items():
        if verdict == "contaminated":
            one = run.truth[rid]
            assert one.contaminated or one.perhaps, rid
            true = set().union(*one.donors.values(), *one.perhaps.values())
            assert places[rid] <= true, (rid, places[rid] - true)


def test_pages_wait_for_the_scarcest_pool(tmp_path):
    """A decode worker with three slots has at most three handoffs open at once."""
    run = Run(tmp_path, decode="{kv: 96, index: 96, swa: 40, state: 8, draft: 96, slot: 2}")
    open_now = most = 0
    for row in run.rows("pages", worker="decode-0", pool="slot"):
        open_now += {"reserve": 1, "free": -1}.get(row["op"], 0)
        most = max(most, open_now)
    assert most == 2
    assert run.answers == {200: sum(run.answers.values())}


def test_prompts_that_the_index_cannot_hold_are_refused(tmp_path):
    run = Run(tmp_path, decode="{kv: 96, index: 8, swa: 40, state: 8, draft: 96, slot: 8}")
    assert run.answers[400] and run.answers[200]
    longest = max(row["prompt_tokens"] for row in run.rows("requests", worker="decode-0", op="receive"))
    assert longest <= 32


def test_the_same_seed_gives_the_same_rows(tmp_path):
    runs = [Run(tmp_path / name, leave=True) for name in ("a", "b")]
    for table in ("pages", "transfers", "steps", "requests"):
        assert runs[0].ledger.tables[table].equals(runs[1].ledger.tables[table])
    assert np.all([runs[0].answers == runs[1].answers])
