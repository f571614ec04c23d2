"""Physical truth of a simulated run: what reads found, kept for those requests alone that found anything.

Invariant: comes from stamps in memory; knows neither ledger nor block pool.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.simulation.clock import VirtualClock
from engine.simulation.people import People
from engine.simulation.reading import Found
from engine.truth import stamp_of

Row = dict[str, Any]


class SimTruth:
    """`truth/<worker>.jsonl` in the format of `engine.truth`; nothing is kept where `directory` is None."""

    def __init__(self, directory: Path | None, worker: str, people: People, clock: VirtualClock) -> None:
        self._path = directory / f"{worker}.jsonl" if directory is not None else None
        self._people, self._clock = people, clock
        self._rows: list[Row] = []
        self._last: dict[int, dict[tuple[str, int], tuple[Found, Row]]] = {}
        """stamp -> (pool, part) -> what its last pass found there, and the row that says so."""
        self._named: set[int] = set()

    def stamp(self, stamp: int, given: object) -> None:
        """See `Truth`. Known from the door already."""

    def read(self, found: Found, stamp: int, step: int, t_us: int, pool: str = "kv", part: int = 0) -> None:
        """What one pass of a request, begun at `t_us` (true time), found in a pool."""
        seen = self._last.get(stamp)
        last = seen.get((pool, part), (None, None))[0] if seen is not None else None
        if found == last or (last is None and found.clean):
            return
        row: Row = {
            "kind": "read", "step": step, "t": t_us, "stamp": stamp, "foreign": found.foreign, "torn": found.torn,
            "borrowed": found.borrowed, "tainted": found.tainted, "misplaced": found.misplaced,
            **{name: kind for name in ("displaced", "astray") if (kind := getattr(found, name))},
            **({} if pool == "kv" else {"pool": pool}),
        }  # fmt: skip
        self._last.setdefault(stamp, {})[pool, part] = found, row
        if (found.foreign or found.tainted) and self._people[stamp].tainted_since is None:
            self._people[stamp].tainted_since = t_us
        if self._path is None:
            return
        for one in (stamp, *found.stamps()):
            if one and one not in self._named:
                self._named.add(one)
                person = self._people[one]
                self._rows.append(
                    {
                        "kind": "stamp",
                        "stamp": one,
                        "rid": person.rid,
                        "tenant": person.tenant,
                        "meaning": person.meaning,
                    }
                )
        self._rows.append(row)

    def tear(self, stamp: int, since_us: int, pages: set[int], pool: str = "kv", part: int = 0) -> None:
        """A write to `pages` was under way, too, while a pass of a request read them that had begun at `since_us`. What it
        found there stays as it is where an earlier pass had found the same."""
        found, row = self._last.get(stamp, {}).get((pool, part), (None, None))
        if found is not None and row is not None and row["t"] >= since_us:
            row["torn"] = sorted({*found.torn, *pages})
            self._last[stamp][pool, part] = replace(found, torn=row["torn"]), row

    def finish(self, rid: str, output_tokens: int, last_token_us: int | None) -> None:
        """See `Truth`. Every request's end is kept that let a token leave: it may have read elsewhere."""
        self._last.pop(stamp_of(rid), None)
        if self._path is not None and last_token_us is not None:
            true = self._clock.true_us(last_token_us)
            self._rows.append({"kind": "finish", "rid": rid, "output_tokens": output_tokens, "last_token": true})

    def close(self) -> None:
        """Write the file."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            told = self._named | {stamp_of(row["rid"]) for row in self._rows if row["kind"] == "stamp"}
            rows = [row for row in self._rows if row["kind"] != "finish" or stamp_of(row["rid"]) in told]
            self._path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class RankTruths:
    """The truths of a worker's ranks, told the same of requests; each hears of its own reads by itself."""

    def __init__(self, truths: Sequence[SimTruth]) -> None:
        self._truths = tuple(truths)

    def stamp(self, stamp: int, given: object) -> None:
        """See `Truth`. Known from the door already."""

    def finish(self, rid: str, output_tokens: int, last_token_us: int | None) -> None:
        """See `Truth`."""
        for truth in self._truths:
            truth.finish(rid, output_tokens, last_token_us)
