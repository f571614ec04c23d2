"""Grouping of findings into incidents: ids, severities, counts, and what is not judged yet."""

from dataclasses import replace

from scripted_ledger import ACME, BRIO, CYAN, Scene, late_write, ordinary, short_handoff

from console.core.incidents import SETTLE_US, Judged, group_incidents, still_judging
from console.core.marks import Severity
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from forensics.verdict import Verdict


def snapshot_of(scene: Scene, later_us: int = 0) -> Snapshot:
    """As a console would see it now; the workers have just heard of each other."""
    scene.beat()
    scene.flush()
    reading = LedgerSource(scene.directory, now_us=lambda: scene.now + later_us).read()
    assert isinstance(reading, Snapshot), reading
    return reading


def finding(rid: str, **columns) -> dict:
    base = {
        "rid": rid, "tenant": BRIO, "worker": "decode-0", "epoch": 1, "req": 1, "pool": "kv", "kind": "foreign",
        "proof": "proved", "derived": False, "delivered": "yes", "mechanism": "M3", "donor_rid": "d",
        "donor_tenant": ACME, "pages": 1, "page_list": [7], "first_step": 1, "first_step_last": 1,
        "first_step_proof": "proved", "first_seq": 5, "reason": "",
    }  # fmt: skip
    return base | columns


def response(rid: str, verdict: str, **columns) -> dict:
    base = {
        "rid": rid, "tenant": BRIO, "verdict": verdict, "proof": "proved", "first_worker": "decode-0", "started": 1000,
        "finished": 2000, "status": "200", "reason": "",
    }  # fmt: skip
    return base | columns


def judged(responses, findings, *, alive=(), now_us=100_000_000) -> Judged:
    return Judged(responses, findings, {}, frozenset(alive), now_us)


def test_the_scripted_incidents_are_what_the_script_did(finished):
    by_mechanism = {incident.mechanism: incident for incident in finished.incidents}
    assert set(by_mechanism) == {"M1", "M3"}
    for mechanism, donor, victim, pages in (("M1", "resp-a1", "resp-b1", 12), ("M3", "resp-a2", "resp-b2", 4)):
        incident = by_mechanism[mechanism]
        assert incident.severity is Severity.P1
        assert (incident.worker, incident.pool) == ("decode-0", "kv")
        assert incident.counts == {v: int(v is Verdict.CONTAMINATED) for v in Verdict}
        (reading,) = incident.readings
        assert (reading.rid, reading.pages, reading.donors) == (victim, pages, ((donor, ACME),))
        assert incident.donor_tenants == (ACME,)
        assert incident.reader_tenants == (BRIO,)
        assert not incident.growing


def test_an_incident_keeps_its_id_while_it_grows(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 6)
    short_handoff(scene, "first", BRIO, 1, 6)
    (before,) = snapshot_of(scene).incidents
    ordinary(scene, "donor-2", ACME, 1, 6)
    short_handoff(scene, "second", CYAN, 1, 6)
    (after,) = snapshot_of(scene).incidents
    scene.close()
    assert after.id == before.id
    assert (len(before.readings), len(after.readings)) == (1, 2)
    assert after.first_seen_us == before.first_seen_us
    assert after.last_seen_us > before.last_seen_us


def test_growing_ends_with_time_and_with_the_writers(tmp_path):
    scene = Scene(tmp_path / "ledger")
    late_write(scene, "donor", "victim", (ACME, BRIO), 1)
    assert snapshot_of(scene).incidents[0].growing
    assert not snapshot_of(scene, later_us=61_000_000).incidents[0].growing
    scene.close()
    reading = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert not reading.incidents[0].growing


def test_severities_and_counts_by_gravest_verdict():
    responses = [
        response("r1", "contaminated"),
        response("r2", "exposed"),
        response("r3", "corrupt"),
        response("r4", "unknown"),
    ]
    findings = [
        finding("r1"), finding("r1", req=2, delivered="no"), finding("r2", delivered="no"),
        finding("r3", kind="corrupt", mechanism="", donor_rid=None, donor_tenant=None),
        finding("r4", kind="unknown", mechanism="", donor_rid=None, donor_tenant=None, reason="a gap", first_seq=None),
        finding("r5", kind="clean", mechanism=""),
    ]  # fmt: skip
    m3, *others = group_incidents(judged(responses, findings))
    assert (m3.severity, m3.counts[Verdict.CONTAMINATED], m3.counts[Verdict.EXPOSED]) == (Severity.P1, 1, 1)
    assert {(i.severity, i.mechanism) for i in others} == {(Severity.P2, "wrong content"), (Severity.P2, "undecided")}
    exposed_only = group_incidents(judged([response("r2", "exposed")], [finding("r2", delivered="no")]))
    assert [i.severity for i in exposed_only] == [Severity.P3]


def test_a_response_without_any_finding_is_still_an_incident_when_it_is_unknown():
    (incident,) = group_incidents(judged([response("r", "unknown", reason="own rows lost")], []))
    assert (incident.severity, incident.mechanism, incident.readings[0].reason) == (
        Severity.P2,
        "undecided",
        "own rows lost",
    )


def test_unknown_waits_for_living_writers_and_no_longer_than_it_should():
    responses = [response("r", "unknown", finished=2000)]
    findings = [finding("r", kind="unknown", mechanism="", donor_rid=None)]
    alive = {("decode-0", 1)}
    waiting = judged(responses, findings, alive=alive, now_us=2000 + SETTLE_US - 1)
    assert group_incidents(waiting) == ()
    assert still_judging(waiting) == 1
    overdue = replace(waiting, now_us=2000 + SETTLE_US)
    assert len(group_incidents(overdue)) == 1
    assert still_judging(overdue) == 0
    ended = replace(waiting, alive=frozenset())
    assert len(group_incidents(ended)) == 1


def test_a_contaminated_response_does_not_wait():
    found = judged([response("r", "contaminated", finished=None)], [finding("r")], alive={("decode-0", 1)})
    assert len(group_incidents(found)) == 1


def test_ids_that_would_collide_grow_longer(monkeypatch):
    import console.core.incidents as module

    class Same:
        def __init__(self, data: bytes) -> None:
            self._tail = data.hex()

        def hexdigest(self) -> str:
            return "beef" + self._tail

    monkeypatch.setattr(module.hashlib, "sha256", Same)
    found = [finding("r1", mechanism="M3"), finding("r2", mechanism="M1")]
    incidents = group_incidents(judged([response("r1", "contaminated"), response("r2", "contaminated")], found))
    ids = {incident.id for incident in incidents}
    assert len(ids) == 2
    assert "I-beef" in ids
