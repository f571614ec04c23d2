"""How fast virtual time runs, and how large its ledger is.

Run: python benchmarks/simulation.py [--requests N] [--profile FILE]

One process plays requests of 32 pages each (31 of the prompt, one of the answer) on sixteen workers of each role, with the
ledger written and without physical truth, steps run-length. Printed: requests a minute of CPU time, and sealed ledger
bytes per page event (a page event is one page of one row's list). Bars: 200,000 requests a minute on one core, one byte.
"""

from __future__ import annotations

import argparse
import cProfile
import tempfile
import time
from pathlib import Path

from engine.ledger.reader import read_ledger
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate

PAGE_LISTS = {"pages": ("pages",), "transfers": ("src_pages", "dst_pages"), "cache": ("pages",)}
RATE_PER_S = 100
SCENARIO = """
name: simulation-speed
seed: 7
duration: {seconds}s
recording: {{truth: {truth}}}
fleet:
  - {{group: prefill, role: prefill, count: 16, pages: {{kv: 40000}}, page_tokens: 64, page_bytes: 1Mi, context_tokens: 65536}}
  - {{group: decode, role: decode, count: 16, pages: {{kv: 40000}}, page_tokens: 64, page_bytes: 1Mi, context_tokens: 65536}}
costs:
  prefill: {{base: 1ms, per_token_us: 4}}
  decode: {{base: 8ms, per_sequence_us: 20, per_1k_context_us: 1}}
traffic:
  - name: load
    arrivals: {{kind: poisson, rate_per_s: {rate}}}
    prompt: {{kind: uniform, min: 1921, max: 1984}}
    output: 60
    tenants: {{count: 40, zipf: 1.0}}
"""


def page_events(ledger: Path) -> tuple[int, int]:
    """(page events, bytes of the sealed ledger)."""
    tables = read_ledger(ledger).tables
    events = sum(
        len(tables[table][column].combine_chunks().flatten())
        for table, columns in PAGE_LISTS.items()
        for column in columns
    )
    return events, sum(path.stat().st_size for path in ledger.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--truth", action="store_true", help="keep the physical truth beside the ledger, too")
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    scenario = parse_scenario(
        SCENARIO.format(seconds=given.requests // RATE_PER_S, rate=RATE_PER_S, truth=str(given.truth).lower())
    )
    with tempfile.TemporaryDirectory() as place:
        ledger, profile = Path(place) / "ledger", cProfile.Profile()
        begun = time.process_time()
        if given.profile:
            outcome = profile.runcall(simulate, scenario, ledger)
            profile.dump_stats(given.profile)
        else:
            outcome = simulate(scenario, ledger)
        took = time.process_time() - begun
        events, size = page_events(ledger)
    requests = sum(outcome.answers.values())
    print(
        f"{requests:,} requests in {took:.1f} s of CPU: {requests / took * 60:,.0f} a minute, {took / requests * 1e3:.2f} ms each"
    )
    print(
        f"{events:,} page events, {events / requests:.0f} a request; {size:,} bytes of ledger, {size / events:.2f} a page event"
    )


if __name__ == "__main__":
    main()
