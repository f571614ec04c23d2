"""Columns of a batch from the values of its rows, form by form.

Invariant: rows come out in the order in which they were recorded, whatever their forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from engine.ledger.forms import Form, RecordedRow
from engine.ledger.schema import PAGE_LIST, TABLES

Keyed = Callable[[Iterable[int] | None], list[int] | None]
NO_PAGES = np.zeros(0, np.int32)


class Part:
    """The rows of one form in a batch: their values by column, and their places in the batch."""

    def __init__(self, form: Form, places: Sequence[int], rows: Sequence[RecordedRow]) -> None:
        self.form, self.places = form, places
        self._values = list(zip(*[rows[place] for place in places], strict=True))

    def array(self, field: pa.Field, epoch: int, keyed: Keyed) -> pa.Array | None:
        """The values of one column; None where rows of this form have none."""
        if field.name == "epoch":
            return pa.repeat(pa.scalar(epoch, field.type), len(self.places))
        if field.name == "op":
            return pa.repeat(pa.scalar(self.form.op, field.type), len(self.places))
        place = self.form.places.get(field.name)
        if place is None:
            return None
        values = self._values[place]
        if field.type == PAGE_LIST:
            return _page_lists(values)
        return pa.array([keyed(value) for value in values] if field.name == "digests" else values, field.type)


def record_batch(table: str, rows: Sequence[RecordedRow], epoch: int, keyed: Keyed) -> pa.RecordBatch:
    """Rows of one table as a batch, in their order."""
    places: dict[Form, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row[0], []).append(place)
    parts = [Part(form, its_places, rows) for form, its_places in places.items()]
    order = np.empty(len(rows), np.int64)
    order[[place for part in parts for place in part.places]] = np.arange(len(rows))
    schema = TABLES[table]
    arrays = [_column(field, parts, pa.array(order), epoch, keyed) for field in schema]
    return pa.record_batch(arrays, schema=schema)


def _column(field: pa.Field, parts: list[Part], order: pa.Array, epoch: int, keyed: Keyed) -> pa.Array:
    arrays = [part.array(field, epoch, keyed) for part in parts]
    if all(array is None for array in arrays):
        return pa.nulls(len(order), field.type)
    if len(parts) == 1:
        return arrays[0]
    filled = [
        array if array is not None else pa.nulls(len(part.places), field.type)
        for part, array in zip(parts, arrays, strict=True)
    ]
    return pa.concat_arrays(filled).take(order)


def _page_lists(values: Sequence[Any]) -> pa.Array:
    lists = [NO_PAGES if value is None else value for value in values]
    ends = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(pages) for pages in lists], out=ends[1:])
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(
        pa.array(ends), pa.array(np.concatenate([NO_PAGES, *lists])), type=PAGE_LIST, mask=missing
    )
