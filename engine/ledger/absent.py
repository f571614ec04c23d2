"""Worker epochs that left no file: those that rows of others name, and those below one that was.

Invariant: a worker epoch that anything in the ledger speaks of is either read or told here. A run of missing epochs is
one entry, however many they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from engine.ledger.epochs import MOST_EPOCHS
from engine.ledger.tag import SEQ_BITS

Writer = tuple[str, int]


@dataclass(frozen=True)
class AbsentEpochs:
    """Epochs `first` to `last` of a worker: no stream and no segment is there of any."""

    worker: str
    first: int
    last: int

    def __str__(self) -> str:
        epochs = f"epoch {self.last}" if self.first == self.last else f"epochs {self.first} to {self.last}"
        return f"{epochs} of {self.worker} left neither stream nor segments"


def absent_epochs(
    tables: Mapping[str, pa.Table], seen: Iterable[Writer], counted: Mapping[str, int]
) -> list[AbsentEpochs]:
    """`seen`: what left a file. `counted`: the last epoch of each worker by its counter."""
    there: dict[str, set[int]] = defaultdict(set)
    for worker, epoch in seen:
        there[worker].add(epoch)
    last: dict[str, int] = dict(counted)
    for worker, epoch in [*_named(tables), *((name, max(epochs)) for name, epochs in there.items())]:
        last[worker] = max(last.get(worker, 0), epoch)
    return [
        AbsentEpochs(worker, *run)
        for worker in sorted(last)
        for run in _runs(min(last[worker], MOST_EPOCHS), there[worker])
    ]


def _runs(last: int, there: set[int]) -> Iterator[tuple[int, int]]:
    """The runs (first, last) of what is not there, up to `last`."""
    first = 1
    for epoch in [*sorted(epoch for epoch in there if 0 < epoch <= last), last + 1]:
        if first < epoch:
            yield first, epoch - 1
        first = epoch + 1


def _named(tables: Mapping[str, pa.Table]) -> Iterator[Writer]:
    """Whom rows name. Who is named without an epoch had a first one."""
    beats = tables["workers"]
    yield from _distinct({"worker": beats["peer"], "epoch": pc.fill_null(beats["peer_epoch"], 1)})
    moves = tables["transfers"]
    for name in moves["peer"].unique().to_pylist():
        yield from [(name, 1)] * (name is not None)
    for name in pc.list_flatten(moves["writers"]).unique().to_pylist():
        yield from [(name, 1)] * (name is not None)
    # A mover's row holds the tag of its peer's pages, and with it the epoch.
    moves = moves.filter(
        pc.and_(_is_in(moves["op"], ("post", "done", "fail")), pc.not_equal(moves["peer"], moves["worker"]))
    )
    tags = pc.if_else(pc.fill_null(pc.equal(moves["dir"], "pull"), False), moves["src_tag"], moves["dst_tag"])
    epochs = pc.bit_wise_and(pc.shift_right(pc.fill_null(tags, 0), SEQ_BITS), MOST_EPOCHS)
    yield from _distinct({"worker": moves["peer"], "epoch": epochs})


def _is_in(column: pa.ChunkedArray, values: tuple[str, ...]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(values))


def _distinct(columns: Mapping[str, pa.ChunkedArray]) -> Iterator[Writer]:
    pairs = pa.table(dict(columns)).group_by(["worker", "epoch"]).aggregate([]).to_pylist()
    return ((pair["worker"], pair["epoch"]) for pair in pairs if pair["worker"] is not None)
