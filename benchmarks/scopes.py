"""What each scope of the prefix cache costs in hits, on one stream of requests.

Run: python benchmarks/scopes.py [cache pages ...]   (default 2000 and 20000 pages of 64 tokens)

The stream: 40 tenants in 10 organisations with 5 users each, Zipf-distributed; a global, an organisation's and a
tenant's system prompt in front, then conversations of a few turns. Printed: prompt tokens found in the cache, of all.
"""

from __future__ import annotations

import sys

from engine.page_keys import Identity
from engine.scope_cost import scope_cost
from engine.simulation.scenario import parse_scenario
from engine.simulation.traffic import arrivals

PAGE_TOKENS = 64
SCENARIO = """
name: scopes
seed: 11
duration: 2h
fleet:
  - {group: prefill, role: prefill, pages: {kv: 1000}, context_tokens: 65536}
  - {group: decode, role: decode, pages: {kv: 1000}, context_tokens: 65536}
traffic:
  - name: chat
    arrivals: {kind: poisson, rate_per_s: 0.5}
    prompt: {kind: lognormal, median: 400, sigma: 1.0, min: 20, max: 8000}
    output: {kind: lognormal, median: 150, sigma: 0.8, min: 5, max: 2000}
    tenants: {count: 40, per_organisation: 4, users: 5, zipf: 1.0}
    prefixes:
      - {name: house, per: global, tokens: {kind: fixed, value: 512}, share: 0.9}
      - {name: organisation, per: organisation, tokens: {kind: fixed, value: 768}, share: 0.7}
      - {name: tenant, per: tenant, tokens: {kind: fixed, value: 1024}, share: 0.7}
    conversations: {turns: {kind: uniform, min: 1, max: 6}, think: {kind: uniform, min: 5s, max: 60s}, context_tokens: 32768}
"""


def main(capacities: list[int]) -> None:
    scenario = parse_scenario(SCENARIO)
    requests = [
        (Identity(one.tenant, one.organisation, one.user, weights="w", kv_format="bf16"), one.prompt)
        for one in arrivals(scenario.traffic, scenario.seed, scenario.start, scenario.end)
    ]
    print(f"{len(requests):,} requests, {sum(len(prompt) for _, prompt in requests):,} prompt tokens")
    for capacity in capacities:
        rates = scope_cost(requests, PAGE_TOKENS, b"benchmark", capacity_pages=capacity)
        print(
            f"{capacity:>7,} pages: "
            + ", ".join(f"{scope.name.lower()} {rate.rate:.1%}" for scope, rate in rates.items())
        )


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [2_000, 20_000])
