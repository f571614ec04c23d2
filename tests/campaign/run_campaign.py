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
from scenario_draw import draw

from engine.simulation.simulate import simulate

REPRODUCE = ".venv/bin/python tests/campaign/run_campaign.py --seeds {seed}"


def judge(seed: int, place: Path) -> Judged:
    """Play one seed into `place`/seed-N and judge it; the ledger of a seed that fails is kept there."""
    drawn, ledger = draw(seed), place / f"seed-{seed}"
    shutil.rmtree(ledger, ignore_errors=True)
    ledger.mkdir(parents=True)
    try:
        outcome = simulate(drawn.scenario, ledger / "ledger")
        judged = Comparison(drawn, ledger / "ledger").run()
        judged.counts["requests"] += sum(outcome.answers.values())
    except Exception as error:  # every kind of failure is one of this seed
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        judged = Judged(drawn, [Failure(f"raised {type(error).__name__} at {where}", "", str(error)[:2000])])
    if judged.failures:
        (ledger / "scenario.yaml").write_text(drawn.text)
        (ledger / "failures.txt").write_text("".join(f"{f.check}: {f.rid}: {f.words}\n" for f in judged.failures))
    else:
        shutil.rmtree(ledger)
    return judged


def seeds_of(text: str) -> range:
    """`7`, or `0-1999` with both ends."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    """Exit code 1 where a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=seeds_of, default=range(2000))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, default=Path("run/campaign"), help="where ledgers of failing seeds are kept"
    )
    parser.add_argument("--full", action="store_true", help="print every failure in full")
    given = parser.parse_args()
    begun, total, failed, checks = time.monotonic(), Counter[str](), 0, Counter[str]()
    with ProcessPoolExecutor(given.jobs) as pool:
        for judged in pool.map(judge, given.seeds, [given.keep] * len(given.seeds), chunksize=4):
            total += judged.counts
            if not judged.failures:
                continue
            failed += 1
            print(
                f"seed {judged.drawn.seed} fails ({judged.drawn}): {REPRODUCE.format(seed=judged.drawn.seed)}",
                flush=True,
            )
            for failure in judged.failures:
                checks[failure.check] += 1
                print(
                    f"  {failure.check}: {failure.rid}: {failure.words if given.full else failure.words[:300]}",
                    flush=True,
                )
    minutes = (time.monotonic() - begun) / 60
    print(f"{len(given.seeds)} seeds in {minutes:.1f} min, {failed} failed; {dict(checks)}; {dict(total)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
