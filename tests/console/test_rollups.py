"""What the first screens show: made of one reading, kept between openings, and never of another ledger."""

import json
import shutil
from dataclasses import replace
from time import process_time

import pyarrow as pa
import pytest
from scripted_ledger import ACME, BRIO, Scene, ordinary, short_handoff

from console.core import rollup_store
from console.core.desk import Desk
from console.core.page_map import incident_area, page_map
from console.core.rollup_store import RollupStore, cache_directory, continues, ledger_marks
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource


def source_of(path, store=None) -> LedgerSource:
    return LedgerSource(path, now_us=lambda: 1_790_000_100_000_000, engine="replay", store=store)


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 6)
    short_handoff(scene, "victim", BRIO, 1, 6)
    scene.beat()
    scene.flush()
    yield scene
    scene.close()


def test_a_rollup_says_what_its_snapshot_says(finished):
    rollup = finished.rollup
    for name in ("incidents", "counts", "judging", "writing", "data_us", "taken_us", "owners", "record_words", "name"):
        assert getattr(rollup, name) == getattr(finished, name), name
    assert rollup.responses == finished.reads.responses.num_rows
    assert [d.code for d in rollup.detectors if d.hits] == sorted(
        {code for incident in finished.incidents for code in incident.detectors}
    )
    assert {sheet.name: len(sheet.rows) for sheet in rollup.sheets.values()}["incidents"] == len(finished.incidents)


def test_the_strip_is_the_page_map_around_the_gravest_incident(finished):
    strip, area = finished.rollup.strip, incident_area(finished, finished.incidents[0])
    drawn = page_map(finished, area, rows=16, cols=240)
    assert (strip.area, strip.markers, strip.pages_per_row, strip.bin_us) == (
        area,
        drawn.markers,
        drawn.pages_per_row,
        drawn.bin_us,
    )
    assert (strip.cells == drawn.cells).all()
    assert len({marker.kind for marker in strip.markers}) == 2


def test_what_is_kept_comes_back_as_it_was(scene, tmp_path):
    store = RollupStore(tmp_path / "cache")
    assert source_of(scene.directory, store).remembered() is None
    rollup = source_of(scene.directory, store).read().rollup
    kept = source_of(scene.directory, store).remembered()
    assert kept.head == json.loads(json.dumps(rollup.head))
    assert {name: table for name, table in kept.tables.items()} == rollup.tables
    assert (kept.incidents, kept.owners, kept.held, kept.latency) == (
        rollup.incidents, rollup.owners, rollup.held, rollup.latency
    )  # fmt: skip
    (file,) = store.directory.iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_a_ledger_that_has_grown_is_remembered_as_it_was_and_says_so(scene, tmp_path):
    store = RollupStore(tmp_path / "cache")
    source_of(scene.directory, store).read()
    ordinary(scene, "more", ACME, 20, 2)
    scene.flush()
    kept = source_of(scene.directory, store).remembered()
    assert kept.fingerprint != source_of(scene.directory).fingerprint()
    desk = Desk(remembered=kept)
    assert (desk.is_remembered, desk.rollup) == (True, kept)
    after = desk.offer(source_of(scene.directory).read())
    assert (after.is_remembered, after.rollup.responses) == (False, 3)


def test_a_stream_that_was_compacted_is_the_same_ledger_still(scene, tmp_path):
    store = RollupStore(tmp_path / "cache")
    source_of(scene.directory, store).read()
    scene.close()
    marks = ledger_marks(scene.directory)
    assert source_of(scene.directory, store).remembered() is None  # no file is left that could vouch for it
    source_of(scene.directory, store).read()
    assert continues(marks, scene.directory)
    assert source_of(scene.directory, store).remembered() is not None


def test_another_ledger_in_the_same_place_is_not_taken_for_it(scene, tmp_path):
    scene.close()
    store = RollupStore(tmp_path / "cache")
    source_of(scene.directory, store).read()
    shutil.rmtree(scene.directory)
    other = Scene(scene.directory)
    ordinary(other, "fine", ACME, 1, 2)
    other.close()
    assert source_of(other.directory, store).remembered() is None
    shutil.rmtree(other.directory)
    assert source_of(other.directory, store).remembered() is None


def test_what_is_damaged_or_made_by_other_queries_is_as_good_as_none(scene, tmp_path, monkeypatch):
    store = RollupStore(tmp_path / "cache")
    source = source_of(scene.directory, store)
    source.read()
    (file,) = store.directory.iterdir()
    whole = file.read_bytes()
    for at in (0, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert source.remembered() is None
        file.write_bytes(whole[:at])
        assert source.remembered() is None
    file.write_bytes(whole)
    assert source.remembered() is not None
    monkeypatch.setattr(rollup_store, "FORMAT", rollup_store.FORMAT + 1)
    assert source.remembered() is None


def test_nothing_is_kept_beside_the_evidence_nor_where_it_cannot_be(scene, tmp_path):
    before = sorted(scene.directory.rglob("*"))
    source_of(scene.directory, RollupStore(scene.directory / "cache")).read()
    assert sorted(scene.directory.rglob("*")) == before
    (tmp_path / "file").write_text("")
    source = source_of(scene.directory, RollupStore(tmp_path / "file" / "cache"))
    assert isinstance(source.read(), Snapshot)
    assert source.remembered() is None


def test_the_cache_is_where_the_user_says():
    assert str(cache_directory({"XDG_CACHE_HOME": "/c"})) == "/c/kvwitness/rollups"
    assert str(cache_directory({"XDG_CACHE_HOME": "relative", "HOME": "/h"})) == "/h/.cache/kvwitness/rollups"


def test_painting_from_what_is_remembered_costs_the_same_for_any_record(scene, tmp_path):
    """First paint reads one small file: 2,000 detections, 600 stretches and 500 holders at most."""
    store = RollupStore(tmp_path / "cache")
    rollup = source_of(scene.directory, store).read().rollup
    tables = dict(rollup.tables)
    for name, rows in (("detections", 2000), ("held", 600 * 4), ("prefill-times", 600 * 8)):
        table = tables[name]
        if not len(table):
            continue
        tables[name] = pa.concat_tables([table] * (rows // len(table) + 1)).slice(0, rows)
    store.keep(replace(rollup, tables=tables), ledger_marks(scene.directory))
    started = process_time()
    kept = store.load(scene.directory)
    _ = kept.incidents, kept.owners, kept.detectors, kept.latency, kept.held
    assert process_time() - started < 0.5
