"""Columns of a batch from the values of its rows.

Invariant: rows come out in the order in which they were recorded, whatever their forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from engine.ledger.forms import HEAD, Form, RecordedRow
from engine.ledger.schema import PAGE_LIST, TABLES

Keyed = Callable[[Iterable[int] | None], list[int] | None]
NO_PAGES = np.zeros(0, np.int32)


def record_batch(table: str, rows: Sequence[RecordedRow], epoch: int, keyed: Keyed) -> pa.RecordBatch:
    """Rows of one table as a batch, in their order."""
    schema, values = TABLES[table], _by_column(rows)
    arrays = [
        pa.repeat(pa.scalar(epoch, field.type), len(rows))
        if field.name == "epoch"
        else _array(field, values[field.name], keyed)
        if field.name in values
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)


def _by_column(rows: Sequence[RecordedRow]) -> dict[str, list[Any]]:
    """The values of each column that any row has, None for the rows that do not have it."""
    places: dict[Form, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row[0], []).append(place)
    found: dict[str, list[Any]] = {"op": [row[0].op for row in rows]}
    for form, its_places in places.items():
        values = list(zip(*[rows[place] for place in its_places], strict=True))
        for name, at in form.places.items():
            if name == HEAD[0]:
                continue
            column = found.get(name)
            if column is None:
                column = found[name] = [None] * len(rows)
            for place, value in zip(its_places, values[at], strict=True):
                column[place] = value
    return found


def _array(field: pa.Field, values: list[Any], keyed: Keyed) -> pa.Array:
    if field.type == PAGE_LIST:
        return _page_lists(values)
    return pa.array([keyed(value) for value in values] if field.name == "digests" else values, field.type)


def _page_lists(values: Sequence[Any]) -> pa.Array:
    lists = [NO_PAGES if value is None else value for value in values]
    ends = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(pages) for pages in lists], out=ends[1:])
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(
        pa.array(ends), pa.array(np.concatenate([NO_PAGES, *lists])), type=PAGE_LIST, mask=missing
    )
