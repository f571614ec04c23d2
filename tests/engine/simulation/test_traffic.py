"""Traffic: laws that hold for every stream."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.simulation import arrivals as processes
from engine.simulation.traffic import Arrival, Stream, _merged, _stream, arrivals

START = 1_780_272_000_000_000
HOUR = 3_600_000_000
LENGTHS = st.sampled_from(
    [
        64,
        {"kind": "uniform", "min": 1, "max": 300},
        {"kind": "choice", "values": [16, 512], "weights": [3, 1]},
        [{"kind": "lognormal", "median": 100, "sigma": 1.0, "min": 4, "max": 2_000}, {"kind": "fixed", "value": 7, "weight": 0.2}],
    ]
)  # fmt: skip
PROCESSES = st.one_of(
    st.builds(lambda rate: {"kind": "poisson", "rate_per_s": rate}, st.floats(0.01, 1)),
    st.builds(lambda rate: {"kind": "constant", "rate_per_s": rate}, st.floats(0.01, 1)),
    st.builds(
        lambda rate, amplitude, peak: {"kind": "diurnal", "rate_per_s": rate, "amplitude": amplitude, "peak_hour": peak},
        st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 23.9),
    ),
    st.builds(
        lambda count, over, gap: {"kind": "burst", "count": count, "over": f"{over}us", "every": f"{over + gap}us"},
        st.integers(1, 20), st.integers(0, 10**7), st.integers(3 * 10**7, 10**9),
    ),
    st.builds(lambda count, over: {"kind": "burst", "count": count, "over": f"{over}us"}, st.integers(1, 500), st.integers(0, 10**9)),
    st.builds(lambda at: {"kind": "times", "at": [f"{one}us" for one in sorted(at)]}, st.lists(st.integers(0, 2 * HOUR), min_size=1)),
)  # fmt: skip
OWN = {"kind": "uniform", "min": 1, "max": 99}
TALKS = st.none() | st.just(
    {"turns": {"kind": "uniform", "min": 1, "max": 5}, "think": {"kind": "lognormal", "median": "20s", "sigma": 1},
     "follow_up": 9, "context_tokens": 2_000}
)  # fmt: skip
STREAMS = st.builds(
    lambda process, window, most, prompt, output, users, talks, prefixes, leaves: {
        "arrivals": process, "window": window, "max_count": most, "prompt": prompt, "output": output,
        "tenants": {"count": 7, "zipf": 1, "per_organisation": 3, "users": users}, "conversations": talks,
        "prefixes": prefixes, "disconnects": leaves, "purposes": {"customer": 3, "research": 1}, "media": {"none": 1, "cat": 1},
    },
    PROCESSES, st.sampled_from([{}, {"from": "10m"}, {"to": "30m"}, {"from": "5m", "to": "50m"}]), st.none() | st.integers(1, 200),
    LENGTHS, LENGTHS, st.integers(1, 3), TALKS,
    st.sampled_from([[], [{"name": "base", "tokens": 32}, {"name": "own", "per": "tenant", "tokens": OWN, "share": 0.5}]]),
    st.none() | st.just({"probability": 0.2, "after": "3s"}),
)  # fmt: skip


def stream(name: str = "web", **settings_: object) -> Stream:
    plain = {
        "name": name,
        "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
        "prompt": 64,
        "output": 8,
        "tenants": ["t"],
    }
    return Stream.model_validate(plain | settings_)


def during(*streams: Stream, seed: int = 5, hours: float = 1) -> list[Arrival]:
    return list(arrivals(streams, seed, START, START + int(hours * HOUR)))


@settings(max_examples=60, deadline=None)
@given(STREAMS, st.integers(0, 1 << 40))
def test_times_rise_within_the_window_and_everything_is_in_its_range(given_stream, seed):
    one = stream(**given_stream)
    seen = during(one, seed=seed)
    times = [each.at_us for each in seen]
    assert times == sorted(times)
    opens, closes = START + one.window.start, START + min(HOUR, one.window.end or HOUR)
    assert all(opens <= at < closes for at in times)
    assert len({each.rid for each in seen}) == len(seen)
    assert all(each.rid.startswith("web-") and each.stream == "web" for each in seen)
    assert all(each.max_tokens >= 1 and len(each.prompt) >= 1 for each in seen)
    assert {each.tenant for each in seen} <= {f"tenant-{n}" for n in range(7)}
    assert all(each.organisation == f"tenant-org-{int(each.tenant[7:]) // 3}" for each in seen)
    assert all(each.user.startswith(f"{each.tenant}-u") for each in seen)
    assert {each.purpose for each in seen} <= {"customer", "research"} and {each.media for each in seen} <= {
        None,
        "cat",
    }
    if one.max_count is not None:
        assert sum(each.turn == 0 for each in seen) <= one.max_count


@settings(max_examples=40, deadline=None)
@given(STREAMS, st.integers(1, 40))
def test_where_a_block_ends_is_not_seen(given_stream, block):
    one = stream(**given_stream)
    whole = list(itertools.chain(*_stream(one, 5, START, START + HOUR)))
    assert list(itertools.chain(*_stream(one, 5, START, START + HOUR, block))) == whole


@settings(max_examples=40, deadline=None)
@given(STREAMS, st.floats(0, 1))
def test_a_shorter_span_is_the_beginning_of_a_longer_one(given_stream, share):
    one = stream(**given_stream)
    whole, part = during(one), during(one, hours=share)
    assert part == whole[: len(part)]
    assert all(each.at_us >= START + int(share * HOUR) for each in whole[len(part) :])


@settings(max_examples=30, deadline=None)
@given(STREAMS, STREAMS, STREAMS)
def test_a_stream_is_not_changed_by_others_and_all_is_in_order(first, second, third):
    streams = [stream(name, **each) for name, each in (("a", first), ("b", second), ("c", third))]
    together = during(*streams)
    assert [each.at_us for each in together] == sorted(each.at_us for each in together)
    for one in streams:
        assert [each for each in together if each.stream == one.name] == during(one)


@given(st.lists(st.lists(st.integers(0, 30), max_size=20).map(sorted), max_size=5), st.data())
def test_merged_blocks_are_a_stable_merge(columns, data):
    streams = [
        [Arrival(at, f"{place}-{n}", *[None] * 13) for n, at in enumerate(column)]
        for place, column in enumerate(columns)
    ]

    def cut(rows):
        while rows:
            size = data.draw(st.integers(1, len(rows)))
            yield rows[:size]
            rows = rows[size:]

    expected = sorted(itertools.chain(*streams), key=lambda each: each.at_us)
    assert list(_merged([cut(rows) for rows in streams])) == expected


def test_the_same_seed_gives_the_same_and_another_gives_others():
    assert during(stream()) == during(stream())
    assert {each.at_us for each in during(stream(), seed=6)}.isdisjoint(each.at_us for each in during(stream()))
    assert {each.prompt for each in during(stream())}.isdisjoint(each.prompt for each in during(stream(name="other")))


def test_a_setting_changes_only_what_it_is_about():
    plain, other = (
        during(stream()),
        during(stream(output={"kind": "uniform", "min": 1, "max": 50}, media={"none": 1, "cat": 1})),
    )
    assert [each._replace(max_tokens=0, media=None) for each in plain] == [
        each._replace(max_tokens=0, media=None) for each in other
    ]


def test_shared_prefixes_are_the_same_text_in_every_stream():
    prefixes = [
        {"name": "base", "tokens": 32},
        {"name": "own", "per": "tenant", "tokens": {"kind": "uniform", "min": 16, "max": 64}},
    ]
    shape = {"prefixes": prefixes, "tenants": ["a", "b"], "prompt": 16}
    seen = during(stream("one", **shape), stream("two", **shape))
    heads = {each.prompt.segments[0] for each in seen}
    owns = {(each.tenant, each.prompt.segments[1]) for each in seen}
    assert len(heads) == 1 and {length for _, length in heads} == {32}
    assert len(owns) == 2 and len({segment for _, segment in owns}) == 2
    assert len({each.prompt.segments[2] for each in seen}) == len(seen)


@pytest.mark.parametrize(
    ("per", "texts"), [("global", 1), ("organisation", 2), ("tenant", 4), ("user", 12)],
)  # fmt: skip
def test_a_prefix_is_one_text_for_each_of_its_scope(per, texts):
    shape = {
        "tenants": {"count": 4, "per_organisation": 2, "users": 3},
        "prefixes": [{"name": "p", "per": per, "tokens": 16}],
    }
    assert len({each.prompt.segments[0] for each in during(stream(**shape))}) == texts


def test_a_later_turn_repeats_the_conversation_so_far():
    shape = {
        "conversations": {"turns": 4, "think": "10s", "answer_pace": "20ms", "follow_up": 5},
        "tenants": ["a", "b"],
    }
    talks: dict[str, list[Arrival]] = {}
    for each in during(stream(**shape, window={"to": "30m"}), hours=1):
        talks.setdefault(each.conversation or "", []).append(each)
    assert max(len(turns) for turns in talks.values()) == 4
    for name, turns in talks.items():
        assert [each.rid for each in turns] == [f"{name}.{turn}" for turn in range(len(turns))]
        assert len({(each.tenant, each.user, each.purpose) for each in turns}) == 1
        for before, after in itertools.pairwise(turns):
            said = before.prompt.extended((before.answer_seed, before.max_tokens))
            assert after.prompt.segments[:-1] == said.segments and after.prompt.segments[-1][1] == 5
            assert after.at_us == before.at_us + before.max_tokens * 20_000 + 10_000_000


def test_a_conversation_ends_at_its_context_and_at_a_disconnect():
    talk = {"turns": 50, "think": "1s"}
    short = during(stream(conversations=talk | {"context_tokens": 300}))
    assert max(len(each.prompt) + each.max_tokens for each in short) <= 300
    assert max(each.turn for each in short) == 3  # 72 tokens a turn
    leaving = during(stream(conversations=talk, disconnects={"probability": 0.5, "after": "1s"}))
    gone = {each.conversation: each.turn for each in leaving if each.disconnect_after_us is not None}
    assert gone and all(each.turn <= gone.get(each.conversation, 99) for each in leaving)


def test_exact_times_bursts_and_even_spacing():
    def offsets(**process: object) -> list[int]:
        return [each.at_us - START for each in during(stream(arrivals=process, window={"from": "1m", "to": "3m"}))]

    minute = 60_000_000
    assert offsets(kind="times", at=[0, "1s", "1s", "119s", "120s"]) == [
        minute + at for at in (0, 10**6, 10**6, 119 * 10**6)
    ]
    assert offsets(kind="burst", count=4, over="2s") == [minute + n * 500_000 for n in range(4)]
    assert offsets(kind="burst", count=2, every="90s") == [minute, minute, 150 * 10**6, 150 * 10**6]
    assert offsets(kind="constant", rate_per_s=0.1) == [minute + n * 10**7 for n in range(12)]


def test_nothing_comes_when_the_window_opens_after_the_end():
    for kind in ({"kind": "poisson", "rate_per_s": 5}, {"kind": "constant", "rate_per_s": 5}, {"kind": "burst", "count": 5},
                 {"kind": "times", "at": [0]}, {"kind": "diurnal", "rate_per_s": 5, "amplitude": 1}):  # fmt: skip
        assert (
            during(stream(arrivals=kind, window={"from": "2h"}), stream("b", arrivals=kind, window={"from": "2h"}))
            == []
        )
    assert during() == []


def test_traffic_is_lazy_and_its_memory_bounded():
    endless = [stream(name, arrivals={"kind": "poisson", "rate_per_s": 1e4}) for name in "abc"]
    tracemalloc.start()
    for each in itertools.islice(arrivals(endless, 1, START, START + 10**6 * HOUR), 50_000):
        assert each.prompt
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_a_rare_stream_and_a_huge_length_do_not_overflow():
    rare = stream(arrivals={"kind": "poisson", "rate_per_s": 1e-6}, prompt={"kind": "lognormal", "median": 10**6, "sigma": 50},
                  output={"kind": "uniform", "min": 1, "max": "4T"})  # fmt: skip
    seen = list(arrivals([rare], 1, START, START + (1 << 52)))
    assert 4_000 < len(seen) < 5_000  # 2^52 us at one in 10^12
    assert all(0 < each.at_us - START < 1 << 52 and 0 < len(each.prompt) <= 1 << 53 for each in seen)


def test_first_arrivals_stay_what_they_are():
    """The same seed gives the same bytes, on every machine and in every later version."""
    first = during(
        stream(tenants={"count": 9, "zipf": 1, "users": 2}, prompt={"kind": "uniform", "min": 1, "max": 999})
    )[:2]
    assert [(each.at_us, each.rid, each.user, each.prompt.segments, each.answer_seed) for each in first] == [
        (START + 1_841_017, "web-0", "tenant-0-u0", ((1536821971005138528, 922),), 6166349831305969578),
        (START + 2_926_130, "web-1", "tenant-1-u1", ((6269995054375621502, 704),), 3371252853627988951),
    ]


def test_draws_depend_on_key_and_index_alone():
    index = np.arange(1_000, dtype=np.uint64)
    whole = processes.uniforms(7, index)
    assert (processes.uniforms(7, index[::-1])[::-1] == whole).all()
