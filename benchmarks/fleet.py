"""A fleet of 256 prefill and 256 decode workers: time, memory and ledger size.

Run: python benchmarks/fleet.py [--minutes N] [--rate R]    (default one hour, 20 requests a second)

Every worker writes its own stream, heartbeat and gauges. Printed: CPU time against virtual time, peak memory of the
process, ledger bytes by table, and bytes per page event (a page event is one page of one row's list).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate

PAGE_LISTS = {"pages": ("pages",), "transfers": ("src_pages", "dst_pages"), "cache": ("pages",)}
SCENARIO = """
name: fleet
seed: 256
duration: {minutes}m
recording: {{truth: false, heartbeat: 5s, gauge: 5s}}
fleet:
  - {{group: prefill, role: prefill, count: 256, pages: {{kv: 8000}}, page_tokens: 64, page_bytes: 1Mi, context_tokens: 131072}}
  - {{group: decode, role: decode, count: 256, pages: {{kv: 16000}}, page_tokens: 64, page_bytes: 1Mi, context_tokens: 131072}}
traffic:
  - name: load
    arrivals: {{kind: poisson, rate_per_s: {rate}}}
    prompt: {{kind: lognormal, median: 8k, sigma: 1.0, min: 16, max: 100k}}
    output: {{kind: lognormal, median: 150, sigma: 0.7, min: 1, max: 2k}}
    tenants: {{count: 400, zipf: 1.0}}
    disconnects: {{probability: 0.02, after: {{kind: lognormal, median: 2s, sigma: 1}}}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--keep", type=Path, help="leave the ledger here (a new directory)")
    given = parser.parse_args()
    place = given.keep or Path(tempfile.mkdtemp()) / "ledger"
    begun = time.process_time()
    outcome = simulate(parse_scenario(SCENARIO.format(minutes=given.minutes, rate=given.rate)), place)
    took = time.process_time() - begun
    requests = sum(outcome.answers.values())
    print(f"{requests:,} requests, {given.minutes} min of virtual time in {took:.0f} s of CPU")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB of memory at most")
    sizes, rows, events = Counter[str](), Counter[str](), 0
    for path in place.rglob("*.parquet"):
        table, file = path.relative_to(place).parts[0], pq.ParquetFile(path)
        sizes[table] += path.stat().st_size
        rows[table] += file.metadata.num_rows
        for column in set(PAGE_LISTS.get(table, ())) & set(file.schema_arrow.names):
            events += len(file.read(columns=[column])[column].combine_chunks().flatten())
    total = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    for table, size in sizes.most_common():
        print(f"{table:>10} {rows[table]:>11,} rows {size:>13,} bytes")
    print(f"{total:,} bytes in all, {events:,} page events: {total / events:.2f} bytes each")
    if not given.keep:
        shutil.rmtree(place.parent)


if __name__ == "__main__":
    main()
