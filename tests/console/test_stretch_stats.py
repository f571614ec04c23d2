"""What a stretch says in five numbers: of all its values, the same in both skins."""

from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pilots import app_of, opened, until
from text_snapshot import screen_text

from console.core.looking import looking
from console.core.places import Place
from console.core.ranged import in_range, stretch
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.core.stretch_stats import Stats, gauge_stats
from console.core.time_range import parse_range
from console.core.view import View
from console.web.app import create_app
from console.web.gate import Gate, Role
from forensics.rows import rows_of

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
RANGE = "2026-09-14T09:00:30Z..2026-09-14T09:00:50Z"
NOW = 1_790_000_000_000_000


@pytest.fixture(scope="module")
def storm() -> Snapshot:
    reading = LedgerSource(STORM, now_us=lambda: NOW, engine="replay").read()
    assert isinstance(reading, Snapshot)
    return reading


def counted(storm, place, text=RANGE):
    view = View(place=place).with_range(parse_range(text))
    at = looking(storm.rollup, view, storm.data_us)
    return in_range(place, storm.rollup, storm, at), stretch(storm.rollup, at.span)


def test_percentiles_of_every_pool_are_those_that_numpy_says():
    rng = np.random.default_rng(7)
    worker, pool = (pa.array(rng.choice(names, 400)) for names in (["w/1", "w-2", "w"], ["kv", "state"]))
    held = [None if value == 3 else int(value) for value in rng.integers(0, 90, 400)]
    rows = pa.table({"worker": worker, "pool": pool, "held": pa.array(held, pa.int64())})
    found = {(row.pop("worker"), row.pop("pool")): row for row in rows_of(gauge_stats(rows))}
    keys = set(zip(worker.to_pylist(), pool.to_pylist(), strict=True))
    assert set(found) == keys
    for key in keys:
        mine = [h for w, p, h in zip(worker.to_pylist(), pool.to_pylist(), held, strict=True) if (w, p) == key]
        values = [h for h in mine if h is not None]
        assert found[key]["n"] == len(values)
        low, middle, high, most = np.quantile(values, [0.05, 0.5, 0.95, 1.0])
        wanted = {"p5": low, "p50": middle, "p95": high, "most": most, "mean": np.mean(values)}
        assert {name: found[key][name] for name in wanted} == pytest.approx(wanted)
    assert len(gauge_stats(rows.slice(0, 0))) == 0


def test_words_leave_out_what_means_nothing():
    assert Stats(0, 0, 0, 0, 0).words("ms") == "n 0"
    assert Stats(1200, 0.5, 12, 1234, 20.25, total=24300).words("ms") == (
        "n 1,200  p5 0.5  p50 12  p95 1,234  mean 20.2 ms  sum 24,300 ms"
    )
    assert Stats(3, 1, 2, 3, 2, most=3).words("pages") == "n 3  p5 1  p50 2  p95 3  mean 2  most 3 pages"


def test_held_and_latency_count_the_range_and_nothing_else(storm):
    known, (begin, end, _) = counted(storm, Place.HELD)
    gauges = rows_of(storm.ledger.tables["gauges"])
    for figure in known.held:
        mine = [g["held"] for g in gauges if (g["worker"], g["pool"]) == (figure.worker, figure.pool)
                and begin <= g["t"] < end]  # fmt: skip
        assert (figure.stats.n, figure.stats.most, figure.stats.mean) == (len(mine), max(mine), np.mean(mine))
    assert {f.name: f.stats.n for f in storm.rollup.held} != {f.name: f.stats.n for f in known.held}
    lengths = counted(storm, Place.LATENCY)[0].latency.lengths
    for length in lengths:
        assert length.stats.n == length.requests == sum(length.counts)
        assert length.stats.total == pytest.approx(length.stats.mean * length.stats.n, abs=0.01 * length.stats.n)
        assert min(length.p5) <= length.stats.p5 <= length.stats.p50 <= length.stats.p95 <= max(length.p95)
    assert sum(n.requests for n in lengths) < sum(n.requests for n in storm.rollup.latency.lengths)


async def test_both_skins_say_it_of_the_range(storm, tmp_path):
    wanted = {place: counted(storm, place)[0] for place in (Place.HELD, Place.LATENCY)}
    held = wanted[Place.HELD].held[0].stats.words("pages")
    app = app_of(STORM, tmp_path, view=View(place=Place.HELD).with_range(parse_range(RANGE)))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await until(pilot, lambda: f" this stretch: {held}" in screen_text(app), "the pool's numbers")
        await pilot.press("5")
        worst = wanted[Place.LATENCY].latency.worst.stats.words("ms")
        await until(pilot, lambda: f"in this stretch: {worst}" in screen_text(app), "the length's numbers")
    source = LedgerSource(STORM, now_us=lambda: NOW, engine="replay")
    web = create_app(source, Gate({"word": Role.VIEWER}), ("127.0.0.1",), tmp_path, patience_s=60.0)
    transport, headers = httpx.ASGITransport(web), {"authorization": "Bearer word"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        query = "from=2026-09-14T09:00:30Z&to=2026-09-14T09:00:50Z"
        said = wanted[Place.HELD].held[0].stats.words("pages held")
        assert f'id="stretch">{said}<' in (await client.get(f"/held?{query}")).text
        rows = (await client.get(f"/tables/latency.csv?{query}")).text
        assert "p95_ms" in rows
