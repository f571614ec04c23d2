"""Physical truth beside the ledger: who wrote what each pass really found, from the stamps that travel with the bytes.

A slot's stamp names its writer and the position it was written for. Another's slots are borrowed, not foreign, where
both prompts are the same up to the end of that page and the slots stand at their positions: the content is what the
reader would have computed. Its own slots at a wrong position are misplaced.

A page into which a remote write came or went while a pass read it is `torn`: its bytes may have been read before or
after, which stamps cannot say. A response whose only foreign read would be such a one is `undecided`.

Invariant: nothing here reads or knows the ledger; `truth/` is for tests and simulations, forensics never opens it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.kv_cache import KVCachePool
from engine.page_keys import TokenPrompt
from engine.request import GenerateRequest

POSITION_BITS = 20
_POSITIONS = (1 << POSITION_BITS) - 1


@lru_cache(maxsize=1 << 14)
def stamp_of(rid: str) -> int:
    """A request's stamp (63 bits, never 0), the lowest `POSITION_BITS` of them 0."""
    digest = int.from_bytes(hashlib.blake2b(rid.encode(), digest_size=8).digest(), "little")
    return (digest >> 1 | 1 << POSITION_BITS) & ~_POSITIONS


def slot_stamps(stamp: int, positions: np.ndarray) -> np.ndarray:
    """What a request leaves in the slots (int64 [n]) that it writes for `positions`; 0 is nobody's."""
    return np.asarray(stamp | positions, np.int64)


class Truth(Protocol):
    """What a role tells of requests; what passes read is told by the executor."""

    def stamp(self, stamp: int, given: GenerateRequest) -> None:
        """Which request a stamp belongs to."""

    def finish(self, rid: str, output_tokens: int, last_token_us: int | None) -> None:
        """How many tokens left, and when the last one did (the worker's clock)."""


class TruthLog:
    """Appends JSON lines to `truth/<worker>.jsonl`; does nothing where `path` is None."""

    def __init__(self, path: Path | None, worker: str, page_tokens: int = 16) -> None:
        self._page_tokens = page_tokens
        self._lock = threading.Lock()
        self._file = None
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
            self._file = open(path / f"{worker}.jsonl", "a", buffering=1)  # noqa: SIM115  closed with the process

    @property
    def on(self) -> bool:
        """Whether truth is kept."""
        return self._file is not None

    def stamp(self, stamp: int, given: GenerateRequest) -> None:
        """Which request a stamp belongs to, and digests of its prompt's full pages."""
        if self.on:
            pages = TokenPrompt(given.tokens).page_digests(self._page_tokens).tolist()
            meaning = [given.adapter, given.media, given.weights, given.kv_format]
            self._write(
                {
                    "kind": "stamp", "stamp": stamp, "rid": given.rid, "tenant": given.tenant, "meaning": meaning,
                    "pages": pages,
                }
            )  # fmt: skip

    def read(self, step: int, t_us: int, stamp: int, found: Found) -> None:
        """What a pass found that was not the reader's own at its place."""
        self._write({"kind": "read", "step": step, "t": t_us, "stamp": stamp, **asdict(found)})

    def finish(self, rid: str, output_tokens: int, last_token_us: int | None) -> None:
        """How many tokens left, and when the last one did."""
        self._write({"kind": "finish", "rid": rid, "output_tokens": output_tokens, "last_token": last_token_us})

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            with self._lock:
                self._file.write(json.dumps(row) + "\n")


@dataclass
class Found:
    """Pages by what was wrong there: page -> stamps (0 = never written).

    `elsewhere`: another's, of other positions. `in_place`: another's, of these positions, with the page's place in the
    table in `places`. `misplaced`: the reader's own, of other positions. `torn`: a remote write came or went meanwhile.
    """

    elsewhere: dict[int, list[int]] = field(default_factory=dict)
    in_place: dict[int, list[int]] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    misplaced: list[int] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)


class StampReader:
    """Looks at the stamps that a pass read, before and after it, and logs what changed since the reader's last pass."""

    def __init__(self, pool: KVCachePool, log: TruthLog) -> None:
        self._pool, self._log = pool, log
        self._opened: dict[int, int] = {}  # page -> the remote write that had opened it last when the pass began
        self._last: dict[int, Found] = {}  # stamp of a reader -> what it last found

    def before(self, reads: list[tuple[np.ndarray, int]]) -> None:
        """A pass is about to read the first `kv_tokens` slots of each block table."""
        if self._log.on:
            pages = np.concatenate([self._pages(table, kv_tokens) for table, kv_tokens in reads])
            # A write that is still open now counts as one that came during the pass.
            headers = self._pool.headers
            self._opened = dict(zip(pages.tolist(), headers["closed"][pages].tolist(), strict=True))

    def after(self, stamp: int, table: np.ndarray, kv_tokens: int, step: int, t_us: int) -> None:
        """The pass has read; `stamp` is the reader's."""
        if not self._log.on:
            return
        pages = self._pages(table, kv_tokens)
        stamps, positions = self._pool.stamps[pages].reshape(-1)[:kv_tokens], np.arange(kv_tokens)
        opened = self._pool.headers["opened"][pages]
        found = Found()
        for slot in np.flatnonzero(stamps != slot_stamps(stamp, positions)).tolist():
            place = slot // self._pool.geometry.page_tokens
            page, writer = int(pages[place]), int(stamps[slot]) & ~_POSITIONS
            if writer == stamp:
                if page not in found.misplaced:
                    found.misplaced.append(page)
                continue
            here = int(stamps[slot]) & _POSITIONS == slot and writer != 0
            writers = (found.in_place if here else found.elsewhere).setdefault(page, [])
            if writer not in writers:
                writers.append(writer)
            if here:
                found.places[page] = place
        found.torn = [int(page) for page, write in zip(pages, opened, strict=True) if write != self._opened[int(page)]]
        if found != self._last.pop(stamp, Found()):
            self._log.read(step, t_us, stamp, found)
        if found != Found():
            self._last[stamp] = found

    def _pages(self, table: np.ndarray, kv_tokens: int) -> np.ndarray:
        return table[: -(-kv_tokens // self._pool.geometry.page_tokens)]


KV = "kv"
Place = tuple[str, int | str]
"""(worker, page) in the pool `kv`; (worker, "pool/page") in another."""


def place_of(worker: str, pool: str, page: int) -> Place:
    """A page of a worker's pool as the truth names it."""
    return worker, page if pool == KV else f"{pool}/{page}"


@dataclass
class TruthResponse:
    """The truth about one request: contaminated if a pass found another's stamp and a token left at or after it."""

    rid: str
    contaminated: bool = False
    undecided: bool = False  # not contaminated but for a torn page, perhaps
    unwritten: bool = False  # a pass read slots that nobody had written, and a token left
    misplaced: bool = False  # a pass read content of its own prompt in a wrong place, and a token left
    donors: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))  # by rid
    perhaps: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))  # found in torn pages
    wrong_meaning: set[str] = field(
        default_factory=set
    )  # rids whose KV it used: right tokens, another adapter or the like
    cross_tenant: set[str] = field(
        default_factory=set
    )  # rids of other tenants whose KV it used: right tokens and meaning
    derived: set[str] = field(default_factory=set)  # rids whose KV it used, computed after they had read foreign bytes
    first_worker: str | None = None
    first_step: int | None = None  # of the first contaminated pass on `first_worker`
    output_tokens: int = 0


def read_truth(directory: Path) -> dict[str, TruthResponse]:
    """Truth by rid over all workers of a ledger's `truth/` directory."""
    rows = [
        (path.stem, json.loads(line))
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    rids = {row["stamp"]: row["rid"] for _, row in rows if row["kind"] == "stamp"}
    people = {row["stamp"]: row for _, row in rows if row["kind"] == "stamp"}
    found = {rid: TruthResponse(rid) for rid in rids.values()}
    last_token: dict[str, int] = {}
    for _, row in rows:
        if row["kind"] == "finish":
            found[row["rid"]].output_tokens = max(found[row["rid"]].output_tokens, row["output_tokens"])
            if row["last_token"] is not None:
                last_token[row["rid"]] = max(last_token.get(row["rid"], 0), row["last_token"])
    reads = [(worker, row) for worker, row in rows if row["kind"] == "read"]
    for worker, row in sorted(reads, key=lambda read: read[1]["t"]):
        response = found[rids[row["stamp"]]]
        if row["t"] < last_token.get(response.rid, -1):  # what a pass reads, its own token tells
            _part_borrowed(row, people)
            _take(response, worker, row, rids)
            _take_borrowed(response, row, people)
    return found


def _part_borrowed(row: dict[str, Any], people: dict[int, dict[str, Any]]) -> None:
    """Tell apart what a live pass found of others in its place: borrowed where both prompts are the same up to there."""
    if "in_place" not in row:
        return
    row["foreign"] = {page: list(stamps) for page, stamps in row["elsewhere"].items()}
    row["borrowed"] = {}
    own = people[row["stamp"]]["pages"]
    for page, stamps in row["in_place"].items():
        whole = row["places"][page] + 1
        for stamp in stamps:
            others = people[stamp]["pages"]
            alike = min(len(own), len(others)) >= whole and own[:whole] == others[:whole]
            row["borrowed" if alike else "foreign"].setdefault(page, []).append(stamp)


def _take(response: TruthResponse, worker: str, row: dict[str, Any], rids: dict[int, str]) -> None:
    """Add what one pass found to a response from which a token left afterwards."""
    torn = set(row["torn"])
    response.undecided |= bool(torn) and not response.contaminated
    displaced = {int(page) for page in row.get("displaced", ())}
    response.misplaced |= bool({*row.get("misplaced", ()), *displaced} - torn)
    for page, stamps in row["foreign"].items():
        place = place_of(worker, row.get("pool", KV), int(page))
        if int(page) in torn:
            for stamp in filter(None, stamps):
                response.perhaps[rids[stamp]].add(place)
            continue
        response.unwritten |= 0 in stamps
        for stamp in filter(None, stamps):
            if not response.contaminated:
                response.contaminated, response.undecided = True, False
                response.first_worker, response.first_step = worker, row["step"]
            response.donors[rids[stamp]].add(place)


def _take_borrowed(response: TruthResponse, row: dict[str, Any], people: dict[int, dict[str, Any]]) -> None:
    """Add what one pass found that others had computed from the same tokens. `tainted` is known in simulation only."""
    reader = people[row["stamp"]]
    for stamps in row.get("borrowed", {}).values():
        for giver in (people[stamp] for stamp in stamps):
            if giver["meaning"] != reader["meaning"]:
                response.wrong_meaning.add(giver["rid"])
            elif giver["tenant"] != reader["tenant"]:
                response.cross_tenant.add(giver["rid"])
    for stamps in row.get("tainted", {}).values():
        response.derived |= {people[stamp]["rid"] for stamp in stamps}
