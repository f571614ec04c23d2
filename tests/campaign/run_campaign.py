"""`python tests/campaign/run_campaign.py --seeds A-B`: plays and judges seeds, and says which ones fail.

Invariant: what a seed says depends on the seed alone, whatever else is run, in which order, by how many processes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from compare import Comparison, Failure, Judged
from mechanisms import OF_FAULT
from scenario_draw import draw

from engine.simulation.simulate import simulate

REPRODUCE = ".venv/bin/python tests/campaign/run_campaign.py --seeds {seed}"
ENOUGH = 1_000
"""Seeds from which on the bounds hold."""
BOUNDS = {
    ("lower bound", "contaminated, found"): 0.06,
    ("fine record, unknown", "fine record, responses"): 0.05,
    ("contaminated, unknown among slots", "contaminated, truth"): 0.005,
}
"""(count, of which) -> the largest share."""


def judge(seed: int, place: Path) -> Judged:
    """Play one seed into `place`/seed-N and judge it; the ledger of a seed that fails is kept there."""
    drawn, kept = draw(seed), place / f"seed-{seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    try:
        outcome = simulate(drawn.scenario, kept / "ledger")
        judged = Comparison(drawn, kept / "ledger").run()
        judged.counts["requests"] += sum(outcome.answers.values())
    except Exception as error:  # every kind of failure is one of this seed
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        judged = Judged(drawn, [Failure(f"raised {type(error).__name__} at {where}", "", str(error)[:2000])])
    if judged.failures:
        (kept / "scenario.yaml").write_text(drawn.text)
        (kept / "failures.txt").write_text("".join(f"{f.check}: {f.rid}: {f.words}\n" for f in judged.failures))
    else:
        shutil.rmtree(kept)
    return judged


def seeds_of(text: str) -> range:
    """`7`, or `0-1999` with both ends."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def beyond_bounds(total: Counter[str]) -> list[str]:
    """What the counts of many seeds say against the whole: too much in doubt, or a fault that did nothing."""
    told = []
    for (part, whole), bound in BOUNDS.items():
        if total[part] > bound * total[whole]:
            told.append(f"{part}: {total[part]} of {total[whole]} {whole}, more than {bound:.0%}")
    told += [
        f"{fault}: did no harm"
        for fault, allowed in OF_FAULT.items()
        if allowed and not total[f"harmed by {fault} alone"]
    ]
    return told


def tell(judged: Judged, full: bool) -> None:
    """Say what failed in one seed, and how to see it again."""
    print(f"seed {judged.drawn.seed} fails ({judged.drawn}): {REPRODUCE.format(seed=judged.drawn.seed)}")
    for failure in judged.failures:
        print(f"  {failure.check}: {failure.rid}: {failure.words if full else failure.words[:300]}", flush=True)


def main() -> int:
    """Exit code 1 where a seed failed, or where all together are beyond a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=seeds_of, default=range(2000))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, default=Path("run/campaign"), help="where ledgers of failing seeds are kept"
    )
    parser.add_argument("--full", action="store_true", help="print every failure in full")
    given = parser.parse_args()
    begun, total, checks, failed = time.monotonic(), Counter[str](), Counter[str](), 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for judged in pool.map(judge, given.seeds, [given.keep] * len(given.seeds), chunksize=4):
            total += judged.counts
            if judged.failures:
                failed += 1
                checks.update(failure.check for failure in judged.failures)
                tell(judged, given.full)
    beyond = beyond_bounds(total) if len(given.seeds) >= ENOUGH else []
    print(
        f"{len(given.seeds)} seeds in {(time.monotonic() - begun) / 60:.1f} min, {failed} failed: {dict(checks.most_common())}"
    )
    print("\n".join(f"{count:>9,} {name}" for name, count in sorted(total.items())))
    print("\n".join(beyond))
    return 1 if failed or beyond else 0


if __name__ == "__main__":
    sys.exit(main())
