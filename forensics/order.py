"""Order between workers: the edges of the contract, what each worker must have known, and usable clocks.

Invariant: only the edges listed in the contract order rows of two workers (grant -> post, the mover's ack sent ->
received and -> receipt, abort sent -> received, a row -> a heartbeat that covers it); a message or receipt that another
edge denies orders nothing, and one whose first sending may be lost is ordered from where that may have stood. Orders
through a third worker are not used; that makes some orders undecided, never wrong. A clock that an edge contradicts
beyond its stated error is used for nothing; where rows are lost, one that may have done so among them, a clock is trusted
as far as the edges that are left confirm it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.ledger.tag import split_tag
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
class Lost:
    """`transfers`: by worker (lo, hi), ascending: rows of its transfers with lo < seq < hi are missing. `workers`: those
    that miss a row of any table."""

    transfers: Mapping[WorkerKey, Sequence[tuple[int, int]]] = field(default_factory=dict)
    workers: frozenset[WorkerKey] = frozenset()

    def first(self, worker: WorkerKey, after: int) -> int:
        """The first seq after `after` at which a row of a worker's transfers may be missing; INF where none is."""
        gaps = self.transfers.get(worker, ())
        i = bisect_right(gaps, after + 1, key=lambda gap: gap[1])
        return max(gaps[i][0], after) + 1 if i < len(gaps) else INF


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
    unsettled: frozenset[WorkerKey] = frozenset()
    slack: dict[tuple[WorkerKey, WorkerKey], int] = field(default_factory=dict)
    """Of two workers, one of them `unsettled`: by how much (us) the clocks may be apart before an edge denies them."""
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

    def bounds(self, t: int, source: WorkerKey, target: WorkerKey) -> tuple[int | None, int | None]:
        """What `convert` says, as far as edges confirm it where rows are lost; None where there is no bound."""
        known = self.convert(t, source, target)
        if known is None or source == target or self.unsettled.isdisjoint((source, target)):
            return known or (None, None)
        middle = (known[0] + known[1]) // 2
        early, late = self.slack.get((target, source)), self.slack.get((source, target))
        return (
            None if early is None else min(known[0], middle - early),
            None if late is None else max(known[1], middle + late),
        )


def build_order(workers: dict[WorkerKey, WorkerRows], lost: Lost | None = None) -> Order:
    """Collect the edges and clock readings of a ledger, of which rows may be `lost`."""
    lost = lost or Lost()
    seen = _heartbeat_edges(workers)
    paths = _paths(seen)
    sendings = _Sendings(workers, lost, paths)
    told = [edge for edge in _message_edges(workers, sendings) if not _is_denied(edge, paths)]
    paths = _paths([*told, *seen])
    told = [edge for edge in told if not _is_denied(edge, paths)]
    edges = [*told, *seen]
    paths = _paths(edges)
    believed = [edge for edge in _receipt_edges(workers, sendings) if not _is_denied(edge, paths)]
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
    order = Order(dict(paths), dict(readings), set(), lost.workers)
    contradicted: set[WorkerKey] = set()
    for edge in edges:
        bounds = order.convert(edge.start_t, edge.start, edge.end) if edge.start_t != -INF else None
        if bounds is None:
            continue
        if bounds[0] > edge.end_t:
            contradicted |= {edge.start, edge.end}
        if not lost.workers.isdisjoint((edge.start, edge.end)):
            pair, slack = (edge.start, edge.end), edge.end_t - (bounds[0] + bounds[1]) // 2
            order.slack[pair] = min(slack, order.slack.get(pair, INF))
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


def _join(start: tuple[WorkerKey, Row], end: tuple[WorkerKey, Row], lost_at: int = INF) -> list[Edge]:
    """The edge from one row to another, or from `lost_at` on, if a row that may stand for the first is lost there."""
    if start[0] == end[0]:
        return []
    seq, t = start[1]["seq"], start[1]["t"]
    if lost_at < seq:
        seq, t = lost_at, -INF
    return [Edge(start[0], seq, t, end[0], end[1]["seq"], end[1]["t"])]


class _Sendings:
    """Where the first of several equal messages may be lost. `seen`: the paths of the heartbeats."""

    def __init__(
        self, workers: dict[WorkerKey, WorkerRows], lost: Lost, seen: dict[tuple[WorkerKey, WorkerKey], Path]
    ) -> None:
        self.lost = lost
        self._seen: dict[WorkerKey, dict[WorkerKey, Path]] = defaultdict(dict)
        for (start, end), path in seen.items():
            self._seen[end][start] = path
        self._places = {(w.ordinal, key[1]): key for key, w in workers.items() if w.ordinal is not None}
        self._lossy = [key for key in lost.transfers if key in workers and workers[key].role != "gateway"]
        self._grants: dict[int, list[tuple[WorkerKey, Row]]] = defaultdict(list)
        for key, worker in workers.items():
            for row in worker.transfers:
                if row["op"] == "grant":
                    self._grants[row["xfer"]].append((key, row))

    def grant(self, row: Row) -> tuple[WorkerKey, Row] | None:
        """The first grant of the transfer of which `row`, of its mover, speaks, by the worker that it names; None where two
        may have granted it."""
        place = self._reserved(row)
        granted = [one for one in self._grants.get(row["xfer"], ()) if _from_peer(one[0], row)]
        if place is not None:
            granted = [one for one in granted if one[0] == place[0]]
        return granted[0] if len({key for key, _ in granted}) == 1 else None

    def lost_grant(self, granter: WorkerKey, row: Row) -> int:
        """The first seq at which a lost row of a granter may have granted what `row`, of the mover, speaks of."""
        place = self._reserved(row)
        return self.lost.first(granter, NOTHING if place is None else place[1])

    def lost_message(self, sender: WorkerKey, row: Row) -> int:
        """The first seq at which a lost row of a sender may have been the message that `row` heard."""
        return self.lost.first(sender, self._unheard_of(sender, row)) if sender in self.lost.transfers else INF

    def of(self, sent: list[tuple[WorkerKey, Row]], at: WorkerKey, row: Row) -> tuple[WorkerKey, Row] | None:
        """The first of the messages `sent` that may be the one that `row` heard `at` its worker; None where another
        worker, or epoch of it, may have sent that."""
        senders = [one for one in sent if _from_peer(one[0], row)]
        others = {key for key in self._lossy if key != at and _from_peer(key, row)}
        others = {key for key in others if self.lost_message(key, row) < INF}
        if not senders or len({key for key, _ in senders} | others) > 1:
            return None
        return min(senders, key=lambda one: int(one[1]["seq"]))

    def is_anybodys(self, row: Row) -> bool:
        """Whether an ack that names no peer was heard of a transfer with several writers: nobody knows whose it was."""
        granted = self._grants.get(row["xfer"], ())
        return row["op"] == "ack" and row["peer"] is None and any(len(one["writers"] or ()) > 1 for _, one in granted)

    def _reserved(self, row: Row) -> tuple[WorkerKey, int] | None:
        """Who reserved the pages granted for a transfer, and where: the tag that a row of it names."""
        tag = row["src_tag"] if row["dir"] == "pull" else row["dst_tag"]
        if not tag:
            return None
        parts = split_tag(tag)
        key = self._places.get((parts.ordinal, parts.epoch))
        return None if key is None else (key, parts.seq)

    def _unheard_of(self, sender: WorkerKey, row: Row) -> int:
        """The last seq of a sender that certainly came before the transfer of `row` was granted; INF where all did."""
        place = self._reserved(row)
        granted = self._grants.get(row["xfer"], [])
        if place is None and len({key for key, _ in granted}) == 1:
            granter, grant = granted[0]
            place = granter, min(grant["seq"], self.lost.first(granter, NOTHING))
        if place is None:
            return NOTHING
        if place[0] == sender:
            return place[1]
        paths = self._seen[place[0]]
        epochs = {key[1]: path.known(place[1]) for key, path in paths.items() if key[0] == sender[0]}
        if any(epoch > sender[1] and seq > NOTHING for epoch, seq in epochs.items()):
            return INF  # it had been started anew by then
        return epochs.get(sender[1], NOTHING)


def _message_edges(workers: dict[WorkerKey, WorkerRows], sendings: _Sendings) -> list[Edge]:
    """grant -> post, and so what ends it; ack sent -> ack received; abort sent -> abort received."""
    sent: dict[tuple[str, int, int | None], list[tuple[WorkerKey, Row]]] = defaultdict(list)
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] in ("ack", "abort") and row["status"] == "sent":
                sent[row["op"], row["xfer"], row["outstanding"]].append((key, row))
    edges: list[Edge] = []
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] in ("post", "done", "fail"):
                grant = sendings.grant(row)
                if grant is not None:
                    edges += _join(grant, (key, row), sendings.lost_grant(grant[0], row))
            elif row["op"] in ("ack", "abort") and row["status"] == "received":
                # The earliest such message: the one received was sent no earlier than it.
                first = (
                    None
                    if sendings.is_anybodys(row)
                    else sendings.of(sent[row["op"], row["xfer"], row["outstanding"]], key, row)
                )
                if first is not None:
                    edges += _join(first, (key, row), sendings.lost_message(first[0], row))
    return edges


def _receipt_edges(workers: dict[WorkerKey, WorkerRows], sendings: _Sendings) -> list[Edge]:
    """The mover's ack sent -> receipt. A receipt written before an ack was heard of is a belief and orders nothing."""
    drained: dict[int, list[tuple[WorkerKey, Row]]] = defaultdict(list)
    heard: dict[tuple[WorkerKey, int], int] = {}
    for key, worker in workers.items():
        for row in worker.transfers:
            if row["op"] == "ack" and row["outstanding"] == 0:
                if row["status"] == "received":
                    heard.setdefault((key, row["xfer"]), row["seq"])
                elif row["status"] == "sent":
                    drained[row["xfer"]].append((key, row))
    edges: list[Edge] = []
    for key, worker in workers.items():
        for row in worker.pages:
            if row["op"] != "receipt" or row["xfer"] not in drained:
                continue
            # Of an ack that was heard of, but in a row that is lost, nobody can say that it came before the receipt.
            is_belief = (
                heard[key, row["xfer"]] > row["seq"]
                if (key, row["xfer"]) in heard
                else (sendings.lost.first(key, row["seq"]) < INF)
            )
            senders = drained[row["xfer"]]
            if not is_belief and len({sender for sender, _ in senders}) == 1:
                first = min(senders, key=lambda one: int(one[1]["seq"]))
                edges += _join(
                    first, (key, row), sendings.lost_message(first[0], row | {"dir": None, "dst_tag": row["tag"]})
                )
    return edges


def _from_peer(sender: WorkerKey, received: Row) -> bool:
    return received["peer"] is None or received["peer"] == sender[0]


def _heartbeat_edges(workers: dict[WorkerKey, WorkerRows]) -> list[Edge]:
    """The row that a heartbeat names -> that heartbeat."""
    times: dict[WorkerKey, dict[int, int]] = {}
    seqs: dict[WorkerKey, list[int]] = {}
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
            seq = row["peer_seq"]
            if seq not in times[peer]:
                # A row that is lost still orders what came before it: a clock is tested with the last of that.
                if peer not in seqs:
                    seqs[peer] = sorted(times[peer])
                i = bisect_right(seqs[peer], seq)
                seq = seqs[peer][i - 1] if i else NOTHING
            edges.append(Edge(peer, row["peer_seq"], times[peer].get(seq, -INF), key, row["seq"], row["t"]))
    return edges


def _all_rows(worker: WorkerRows) -> list[Row]:
    return [*worker.requests, *worker.pages, *worker.transfers, *worker.steps, *worker.heartbeats]
