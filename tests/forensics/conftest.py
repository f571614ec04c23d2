"""The ledgers of all scenes, each played once in a test run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from all_scenes import SCENES
from made_once import MadeOnce

from engine.ledger.reader import Ledger


@pytest.fixture(scope="session")
def scene_ledger(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Callable[[str], Ledger]:
    """The ledger of a scene, by name."""
    place = tmp_path_factory.mktemp("scenes")

    def played(name: str) -> Ledger:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: None)  # nothing here is meant to outlive the machine
            return SCENES[name].ledger(place / name)

    return lambda name: made_once(f"scene {name}", lambda: played(name))
