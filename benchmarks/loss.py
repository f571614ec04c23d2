"""How many responses one lost row makes unknown.

Run: python benchmarks/loss.py [LEDGER ...] [--draws N]    (default: three samples, 40 rows each)

Rows are drawn evenly over the tables of which a verdict can depend, one at a time, and the ledger is judged without it. Printed
by table: the mean and the most of responses that are unknown then and were not before, of all responses.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "campaign"))

from lost_rows import LOSABLE, read_without  # noqa: E402

from engine.ledger.reader import Ledger, read_ledger  # noqa: E402
from forensics.foreign_reads import foreign_reads  # noqa: E402

SAMPLES = ("healthy", "abort-race", "classes/m03-late-write")
SEED = 7


def unknown(ledger: Ledger) -> set[str]:
    """Responses whose verdict is unknown."""
    rows = foreign_reads(ledger, engine="replay").responses.to_pylist()
    return {row["rid"] for row in rows if row["verdict"] == "unknown"}


def main() -> None:
    """Prints a line for each ledger and table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledgers", type=Path, nargs="*", default=[ROOT / "sample_logs" / name for name in SAMPLES])
    parser.add_argument("--draws", type=int, default=40)
    given = parser.parse_args()
    for path in given.ledgers:
        ledger, source = read_ledger(path), random.Random(SEED)
        before = unknown(ledger)
        responses = len(set(ledger.tables["requests"]["rid"].drop_null().to_pylist()))
        made: dict[str, list[int]] = defaultdict(list)
        for draw in range(given.draws):
            table = LOSABLE[draw % len(LOSABLE)]
            rows = ledger.tables[table]
            if not rows.num_rows:
                continue
            row = rows.slice(source.randrange(rows.num_rows), 1).to_pylist()[0]
            lost = [(table, row["worker"], row["epoch"], row["seq"])]
            made[table].append(len(unknown(read_without(ledger.path, lost)) - before))
        for table, counts in made.items():
            told = f"{sum(counts) / len(counts):.1f} on average, {max(counts)} at most, of {responses} responses"
            print(f"{path.name}: a lost row of {table} makes unknown {told} ({len(counts)} draws)")


if __name__ == "__main__":
    main()
