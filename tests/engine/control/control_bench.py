"""Both roles of the engine in one thread: real control plane and real ledger; model, bytes and messages are fakes."""

from collections import defaultdict, deque

import numpy as np

from engine.block_pool import BlockPool
from engine.cached_prefix import CachedPrefix
from engine.clock import ManualClock
from engine.decode import DecodeEngine
from engine.defences import Checks, Defences, Limits
from engine.executor import DecodeRun, PassResult
from engine.faults import Faults
from engine.ledger.reader import read_ledger
from engine.ledger.recorder import Recorder
from engine.ledger.refs import expand_pages
from engine.prefill import PrefillEngine
from engine.request import GenerateRequest
from engine.role import Ended, HoldPolicy, Pace, Parts, TokenLeft
from engine.truth import TruthLog

PAGE = 4  # tokens a page
PASS_US, MAX_RUN_US = 2_000, 1_000_000


class LoopWire:
    """Messages through memory; `hold` keeps what is sent to an address until `let_go`."""

    boxes: dict

    def __init__(self, network, address):
        self.network, self.address = network, address

    def send(self, address, message):
        self.network.sent.append((self.address, address, message))
        self.network.boxes[address].append(message)

    def receive(self):
        if self.address in self.network.held:
            return []
        messages = list(self.network.boxes[self.address])
        self.network.boxes[self.address].clear()
        return messages

    def close(self):
        pass


class Network:
    def __init__(self):
        self.boxes, self.held, self.sent = defaultdict(list), set(), []

    def kinds(self):
        return [message["kind"] for _, _, message in self.sent if message["kind"] != "beat"]


class FakeExecutor:
    """The next token is the last one plus one; `mismatch` maps a request ordinal to what its next pass finds."""

    def __init__(self, clock):
        self.clock, self.passes, self.mismatch, self.copies, self.scrubbed = clock, [], {}, [], []

    def prefill(self, works, *, check_tags, step, before_write):
        before_write()
        return self._run("prefill", works, [int(w.tokens[-1]) for w in works], check_tags, step)

    def decode(self, works, *, check_tags, step, passes=1, until_us=0):
        start = self.clock.now_us()
        return DecodeRun(self._run("decode", works, [w.token for w in works], check_tags, step), 1, start)

    def forget(self, stamp):
        pass

    def scrub(self, pages):
        self.scrubbed += pages.tolist()

    def copy(self, src_pool, src_pages, dst_pool, dst_pages, dst_tag):
        self.copies.append((src_pool, src_pages.tolist(), dst_pool, dst_pages.tolist(), dst_tag))
        return 64 * len(src_pages)

    def _run(self, kind, works, tokens, check, step):
        self.clock.advance(PASS_US)
        self.passes.append((kind, step, works))
        return [
            PassResult((token + 1) % 256, self.mismatch.pop(work.req, ()) if check else ())
            for work, token in zip(works, tokens, strict=True)
        ]


class FakeTransport:
    """Batches wait until `write` moves them; one after another, gated ones stay."""

    def __init__(self):
        self.queue, self.gated, self.written, self.peers = deque(), set(), [], {}
        self.auto, self.refuse = True, None
        self.posted = None

    def connect(self, peer, memory):
        if self.refuse:
            raise ValueError(self.refuse)
        self.peers[peer] = memory

    def submit(self, batch, callbacks):
        self.queue.append((batch, callbacks))

    def cancel(self, xfer):
        kept = [item for item in self.queue if item[0].xfer != xfer]
        dropped = len(self.queue) - len(kept)
        self.queue = deque(kept)
        return dropped

    def batch_pages(self, room, usual):
        return usual

    def spoil(self, xfer, chunk):
        self.spoiled = (xfer, chunk)

    def gate(self, xfer):
        self.gated.add(xfer)

    def ungate(self, xfer=None):
        self.gated = set() if xfer is None else self.gated - {xfer}

    def close(self):
        self.queue.clear()

    def post(self):
        """Begin the next write that is not gated; True where there was one."""
        for item in self.queue:
            if item[0].xfer not in self.gated:
                self.queue.remove(item)
                item[1].post()
                self.posted = item
                return True
        return False

    def land(self, error=None):
        """End the write that was begun."""
        batch, callbacks = self.posted
        self.posted = None
        if error:
            callbacks.failed(error, None)
        else:
            self.written.append(batch)
            callbacks.done(len(batch.dst_pages) * 64)

    def write(self):
        """One whole write."""
        if self.post():
            self.land()
            return True
        return False


class Bench:
    """`ask` hands a request to both roles; `run` ticks until nothing moves; `rows` reads the ledger back."""

    def __init__(
        self, directory, *, prefill_pages=17, decode_pages=33, context=256, defences=None, faults=(), seal=True,
        host_pages=0, reserved_tokens=None, decode_scope=None, scrub=False,
    ):  # fmt: skip
        self._seal, self._host_pages, self._reserved_tokens = seal, host_pages, reserved_tokens
        self._decode_scope, self._scrub = decode_scope, scrub
        self.directory, self.clock, self.network = directory, ManualClock(), Network()
        self.transport = FakeTransport()
        self.events = {"prefill": defaultdict(list), "decode": defaultdict(list)}
        self.executors, self.recorders = {}, {}
        self.prefill = PrefillEngine(
            self._parts("prefill", 1, prefill_pages, context, defences, faults), self.transport
        )
        self.decode = DecodeEngine(self._parts("decode", 2, decode_pages, context, defences, faults))
        self._room, self._rids = 100, {}
        self._open = True

    def _parts(self, role, ordinal, pages, context, defences, faults):
        recorder = Recorder(
            self.directory, f"{role}-0", ordinal=ordinal, now_us=self.clock.now_us, digest_key=b"k", threaded=False
        )
        recorder.record("workers", "start", role=role, ordinal=ordinal)
        recorder.record("workers", "config", pool="kv", pool_pages=pages, page_tokens=PAGE)
        pool = BlockPool("kv", pages, PAGE, recorder)
        switches = Faults()
        for name in faults:
            switches.switch(name, True)
        self.recorders[role], self.executors[role] = recorder, FakeExecutor(self.clock)
        checks, prefix = Checks(Defences.parse(defences or {}), recorder), None
        if role == "decode" and self._decode_scope is not None:
            prefix = CachedPrefix(pool, recorder, self._decode_scope, b"cache-secret", switches, checks)
        return Parts(
            worker=f"{role}-0", recorder=recorder, clock=self.clock, wire=LoopWire(self.network, f"mem://{role}"),
            executor=self.executors[role], pool=pool, memory={"of": role},
            checks=checks, prefix=prefix, holds=HoldPolicy(scrub=self._scrub),
            limits=Limits(role, pool.usable_pages * PAGE, context), faults=switches, truth=TruthLog(None, role),
            emit=lambda rid, event: self.events[role][rid].append(event), names={"mem://prefill": "prefill-0"},
            pace=Pace(max_run_us=MAX_RUN_US, reserved_tokens=self._reserved_tokens),
            host=BlockPool("host", self._host_pages, PAGE, recorder) if self._host_pages and role == "decode" else None,
        )  # fmt: skip

    def given(self, rid, prompt=10, output=3, **changes):
        self._room += 1
        values = {"rid": rid, "tenant": "t-a", "room": self._room, "tokens": tuple(range(1, prompt + 1)),
                  "max_tokens": output, "bootstrap": "mem://prefill"}  # fmt: skip
        return GenerateRequest(**{**values, **changes})

    def ask(self, rid, prompt=10, output=3, roles=("prefill", "decode"), **changes):
        given = self.given(rid, prompt, output, **changes)
        self._rids[given.room] = rid
        for role in roles:
            getattr(self, role).submit(given)
        return given

    def rid_of(self, room):
        return self._rids[room]

    def turn(self):
        """One tick of each role and, unless `transport.auto` is off, every write that can go."""
        busy = self.prefill.tick().busy
        while self.transport.auto and self.transport.write():
            busy = True
        return self.decode.tick().busy or busy

    def run(self, turns=500):
        """Until three turns in a row moved nothing."""
        quiet = 0
        for _ in range(turns):
            quiet = 0 if self.turn() else quiet + 1
            if quiet == 3:
                return
        raise AssertionError("the engine does not come to rest")

    def until(self, condition, turns=200):
        for _ in range(turns):
            if condition():
                return
            self.turn()
        raise AssertionError("the condition never held")

    def assert_accounted(self):
        """Every page of every pool is in one state, and in the tables of those alone who may use it."""
        for role in (self.prefill, self.decode):
            found = role.pool.audit({req: request.claimed_pages for req, request in role.requests.items()})
            assert found.wrong == (), found.findings
            assert sum(found.counts.values()) == role.pool.usable_pages
            if role.parts.prefix is not None:
                assert role.parts.prefix.tree.audit() == ()

    def tokens(self, rid, role="decode"):
        return [event.token for event in self.events[role][rid] if isinstance(event, TokenLeft)]

    def ends(self, rid, role="decode"):
        return [event for event in self.events[role][rid] if isinstance(event, Ended)]

    def code(self, rid, role="decode"):
        """Error code with which a request ended ('' for none); exactly one end."""
        (end,) = self.ends(rid, role)
        return end.error.code if end.error else ""

    def close(self):
        if self._open:
            self._open = False
            for role in (self.prefill, self.decode):
                role.close()
                role.recorder.close(seal=self._seal)

    def ledger(self):
        """The closed ledger; nothing is missing or broken in it."""
        self.close()
        ledger = read_ledger(self.directory)
        assert not ledger.gaps and not ledger.problems
        return ledger

    def rows(self, table, role=None, **having):
        """Rows of one table as dicts, page lists resolved."""
        ledger = self.ledger()
        rows = ledger.tables[table]
        rows = (expand_pages(rows) if table == "pages" else rows).to_pylist()
        return [
            row
            for row in rows
            if (role is None or row["worker"] == f"{role}-0") and all(row[k] == v for k, v in having.items())
        ]

    def story(self, role, req=1, skip=("heartbeat", "sample", "start", "config", "close")):
        """table/op of every row of one request on one worker, steps included, in seq order."""
        ledger = self.ledger()
        found = []
        for table, rows in ledger.tables.items():
            for row in rows.to_pylist():
                mine = row.get("req") in (req, None)
                if row["worker"] == f"{role}-0" and mine and row["op"] not in skip:
                    name = f"{table}/{row['op']}"
                    if row.get("status") in ("sent", "received"):
                        name += f" {row['status']}"
                    found.append((row["seq"], name))
        return [name for _, name in sorted(found)]


def pages_of(rows):
    return [page for row in rows for page in row["pages"]]


def int32(*values):
    return np.array(values, np.int32)
