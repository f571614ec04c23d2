"""Random small evidence: two workers, few pages, every kind of event, sound in what seq and edges say.

The seqs of both workers are read off one common counter, so an order that holds by construction holds everywhere:
a landing lies in (lo, hi] round its mover's (post, done], writes of one stream are in launch order. Clocks are noise,
or, where sound clocks are asked for, bounds round an instant inside (lo, hi].
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from evidence_builder import DECODE, PREFILL, EvidenceBuilder

from forensics.evidence import Evidence
from forensics.order import INF

LAST = 60
RIDS = ["ann", "bob", "cid", "dan"]
KEYS = ["complete", "incomplete", "unknown"]
FLAGS = (
    ("granted", 0.5), ("failed", 0.15), ("held", 0.3), ("unreturned", 0.15), ("misdirected", 0.1), ("collided", 0.1),
)  # fmt: skip


class RandomEvidence:
    def __init__(self, seed: int, sound_clocks: bool) -> None:
        self.sound_clocks = sound_clocks
        self.random = random.Random(seed)
        self.built = EvidenceBuilder()
        self.cells: list[int] = []
        self.lives: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)  # cell: (tag, rq, reserve, end)
        self.shared: dict[tuple[int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
        self.rqs: dict[tuple[str, int], list[int]] = defaultdict(list)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def evidence(self) -> Evidence:
        self._requests()
        for at in (PREFILL, DECODE):
            for page in range(self.random.randint(1, 3)):
                self._page(at, page, "index" if self.chance(0.25) else "slot" if self.chance(0.05) else "kv")
        for cell in self.cells:
            self._events(cell)
        self._shares()
        for rqs in self.rqs.values():
            for rq in rqs:
                self._runs(rq)
        for _ in range(self.random.randint(4, 14)):
            self._read()
        if self.chance(0.4):
            self._taint()
        if self.chance(0.5):
            self._components()
        if self.chance(0.4):
            self._straggler()
        return self.built.build()

    def _requests(self) -> None:
        for rid in RIDS[: self.random.randint(2, 4)]:
            for at in (PREFILL, DECODE):
                ended = self.chance(0.8)
                self.rqs[at].append(
                    self.built.request(
                        None if self.chance(0.04) else rid,
                        at,
                        ended_seq=LAST if ended else None,
                        last_token=self.random.randint(0, LAST * 10) if ended and self.chance(0.8) else None,
                        output_tokens=self.random.choice([None, 0, 0, 3]) if ended else None,
                        rows_complete=not self.chance(0.07),
                        end_certain=ended or self.chance(0.5),
                    )
                )

    def _page(self, at: tuple[str, int], page: int, pool: str) -> None:
        cell = self.built.cell(page, at, pool)
        self.cells.append(cell)
        begin = self.random.randint(0, 12)
        while begin < LAST - 5:
            end = begin + self.random.randint(6, 35)
            tag, rq = 1000 * (cell + 1) + begin, self.random.choice(self.rqs[at])
            self.lives[cell].append((tag, rq, begin, end))
            if not self.chance(0.08):
                flags: dict[str, Any] = {name: self.chance(p) for name, p in FLAGS}
                if end < LAST:
                    flags["ended"] = self.random.choice(["freed", "freed", "freed", "taken", "reserved", None])
                lost = None if self.chance(0.06) else rq
                self.built.life(tag, cell, lost, begin, INF if end >= LAST else end, **flags)
            begin = end + self.random.choice([0, 0, 3, 7])
        if self.chance(0.3):  # a second part of the same page
            other = self.built.cell(page, at, pool, tok_lo=64, tok_hi=128)
            self.cells.append(other)
            self.lives[other] = self.lives[cell]

    def _place_of(self, cell: int) -> tuple[str, int]:
        row = self.built.rows["cells"][cell]
        return row["worker"], row["epoch"]

    def _life(self, cell: int) -> tuple[int, int, int, int] | None:
        return self.random.choice(self.lives[cell]) if self.lives[cell] else None

    def _window(self, begin: int, end: int, loose: float = 0.3) -> tuple[int, int]:
        """(lo, hi] inside [begin, end], sometimes wider, sometimes without a bound."""
        hi = self.random.randint(begin + 1, max(end, begin + 1))
        lo = max(hi - self.random.choice([1, 1, 2, 5]), 0)
        if self.chance(loose):
            lo = max(lo - self.random.randint(0, 12), -1)
            hi = self.random.choice([hi + self.random.randint(0, 12), INF if self.chance(0.2) else hi])
        return lo, hi

    def _times(self, lo: int, hi: int, at: int) -> dict[str, int | None]:
        if self.chance(0.3):
            return {}
        if self.sound_clocks:
            error = self.random.choice([0, 4, 50])
            return {"t_lo": 10 * at - error, "t_hi": 10 * at + error}
        noise = self.random.choice([0, 3, 100])
        t_lo = max(lo, 0) * 10 + self.random.randint(-noise, noise)
        width = 10 * min(hi - max(lo, 0), 3)
        t_hi = max(t_lo, t_lo + width + self.random.randint(-noise, noise))
        return {"t_lo": t_lo if self.chance(0.9) else None, "t_hi": t_hi if self.chance(0.9) else None}

    def _events(self, cell: int) -> None:
        for life in (*self.lives[cell], *(self._life(cell) for _ in range(self.random.randint(0, 5)))):
            if life is None or self.chance(0.1):
                continue
            tag, rq, reserve, end = life
            if self.chance(0.15):
                rq = self.random.choice(self.rqs[self._place_of(cell)])
            if self.chance(0.1):
                tag += self.random.choice([1, 7])
            self._one_event(cell, tag, rq, self._window(reserve, min(end, LAST)))

    def _one_event(self, cell: int, tag: int, rq: int, window: tuple[int, int]) -> None:
        lo, hi = window
        at = self.random.randint(max(lo, 0) + 1, min(hi, max(lo, 0) + 4))
        kinds = ["write", "landing", "ghost", "scrub", "growth", "rewrite"]
        kind = self.random.choices(kinds, [4, 5, 0.7, 0.4, 0.4, 0.3])[0]
        if kind in ("write", "growth", "rewrite"):
            stream = self.random.choice([None, None, 100, 101])
            times = self._times(lo, hi, at) if stream is None or not self.sound_clocks else {}
            self.built.write(cell, rq, tag, hi, lo, kind=kind, stream=stream, **self._writer(cell, 2), **times)
        elif kind == "landing":
            self._landing(cell, tag, lo, hi)
        elif kind == "ghost":
            self.built.ghost(cell, lo, hi, self.random.choice(["rows lost", "missing mover"]))
        else:
            self.built.event(cell, "scrub", lo, hi, **self._times(lo, hi, at))

    def _writer(self, cell: int, authority: int) -> dict[str, Any]:
        """What is known of who wrote, and where the page stands in its request's table."""
        own = 5 + (self._place_of(cell) == DECODE)
        return {
            "mover": own if authority == 2 and self.chance(0.5) else None,
            "pos": self.random.choice([None, None, 3, 3, 3, 4]),
            "authority": authority if self.chance(0.9) else None,
            "digest": self.random.choice([None, 8, 9]),
        }

    def _landing(self, cell: int, tag: int, lo: int, hi: int) -> None:
        post = max(lo, 0) + (self.random.randint(0, 2) if hi - lo > 4 else 0)
        done = min(hi, post + self.random.randint(1, 4)) if hi - post > 1 else post + 1
        far = [c for c in self.cells if self.chance(0.1) or self._place_of(c) != self._place_of(cell)]
        src = None if self.chance(0.05) or not far else self.random.choice(far)
        life = self._life(src) if src is not None else None
        columns: dict[str, Any] = self._writer(cell, self.random.choice([0, 1, 1]))
        columns |= {"mover": self.random.choice([None, 0, 0, 0, 1]), "post_seq": post, "done_seq": done}
        columns |= {"collided": self.chance(0.1), "acked": self.chance(0.1)}
        columns["flaw"] = self.random.choice(["layout", "size"]) if self.chance(0.06) else None
        src_lo, src_hi = (post, done) if self.chance(0.7) else self._window(post, done)
        if life is not None and self.chance(0.7):  # read late in a life, of the same rid where there is one
            owner = next((own[1] for own in self.lives[cell] if own[0] == tag), None)
            rid = self.built.rows["requests"][owner]["rid"] if owner is not None else None
            alike = [other for other in self.lives[src] if self.built.rows["requests"][other[1]]["rid"] == rid]
            life = self.random.choice(alike) if alike and self.chance(0.8) else life
            src_lo = max(life[2], life[3] + self.random.choice([-2, -2, -2, 2]))
            src_hi = src_lo + self.random.choice([1, 3])
        columns |= self._times(lo, hi, done)
        if self.chance(0.2):
            columns |= {
                "src_since": src_lo + self.random.randint(0, 4),
                "src_until": src_hi - self.random.randint(0, 2),
            }
        src_tag = None if self.chance(0.08) else life[0] if life else 0
        self.built.landing(cell, tag, lo, hi, src, src_tag, (src_lo, src_hi), **columns)

    def _shares(self) -> None:
        taken = set()
        for cell in (c for c in self.cells for _ in range(3)):
            life = self._life(cell)
            if life is None or self.chance(0.3):
                continue
            rq = self.random.choice(self.rqs[self._place_of(cell)])
            owner = self.built.rows["requests"][rq]["owner"]
            if (owner, life[0]) not in taken:
                taken.add((owner, life[0]))
                identity = self.random.choice(["same", "same", "tenant", "meaning", "both"])
                key = self.random.choice(KEYS)
                self.built.share(rq, cell, life[0], self.random.randint(life[2], life[3]), identity, key=key)
                self.shared[cell, rq].append(life)

    def _runs(self, rq: int) -> None:
        seq, step = self.random.randint(0, 20), 1
        role = self.built.rows["requests"][rq]["role"]
        for _ in range(self.random.randint(1, 4)):
            since = seq + self.random.choice([0, 0, 2, 6])
            seq, n = since + self.random.choice([1, 2, 5]), self.random.choice([1, 1, 3])
            columns = {"step": step, "n": n, "t": since * 10 + 5, "t_end": seq * 10 - 3, "end_t": seq * 10}
            self.built.runs(rq, (since, seq), kind=role, **columns)
            step += n

    def _read(self) -> None:
        cell = self.random.choice(self.cells)
        rq = self.random.choice(self.rqs[self._place_of(cell)])
        own = [life for life in self.lives[cell] if life[1] == rq]
        wanted = own or self.shared[cell, rq]
        life = self.random.choice(wanted) if wanted and self.chance(0.8) else self._life(cell)
        last = self._last_run(rq)
        if life is None or life[2] >= last:
            return
        s0 = (
            self.random.randint(life[2], min(life[3], last - 1))
            if self.chance(0.8)
            else self.random.randint(0, last - 1)
        )
        columns: dict[str, Any] = {"pos": self.random.choice([None, 3, 3])}
        columns["pos_last"] = columns["pos"] and columns["pos"] + self.random.choice([0, 0, 1])
        if self.chance(0.8):
            columns["req_lo"] = self.random.choice([0, 0, 64])
            columns["req_hi"] = columns["req_lo"] + 64
        if self.chance(0.2):
            columns["growth"] = self.built.write(
                cell, rq, life[0], self.random.choice([last, s0 + 1]), s0, kind="growth"
            )
        if self.chance(0.1):
            columns["s1_max"] = last + self.random.choice([2, 9])
        self.built.read(cell, rq, life[0], s0, **columns)

    def _last_run(self, rq: int) -> int:
        return max(p["seq"] for p in self.built.rows["passes"] if p["rq"] == rq)

    def _taint(self) -> None:
        """One request reads a donor's page, then writes pages that others share, and a transfer may carry them on."""
        at, far = self.random.sample([PREFILL, DECODE], 2)
        donor, giver, *takers = self.random.sample(self.rqs[at], len(self.rqs[at]))
        read, written = self.built.cell(50, at), self.built.cell(51, at)
        self.built.write(read, donor, 50_001, self.random.randint(1, 3))
        self.built.life(50_002, read, giver, 5)
        self.built.life(50_003, written, giver, 5, **{"end": self.random.choice([INF, INF, LAST])})
        self.built.read(read, giver, 50_002, min(self.random.randint(5, 12), self._last_run(giver) - 1))
        for _ in range(self.random.randint(1, 2)):
            self.built.write(written, giver, 50_003, *sorted(self.random.sample(range(4, 20), 2), reverse=True))
        for taker in (*takers, donor):
            last = self._last_run(taker)
            identity, key = self.random.choice(["same", "tenant"]), self.random.choice(KEYS)
            self.built.share(taker, written, 50_003, self.random.randint(5, 15), identity, key=key)
            self.built.read(written, taker, 50_003, self.random.randint(min(6, last - 1), last - 1))
            carried = next((rq for rq in self.rqs[far] if self._rid(rq) == self._rid(taker)), None)
            if carried is not None and self.chance(0.6):
                target, tag = self.built.cell(60 + taker, far), 60_000 + taker
                self.built.life(tag, target, carried, 1, granted=True)
                self.built.landing(target, tag, 3, 5, written, 50_003, (20, 25), mover=3, post_seq=20, done_seq=25)
                self.built.read(target, carried, tag, min(6, self._last_run(carried) - 1))

    def _components(self) -> None:
        """One request's pages in two pools, one of them left over from a donor."""
        at = self.random.choice([PREFILL, DECODE])
        donor, reader = self.random.sample(self.rqs[at], 2)
        kv, index = self.built.cell(70, at), self.built.cell(70, at, "index")
        for cell, tag in ((kv, 70_001), (index, 70_002)):
            self.built.write(cell, donor, tag + 10, 2)
            self.built.life(tag + 10, cell, donor, 1, 3)
            flags = {name: self.chance(0.25) for name, _ in FLAGS} | {"granted": self.chance(0.8)}
            self.built.life(tag, cell, reader, 4, **flags)
            if self.chance(0.5):
                self.built.write(cell, reader, tag, self.random.choice([5, 5, 40]))
            s0 = min(self.random.randint(5, 12), self._last_run(reader) - 1)
            lo = self.random.choice([0, 0, 64])
            self.built.read(cell, reader, tag, s0, req_lo=lo, req_hi=lo + 64)

    def _straggler(self) -> None:
        """Something comes to a page after its life ended: over what its next owner has there, or before that."""
        at, far = self.random.sample([PREFILL, DECODE], 2)
        donor, reader = self.random.sample(self.rqs[at], 2)
        page, source = self.built.cell(80, at), self.built.cell(81, far)
        sender = next((rq for rq in self.rqs[far] if self._rid(rq) == self._rid(donor)), self.rqs[far][0])
        self.built.write(source, sender, 80_004, 2)
        end, next_end = self.random.choice([(4, INF), (4, 7)])
        ways = ["freed", "freed", "freed", "taken", "reserved"]
        self.built.life(80_001, page, donor, 1, end, held=self.chance(0.3), ended=self.random.choice(ways))
        self.built.life(80_002, page, reader, 4, next_end, ended=self.random.choice(ways) if next_end < INF else None)
        self.built.life(80_003, page, donor, 9)
        last = self._last_run(reader)
        self.built.write(page, reader, 80_002, self.random.choice([min(6, last - 1)] * 3 + [11]))
        hi = self.random.choice([6, 10, min(last - 1, 12), last])
        tag = self.random.choice([80_001, 80_001, 80_003, 80_009])
        if self.chance(0.6):
            self.built.landing(page, tag, hi - 1, hi, source, 80_004, (3, 5), mover=2, acked=self.chance(0.3))
        else:
            self.built.write(page, donor, tag, hi)
        self.built.read(page, reader, 80_002, min(6, last - 1))

    def _rid(self, rq: int) -> str | None:
        return self.built.rows["requests"][rq]["rid"]


def random_evidence(seed: int, sound_clocks: bool = False) -> Evidence:
    """Evidence of one seed."""
    return RandomEvidence(seed, sound_clocks).evidence()
