"""Lineage of a response, and the order of events on its pages."""

from dataclasses import replace

import numpy as np
import pytest
from scripted_ledger import ACME, BRIO, Scene, late_write, ordinary, short_handoff

from console.core.lineage import MAX_NODES, lineage
from console.core.lives import PoolLives
from console.core.marks import LinkStyle
from console.core.page_events import Placed, page_story
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from forensics.verdict import Verdict


def snapshot_of(scene: Scene) -> Snapshot:
    scene.close()
    reading = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert isinstance(reading, Snapshot), reading
    return reading


def opened(snapshot: Snapshot, mechanism: str):
    incident = next(i for i in snapshot.incidents if i.cause == mechanism)
    return incident, snapshot.readings(incident)[0]


def kinds(story) -> list[str]:
    return [event.kind for event in story.events]


def test_pages_come_in_slot_order_with_their_tokens_and_donor(finished):
    known = lineage(finished, opened(finished, "M1")[1])
    assert [(p.page, p.slot, p.tok_lo, p.tok_hi) for p in known.pages] == [
        (i + 1, i, 16 * i, 16 * i + 16) for i in range(12)
    ]
    assert {link.donor for page in known.pages for link in page.links} == {"resp-a1"}
    assert {link.style for page in known.pages for link in page.links} == {LinkStyle.PROVED}
    assert (known.own, known.total, known.more) == (0, 12, 0)
    (donor,) = known.donors
    assert (donor.rid, donor.tenant, donor.status, donor.pages, donor.room) == ("resp-a1", ACME, "200", 12, 101)


def test_own_pages_are_counted_not_accused(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 4)
    asked = scene.receive("victim", BRIO, 6 * 16, [1, 2, 3, 4, 9, 10])
    scene.compute(asked, [1, 2, 3, 4, 5, 6], 96)
    scene.send(asked, 3)
    scene.ack(asked)
    scene.free_source(asked)
    scene.commit(asked)
    scene.decode_steps(3)
    scene.finish(asked, 3)
    snapshot = snapshot_of(scene)
    _, reading = opened(snapshot, "M1")
    known = lineage(snapshot, reading)
    by_page = {page.page: page for page in known.pages}
    # Pages 1-3 were sent; 4 still held the donor's content; 9 and 10 had never been written.
    assert by_page[4].verdict is Verdict.CONTAMINATED
    assert {p for p, page in by_page.items() if page.verdict is Verdict.CONTAMINATED} == {4}
    assert known.total == 6
    assert known.own == 6 - len(known.pages) >= 3


def test_styles_follow_verdict_and_proof(finished):
    _, reading = opened(finished, "M3")

    def style(**changes) -> set[LinkStyle]:
        altered = replace(reading, findings=tuple(f | changes for f in reading.findings))
        return {link.style for page in lineage(finished, altered).pages for link in page.links}

    assert style() == {LinkStyle.PROVED}
    assert style(proof="inferred") == {LinkStyle.INFERRED}
    assert style(delivered="no") == {LinkStyle.OVERLAP}
    assert style(delivered="unknown") == {LinkStyle.UNDECIDED}


def test_two_donors_are_ordered_by_the_middle_of_their_pages(finished):
    _, reading = opened(finished, "M1")
    (found,) = reading.findings
    split = (
        found | {"donor_rid": "a-late", "page_list": [8, 9, 10, 11, 12]},
        found | {"donor_rid": "z-early", "page_list": [1, 2, 3]},
    )
    known = lineage(finished, replace(reading, findings=split))
    assert [donor.rid for donor in known.donors] == ["z-early", "a-late"]


def test_more_pages_than_can_be_drawn_are_counted(finished):
    _, reading = opened(finished, "M1")
    many = reading.findings[0] | {"page_list": list(range(MAX_NODES + 30))}
    known = lineage(finished, replace(reading, findings=(many,)))
    assert (len(known.pages), known.more) == (MAX_NODES, 30)


def test_a_short_handoff_reads_as_reserve_one_landing_commit_of_all_read(finished):
    _, reading = opened(finished, "M1")
    story = page_story(finished, reading, 5)
    mine = [event for event in story.events if event.rid == "resp-b1"]
    assert [e.kind for e in mine] == [
        "REJECT",
        "RESERVE",
        "GRANT",
        "ACK",
        "ACK",
        "RECEIPT",
        "COMMIT",
        "BIND",
        "READ",
        "UNBIND",
        "FREE",
    ]
    commit = next(e for e in mine if e.kind == "COMMIT")
    assert commit.note == "! movers wrote 1 of 12 pages, 192 tokens believed"
    assert "LANDS" in [e.kind for e in story.events if e.rid == "resp-a1"]
    (offending,) = [e for e in story.events if e.offending]
    assert (offending.kind, offending.verdict) == ("READ", Verdict.CONTAMINATED)
    assert offending.note == "not its own, from step 5"


def test_a_story_looks_at_the_lives_of_its_page_and_at_what_landed_under_the_tags_of_its_request(finished, monkeypatch):
    reading = opened(finished, "M1")[1]
    told, looked_at, life = page_story(finished, reading, 5), set(), PoolLives.life
    assert any("movers wrote 1 of 12 pages" in event.note for event in told.events if event.kind == "COMMIT")
    monkeypatch.setattr(PoolLives, "life", lambda self, at: looked_at.add(int(self.page[at])) or life(self, at))
    assert page_story(finished, reading, 5) == told
    assert looked_at == {5}


def test_a_late_write_is_the_line_to_look_at(finished):
    _, reading = opened(finished, "M3")
    story = page_story(finished, reading, 30)
    lands = [e for e in story.events if e.kind == "LANDS"]
    assert [e.rid for e in lands] == ["resp-b2", "resp-a2"]
    assert [e.offending for e in lands] == [False, True]
    assert lands[1].note.startswith("into g57, meant for g49")
    order = kinds(story)
    freed = story.events[order.index("FREE")]
    assert freed.rid == "resp-a2"
    assert "! remote write not drained" in freed.note
    reads = [e for e in story.events if e.kind == "READ"]
    assert [e.verdict for e in reads] == [None, Verdict.CONTAMINATED]
    assert story.events.index(reads[0]) < story.events.index(lands[1]) < story.events.index(reads[1])


def test_rows_of_the_reading_worker_stand_in_seq_order_and_deltas_add_up(finished):
    for incident in finished.incidents:
        for page in lineage(finished, finished.readings(incident)[0]).found:
            events = page_story(finished, finished.readings(incident)[0], page).events
            own = [e.seq for e in events if e.worker == "decode-0"]
            assert own == sorted(own)
            assert sum(e.delta_us or 0 for e in events) == events[-1].t_us - events[0].t_us


@pytest.mark.parametrize("skew_ms", [-5000, 5000])
def test_edges_outrank_clocks(tmp_path, skew_ms):
    """With the mover's clock five seconds off, everything that an edge orders stays where it was."""
    scene = Scene(tmp_path / "ledger")
    honest = scene.prefill._now_us
    scene.prefill._now_us = lambda: honest() + skew_ms * 1000
    late_write(scene, "donor", "victim", (ACME, BRIO), 1)
    snapshot = snapshot_of(scene)
    _, reading = opened(snapshot, "M3")
    story = page_story(snapshot, reading, 1)
    order = kinds(story)
    assert order.index("GRANT") < order.index("POST") < order.index("LANDS")
    late = next(i for i, e in enumerate(story.events) if e.kind == "LANDS" and e.rid == "donor")
    assert story.events[late].offending
    assert story.events[late].placed is Placed.EDGE
    heard = next(i for i, e in enumerate(story.events) if i > late and e.kind == "ACK" and e.worker == "decode-0")
    clean = [i for i, e in enumerate(story.events) if e.kind == "READ" and e.verdict is None]
    assert max(clean) < late < heard


def test_a_page_that_no_row_names_has_no_story(finished):
    _, reading = opened(finished, "M1")
    assert page_story(finished, replace(reading, req=None), 1).events == ()
    assert page_story(finished, replace(reading, epoch=9), 1).events == ()


def test_a_local_write_into_anothers_life_is_marked(tmp_path):
    """M7/M8: another request of the same worker writes into the victim's page."""
    scene = Scene(tmp_path / "ledger")
    asked = scene.receive("victim", BRIO, 32, [1, 2])
    scene.compute(asked, [1, 2], 32)
    scene.send(asked)
    scene.ack(asked)
    scene.free_source(asked)
    scene.commit(asked)
    scene.decode_steps(2)
    rude = scene.receive("rude", ACME, 16, [40])
    scene.decode.pages("write", "kv", rude.req["decode-0"], rude.dst_tag, np.array([2], np.int32), tokens=16)
    scene.decode_steps(2)
    scene.finish(asked, 4)
    snapshot = snapshot_of(scene)
    incident = snapshot.incidents[0]
    reading = next(r for r in snapshot.readings(incident) if r.rid == "victim")
    story = page_story(snapshot, reading, 2)
    (write,) = [e for e in story.events if e.kind == "WRITE"]
    assert (write.rid, write.offending, write.verdict) == ("rude", True, Verdict.CONTAMINATED)


def test_the_worst_case_is_bounded(tmp_path):
    scene = Scene(tmp_path / "ledger")
    for i in range(12):
        ordinary(scene, f"donor-{i}", ACME, 1, 4)
    short_handoff(scene, "victim", BRIO, 1, 4)
    snapshot = snapshot_of(scene)
    _, reading = opened(snapshot, "M1")
    story = page_story(snapshot, reading, 2)
    assert {e.rid for e in story.events} == {"donor-11", "victim"}, "only the life that was read, and the reader's"
