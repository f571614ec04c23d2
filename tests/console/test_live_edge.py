"""The live edge: between readings the picture goes on with what the streams hold, and says up to when it was judged."""

from dataclasses import replace

import pytest
from pilots import app_of, opened, until
from scripted_ledger import ACME, BRIO, CYAN, Scene, ordinary, short_handoff
from text_snapshot import screen_lines, screen_text

from console.core.desk import UNJUDGED_US, Desk
from console.core.places import Place
from console.core.rollup import LATEST_EVENTS
from console.core.source import LedgerSource
from console.core.view import Cue, View
from console.web.feed import Feed
from forensics.rows import rows_of


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 4)
    scene.beat()
    scene.flush()
    return scene


def source_of(scene: Scene) -> LedgerSource:
    return LedgerSource(scene.directory, now_us=lambda: scene.now, engine="replay")


def test_a_reading_that_has_everything_has_no_edge(scene):
    source = source_of(scene)
    assert source.edge() is None
    reading = source.read()
    assert source.edge() == (reading, None)


def test_the_edge_is_what_the_next_reading_will_say(scene):
    source = source_of(scene)
    reading = source.read()
    desk = Desk().offer(reading)
    scene.wait(UNJUDGED_US / 1000 + 1)
    ordinary(scene, "later", BRIO, 40, 4)
    scene.flush()
    desk = desk.offer_edge(*source.edge())
    known, next_one = desk.rollup, source.read().rollup
    assert (known.rows, known.data_us) == (next_one.rows, next_one.data_us)
    assert rows_of(known.tables["events"]) == rows_of(next_one.tables["events"])
    assert len(known.tables["events"]) == LATEST_EVENTS
    assert {"later", "donor"} & set(known.tables["events"]["rid"].to_pylist())
    assert known.judged_us == reading.data_us
    assert desk.unjudged_us == next_one.data_us - reading.data_us
    assert known.counts == reading.counts


def test_a_request_of_before_is_named_by_its_receive(scene):
    asked = scene.receive("running", BRIO, 32, [50, 51])
    scene.flush()
    source = source_of(scene)
    desk = Desk().offer(source.read())
    scene.compute(asked, [20, 21], 32)
    scene.flush()
    events = rows_of(desk.offer_edge(*source.edge()).rollup.tables["events"])
    assert (events[-1]["rid"], events[-1]["tenant"], events[-1]["op"]) == ("running", BRIO, "first_token")


def test_a_view_that_stands_still_counts_the_edge_and_shows_it_when_it_goes_on(scene):
    source = source_of(scene)
    desk = Desk().offer(source.read()).on(Cue.TOGGLE)
    before = desk.rollup
    ordinary(scene, "later", BRIO, 40, 4)
    scene.flush()
    desk = desk.offer_edge(*source.edge())
    assert desk.rollup is before
    more = desk.newer_rows
    assert more > 0
    desk = desk.on(Cue.TOGGLE).offer_edge(*source.edge())
    assert desk.rollup.rows == before.rows + more
    assert desk.newer_rows == 0


def test_the_edge_of_another_reading_is_not_laid_over_this_one(scene):
    source = source_of(scene)
    old = source.read()
    short_handoff(scene, "victim", BRIO, 40, 4)
    scene.flush()
    _, edge = source.edge()
    desk = Desk().offer(replace(old, taken_us=old.taken_us + 1))
    assert desk.offer_edge(old, edge).live is None


def test_a_segment_sealed_meanwhile_and_damage_take_nothing_away(scene):
    source = source_of(scene)
    reading = source.read()
    stream = next(scene.directory.glob("wal/decode-0-*.wal"))
    ordinary(scene, "later", BRIO, 40, 4)
    scene.flush()
    content = bytearray(stream.read_bytes())
    content[-5] ^= 0xFF
    stream.write_bytes(bytes(content))
    of, edge = source.edge()
    assert of is reading
    assert set(edge.events["worker"].to_pylist()) == {"gateway-0", "prefill-0"}


async def test_the_terminal_goes_on_while_a_reading_takes_long(live_scene, tmp_path, monkeypatch):
    app = app_of(live_scene.directory, tmp_path / "kept", view=View(place=Place.OVERVIEW), now_us=live_scene.now)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        assert "LIVE 1s" in screen_lines(app)[0]
        monkeypatch.setattr(app.source, "read_if_changed", lambda: None)  # one that has not come to its end
        judged = app.known.judged_us
        live_scene.wait(5000)
        ordinary(live_scene, "unjudged", CYAN, 40, 4)
        live_scene.flush()
        await until(pilot, lambda: "LIVE, judged −5 s" in screen_lines(app)[0], "the edge")
        assert "unjudged" in screen_text(app)
        assert app.known.judged_us == judged
        assert app.known.responses == 6


async def test_browsers_hear_of_the_edge(live_scene, monkeypatch):
    source = LedgerSource(live_scene.directory, now_us=lambda: live_scene.now, engine="replay")
    feed = Feed(source, patience_s=60)
    await feed.fresh()
    monkeypatch.setattr(source, "read_if_changed", lambda: None)
    news = feed.news(feed.mark)
    ordinary(live_scene, "unjudged", CYAN, 40, 4)
    live_scene.flush()
    feed._next_edge = 0.0
    await feed.fresh()
    mark = await anext(news)
    assert mark == feed.mark
    assert "unjudged" in feed.desk.rollup.tables["events"]["rid"].to_pylist()
    await news.aclose()
