"""Scenarios as they are read: quantities, defaults, what they answer, and the user's reference."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic import TypeAdapter, ValidationError

from engine.simulation import arrivals, scenario, script
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import Scenario, load_scenario, parse_scenario
from engine.simulation.scenario_source import (
    FARTHEST,
    ScenarioError,
    SignedMicros,
    Size,
    UtcMicros,
    parse_micros,
    write_micros,
)

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"
SMALL = """\
name: small
seed: 1
duration: 1d
fleet:
  - {group: prefill, role: prefill, count: 2, pages: {kv: 100}, context_tokens: 4096}
  - {group: decode, role: decode, pages: {kv: 200}, context_tokens: 4096}
"""
BLOCKS = [(token.map[0] + 1, token.content) for token in MarkdownIt().parse(PAGE.read_text())
          if token.type == "fence" and token.info == "yaml" and token.map]  # fmt: skip


def value(kind: Any, written: object) -> Any:
    return TypeAdapter(kind).validate_python(written)


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        ("250us", 250), ("3ms", 3_000), ("2s", 2_000_000), ("5m", 300_000_000), ("1h", 3_600_000_000),
        ("13d", 1_123_200_000_000), ("1h30m", 5_400_000_000), ("1.5s", 1_500_000), ("0.25ms", 250), ("-2ms", -2_000),
        ("-1m30s", -90_000_000), ("0s", 0), (0, 0),
    ],
)  # fmt: skip
def test_durations(written, micros):
    assert value(SignedMicros, written) == micros


@pytest.mark.parametrize(
    "written", ["", "5", "s", "5 s", "1e3s", "1.0000001s", "5S", "+5s", "--5s", 5, 0.0, True, None, []]
)
def test_what_is_no_duration(written):
    with pytest.raises(ValidationError):
        value(SignedMicros, written)


@pytest.mark.parametrize(
    ("written", "number"),
    [(0, 0), (4096, 4096), ("1_048_576", 1 << 20), ("1Mi", 1 << 20), ("64Ki", 1 << 16), ("200k", 200_000), ("2Gi", 2 << 30),
     ("40G", 40 * 10**9), ("1M", 10**6), ("1Ti", 1 << 40), ("1T", 10**12)],
)  # fmt: skip
def test_sizes(written, number):
    assert value(Size, written) == number


@pytest.mark.parametrize("written", ["", "k", "1.5k", "-1", "1 k", "1ki", "_1", "007", 1.0, True, None, "1Mi2"])
def test_what_is_no_size(written):
    with pytest.raises(ValidationError):
        value(Size, written)


def test_times_of_any_zone():
    assert value(UtcMicros, "1970-01-02T00:00:00Z") == 86_400_000_000
    assert value(UtcMicros, "2026-06-01T02:00:00.000001+02:00") == value(UtcMicros, "2026-06-01T00:00:00Z") + 1
    assert TypeAdapter(UtcMicros).dump_python(1_780_272_000_000_001, mode="json") == "2026-06-01T00:00:00.000001Z"


@given(st.integers(-FARTHEST + 1, FARTHEST - 1))
def test_a_written_duration_is_read_as_it_was(micros):
    assert parse_micros(write_micros(micros)) == micros


def test_yaml_is_read_without_its_old_surprises():
    read = parse_scenario(SMALL.replace("name: small", "name: on") + "traffic: [{name: no, arrivals: {kind: times, at: [0]}, "
                          "prompt: 1, output: 1, tenants: [yes, off]}]\n")  # fmt: skip
    assert (read.name, read.traffic[0].name) == ("on", "no")
    assert [one.name for one in read.traffic[0].tenants.listed()] == ["yes", "off"]


def test_what_is_left_out_has_its_default():
    read = parse_scenario(SMALL)
    assert (read.start, read.end - read.start) == (1_780_272_000_000_000, 86_400_000_000)
    assert (read.traffic, read.faults, read.script, read.losses) == ((), (), (), ())
    prefill = read.fleet[0]
    assert (prefill.page_tokens, prefill.page_bytes, prefill.tp_size, prefill.host_pages) == (16, 1 << 20, 1, 0)
    assert prefill.pages.present() == {"kv": 100}
    defences = read.defences_of(prefill)
    assert (defences.modes, defences.on_timeout, defences.hold_timeout, defences.scrub) == (
        {},
        "quarantine",
        30_000_000,
        False,
    )


def test_a_group_overrides_the_scenario_field_by_field():
    text = SMALL.replace("count: 2,", "count: 2, defences: {modes: {a: off, b: log}, scrub: true},")
    read = parse_scenario(text + "defences: {modes: {b: enforce, c: log}, on_timeout: release, hold_timeout: 5s}\n")
    own = read.defences_of(read.fleet[0])
    assert own.modes == {"a": "off", "b": "log", "c": "log"}
    assert (own.on_timeout, own.hold_timeout, own.scrub) == ("release", 5_000_000, True)
    other = read.defences_of(read.fleet[1])
    assert other.modes == {"b": "enforce", "c": "log"} and other.scrub is False


def test_workers_and_who_is_selected():
    read = parse_scenario(SMALL)
    assert list(read.workers()) == ["prefill-0", "prefill-1", "decode-0"]
    assert read.selected(()) == ("prefill-0", "prefill-1", "decode-0")
    assert read.selected(("decode", "prefill-1")) == ("prefill-1", "decode-0")


def test_clocks_are_drawn_within_their_range_each_by_its_name():
    text = SMALL.replace("count: 2,", "count: 200, clock: {offset: [-2ms, 3ms], drift_ppm: [-5, 5]},")
    read = parse_scenario(text + "clock: {offset: 7us}\n")
    drawn = [read.clock_of(worker) for worker in read.fleet[0].workers()]
    assert all(-2_000 <= offset <= 3_000 and -5 <= drift <= 5 for offset, drift in drawn)
    assert len(set(drawn)) > 190
    assert min(offset for offset, _ in drawn) < -1_500 and max(offset for offset, _ in drawn) > 2_500
    assert read.clock_of("decode-0") == (7, 0.0)
    fewer = parse_scenario(text.replace("count: 200", "count: 3"))
    assert [fewer.clock_of(worker) for worker in fewer.fleet[0].workers()] == drawn[:3]


def test_bytes_of_a_component():
    read = parse_scenario(SMALL.replace("count: 2,", "count: 2, page_bytes: 64Ki, component_bytes: {index: 1Ki},"))
    assert [read.fleet[0].bytes_of(name) for name in ("kv", "index", "draft")] == [65_536, 1_024, 65_536]


def test_a_scripted_prompt_shares_what_has_the_same_seed():
    text = (
        SMALL
        + """
script:
  - {at: 0, action: request, rid: a, tenant: t, prompt: [{seed: 7, length: 32}, {length: 8}], max_tokens: 1}
  - {at: 0, action: request, rid: b, tenant: t, prompt: [{seed: 7, length: 32}, {length: 8}], max_tokens: 1}
  - {at: 0, action: request, rid: c, tenant: t, prompt: 40, max_tokens: 1}
"""
    )
    first, second, own = (action.synthetic(1) for action in parse_scenario(text).script)
    assert [len(prompt) for prompt in (first, second, own)] == [40, 40, 40]
    assert (first.page_digests(8)[:4] == second.page_digests(8)[:4]).all()
    assert first.page_digests(8)[4] != second.page_digests(8)[4]
    assert not set(own.page_digests(8)) & set(first.page_digests(8))


@pytest.mark.parametrize(("line", "text"), BLOCKS, ids=[f"line-{line}" for line, _ in BLOCKS])
def test_every_example_of_the_reference_loads(tmp_path, line, text):
    given_keys = set(yaml.safe_load(text))
    frame = {key: part for key, part in yaml.safe_load(SMALL).items() if key not in given_keys}
    path = tmp_path / "example.yaml"
    path.write_text((yaml.safe_dump(frame) if frame else "") + text)
    read = load_scenario(path, KNOWN)
    again = parse_scenario(read.canonical_json(), known=KNOWN)
    assert again == read
    assert again.canonical_json() == read.canonical_json()


def test_the_reference_has_one_whole_example_and_names_every_key():
    assert len(BLOCKS) >= 6 and "name" in yaml.safe_load(BLOCKS[0][1])
    code = " ".join(re.findall(r"`[^`\n]+`", PAGE.read_text()) + [text for _, text in BLOCKS])
    named = set(re.findall(r"\w+", code))
    schema = Scenario.model_json_schema()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", {})}
    assert keys - named == {"named"}  # what a list of tenants is short for


def test_no_tag_of_a_union_is_a_key_of_its_models():
    for union in (arrivals.Process, script.Action, scenario.Loss, arrivals.LengthPart):
        members = get_args(get_args(union)[0]) or get_args(union)
        tags = {tag for one in members for name in ("kind", "action") if name in one.model_fields
                for tag in get_args(one.model_fields[name].annotation)}  # fmt: skip
        assert not tags & {key for one in members for key in one.model_fields}


WHOLE = json.loads(parse_scenario(BLOCKS[0][1]).canonical_json())
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=5), st.just([]), st.just({}),
    st.just([1, "2s"]), st.just({"kind": "fixed"}), st.just("1h"), st.just("1Mi"),
)  # fmt: skip


def places(data: Any, place: tuple = ()) -> list[tuple]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place, *(deeper for key, part in inner for deeper in places(part, (*place, key)))]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(places(WHOLE)[1:]), ODD, st.sampled_from(["put", "drop", "add"]))
def test_a_spoilt_scenario_is_read_or_refused_with_a_place(place, odd, how):
    spoilt = copy.deepcopy(WHOLE)
    parent = spoilt
    for key in place[:-1]:
        parent = parent[key]
    if how == "drop":
        del parent[place[-1]]
    elif how == "add" and isinstance(parent, dict):
        parent["odd"] = odd
    else:
        parent[place[-1]] = odd
    text = json.dumps(spoilt, indent=1)
    try:
        read = parse_scenario(text, "spoilt.yaml", KNOWN)
    except ScenarioError as error:
        lines = text.count("\n") + 1
        assert error.problems and all(1 <= one.line <= lines and one.found and one.expected for one in error.problems)
        assert "Input should" not in str(error) and "Value error" not in str(error)
    else:
        assert parse_scenario(read.canonical_json()) == read
