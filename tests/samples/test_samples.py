"""Every sample is what its scenario makes, is judged as physical truth says, and its README quotes what is printed.

What takes minutes is run where KVWITNESS_LARGE_SAMPLES is set: playing the large samples anew.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from catalogue import HERE, MOST_BYTES, SAMPLES, Sample
from quotes import PAGE, QUOTE, printed
from remake import remake, size_of, written

import forensics.ask
import forensics.explain
from engine.ledger.reader import read_ledger
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import load_scenario
from engine.simulation.simulate import simulate
from forensics.foreign_reads import ForeignReads, foreign_reads
from forensics.verdict import Kind, Verdict

LARGE = "KVWITNESS_LARGE_SAMPLES"


def each_sample(*, on_demand: bool = False, large: bool = True):
    """One test per sample; with `on_demand`, the large ones only where they are asked for (without `large`, never)."""
    skip = pytest.mark.skipif(LARGE not in os.environ, reason=f"takes minutes: set {LARGE}=1 to run it")
    chosen = [sample for sample in SAMPLES if large or not sample.large]
    marked = [pytest.param(one, id=one.name, marks=[skip] if on_demand and one.large else []) for one in chosen]
    return pytest.mark.parametrize("sample", marked)


@pytest.fixture(scope="module")
def judged():
    """The verdicts of a sample's ledger by both engines, which must agree."""
    known: dict[str, ForeignReads] = {}

    def judge(sample: Sample) -> ForeignReads:
        if sample.name not in known:
            known[sample.name] = foreign_reads(read_ledger(sample.ledger))
        return known[sample.name]

    return judge


def files_of(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def expected_of(sample: Sample) -> dict:
    return json.loads(sample.expected.read_text())


@each_sample(large=False)
def test_the_ledger_is_the_same_where_no_truth_is_kept_beside_it(sample, tmp_path):
    scenario = load_scenario(sample.scenario, KNOWN)
    recording = scenario.recording.model_copy(update={"truth": False})
    simulate(scenario.model_copy(update={"recording": recording}), tmp_path / "ledger")
    for name in sample.deleted:
        shutil.rmtree(tmp_path / "ledger" / name)
    assert files_of(tmp_path / "ledger") == files_of(sample.ledger)


def listed(text: str) -> set[int]:
    """The pages that a text such as 3-7,9 names."""
    parts = [part.partition("-") for part in text.split(",")]
    return {page for low, _, high in parts for page in range(int(low), int(high or low) + 1)}


@each_sample(on_demand=True)
def test_it_is_remade_byte_for_byte(sample: Sample, tmp_path: Path):
    expected = remake(sample, tmp_path / "ledger")
    assert written(expected) == sample.expected.read_text()
    assert files_of(tmp_path / "ledger") == files_of(sample.ledger)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_its_record_holds_and_is_the_one_that_was_answered_for(sample: Sample):
    ledger = read_ledger(sample.ledger)
    assert ledger.manifest_roots == expected_of(sample)["manifest_roots"]
    missing = {problem.kind for problem in ledger.problems}
    assert missing == ({"missing segment"} if sample.deleted else set())
    assert bool(ledger.gaps) == bool(sample.unknown)


@each_sample()
def test_it_is_judged_as_physical_truth_says(sample: Sample, judged):
    expected, reads = expected_of(sample), judged(sample)
    found = {row["rid"]: row for row in reads.responses.to_pylist()}
    assert {verdict.value: count for verdict, count in reads.counts.items()} == expected["counts"]
    assert len(found) == expected["responses"]
    by_verdict = {
        verdict: sorted(rid for rid, row in found.items() if row["verdict"] == verdict.value) for verdict in Verdict
    }
    assert by_verdict[Verdict.CONTAMINATED] == sorted(one["rid"] for one in expected["contaminated"])
    assert by_verdict[Verdict.CORRUPT] == sorted(expected["corrupt"])
    assert by_verdict[Verdict.EXPOSED] == sorted(expected["exposed"])
    assert by_verdict[Verdict.UNKNOWN] == sorted(expected["unknown"])


@each_sample()
def test_donors_pages_mechanism_and_first_step_are_those_of_physical_truth(sample: Sample, judged):
    reads = judged(sample)
    found = {row["rid"]: row for row in reads.responses.to_pylist()}
    foreign: dict[str, dict[str, set[int]]] = {}
    for row in reads.findings.to_pylist():
        if row["kind"] == Kind.FOREIGN:
            pools = foreign.setdefault(row["rid"], {})
            pools.setdefault(f"{row['worker']}/{row['pool']}", set()).update(row["page_list"])
    for one in expected_of(sample)["contaminated"]:
        verdict = found[one["rid"]]
        assert verdict["donors"] == one["donors"], one["rid"]
        assert foreign[one["rid"]] == {pool: listed(pages) for pool, pages in one["pages"].items()}, one["rid"]
        assert (verdict["mechanism"], verdict["purpose"]) == (one["mechanism"], one["purpose"]), one["rid"]
        if one["first_step"] is not None:
            assert verdict["first_worker"] == one["first_worker"]
            last = verdict["first_step_last"] or verdict["first_step"]
            assert verdict["first_step"] <= one["first_step"] <= last, one["rid"]


def assert_quoted(text: str, sample: Sample, judged, monkeypatch) -> None:
    """Every command that a text quotes prints what it quotes."""
    monkeypatch.chdir(HERE.parent)
    ledger, reads = read_ledger(sample.ledger.relative_to(HERE.parent)), judged(sample)  # once is enough
    monkeypatch.setattr(forensics.ask.Asked, "judge", lambda asked, ledger, tell: reads)
    for module in (forensics.ask, forensics.explain):
        monkeypatch.setattr(module, "read_ledger", lambda path, **asked: ledger)
    quotes = QUOTE.findall(text)
    assert quotes
    for command, output in quotes:
        assert printed(command) == output, command


@each_sample()
def test_its_readme_quotes_what_is_printed(sample: Sample, judged, monkeypatch):
    assert_quoted((sample.folder / "README.md").read_text(), sample, judged, monkeypatch)


def test_the_ten_commands_print_what_the_docs_show(judged, monkeypatch):
    (large,) = [sample for sample in SAMPLES if sample.large]
    assert len(QUOTE.findall(PAGE.read_text())) == 10
    assert_quoted(PAGE.read_text(), large, judged, monkeypatch)


def test_together_they_are_small_and_all_are_listed():
    assert sum(size_of(sample.folder) for sample in SAMPLES) <= MOST_BYTES
    folders = {str(path.parent.relative_to(HERE)) for path in HERE.rglob("scenario.yaml")}
    assert folders == {sample.name for sample in SAMPLES}
    overview = (HERE / "README.md").read_text()
    assert [sample.name for sample in SAMPLES if f"({sample.name}/" not in overview] == []
