"""The evidence of an incident as one file: what is in it, that it can be checked, and that names stay where they may not go."""

import io
import json
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pilots import app_of, around, opened, toasts, typed, until
from scripted_ledger import ACME, BRIO, CYAN, Scene, ordinary, short_handoff

from console.core.evidence_bundle import MARGIN_US, SUMS, evidence_bundle, incident_scope, range_scope
from console.core.places import Place
from console.core.redaction import Redaction
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.core.time_range import Span
from console.core.view import View
from console.web.app import create_app
from console.web.gate import Gate, Role
from engine.ledger.schema import TABLES

NOW = 1_790_000_060_000_000
VIEWER, FORENSIC = "token-of-a-viewer", "token-of-forensics"
TOKENS = {VIEWER: Role.VIEWER, FORENSIC: Role.FORENSIC}


@pytest.fixture(scope="module")
def far_apart(tmp_path_factory) -> Snapshot:
    """Ordinary traffic, an hour, an incident, an hour, ordinary traffic."""
    scene = Scene(tmp_path_factory.mktemp("bundle") / "ledger")
    ordinary(scene, "resp-before", ACME, 1, 4)
    scene.wait(3_600_000)
    ordinary(scene, "resp-donor", ACME, 1, 4)
    short_handoff(scene, "resp-victim", BRIO, 1, 4)
    scene.wait(3_600_000)
    ordinary(scene, "resp-after", CYAN, 1, 4)
    scene.close()
    reading = LedgerSource(scene.directory, now_us=lambda: scene.now, engine="replay").read()
    assert isinstance(reading, Snapshot)
    return reading


def unpacked(content: bytes, directory: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    return root


def checked(root: Path) -> bool:
    return (
        subprocess.run(["sha256sum", "--quiet", "--strict", "-c", SUMS], cwd=root, capture_output=True).returncode == 0
    )


def test_it_holds_what_concerns_the_incident_and_can_be_checked(far_apart, tmp_path):
    (incident,) = far_apart.incidents
    scope = incident_scope(incident)
    made = evidence_bundle(far_apart, scope, View(), Redaction())
    root = unpacked(made.content, tmp_path)
    assert made.name == f"{root.name}.tar" == f"ledger-{incident.id}.tar"
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    summed = {line.split("  ")[1] for line in (root / SUMS).read_text().splitlines()}
    assert files == summed | {SUMS}
    assert checked(root)

    for name in TABLES:
        rows, there = pq.read_table(root / "ledger" / f"{name}.parquet"), far_apart.ledger.tables[name]
        assert rows.schema.names == there.schema.names
        times = there["t"].cast(pa.int64())
        near = pc.and_(
            pc.greater_equal(times, incident.first_seen_us - MARGIN_US),
            pc.less_equal(times, incident.last_seen_us + MARGIN_US),
        )
        always = pc.is_in(there["op"], value_set=pa.array(["start", "config", "close"]))
        expected = there.filter(pc.or_(near, always) if name == "workers" else near)
        assert rows.select(["worker", "epoch", "seq"]) == expected.select(["worker", "epoch", "seq"])
    requests = pq.read_table(root / "ledger" / "requests.parquet")
    assert set(requests["rid"].drop_null().to_pylist()) == {"resp-donor", "resp-victim"}
    assert pq.read_table(root / "judgement" / "responses.parquet")["rid"].to_pylist() == ["resp-victim"]
    findings = pq.read_table(root / "judgement" / "findings.parquet")
    assert set(findings["rid"].to_pylist()) == {"resp-victim"}
    assert "resp-donor" in findings["donor_rid"].to_pylist()
    assert json.loads((root / "manifest_roots.json").read_text()) == far_apart.ledger.manifest_roots != {}
    about = json.loads((root / "about.json").read_text())
    assert about["about"] == incident.id
    assert about["rows"]["judgement/responses"] == 1

    (root / "ledger" / "pages.parquet").write_bytes(b"another")
    assert not checked(root)


def test_rows_of_whom_it_concerns_come_along_whenever_they_were_written(far_apart, tmp_path):
    (incident,) = far_apart.incidents
    scope = replace(incident_scope(incident), involved=frozenset({"resp-before"}))
    root = unpacked(evidence_bundle(far_apart, scope, View(), Redaction()).content, tmp_path)
    rows = pq.read_table(root / "ledger" / "requests.parquet")
    assert set(rows["rid"].drop_null().to_pylist()) == {"resp-before", "resp-donor", "resp-victim"}
    assert rows["seq"].to_pylist() == [
        seq
        for worker in sorted(set(rows["worker"].to_pylist()))
        for seq in sorted(rows.filter(pc.equal(rows["worker"], worker))["seq"].to_pylist())
    ]


def test_gaps_writers_and_a_range_without_any_incident(far_apart, tmp_path):
    start = far_apart.data_us - 60_000_000
    scope = range_scope(far_apart, Span(start, None))
    root = unpacked(evidence_bundle(far_apart, scope, View(), Redaction()).content, tmp_path)
    assert pq.read_table(root / "judgement" / "responses.parquet")["rid"].to_pylist() == ["resp-after"]
    assert len(pq.read_table(root / "judgement" / "incidents.parquet")) == 0
    assert len(pq.read_table(root / "record" / "writers.parquet")) == len(far_apart.ledger.writers)
    assert len(pq.read_table(root / "record" / "gaps.parquet")) == len(far_apart.ledger.gaps)


def test_the_same_record_makes_the_same_bytes(far_apart):
    (incident,) = far_apart.incidents
    later = LedgerSource(far_apart.ledger.path, now_us=lambda: NOW + 10**12, engine="replay").read()
    one, two = (evidence_bundle(s, incident_scope(incident), View(), Redaction()) for s in (far_apart, later))
    assert one == two


async def test_it_leaves_the_server_by_role_and_it_is_said_who_took_names(finished_ledger, finished, tmp_path, capsys):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    app = create_app(source, Gate(TOKENS), ("127.0.0.1",), tmp_path / "state", patience_s=60)
    incident = finished.incidents[0].id
    names = [name.encode() for name in (ACME, BRIO, CYAN, "resp-")]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.get(f"/api/incidents/{incident}/bundle")).status_code == 401
        for path in (f"/api/incidents/{incident}/bundle", "/api/bundle?from=-15m"):
            covered = await client.get(path, headers={"authorization": f"Bearer {VIEWER}"})
            assert covered.status_code == 200
            assert capsys.readouterr().err == ""
            root = unpacked(covered.content, tmp_path / f"covered{len(path)}")
            assert checked(root)
            for file in root.rglob("*.parquet"):
                held = str(pq.read_table(file).to_pylist()).encode()
                assert not any(name in held for name in names), file.name
            assert not any(name in (root / "about.json").read_bytes() for name in names)
            whole = await client.get(path, headers={"authorization": f"Bearer {FORENSIC}"})
            assert "took the evidence of " in capsys.readouterr().err
            assert (
                b"resp-b1"
                in str(
                    pq.read_table(
                        unpacked(whole.content, tmp_path / f"whole{len(path)}") / "ledger/requests.parquet"
                    ).to_pylist()
                ).encode()
            )
        missing = await client.get("/api/incidents/I-ffffffff/bundle", headers={"authorization": f"Bearer {VIEWER}"})
        assert missing.status_code == 404
        page = await client.get(f"/incidents/{incident}", headers={"authorization": f"Bearer {VIEWER}"})
        assert f'href="/api/incidents/{incident}/bundle?' in page.text


async def test_the_terminal_writes_it_too(here, tmp_path, finished):
    app = app_of(here, tmp_path / "kept", view=View(place=Place.INCIDENTS))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.press("e")
        await typed(pilot, "bundle")
        await pilot.press("enter")
        await until(pilot, lambda: "the evidence of" in toasts(app), "the file")
        incident = app.desk.view.incident
        (file,) = around(tmp_path / "kept").exports.iterdir()
        assert file.name == f"incident-ledger-{incident}.tar"
        assert checked(unpacked(file.read_bytes(), tmp_path / "unpacked"))
