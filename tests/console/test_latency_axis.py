"""What is drawn of a length of prompts: its axis, the band of its baseline, its floor; and who holds pages of whom."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.as_it_was import snapshot_at
from console.core.latency import Length
from console.core.latency_axis import LOG_FROM, axis_of, axis_over
from console.core.palettes import theme_for
from console.core.source import LedgerSource
from console.core.time_range import moment_us
from console.core.view import View
from console.tui.latency_lines import BAND, FLOOR, course_lines
from console.tui.palette import Palette

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
TIMES = st.floats(0.001, 1e7)


@given(st.lists(TIMES, min_size=1, max_size=9))
def test_every_time_lies_on_its_axis_in_order(times):
    axis = axis_over(times)
    assert axis.is_log is (max(times) >= LOG_FROM * min(times))
    parts = [axis.part(ms) for ms in sorted(times)]
    assert parts == sorted(parts)
    assert parts[-1] == pytest.approx(1.0)
    for ms in times:
        assert axis.at(axis.part(ms)) == pytest.approx(ms, rel=1e-6, abs=1e-6)


def length_of(**more) -> Length:
    return Length(
        512, 40, 4.0, 20.0, 20.0, 40.0, 0, False, (), starts_us=(0, 60_000_000), p5=(20.0, 20.0), p50=(40.0, 40.0),
        p95=(400.0, 400.0), counts=(20, 20), **more,
    )  # fmt: skip


def test_a_wide_spread_is_drawn_on_a_log_axis_with_band_and_floor_behind_the_lines():
    palette = Palette(theme_for("plain", {}))
    length = length_of(band_ms=(30.0, 200.0))
    assert axis_of(length).is_log
    lines = [line.plain for line in course_lines(length, View(), (), palette, 60, 21)]
    signs = ["".join(sorted(set(line[12:]))).strip() for line in lines[:-1]]
    p95, p5 = 0, next(n for n, s in enumerate(signs) if n and s and s not in (BAND, FLOOR))
    band = [n for n, s in enumerate(signs) if BAND in s]
    assert p95 < band[0] <= band[-1] < p5 < signs.index(FLOOR) == len(signs) - 1
    assert len(band) == pytest.approx(len(signs) * 0.41, abs=1.5)  # of log(400/4), log(200/30)
    assert BAND not in "".join(line.plain for line in course_lines(length_of(), View(), (), palette, 60, 21))


def test_holders_name_their_peer_and_what_its_drain_ack_says():
    storm = LedgerSource(STORM, now_us=lambda: 0, engine="replay").read()
    then = snapshot_at(storm, moment_us("2026-09-14T09:00:39Z")).rollup
    rows = then.sheets["holders"].rows
    assert len(rows) == 36
    assert set(rows["peer"].to_pylist()) == {"prefill-0"}
    assert set(rows["ack"].to_pylist()) == {"none"}
    for length in storm.rollup.latency.lengths:
        assert length.band_ms is None or length.band_ms[0] <= length.band_ms[1]
        if length.band_ms is not None and length.baseline_p5_ms is not None:
            assert length.baseline_p5_ms <= length.band_ms[0]
