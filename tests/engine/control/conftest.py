import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from control_bench import Bench
from live_texts import HOLD_MS

from engine.defences import DETECTORS


@pytest.fixture
def bench(tmp_path):
    """Factory: bench(prefill_pages=..., defences={...}, faults=[...]) gives both roles in one thread."""
    made = []

    def build(**settings):
        made.append(Bench(tmp_path / f"ledger-{len(made)}", **settings))
        return made[-1]

    yield build
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def guarded(live_engine):
    """Every defence on, and all that holds pages or passes them on: a prefix cache, quarantine, scrubbing."""
    return live_engine(
        prefill_pages=97, prefix_cache="tenant", hold_timeout_ms=HOLD_MS, on_timeout="quarantine", scrub=True,
        transfer_pages=4, truth=True,
    )  # fmt: skip


@pytest.fixture(scope="session")
def trusting(live_engine):
    """Only deferred release is enforced, and its timer believed. Faults are switched by the tests."""
    defences = {**dict.fromkeys(DETECTORS, "off"), "deferred-release": "enforce"}
    return live_engine(defences=defences, hold_timeout_ms=HOLD_MS, on_timeout="release", truth=True)


@pytest.fixture(scope="session")
def tight(live_engine):
    """Decode holds 512 tokens, its host pool 2,048; pages are kept for 16 tokens of an answer. Cached prompts pass to
    everybody, as configured."""
    return live_engine(decode_pages=33, host_pages=129, reserved_tokens=16, prefix_cache="global", truth=True)
