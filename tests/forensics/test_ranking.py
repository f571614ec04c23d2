"""Orders, ranks and places of many numbers are those that numpy gives."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.ranking import distinct, order_of, places, ranked

SETS = {
    "none": np.empty(0, np.int64),
    "one": np.array([7], np.int64),
    "few": np.array([3, -2, 3, 1 << 40, -2, 0], np.int64),
    "as far apart as they can be": np.array([-(1 << 62), 1 << 62, 0, 1 << 62], np.int64),
    "many": np.random.default_rng(3).integers(-900, 900, 20_000),
    "many, far apart": np.random.default_rng(4).integers(-(1 << 61), 1 << 61, 20_000),
}


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_as_numpy_has_it(values: np.ndarray) -> None:
    known, rank = np.unique(values, return_inverse=True)
    assert order_of(values).tolist() == np.argsort(values, kind="stable").tolist()
    assert distinct(values).tolist() == known.tolist()
    found, ranks = ranked(values)
    assert found.tolist() == known.tolist() and ranks.tolist() == rank.tolist()
    asked = np.concatenate([values, values + 1, values - 1])
    assert places(known, asked).tolist() == np.searchsorted(known, asked).tolist()
