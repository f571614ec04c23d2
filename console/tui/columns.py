"""Tables of text: columns with priorities, so that narrow terminals lose the least important ones first.

Invariant: a row is never wider than it was told to be, and a column is shown whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.text import Text

from console.core.printable import printable, shorten

Row = TypeVar("Row")
GAP = 2
MOST_SOURCE = 18


@dataclass(frozen=True)
class Column(Generic[Row]):
    """`priority` 0 is never dropped; higher numbers go first. `flexible` takes what is left."""

    title: str
    width: int
    cell: Callable[[Row], Text | str]
    priority: int = 0
    right: bool = False
    flexible: bool = False


def source_column(name: Callable[[Row], str], rows: Sequence[Row]) -> Column[Row]:
    """The ledger that a row is of: a word, never a colour, which are of owners."""
    width = min(max((len(name(row)) for row in rows), default=0), MOST_SOURCE)
    return Column("SOURCE", max(width, len("SOURCE")), lambda row: shorten(printable(name(row)), MOST_SOURCE))


def fit(columns: Sequence[Column[Row]], width: int) -> list[tuple[Column[Row], int]]:
    """The columns that fit into `width` cells, with their widths."""
    kept = list(columns)
    while len(kept) > 1 and sum(c.width + GAP for c in kept) - GAP > width:
        last = max(kept, key=lambda c: (c.priority, kept.index(c)))
        if last.priority == 0:
            break
        kept.remove(last)
    spare = max(width - sum(c.width + GAP for c in kept) + GAP, 0)
    flexible = [c for c in kept if c.flexible]
    return [(c, c.width + (spare if flexible and c is flexible[0] else 0)) for c in kept]


def heading(fitted: Sequence[tuple[Column[Row], int]]) -> Text:
    """The titles."""
    return _join([(Text(column.title), column, width) for column, width in fitted])


def row_text(fitted: Sequence[tuple[Column[Row], int]], row: Row) -> Text:
    """One row."""
    cells = [(column.cell(row), column, width) for column, width in fitted]
    return _join([(Text(cell) if isinstance(cell, str) else cell, column, width) for cell, column, width in cells])


def _join(cells: Sequence[tuple[Text, Column[Row], int]]) -> Text:
    line = Text(end="", no_wrap=True)
    for i, (drawn, column, width) in enumerate(cells):
        if i:
            line.append(" " * GAP)
        cell = drawn.copy()
        if column.right and cell.cell_len < width:
            line.append(" " * (width - cell.cell_len))
            line.append_text(cell)
            continue
        cell.truncate(width, overflow="ellipsis", pad=True)
        line.append_text(cell)
    return line
