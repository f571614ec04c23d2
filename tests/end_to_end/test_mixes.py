"""Seeded mixes on real processes: verdicts against the physical truth, and against the words that came out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from mixes import TENANTS, LiveEngine, Said, candidates_by_text, run_mix

from engine.defences import DETECTORS
from engine.ledger.reader import Ledger, read_ledger
from engine.nursery import Nursery
from engine.truth import TruthResponse, read_truth
from forensics.foreign_reads import ForeignReads, foreign_reads
from forensics.verdict import Verdict

pytestmark = pytest.mark.engine

SEEDS = range(16)
RACING_SEEDS = range(50, 56)
DEFENDED = (*range(8), *range(50, 52))
"""Few, for every answer costs seconds here: thousands of drawn games are simulated (`make campaign`)."""
DEFENCES = ("admission-gate", "covered-count", "page-tag")


@dataclass
class Campaign:
    ledger: Ledger
    reads: ForeignReads
    truth: dict[str, TruthResponse]
    said: list[Said]

    def __post_init__(self) -> None:
        self.responses = {row["rid"]: row for row in self.reads.responses.to_pylist()}


def run_campaign(place: Path, nursery: Nursery, mode: str, seeds: Iterable[int]) -> Campaign:
    from engine.config import EngineConfig
    from engine.serve import start_engine

    config = EngineConfig(
        str(place / "ledger"), str(place / "run"), prefill_pages=33, decode_pages=97, context_tokens=1024,
        faults=("short-handoff", "late-write"),
        defences={**dict.fromkeys(DETECTORS, "off"), **dict.fromkeys(DEFENCES, mode)}, truth=True, step_run_ms=0, tenants=TENANTS,
    )  # fmt: skip
    running = start_engine(config, nursery)
    try:
        engine = LiveEngine(running.state)
        for seed in seeds:
            print(f"seed {seed}")
            asyncio.run(run_mix(engine, seed, racing=seed in RACING_SEEDS))
    finally:
        running.stop()
    ledger = read_ledger(place / "ledger")
    return Campaign(ledger, foreign_reads(ledger), read_truth(place / "ledger" / "truth"), engine.said)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Campaign:
    """Both faults on, every defence off."""
    return run_campaign(tmp_path_factory.mktemp("faulty"), nursery, "off", (*SEEDS, *RACING_SEEDS))


@pytest.fixture(scope="module")
def defended(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Campaign:
    """Some of the same mixes, both faults on, every defence on."""
    return run_campaign(tmp_path_factory.mktemp("defended"), nursery, "enforce", DEFENDED)


def test_the_record_is_whole(faulty: Campaign, defended: Campaign):
    for campaign in (faulty, defended):
        assert campaign.ledger.gaps == () and campaign.ledger.problems == ()
        assert campaign.reads.unattributed == 0


def is_racing(rid: str) -> bool:
    """Whether a request belongs to a mix whose late writes land unpaused."""
    return int(rid[1:].split("-", maxsplit=1)[0]) in RACING_SEEDS


def pages_of(campaign: Campaign, rid: str, kind: str) -> set[tuple[str, int]]:
    """(worker, page) of a response's findings of one kind."""
    rows = [row for row in campaign.reads.findings.to_pylist() if row["rid"] == rid and row["kind"] == kind]
    return {(row["worker"], page) for row in rows for page in row["page_list"]}


def test_verdicts_equal_the_physical_truth(faulty: Campaign):
    """Every contaminated response with its donors and pages, and nobody accused."""
    wrong = []
    for rid, truth in faulty.truth.items():
        if is_racing(rid):
            continue
        verdict = faulty.responses[rid]
        contaminated = verdict["verdict"] == Verdict.CONTAMINATED
        pages = {place for places in truth.donors.values() for place in places}
        if contaminated != truth.contaminated or verdict["verdict"] == Verdict.UNKNOWN:
            wrong.append((rid, truth.contaminated, verdict))
        elif contaminated and (
            set(verdict["donors"]) != set(truth.donors) or pages_of(faulty, rid, "foreign") != pages
        ):
            wrong.append((rid, dict(truth.donors), verdict, pages_of(faulty, rid, "foreign")))
    assert not wrong
    assert {row["mechanism"] for row in faulty.responses.values() if row["verdict"] == Verdict.CONTAMINATED} == {
        "M1",
        "M3",
    }
    assert sum(truth.contaminated for rid, truth in faulty.truth.items() if not is_racing(rid)) > 20


def test_a_landing_in_a_race_with_passes_is_told_as_far_as_it_is_known(faulty: Campaign):
    """A write that lands in the very pass that writes a slot leaves that slot undecided. Donors and pages are then a
    lower bound: a page may be listed as unknown, or a second donor of a foreign page may be missing."""
    racing = {rid: truth for rid, truth in faulty.truth.items() if is_racing(rid)}
    assert sum(truth.contaminated for truth in racing.values()) >= len(RACING_SEEDS) // 2
    for rid, truth in racing.items():
        verdict = faulty.responses[rid]
        assert (verdict["verdict"] == Verdict.CONTAMINATED) == truth.contaminated, (rid, verdict)
        pages = {place for places in truth.donors.values() for place in places}
        foreign, undecided = pages_of(faulty, rid, "foreign"), pages_of(faulty, rid, "unknown")
        assert foreign <= pages <= foreign | undecided
        assert set(verdict["donors"]) <= set(truth.donors)


def test_mechanisms_are_those_of_the_faults(faulty: Campaign):
    for rid, row in faulty.responses.items():
        if row["verdict"] == Verdict.CONTAMINATED:
            assert row["mechanism"] == ("M1" if "over-pool" in rid else "M3"), row


def test_the_words_that_leaked_name_a_donor_of_the_verdict(faulty: Campaign):
    told = 0
    for said in faulty.said:
        named = candidates_by_text(said, faulty.said)
        donors = set(faulty.responses[said.rid]["donors"]) if said.rid in faulty.responses else set()
        told += bool(named)
        assert all(candidates & donors for candidates in named), (said.rid, said.text, named, donors)
    assert told > 10


def test_everything_looked_green(faulty: Campaign):
    """Contaminated answers came with 200 and right token counts: nothing but the record tells."""
    for said in faulty.said:
        row = faulty.responses.get(said.rid)
        if row and row["verdict"] == Verdict.CONTAMINATED and not said.aborted:
            assert said.status == 200 and said.code is None
            assert said.usage["prompt_tokens"] == len(said.prompt) and said.usage["completion_tokens"] == said.tokens


def test_defences_leave_no_contaminated_response(defended: Campaign):
    assert not any(truth.contaminated for truth in defended.truth.values())
    assert defended.reads.counts[Verdict.CONTAMINATED] == defended.reads.counts[Verdict.CORRUPT] == 0
    for row in defended.responses.values():
        if row["verdict"] != Verdict.CLEAN:
            undecided = row["verdict"] == Verdict.UNKNOWN and is_racing(row["rid"])
            assert undecided or (row["verdict"] == Verdict.EXPOSED and row["mechanism"] == "M3"), row
    for said in defended.said:
        assert candidates_by_text(said, defended.said) == []


def test_every_refusal_says_why(defended: Campaign):
    # A donor whose handoff was aborted may still hear so before its client is gone.
    refused = [said for said in defended.said if said.code is not None and "late-donor" not in said.rid]
    over = [said for said in refused if "over-pool" in said.rid]
    assert over and all(said.status == 400 and said.code == "prompt_exceeds_pool" for said in over)
    assert all(str(len(said.prompt)) in said.message and "512" in said.message for said in over)
    late = [said for said in refused if "late-victim" in said.rid]
    assert late and all(said.code == "page_tag_mismatch" for said in late)
    assert len(over) + len(late) == len(refused)


def test_over_pool_requests_were_refused_before_any_page_was_reserved(defended: Campaign):
    rids = {said.rid for said in defended.said if said.code == "prompt_exceeds_pool"}
    reqs = {
        (row["worker"], row["req"])
        for row in defended.ledger.tables["requests"].to_pylist()
        if row["op"] == "receive" and row["rid"] in rids
    }
    assert reqs
    assert not any((row["worker"], row["req"]) in reqs for row in defended.ledger.tables["pages"].to_pylist())
