"""Incidents are the library's: ids, severities, counts; what waits for its rows; what an incident says of a response."""

from dataclasses import replace

import pyarrow as pa
import pytest
from scripted_ledger import ACME, BRIO, CYAN, Scene, late_write, ordinary, short_handoff

from console.core.incidents import with_names
from console.core.judging import SETTLE_US, Judging
from console.core.marks import Severity
from console.core.mechanisms import MECHANISMS
from console.core.readings import readings_of
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from engine.ledger.reader import read_ledger
from forensics.ask import Asked, ask
from forensics.catalogue import load_queries
from forensics.foreign_reads import ForeignReads
from forensics.verdict import FINDING_COLUMNS, RESPONSE_COLUMNS, Verdict


def snapshot_of(scene: Scene, later_us: int = 0) -> Snapshot:
    """As a console would see it now; the workers have just heard of each other."""
    scene.beat()
    scene.flush()
    reading = LedgerSource(scene.directory, now_us=lambda: scene.now + later_us).read()
    assert isinstance(reading, Snapshot), reading
    return reading


def test_the_scripted_incidents_are_what_the_script_did(finished):
    by_cause = {incident.cause: incident for incident in finished.incidents}
    assert {"M1", "M3"} <= set(by_cause)
    for cause, donor, victim, pages in (("M1", "resp-a1", "resp-b1", 12), ("M3", "resp-a2", "resp-b2", 4)):
        incident = by_cause[cause]
        assert (incident.severity, incident.worst) == (Severity.P1, Verdict.CONTAMINATED)
        assert incident.counts == {v: int(v is Verdict.CONTAMINATED) for v in Verdict}
        assert (incident.donors, incident.donor_tenants, incident.reader_tenants) == ((donor,), (ACME,), (BRIO,))
        reading = finished.readings(incident)[0]
        assert (reading.rid, reading.worker, reading.pool) == (victim, "decode-0", "kv")
        assert (reading.pages, reading.donors) == (pages, ((donor, ACME),))
        assert not incident.growing


def test_the_console_and_the_command_line_name_the_same_incidents(finished, finished_ledger):
    query = next(query for query in load_queries() if query.name == "incidents")
    said = ask(query, finished_ledger, Asked(engine="replay")).rows
    assert finished.incident_rows.select(said.column_names).equals(said)
    assert [i.id for i in finished.incidents] == said["id"].to_pylist()


def test_an_incident_keeps_its_id_while_it_grows(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 6)
    short_handoff(scene, "first", BRIO, 1, 6)
    before = snapshot_of(scene).incidents[0]
    ordinary(scene, "donor-2", ACME, 1, 6)
    short_handoff(scene, "second", CYAN, 1, 6)
    after = snapshot_of(scene).incidents[0]
    scene.close()
    assert (after.id, before.cause) == (before.id, "M1")
    assert (before.counts[Verdict.CONTAMINATED], after.counts[Verdict.CONTAMINATED]) == (1, 2)
    assert after.first_seen_us == before.first_seen_us
    assert after.last_seen_us > before.last_seen_us


def test_growing_ends_with_the_record_going_on_and_with_the_writers(tmp_path):
    scene = Scene(tmp_path / "ledger")
    late_write(scene, "donor", "victim", (ACME, BRIO), 1)
    assert snapshot_of(scene).incidents[0].growing
    scene.wait(11 * 60_000)
    ordinary(scene, "much-later", CYAN, 20, 2)
    assert not snapshot_of(scene).incidents[0].growing
    scene.close()


def test_a_finished_ledger_has_nothing_that_grows(tmp_path):
    scene = Scene(tmp_path / "ledger")
    late_write(scene, "donor", "victim", (ACME, BRIO), 1)
    scene.close()
    reading = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert not reading.incidents[0].growing


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "fine", ACME, 1, 2)
    scene.flush()
    yield scene
    scene.close()


def reads(verdict: str, finished: int | None, rid: str = "r") -> ForeignReads:
    row = dict.fromkeys(RESPONSE_COLUMNS.names) | {
        "rid": rid,
        "verdict": verdict,
        "finished": finished,
        "derived": False,
    }
    counts = {v: int(v == verdict) for v in Verdict}
    return ForeignReads(FINDING_COLUMNS.empty_table(), pa.Table.from_pylist([row], RESPONSE_COLUMNS), counts, 0)


def test_an_unknown_waits_for_living_writers_and_no_longer_than_it_should(scene):
    ledger = read_ledger(scene.directory)
    waiting = Judging(ledger, reads("unknown", 2000), 2000 + SETTLE_US - 1)
    assert waiting.waiting == {"r"}
    assert (waiting.settled.responses.num_rows, waiting.settled.counts[Verdict.UNKNOWN]) == (0, 0)
    overdue = replace(waiting, now_us=2000 + SETTLE_US)
    assert (overdue.waiting, overdue.settled) == (frozenset(), overdue.reads)
    assert replace(overdue, reads=reads("unknown", None)).waiting == {"r"}


def test_what_is_not_unknown_does_not_wait_nor_anything_once_the_writers_have_ended(scene):
    live = read_ledger(scene.directory)
    for verdict in ("contaminated", "corrupt", "exposed", "clean"):
        assert not Judging(live, reads(verdict, None), 0).waiting
    scene.close()
    assert not Judging(read_ledger(scene.directory), reads("unknown", None), 0).waiting


def test_a_response_that_runs_is_not_judged_until_it_ends(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "fine", ACME, 5, 2)
    scene.receive("running", ACME, 32, [1, 2])
    scene.flush()
    live = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert (live.incidents, live.judging, live.counts[Verdict.UNKNOWN]) == ((), 1, 0)
    scene.close()
    ended = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert ended.judging == 0


def test_a_response_that_a_detector_names_is_in_its_incident_with_its_own_verdict(finished):
    incident = replace(finished.incidents[0], rids=("resp-a1",))
    (reading,) = readings_of(incident, finished.reads, finished.workers)
    assert (reading.rid, reading.verdict, reading.findings) == ("resp-a1", Verdict.CLEAN, ())


def test_names_are_those_behind_the_findings_of_the_responses():
    blank = dict.fromkeys(FINDING_COLUMNS.names)
    findings = [
        blank | {"rid": "r", "kind": "foreign", "tenant": BRIO, "donor_rid": "d", "donor_tenant": ACME},
        blank | {"rid": "r", "kind": "clean", "tenant": BRIO, "donor_rid": "not-it", "donor_tenant": CYAN},
        blank | {"rid": "other", "kind": "foreign", "tenant": CYAN, "donor_rid": "e", "donor_tenant": CYAN},
    ]
    rows = pa.table({"id": ["I-1", "I-2"], "rids": pa.array([["r"], []], pa.list_(pa.string()))})
    named = with_names(rows, pa.Table.from_pylist(findings, FINDING_COLUMNS)).to_pylist()
    assert named[0] == {
        "id": "I-1",
        "rids": ["r"],
        "reader_tenants": [BRIO],
        "donor_tenants_named": [ACME],
        "donors": ["d"],
    }
    assert named[1]["donors"] == []


def test_severities_are_the_librarys_words():
    assert [Severity.of_word(word).name for word in ("critical", "high", "medium", "low")] == ["P1", "P2", "P3", "P4"]
    with pytest.raises(ValueError, match="not in"):
        Severity.of_word("worse")
    assert {"P0", "record lost", "mechanism unknown"} <= set(MECHANISMS)
