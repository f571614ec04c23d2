"""Figures of held capacity and latency: their formulas, against numbers worked out by hand."""

import pyarrow as pa
import pytest

from console.core.bins import MAX_BINS, bin_means, bin_seconds
from console.core.detectors import detector_rows, detectors
from console.core.held_capacity import Rates, WhatIf, forecast, held_figure, held_series, hold_rates
from console.core.latency import latency_figure

SECOND = 1_000_000
STAMP = pa.timestamp("us", tz="UTC")


def gauges(*rows: tuple[int, int, int, int, int]) -> pa.Table:
    names = ("t", "held", "quarantined", "in_transfer", "free")
    columns = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(names)}
    columns["t"] = columns["t"].cast(STAMP)
    return pa.table({"worker": ["d"] * len(rows), "pool": ["kv"] * len(rows), **columns})


def test_stretches_are_round_and_never_too_many():
    assert [bin_seconds(0, s * SECOND) for s in (0, 10, 599, 600, 3600, 86_400, 13 * 86_400)] == [
        1,
        1,
        1,
        2,
        10,
        300,
        3600,
    ]
    for seconds in (1, 777, 98_765, 10_000_000, 3_000_000_000):
        assert seconds / bin_seconds(0, seconds * SECOND) <= MAX_BINS


def test_gauges_are_averaged_by_stretch_and_the_least_free_is_kept():
    rows = gauges((0, 10, 0, 2, 90), (4 * SECOND, 20, 4, 0, 70), (12 * SECOND, 60, 0, 0, 40))
    binned = bin_means(rows, 0, 10 * SECOND, means=("held", "quarantined"), least=("free",)).to_pylist()
    assert binned == [
        {"worker": "d", "pool": "kv", "t": 0, "bin_us": 10 * SECOND, "held": 15.0, "quarantined": 2.0, "free": 70},
        {
            "worker": "d",
            "pool": "kv",
            "t": 10 * SECOND,
            "bin_us": 10 * SECOND,
            "held": 60.0,
            "quarantined": 0.0,
            "free": 40,
        },
    ]


def test_rates_are_counted_over_the_last_minute_and_quarter_of_an_hour():
    times = [0, 850, 890, 899]  # seconds; the record ends at 900
    holds = pa.table(
        {
            "op": ["hold"] * 4 + ["free"], "worker": ["d"] * 5, "pool": ["kv"] * 5, "epoch": [1] * 5, "tag": [1, 2, 3, 4, 1],
            "t": pa.array([t * SECOND for t in [*times, 10]], pa.int64()).cast(STAMP),
        }
    )  # fmt: skip
    explained = pa.table(
        {"worker": ["d", "d", "d"], "pool": ["kv"] * 3,
         "holds_per_s": [3.0, 1.0, 0.0], "hold_s": [10.0, 30.0, None], "pages_each": [8.0, 16.0, None]}
    )  # fmt: skip
    assert hold_rates(holds, explained, 900 * SECOND) == {("d", "kv"): Rates(3 / 60, 3 / 900, 15.0, 10.0)}


HOLDER = {"worker": "d", "pool": "kv", "pages": 100, "deadline": 60 * SECOND}


def test_without_new_holds_a_forecast_is_what_is_let_go():
    told = forecast(150.0, (HOLDER, HOLDER | {"pages": 30, "deadline": None}), Rates(0, 0, 0, 0), 200, 0)
    by_second = dict(zip(told.seconds, told.high, strict=True))
    assert (by_second[30.0], by_second[60.0], by_second[3600.0]) == (150.0, 50.0, 50.0)
    assert (told.full_in_s, told.never_fills, told.words) == ((None, None), True, "never full")


def test_a_rate_whose_steady_state_is_above_the_room_fills_the_pool():
    told = forecast(0.0, (), Rates(2.0, 1.0, 600.0, 10.0), 5000, 0)
    assert told.steady == (6000.0, 12_000.0)
    soonest, latest = told.full_in_s
    assert 200 < soonest < 250  # 2/s x 10 pages reach 5,000 after 250 s; the upper edge sooner
    assert 500 < latest < 600
    assert told.words.startswith("full in 3m")
    below = forecast(0.0, (), Rates(2.0, 1.0, 200.0, 10.0), 5000, 0)
    assert (below.never_fills, below.full_in_s) == (True, (None, None))


def test_what_if_changes_the_rates_and_nothing_that_was_measured():
    series = held_series(gauges((0, 10, 0, 0, 90), (SECOND, 40, 0, 0, 60)), 0, SECOND)
    figure = held_figure(series, Rates(2.0, 1.0, 600.0, 10.0), (), 128, SECOND)
    assert (figure.share, figure.forecast.room, figure.bin_us) == (40 / 128, 100, SECOND)
    assert figure.formula == "2/s × 600 s × 10 pages = 12,000"
    tried = held_figure(series, Rates(2.0, 1.0, 600.0, 10.0), (), 128, SECOND, WhatIf(rate_factor=0.5, hold_s=1.0))
    assert tried.formula == "1/s × 1 s × 10 pages = 10"
    assert (tried.stacked, tried.free, tried.forecast.room) == (figure.stacked, figure.free, 100)
    assert tried.forecast.never_fills


def test_a_pool_without_gauges_has_an_empty_figure():
    empty = held_figure(held_series(gauges(), 0, SECOND), Rates(0, 0, 0, 0), (), None, 0)
    assert (empty.starts_us, empty.share) == ((), None)


def test_latency_names_the_length_to_look_at_first():
    compared = pa.table(
        {
            "bucket_tokens": [512, 8192], "requests": [100, 19], "p5_ms": [10.0, 200.0], "p50_ms": [12.0, 300.0],
            "p95_ms": [20.0, 900.0], "mean_ms": [13.0, 400.0], "sum_ms": [1300.0, 7600.0], "baseline_p5_ms": [10.0, 1600.0],
            "baseline_p10_ms": [10.5, 1650.0], "baseline_p90_ms": [14.0, 2200.0],
            "floor_ms": [0.5, 8.0], "below_floor": [0, 2], "suspicious": ["no", "yes"], "fastest": [None, ["r1", "r2"]],
        }
    )  # fmt: skip
    times = pa.table(
        {"t": pa.array([5], pa.int64()).cast(STAMP), "bucket_tokens": [8192], "requests": [19],
         "p5_ms": [200.0], "p50_ms": [300.0], "p95_ms": [900.0], "below_floor": [2]}
    )  # fmt: skip
    figure = latency_figure(compared, times)
    worst = figure.worst
    assert (worst.label, worst.change, worst.few, worst.fastest) == ("8–16k", -0.875, True, ("r1", "r2"))
    assert (worst.band_ms, worst.stats.p95) == ((1650.0, 2200.0), 900.0)
    assert (worst.starts_us, worst.p5, worst.p95) == ((5,), (200.0,), (900.0,))
    assert (figure.lengths[0].label, figure.lengths[0].few, figure.lengths[0].starts_us) == ("512–1k", False, ())


def test_a_detector_that_is_off_is_not_one_that_saw_nothing():
    checks = pa.table(
        {"detector": ["D4", "D4", "D5", "ZZ"], "op": ["passed", "mismatch", "skipped", "passed"],
         "n": [500, 1, 7, None], "seq": [1, 2, 3, 4]}
    )  # fmt: skip
    seen = pa.table({"detector": ["D4", "O"], "t": pa.array([9, 4], pa.int64()).cast(STAMP)})
    by_code = {d.code: d for d in detectors(detector_rows(checks, seen))}
    assert {code: by_code[code].state for code in ("D4", "O", "D5", "D6", "D1", "ZZ")} == {
        "D4": "saw something", "O": "saw something", "D5": "skipped", "D6": "off", "D1": "record only", "ZZ": "quiet",
    }  # fmt: skip
    assert (by_code["D4"].looked, by_code["D4"].last_us, by_code["D5"].skipped, by_code["D6"].looked) == (
        501,
        9,
        7,
        None,
    )


@pytest.mark.parametrize(("bucket", "label"), [(1, "1–2"), (512, "512–1k"), (1024, "1–2k"), (65_536, "64–128k")])
def test_lengths_are_named(bucket, label):
    from console.core.latency import Length

    assert Length(bucket, 1, 0, None, 1, 1, 0, False, ()).label == label
