"""Tensor-parallel workers in virtual time: each rank is a worker of the ledger, in lock-step with the others."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from engine.ledger.reader import read_ledger
from engine.ledger.refs import expand_pages
from engine.ledger.tag import split_tag
from engine.ranks import Ranks
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import parse_scenario
from engine.simulation.scenario_source import ScenarioError
from engine.simulation.simulate import simulate
from engine.truth import read_truth
from forensics.foreign_reads import foreign_reads

PAGE_BYTES = 1 << 17
SIZES = [(2, 1), (1, 2), (2, 2), (4, 2), (2, 4)]
NARROWING = [(2, 1), (2, 2), (4, 2)]
"""(prefill, decode) ranks; those where a rank of decode has a whole number of writers."""
BESIDE = ", index: 96, swa: 40, state: 8, draft: 96, slot: 8"
SCENARIO = """
name: ranks
seed: {seed}
duration: 2s
fleet:
  - {{group: prefill, role: prefill, tp_size: {prefill}, pages: {{kv: {pages}{beside}}}, page_tokens: 4,
      page_bytes: {prefill_bytes}, context_tokens: 4096, chunk_tokens: 12, batch_tokens: 64, transfer_pages: 4{of_prefill}}}
  - {{group: decode, role: decode, tp_size: {decode}, pages: {{kv: {pages}{beside}}}, page_tokens: 4,
      page_bytes: {decode_bytes}, context_tokens: 4096, max_batch: 8{of_decode}}}
defences: {{modes: {{{modes}}}}}
costs: {{transfer: {{bandwidth: {bandwidth}}}}}
traffic:
  - name: api
    arrivals: {{kind: poisson, rate_per_s: 20}}
    prompt: {{kind: uniform, min: 2, max: 60}}
    output: {{kind: uniform, min: 1, max: 40}}
    tenants: [acme, globex]
    {stream}
faults: [{faults}]
losses: [{losses}]
"""
LEAVE = "disconnects: {probability: 0.4, after: {kind: uniform, min: 1ms, max: 200ms}}"


def text_of(sizes, *, seed=1, beside="", modes="", stream="", faults="", losses="", pages=96, bandwidth="40G",
            of_prefill="", of_decode=""):  # fmt: skip
    prefill, decode = sizes
    return SCENARIO.format(
        seed=seed, prefill=prefill, decode=decode, beside=beside, modes=modes, stream=stream, faults=faults,
        losses=losses, pages=pages, bandwidth=bandwidth, of_prefill=of_prefill, of_decode=of_decode,
        prefill_bytes=PAGE_BYTES // prefill, decode_bytes=PAGE_BYTES // decode,
    )  # fmt: skip


class Run:
    def __init__(self, directory, sizes, **settings):
        self.path = directory / "ledger"
        self.answers = simulate(parse_scenario(text_of(sizes, **settings), "ranks", KNOWN), self.path).answers
        self.ledger = read_ledger(self.path)
        assert not self.ledger.problems
        self.truth = read_truth(self.path / "truth")

    def rows(self, table, **having):
        rows = self.ledger.tables[table]
        rows = (expand_pages(rows) if table == "pages" else rows).to_pylist()
        return [row for row in rows if all(row[key] == value for key, value in having.items())]

    def workers(self, role):
        return sorted({row["worker"] for row in self.rows("workers", op="start", role=role)})

    def verdicts(self):
        reads = foreign_reads(self.ledger)
        places = defaultdict(set)
        for row in reads.findings.to_pylist():
            if row["kind"] == "foreign":
                places[row["rid"]] |= {(row["worker"], page) for page in row["page_list"]}
        return {row["rid"]: row for row in reads.responses.to_pylist()}, places

    def contaminated(self):
        return {rid: set().union(*one.donors.values()) for rid, one in self.truth.items() if one.contaminated}


def names(worker, size):
    return [worker] if size == 1 else [f"{worker}-r{rank}" for rank in range(size)]


def story(run, worker):
    """Every row of one rank: what all ranks of a worker have in common, in seq order."""
    found = {}
    for table in ("requests", "pages", "transfers", "steps", "cache", "gauges"):
        for row in run.rows(table, worker=worker):
            tags = {key: split_tag(row[key])[1:] for key in ("tag", "dst_tag", "src_tag") if row.get(key)}
            kept = {
                key: row.get(key) for key in ("req", "pool", "pages", "pos", "tokens", "cause", "n", "t", "last_token")
            }
            found[row["seq"]] = (table, row["op"], tags, kept)
    return [found[seq] for seq in sorted(found)]


@pytest.mark.parametrize("sizes", SIZES)
def test_every_rank_is_a_worker_and_all_are_in_step(tmp_path, sizes):
    run = Run(tmp_path, sizes, stream=LEAVE, bandwidth="10M")
    assert not run.ledger.gaps
    starts = run.rows("workers", op="start")
    for role, size in zip(("prefill", "decode"), sizes, strict=True):
        workers = names(f"{role}-0", size)
        assert run.workers(role) == workers
        if sizes != (1, 1):
            of_role = [row for row in starts if row["role"] == role]
            assert [(row["tp_rank"], row["tp_size"]) for row in of_role] == [(rank, size) for rank in range(size)]
        stories = [story(run, worker) for worker in workers]
        assert len(stories[0]) > 100 and all(one == stories[0] for one in stories)
    assert len({row["ordinal"] for row in starts}) == len(starts)


@pytest.mark.parametrize("sizes", SIZES)
def test_grants_name_their_writers_and_every_page_is_filled_by_each(tmp_path, sizes):
    prefill, decode = sizes
    run = Run(tmp_path, sizes)
    each, wide = max(prefill // decode, 1), max(decode // prefill, 1)
    grants = run.rows("transfers", op="grant")
    assert (
        len({row["xfer"] for row in grants})
        == len(grants)
        == decode * len(run.rows("transfers", op="grant", worker=names("decode-0", decode)[0]))
    )
    ordinals = {row["worker"]: row["ordinal"] for row in run.rows("workers", op="start")}
    for row in grants:
        rank = names("decode-0", decode).index(row["worker"])
        writers = (
            names("prefill-0", prefill)[rank * each // wide : rank * each // wide + each]
            if wide == 1
            else [names("prefill-0", prefill)[rank // wide]]
        )
        assert row["writers"] == writers
        assert split_tag(row["dst_tag"]).ordinal == split_tag(row["xfer"]).ordinal == ordinals[row["worker"]]
    granted = {row["xfer"]: row for row in grants}
    filled = defaultdict(Counter)
    for row in run.rows("transfers", op="done"):
        assert row["worker"] in granted[row["xfer"]]["writers"] and row["peer"] == granted[row["xfer"]]["worker"]
        assert (row["dst_tag"], split_tag(row["src_tag"]).ordinal) == (
            granted[row["xfer"]]["dst_tag"],
            ordinals[row["worker"]],
        )
        assert (row["parts"] or 1) == each
        for page in row["dst_pages"]:
            filled[row["xfer"]][page, row["part"] or 0] += 1
    for xfer, pages in filled.items():
        assert pages == Counter({(page, part): 1 for page in granted[xfer]["dst_pages"] for part in range(each)})


@pytest.mark.parametrize("sizes", SIZES)
def test_acks_of_every_writer_come_before_a_commit(tmp_path, sizes):
    run = Run(tmp_path, sizes)
    for worker in run.workers("decode"):
        grants = {row["req"]: row["writers"] for row in run.rows("transfers", worker=worker, op="grant")}
        acks = defaultdict(list)
        for row in run.rows("transfers", worker=worker, op="ack", status="received"):
            acks[row["req"]].append(row)
        for row in run.rows("requests", worker=worker, op="commit"):
            before = [ack for ack in acks[row["req"]] if ack["seq"] < row["seq"] and ack["outstanding"] == 0]
            assert [ack["peer"] for ack in before] == grants[row["req"]]
    sent = Counter((row["worker"], row["peer"]) for row in run.rows("transfers", op="ack", status="sent"))
    received = Counter((row["peer"], row["worker"]) for row in run.rows("transfers", op="ack", status="received"))
    assert sent == received


@pytest.mark.parametrize("beside", ["", BESIDE], ids=["kv", "components"])
@pytest.mark.parametrize("sizes", NARROWING)
def test_healthy_runs_are_clean_on_every_rank(tmp_path, sizes, beside):
    run = Run(tmp_path, sizes, beside=beside, stream=LEAVE, bandwidth="10M")
    verdicts, _ = run.verdicts()
    assert {str(row["verdict"]) for row in verdicts.values()} == {"clean"}
    assert not run.contaminated() and not any(one.unwritten for one in run.truth.values())
    assert not run.rows("checks", op="mismatch")


@pytest.mark.parametrize("sizes", [(1, 2), (2, 4)])
def test_pages_that_are_shared_out_to_more_ranks_hold_what_they_should(tmp_path, sizes):
    run = Run(tmp_path, sizes, beside=BESIDE, stream=LEAVE, bandwidth="10M")
    assert run.answers[200] > 2
    assert {str(row["verdict"]) for row in run.verdicts()[0].values()} == {"clean"}
    assert not run.contaminated() and not any(one.unwritten for one in run.truth.values())
    assert not run.rows("checks", op="mismatch")


@pytest.mark.parametrize("sizes", NARROWING)
def test_a_batch_that_fails_on_one_rank_leaves_its_part_stale(tmp_path, sizes):
    run = Run(tmp_path, sizes, modes="covered-count: off, page-tag: log", faults="{name: fail-open, probability: 0.5}")
    failed = run.rows("transfers", op="fail")
    assert {row["bytes"] for row in failed} == {0} and len({row["worker"] for row in failed}) > 1
    done = {(row["xfer"], row["chunk"], row["part"]) for row in run.rows("transfers", op="done")}
    assert not done & {(row["xfer"], row["chunk"], row["part"]) for row in failed}
    wrong, (verdicts, places) = run.contaminated(), run.verdicts()
    assert wrong and {rid for rid, row in verdicts.items() if row["verdict"] == "contaminated"} == set(wrong)
    for rid, true in wrong.items():
        assert true == places[rid]
        assert verdicts[rid]["mechanism"] == "M2"
    found = run.rows("checks", op="mismatch")
    assert {row["worker"] for row in found} == set(run.workers("decode"))
    ordinals = {row["worker"]: row["ordinal"] for row in run.rows("workers", op="start")}
    assert all(split_tag(row["expected"]).ordinal == ordinals[row["worker"]] for row in found)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_count_check_and_the_tag_check_hold_for_all_ranks(tmp_path, sizes):
    for name, modes in (("count", ""), ("tag", "covered-count: off")):
        run = Run(tmp_path / name, sizes, modes=modes, faults="{name: fail-open, probability: 0.5}")
        assert not run.contaminated() and not any(one.unwritten for one in run.truth.values())
        assert run.answers.get(502, 0) + run.answers.get(500, 0) > 3


@pytest.mark.parametrize("sizes", NARROWING)
@pytest.mark.parametrize("name", ["late-write", "early-ack"])
def test_late_writes_of_every_rank_are_found(tmp_path, sizes, name):
    run = Run(
        tmp_path, sizes, pages=40, stream=LEAVE, bandwidth="10M",
        modes="page-tag: off, deferred-release: off, drain-count: off",
        faults=f"{{name: {name}, parameters: {{delay: 20ms}}}}",
    )  # fmt: skip
    verdicts, places = run.verdicts()
    for rid in run.contaminated():
        assert str(verdicts[rid]["verdict"]) in ("contaminated", "unknown")
    for rid, row in verdicts.items():
        if row["verdict"] == "contaminated":
            one = run.truth[rid]
            assert places[rid] <= set().union(*one.donors.values(), *one.perhaps.values())


def test_prefix_cache_and_retraction_work_on_every_rank(tmp_path):
    run = Run(
        tmp_path, (2, 2), pages=40, beside=", index: 40", of_prefill=", prefix_cache: {enabled: true}",
        of_decode=", host_pages: 200, reserved_tokens: 4",
        stream="prefixes: [{name: system, tokens: 16, share: 0.8}]",
    )  # fmt: skip
    assert run.rows("cache", op="hit") and run.rows("requests", op="pause")
    assert not run.contaminated() and not any(one.unwritten for one in run.truth.values())
    copies = [row for row in run.rows("transfers", op="done") if row["worker"].startswith("decode")]
    assert {row["worker"] for row in copies} == {"decode-0-r0", "decode-0-r1"}
    assert all(row["peer"] == row["worker"] for row in copies)
    assert not run.rows("checks", op="mismatch")


def test_a_worker_that_dies_dies_with_all_its_ranks_and_comes_back_with_them(tmp_path):
    run = Run(tmp_path, (2, 2), losses="{kind: kill, worker: decode-0, at: 700ms, restart_after: 100ms}")
    epochs = Counter((row["worker"], row["epoch"]) for row in run.rows("workers", op="start"))
    assert set(epochs) >= {(worker, epoch) for worker in ("decode-0-r0", "decode-0-r1") for epoch in (1, 2)}
    ordinals = defaultdict(set)
    for row in run.rows("workers", op="start"):
        ordinals[row["worker"]].add(row["ordinal"])
    assert all(len(one) == 1 for one in ordinals.values())
    assert not run.contaminated()


def test_rows_are_lost_rank_by_rank(tmp_path):
    run = Run(tmp_path, (2, 2), losses="{kind: rows, tables: [pages], workers: [decode], probability: 0.05}")
    lost = {gap.worker for gap in run.ledger.gaps}
    assert lost == {"decode-0-r0", "decode-0-r1"}
    counts = [len(run.rows("pages", worker=worker)) for worker in sorted(lost)]
    assert counts[0] != counts[1]


def test_shares_that_do_not_nest_are_refused():
    with pytest.raises(ScenarioError, match=r"fleet\[1\]\.tp_size: found 2; expected a multiple or a divisor of 3"):
        parse_scenario(text_of((3, 2)).replace(str(PAGE_BYTES // 3), "65536"), "ranks", KNOWN)


def test_partners_of_each_rank():
    one, two, four = (Ranks("w", size, 10) for size in (1, 2, 4))
    assert [list(four.partners(rank, two)) for rank in range(4)] == [[0], [0], [1], [1]]
    assert [list(two.partners(rank, four)) for rank in range(2)] == [[0, 1], [2, 3]]
    assert [four.part(rank, two) for rank in range(4)] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert [four.part(rank, one) for rank in range(4)] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert one.part(0, four) == (0, 1)
    assert (one.name(0), two.name(1)) == ("w", "w-r1")
