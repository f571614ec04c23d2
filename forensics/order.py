"""Order between workers: the edges of the contract, what each worker must have known, and usable clocks.

Invariant: only the edges listed in the contract order rows of two workers (grant -> post, the mover's ack sent ->
received and -> receipt, abort sent -> received, a row -> a heartbeat that covers it); a receipt that another edge
denies orders nothing. Orders through a third
worker are not used; that makes some orders undecided, never wrong. A clock that an edge contradicts beyond its
stated error is used for nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from forensics.rows import Ints, Row, WorkerKey, WorkerRows

INF = 1 << 62
NOTHING = -1


@dataclass
class Path:
    """Edges from one worker epoch to another as (seq there, seq here), ready for the two questions asked of them."""

    edges: list[tuple[int, int]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _first_after: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _last_before: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Sort the edges and build the running minimum and maximum."""
        self.edges.sort()
        self._starts = [start for start, _ in self.edges]
        self._first_after, least = [INF] * len(self.edges), INF
        for i in range(len(self.edges) - 1, -1, -1):
            least = min(least, self.edges[i][1])
            self._first_after[i] = least
        by_end = sorted((end, start) for start, end in self.edges)
        self._ends = [end for end, _ in by_end]
        self._last_before, most = [], NOTHING
        for _, start in by_end:
            most = max(most, start)
            self._last_before.append(most)

    def after(self, seq: int) -> int:
        """The least seq at the end of the path that must come after row `seq` at its start; INF if none must."""
        i = bisect_left(self._starts, seq)
        return self._first_after[i] if i < len(self._starts) else INF

    def known(self, seq: int) -> int:
        """The greatest seq at the start of the path that must come before row `seq` at its end; -1 if none must."""
        i = bisect_right(self._ends, seq)
        return self._last_before[i - 1] if i else NOTHING


@dataclass(frozen=True)
class Edge:
    """One row before another: (worker, seq, time us) on both sides."""

    start: WorkerKey
    start_seq: int
    start_t: int
    end: WorkerKey
    end_seq: int
    end_t: int


@dataclass(frozen=True)
class ClockReading:
    """At time `t` of worker `at`: the peer's clock minus its own, and the error of that difference (us)."""

    t: int
    offset: int
    error: int


@dataclass(frozen=True)
class Clocks:
    """Where two workers' clocks were compared: `at` in the source's time, what to add to it (`shift`) for the target's, and
    the error of that; int64, us."""

    at: Ints
    shift: Ints
    error: Ints


@dataclass
class Order:
    """Paths between worker epochs, and conversion of times from one worker's clock to another's."""

    paths: dict[tuple[WorkerKey, WorkerKey], Path]
    readings: dict[tuple[WorkerKey, WorkerKey], list[ClockReading]]
    contradicted: set[WorkerKey]
    _clocks: dict[tuple[WorkerKey, WorkerKey], Clocks] = field(default_factory=dict, init=False)

    def after(self, start: WorkerKey, seq: int, end: WorkerKey) -> int:
        """Least seq of `end` that comes after row `seq` of `start` (INF: none must)."""
        path = self.paths.get((start, end))
        return path.after(seq) if path else INF

    def known(self, start: WorkerKey, end: WorkerKey, seq: int) -> int:
        """Greatest seq of `start` that comes before row `seq` of `end` (-1: none must)."""
        path = self.paths.get((start, end))
        return path.known(seq) if path else NOTHING

    def convert(self, t: int, source: WorkerKey, target: WorkerKey) -> tuple[int, int] | None:
        """Bounds (us) in `target`'s clock of time `t` of `source`'s clock; None where the clocks cannot be used."""
        if source == target:
            return t, t
        if source in self.contradicted or target in self.contradicted:
            return None
        clocks = self._clocks.get((source, target))
        if clocks is None:
            clocks = self._clocks[source, target] = self._compared(source, target)
        if not len(clocks.at):
            return None
        away = np.abs(clocks.at - t)
        shift, error = min(
            (int(clocks.shift[i]), int(clocks.error[i])) for i in np.flatnonzero(away == away.min()).tolist()
        )
        return t + shift - error, t + shift + error

    def _compared(self, source: WorkerKey, target: WorkerKey) -> Clocks:
        read = [(r.t + r.offset, -r.offset, r.error) for r in self.readings.get((target, source), [])]
        read += [(r.t, r.offset, r.error) for r in self.readings.get((source, target), [])]
        return Clocks(*np.array(read, np.int64).reshape(-1, 3).T)


def build_order(workers: dict[WorkerKey, WorkerRows]) -> Order:
    """Collect the edges and clock readings of a ledger."""
    edges = [*_message_edges(workers), *_heartbeat_edges(workers)]
    paths = _paths(edges)
    believed = [edge for edge in _receipt_edges(workers) if not _is_denied(edge, paths)]
    if believed:
        edges += believed
        paths = _paths(edges)
    readings: dict[tuple[WorkerKey, WorkerKey], list[ClockReading]] = defaultdict(list)
    for key, worker in workers.items():
        for row in worker.heartbeats:
            if row["peer"] is None or row["clock_offset_us"] is None or row["clock_error_us"] is None:
                continue
            peer = (row["peer"], row["peer_epoch"])
            readings[key, peer].append(ClockReading(row["t"], row["clock_offset_us"], row["clock_error_us"]))
    order = Order(dict(paths), dict(readings), set())
    contradicted: set[WorkerKey] = set()
    for edge in edges:
        bounds = order.convert(edge.start_t, edge.start, edge.end)
        if bounds is not None and bounds[0] > edge.end_t:
            contradicted |= {edge.start, edge.end}
    order.contradicted = contradicted
    return order


def _paths(edges: list[Edge]) -> dict[tuple[WorkerKey, WorkerKey], Path]:
    paths: dict[tuple[WorkerKey, WorkerKey], Path] = defaultdict(Path)
    for edge in edges:
        paths[edge.start, edge.end].edges.append((edge.start_seq, edge.end_seq))
    for path in paths.values():
        path.close()
    return paths


def _is_denied(edge: Edge, paths: dict[tuple[WorkerKey, WorkerKey], Path]) -> bool:
    """Whether other edges put the end of an edge before its start."""
    back = paths.get((edge.end, edge.start))
    return back is not None and back.known(edge.start_seq) >= edge.end_seq


def _join(start: tuple[WorkerKey, Row], end: tuple[WorkerKey, Row]) -> list[Edge]:
    if start[0] == end[0]:
        return []
    return [Edge(start[0], start[1]["seq"], start[1]["t"], end[0], end[1]["seq"], end[1]["t"])]


def _message_edges(workers: dict[WorkerKey, WorkerRows]) -> list[Edge]:
    """grant -> post; ack sent -> ack received; abort sent -> abort received."""
    grants: dict[int, tuple[WorkerKey, Row]] = {}
    sent: dict[tuple[str, int, int | None], list[tuple[WorkerKey, Row]]] = defaultdict(list)
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] == "grant":
                grants.setdefault(row["xfer"], (key, row))
            elif row["op"] in ("ack", "abort") and row["status"] == "sent":
                sent[row["op"], row["xfer"], row["outstanding"]].append((key, row))
    edges: list[Edge] = []
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] == "post" and row["xfer"] in grants:
                edges += _join(grants[row["xfer"]], (key, row))
            elif row["op"] in ("ack", "abort") and row["status"] == "received":
                # The earliest such message: the one received was sent no earlier than it.
                senders = [s for s in sent[row["op"], row["xfer"], row["outstanding"]] if _from_peer(s[0], row)]
                granted = grants.get(row["xfer"])
                if row["op"] == "ack" and row["peer"] is None and granted and len(granted[1]["writers"] or ()) > 1:
                    continue  # of several writers nobody knows whose it was
                if senders:
                    edges += _join(min(senders, key=lambda s: s[1]["seq"]), (key, row))
    return edges


def _receipt_edges(workers: dict[WorkerKey, WorkerRows]) -> list[Edge]:
    """The mover's ack sent -> receipt. A receipt written before an ack was heard of is a belief and orders nothing."""
    drained: dict[int, tuple[WorkerKey, Row]] = {}
    heard: dict[tuple[WorkerKey, int], int] = {}
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] == "ack" and row["outstanding"] == 0:
                if row["status"] == "received":
                    heard.setdefault((key, row["xfer"]), row["seq"])
                elif row["status"] == "sent" and row["seq"] < drained.get(row["xfer"], (key, {"seq": INF}))[1]["seq"]:
                    drained[row["xfer"]] = (key, row)
    edges: list[Edge] = []
    for key, worker in workers.items():
        for row in worker.pages:
            if (
                row["op"] == "receipt"
                and row["xfer"] in drained
                and heard.get((key, row["xfer"]), NOTHING) < row["seq"]
            ):
                edges += _join(drained[row["xfer"]], (key, row))
    return edges


def _from_peer(sender: WorkerKey, received: Row) -> bool:
    return received["peer"] is None or received["peer"] == sender[0]


def _heartbeat_edges(workers: dict[WorkerKey, WorkerRows]) -> list[Edge]:
    """The row that a heartbeat names -> that heartbeat."""
    times: dict[WorkerKey, dict[int, int]] = {}
    edges: list[Edge] = []
    for key, worker in workers.items():
        for row in worker.heartbeats:
            if row["peer"] is None or row["peer_seq"] is None:
                continue
            peer = (row["peer"], row["peer_epoch"])
            if peer not in workers or peer == key:
                continue
            if peer not in times:
                times[peer] = {r["seq"]: r["t"] for r in _all_rows(workers[peer])}
            t = times[peer].get(row["peer_seq"])
            # A row that is lost still orders what came before it; only its time is not there to test a clock with.
            edges.append(Edge(peer, row["peer_seq"], t if t is not None else -INF, key, row["seq"], row["t"]))
    return edges


def _all_rows(worker: WorkerRows) -> list[Row]:
    return [*worker.requests, *worker.pages, *worker.transfers, *worker.steps, *worker.heartbeats]
