"""Whether traffic is distributed as its scenario says; seeds are fixed, so that a failure is a change."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from pydantic import TypeAdapter

from engine.simulation.arrivals import Delays, Lengths, draw, key_of, uniforms
from engine.simulation.traffic import Arrival, Stream, arrivals

START = 1_780_272_000_000_000  # midnight UTC
HOUR, DAY = 3_600_000_000, 86_400_000_000
MANY = np.arange(200_000, dtype=np.uint64)
KEY = key_of(11, "statistics")


def lengths(written: object) -> np.ndarray:
    return draw(TypeAdapter(Lengths).validate_python(written), KEY, MANY)


def seen(hours: float, **settings: object) -> list[Arrival]:
    plain = {
        "name": "web",
        "arrivals": {"kind": "poisson", "rate_per_s": 5.0},
        "prompt": 64,
        "output": 8,
        "tenants": ["t"],
    }
    return list(arrivals([Stream.model_validate(plain | settings)], 11, START, START + int(hours * HOUR)))


def near(found: float, wanted: float, count: int, sigmas: float = 4) -> bool:
    """Whether `found` of `count` trials is what a share of `wanted` gives."""
    return abs(found / count - wanted) < sigmas * (wanted * (1 - wanted) / count) ** 0.5 + 1e-12


def test_uniforms_fill_their_interval_evenly_and_neighbours_do_not_agree():
    drawn = uniforms(KEY, MANY)
    assert 0 <= drawn.min() < 1e-4 and 1 - 1e-4 < drawn.max() < 1
    assert all(near(found, 0.05, len(MANY)) for found in np.histogram(drawn, 20, (0, 1))[0])
    for lag in (1, 2, 64):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 0.01
    assert abs(np.corrcoef(drawn, uniforms(KEY ^ 1, MANY))[0, 1]) < 0.01


def test_uniform_lengths_have_both_ends_and_all_between_alike():
    counts = Counter(lengths({"kind": "uniform", "min": 5, "max": 14}).tolist())
    assert sorted(counts) == list(range(5, 15))
    assert all(near(count, 0.1, len(MANY)) for count in counts.values())


def test_lognormal_lengths():
    logs = np.log(lengths({"kind": "lognormal", "median": 90_000, "sigma": 0.8}))
    assert abs(logs.mean() - np.log(90_000)) < 0.01 and abs(logs.std() - 0.8) < 0.01
    assert near(float((np.abs(logs - np.log(90_000)) < 0.8).sum()), 0.6827, len(MANY))


def test_clipping_keeps_what_lies_between():
    clipped = lengths({"kind": "lognormal", "median": 900, "sigma": 1.0, "min": 100, "max": 5_000})
    plain = lengths({"kind": "lognormal", "median": 900, "sigma": 1.0})
    assert (clipped == np.clip(plain, 100, 5_000)).all()
    assert (clipped.min(), clipped.max()) == (100, 5_000)


def test_choices_follow_their_weights_and_none_is_drawn_that_weighs_nothing():
    counts = Counter(lengths({"kind": "choice", "values": [1, 2, 3, 4], "weights": [6, 3, 1, 0]}).tolist())
    assert sorted(counts) == [1, 2, 3]
    assert near(counts[1], 0.6, len(MANY)) and near(counts[2], 0.3, len(MANY)) and near(counts[3], 0.1, len(MANY))


def test_a_mixture_follows_its_weights_and_its_parts():
    drawn = lengths(
        [{"kind": "fixed", "value": 7, "weight": 3}, {"kind": "uniform", "min": 100, "max": 199, "weight": 1}]
    )
    rest = drawn[drawn != 7]
    assert near(len(MANY) - len(rest), 0.75, len(MANY))
    assert abs(rest.mean() - 149.5) < 0.6 and (rest.min(), rest.max()) == (100, 199)


def test_delays_are_in_microseconds():
    assert draw(TypeAdapter(Delays).validate_python("2s"), KEY, MANY[:3]).tolist() == [2_000_000] * 3


@pytest.mark.parametrize("rate", [0.02, 0.9, 40.0])
def test_poisson_counts_and_gaps(rate):
    hours = 40_000 / rate / 3_600
    times = np.array([each.at_us for each in seen(hours, arrivals={"kind": "poisson", "rate_per_s": rate})])
    assert abs(len(times) - 40_000) < 4 * 200
    gaps = np.diff(times) * rate / 1e6
    assert abs(gaps.mean() - 1) < 0.02 and abs(gaps.std() - 1) < 0.02
    counts = np.histogram(times, 4_000)[0]
    assert abs(counts.var() / counts.mean() - 1) < 0.1


def test_a_rate_of_one_a_microsecond_is_kept():
    found = seen(0.1 / 3_600, arrivals={"kind": "poisson", "rate_per_s": 1e6})
    assert abs(len(found) - 100_000) < 4 * 316


def test_diurnal_traffic_peaks_at_its_hour_and_keeps_its_mean():
    shape = {"kind": "diurnal", "rate_per_s": 0.5, "amplitude": 0.6, "peak_hour": 15}
    found = seen(24 * 4, arrivals=shape)
    assert abs(len(found) - 172_800) < 4 * 416
    hours = Counter((each.at_us - START) % DAY // HOUR for each in found)
    assert max(hours, key=hours.__getitem__) in (14, 15) and min(hours, key=hours.__getitem__) in (2, 3)
    for hour in range(24):
        wanted = 7_200 * (1 + 0.6 * np.cos(2 * np.pi * (hour + 0.5 - 15) / 24))
        assert abs(hours[hour] - wanted) < 5 * wanted**0.5


def test_tenants_follow_zipf_and_users_are_alike():
    found = seen(4, tenants={"count": 50, "zipf": 1.2, "users": 4})
    counts, total = Counter(each.tenant for each in found), sum((n + 1) ** -1.2 for n in range(50))
    assert all(near(counts[f"tenant-{n}"], (n + 1) ** -1.2 / total, len(found)) for n in range(50))
    users = Counter(each.user for each in found if each.tenant == "tenant-0")
    assert len(users) == 4 and all(near(count, 0.25, counts["tenant-0"]) for count in users.values())


def test_named_tenants_follow_their_weights():
    found = seen(2, tenants=["a", {"name": "b", "weight": 3, "organisation": "o"}, {"name": "c", "weight": 0}])
    counts = Counter((each.tenant, each.organisation) for each in found)
    assert sorted(counts) == [("a", "a"), ("b", "o")]
    assert near(counts["b", "o"], 0.75, len(found))


def test_purposes_adapters_media_disconnects_and_prefixes_follow_their_shares():
    found = seen(
        4, purposes={"customer": 9, "research": 1}, adapters={"none": 3, "lora": 1}, media={"none": 1, "cat": 1},
        disconnects={"probability": 0.1, "after": {"kind": "uniform", "min": "1s", "max": "3s"}},
        prefixes=[{"name": "p", "tokens": 100, "share": 0.3}],
    )  # fmt: skip
    count = len(found)
    assert near(sum(each.purpose == "research" for each in found), 0.1, count)
    assert near(sum(each.adapter == "lora" for each in found), 0.25, count)
    assert near(sum(each.media == "cat" for each in found), 0.5, count)
    assert near(sum(len(each.prompt) == 164 for each in found), 0.3, count)
    delays = [each.disconnect_after_us for each in found if each.disconnect_after_us is not None]
    assert near(len(delays), 0.1, count)
    assert min(delays) >= 10**6 and max(delays) <= 3 * 10**6 and abs(np.mean(delays) - 2e6) < 5e4


def test_draws_of_one_request_are_independent():
    found = seen(4, media={"none": 1, "cat": 1}, prompt={"kind": "uniform", "min": 1, "max": 10_000},
                 output={"kind": "uniform", "min": 1, "max": 10_000}, tenants={"count": 9})  # fmt: skip
    columns = np.array(
        [[len(each.prompt), each.max_tokens, each.media is None, int(each.tenant[7:]), after.at_us - each.at_us]
         for each, after in pairwise(found)], float
    )  # fmt: skip
    correlations = np.corrcoef(columns.T) - np.eye(5)
    assert np.abs(correlations).max() < 4 / len(found) ** 0.5


def test_turns_of_conversations():
    found = seen(24, arrivals={"kind": "poisson", "rate_per_s": 0.5}, window={"to": "20h"},
                 conversations={"turns": {"kind": "uniform", "min": 1, "max": 4}, "think": "1s"})  # fmt: skip
    turns = Counter(each.turn for each in found)
    opened = sum(each.turn == 0 for each in found)
    assert all(near(turns[turn], 1 - turn / 4, opened) for turn in (1, 2, 3))
