import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from control_bench import Bench


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
