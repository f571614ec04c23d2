"""Where the capacity went, counted from the ledger of abort-storm alone, and compared with what was played."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import pytest
from catalogue import SAMPLES

from engine.ledger.reader import read_ledger
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import load_scenario

SAMPLE = next(sample for sample in SAMPLES if sample.name == "abort-storm")
DECODE = "decode-0"
ENDS = ("finish", "abort", "reject")


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(SAMPLE.scenario, KNOWN)


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    """Decode's rows by table."""
    tables = read_ledger(SAMPLE.ledger).tables
    return {name: [row for row in tables[name].to_pylist() if row["worker"] == DECODE] for name in tables}


def test_held_pages_are_abort_rate_by_hold_time_by_pages(scenario, rows):
    (storm,) = [stream for stream in scenario.traffic if stream.name == "storm"]
    (drain,) = [fault for fault in scenario.faults if fault.name == "slow-drain"]
    hold = timedelta(seconds=float(drain.parameters["delay"].removesuffix("s")))
    pages = -(-storm.prompt[0].value // scenario.fleet[1].page_tokens)
    predicted = storm.arrivals.rate_per_s * hold.total_seconds() * pages
    assert predicted == 4_000
    begun = rows["gauges"][0]["t"]
    opens, closes = (timedelta(microseconds=at) for at in (storm.window.start, storm.window.end))
    held = {row["t"] - begun: row["held"] for row in rows["gauges"]}
    plateau = [count for at, count in held.items() if opens + hold + timedelta(seconds=1) <= at <= closes]
    assert len(plateau) > 50
    assert sum(plateau) / len(plateau) == pytest.approx(predicted, rel=0.05)
    assert max(plateau) <= predicted * 1.05
    assert all(count == 0 for at, count in held.items() if at < opens or at > closes + hold + timedelta(seconds=1))


def test_holds_explain_the_gauge(rows):
    """Each gauge's `held` is what `hold` rows kept and no `free` had returned by then."""
    held, gauges = Counter(), {row["seq"]: row["held"] for row in rows["gauges"]}
    seen = 0
    for row in sorted((*rows["pages"], *rows["gauges"]), key=lambda row: row["seq"]):
        if row["op"] == "hold":
            held[row["tag"]] = row["n"]
        elif row["op"] == "free":
            held.pop(row["tag"], None)
        elif row["op"] == "sample":
            assert sum(held.values()) == gauges[row["seq"]]
            seen += 1
    assert seen == len(gauges) > 100


def test_the_leak_is_counted_to_the_page(rows):
    """Taken and never freed, the owner at an end, neither held nor cached: as the pool itself said at the end."""
    ended = {row["req"] for row in rows["requests"] if row["op"] in ENDS}
    taken, owner = Counter(), {}
    for row in sorted(rows["pages"], key=lambda row: row["seq"]):
        if row["op"] in ("reserve", "append"):
            taken[row["tag"]], owner[row["tag"]] = row["n"], row["req"]
        elif row["op"] in ("free", "hold"):
            taken[row["tag"]] -= row["n"]
        if row["op"] == "free" and row["cause"] == "drained":
            taken[row["tag"]] += row["n"]  # it was counted with its hold
    assert not rows["cache"]
    leaked = sum(count for tag, count in taken.items() if owner[tag] in ended)
    assert leaked == json.loads(SAMPLE.expected.read_text())["leaked_pages"][DECODE] > 0
    audit = [row for row in rows["pages"] if row["op"] == "audit"][-1]
    assert leaked == len(audit["pages"])
    assert rows["gauges"][-1]["used"] == leaked  # nothing runs any more
