"""Memory of a large reading: out of the collector's sight, and nothing kept for good by that."""

import gc
import weakref

import pytest
from scripted_ledger import ACME, Scene, ordinary

from console.core import settled_heap
from console.core.settled_heap import LARGE, settle
from console.core.source import LedgerSource


@pytest.fixture(autouse=True)
def _thawed():
    gc.unfreeze()
    yield
    gc.unfreeze()


class Knot:
    """Something that refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_a_large_reading_left_is_not_gone_through_again_and_a_small_ones_is():
    here = Knot()
    settle(LARGE - 1)
    assert gc.get_freeze_count() == 0
    settle(LARGE)
    assert gc.get_freeze_count() > 0
    assert not any(each is here for each in gc.get_objects())


def test_what_was_let_go_since_is_collected_by_the_next_large_reading():
    knot = Knot()
    gone = weakref.ref(knot)
    settle(LARGE)
    del knot
    gc.collect()
    assert gone() is not None
    settle(LARGE)
    assert gone() is None


def test_a_source_settles_after_its_reading(tmp_path, monkeypatch):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 4)
    scene.flush()
    monkeypatch.setattr(settled_heap, "LARGE", 1)
    snapshot = LedgerSource(scene.directory, now_us=lambda: scene.now).read()
    assert not any(each is snapshot for each in gc.get_objects())
