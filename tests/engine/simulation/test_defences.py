"""Each defence: its fault gets through with it off, and is stopped with it on. Judged by physical truth alone."""

from dataclasses import dataclass

import pytest
import yaml

from engine.defences import DETECTORS
from engine.ledger.reader import read_ledger
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate
from engine.truth import read_truth

SEED = 3
DELAY = {"delay": "150ms"}


@dataclass(frozen=True)
class Case:
    """A defence, the fault against it, and what makes the fault happen."""

    defence: str
    fault: str
    parameters: dict | None = None
    prompt: int = 500
    bursts: bool = False
    cached: bool = False
    adapters: bool = False
    slow: bool = False


CASES = [
    Case("admission-gate", "short-handoff", prompt=1_300),
    Case("covered-count", "short-handoff", prompt=1_300),
    Case("covered-count", "fail-open"),
    Case("page-tag", "fail-open"),
    Case("page-tag", "late-write", DELAY, slow=True),
    Case("deferred-release", "late-write", DELAY, slow=True),
    Case("drain-count", "early-ack", DELAY, slow=True),
    Case("source-hold", "source-reuse"),
    Case("compute-order", "early-post"),
    Case("owner-free", "early-free"),
    Case("owner-free", "double-free"),
    Case("room-unique", "room-collision", bursts=True),
    Case("geometry", "shifted-pages"),
    Case("scoped-keys", "incomplete-key", {"field": "adapter"}, cached=True, adapters=True),
]


def scenario(case, mode):
    """A small fleet under load; pools so small that pages change hands all the time."""
    group = {"page_tokens": 16, "page_bytes": 65536, "context_tokens": 4096, "transfer_pages": 4}
    arrivals = {"kind": "poisson", "rate_per_s": 14}
    if case.bursts:
        arrivals = {"kind": "burst", "every": "400ms", "count": 6, "over": "1ms"}
    prefill = {
        "group": "prefill",
        "role": "prefill",
        "pages": {"kv": 60 if not case.cached else 200},
        "chunk_tokens": 128,
        **group,
    }
    if case.cached:
        prefill["prefix_cache"] = {"enabled": True}
    traffic = {
        "name": "chat", "arrivals": arrivals, "prompt": {"kind": "uniform", "min": 20, "max": case.prompt},
        "output": {"kind": "uniform", "min": 5, "max": 60}, "tenants": {"count": 3},
        "disconnects": {"probability": 0.5 if case.slow else 0.4, "after": {"kind": "uniform", "min": "10ms", "max": "300ms"}},
    }  # fmt: skip
    if case.cached:
        traffic["prefixes"] = [{"name": "house", "per": "tenant", "tokens": {"kind": "fixed", "value": 160}}]
    if case.adapters:
        traffic["adapters"] = {"none": 1, "poet": 1}
    bandwidth = 15_000_000 if case.slow else 40_000_000
    return parse_scenario(
        yaml.safe_dump(
            {
                "name": "defences", "seed": SEED, "duration": "8s", "recording": {"step_run": "0us"},
                "fleet": [prefill, {"group": "decode", "role": "decode", "pages": {"kv": 110}, **group}],
                "defences": {"modes": {**dict.fromkeys(DETECTORS, "off"), case.defence: mode}},
                "costs": {"transfer": {"latency": "200us", "bandwidth": bandwidth},
                          "decode": {"base": "5ms"}, "message": {"jitter": "2ms"}},
                "traffic": [traffic],
                "faults": [{"name": case.fault, "probability": 1.0 if case.slow else 0.7, "parameters": case.parameters or {}}],
            }
        ),
        known=KNOWN,
    )  # fmt: skip


def play(tmp_path, case, mode):
    place = tmp_path / mode
    simulate(scenario(case, mode), place)
    return read_ledger(place), read_truth(place / "truth")


def harmed(case, truth):
    if case.fault == "incomplete-key":
        return [one for one in truth.values() if one.wrong_meaning]
    return [one for one in truth.values() if one.contaminated]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.defence}-{case.fault}")
def test_a_fault_gets_through_with_its_defence_off_and_is_stopped_with_it_on(tmp_path, case):
    print(f"seed {SEED}")
    ledger, truth = play(tmp_path, case, "off")
    assert harmed(case, truth), "the fault does nothing here"
    assert not ledger.tables["checks"].num_rows
    ledger, truth = play(tmp_path, case, "enforce")
    assert not harmed(case, truth)
    checks = ledger.tables["checks"].to_pylist()
    assert {row["detector"] for row in checks if row["op"] == "mismatch"} == {DETECTORS[case.defence]}


def test_every_defence_has_a_case():
    tested = {case.defence for case in CASES} | {"owner-audit"}  # which stops nothing, and finds: test_audit
    assert tested == set(DETECTORS)


def test_a_page_is_refused_that_goes_to_another_place_of_its_own_grant(tmp_path):
    """Every handoff fills all of decode's pool, so a page that is shifted never leaves the grant."""
    group = {"page_tokens": 16, "page_bytes": 65536, "context_tokens": 4096}
    plan = {
        "name": "places", "seed": SEED, "duration": "4s",
        "fleet": [{"group": "prefill", "role": "prefill", "pages": {"kv": 60}, **group},
                  {"group": "decode", "role": "decode", "pages": {"kv": 8}, **group}],
        "traffic": [{"name": "chat", "arrivals": {"kind": "poisson", "rate_per_s": 5}, "tenants": {"count": 3},
                     "prompt": {"kind": "fixed", "value": 120}, "output": {"kind": "fixed", "value": 4}}],
        "faults": [{"name": "shifted-pages", "probability": 0.7}],
    }  # fmt: skip
    found = {}
    for mode in ("off", "enforce"):
        plan["defences"] = {"modes": {**dict.fromkeys(DETECTORS, "off"), "geometry": mode}}
        simulate(parse_scenario(yaml.safe_dump(plan), known=KNOWN), tmp_path / mode)
        found[mode] = read_ledger(tmp_path / mode), read_truth(tmp_path / mode / "truth").values()
    rows = [row for row in found["off"][0].tables["pages"].to_pylist() if row["worker"] == "decode-0"]
    assert {len(row["pages"]) for row in rows if row["op"] == "reserve"} == {8}
    assert any(one.contaminated for one in found["off"][1])
    assert not any(one.contaminated or one.misplaced for one in found["enforce"][1])
    checks = [row for row in found["enforce"][0].tables["checks"].to_pylist() if row["op"] == "mismatch"]
    assert checks and {row["detector"] for row in checks} == {"G"}
