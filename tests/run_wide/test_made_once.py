"""What the processes of a test run share is made by one of them, and by another only where that one failed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from made_once import MadeOnce


def test_many_ask_and_one_makes(tmp_path: Path):
    made = []

    def make() -> list[int]:
        made.append(1)
        return [len(made)]

    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda _: MadeOnce(tmp_path)("a/name", make), range(8)))
    assert given == [[1]] * 8
    assert MadeOnce(tmp_path)("another", make) == [2]


def test_what_was_not_finished_is_made_again(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        MadeOnce(tmp_path)("name", lambda: 1 // 0)
    assert MadeOnce(tmp_path)("name", lambda: 2) == 2
