import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from data_bench import DataWorker

from engine.checkpoint import default_checkpoint, load_checkpoint
from engine.induction import byte_codes
from engine.model import Llama
from engine.oracle import Oracle


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return default_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def llama(checkpoint):
    weights, config = load_checkpoint(checkpoint)
    return Llama(weights, config, 4096)


@pytest.fixture(scope="session")
def oracle():
    return Oracle(byte_codes())


@pytest.fixture
def worker(tmp_path, llama):
    """Factory: worker("decode-0", pages=32) gives one pool with its executor, transport, truth and slot memory."""
    made = []

    def build(name="decode-0", *, pages=32, page_tokens=16):
        made.append(DataWorker(tmp_path, name, llama, pages, page_tokens))
        return made[-1]

    yield build
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def flipped_pool(tmp_path_factory, llama):
    """A pool in whose page 3 a test flips bits, and flips them back."""
    each = DataWorker(tmp_path_factory.mktemp("flipped"), "decode-0", llama, 8, 16)
    each.prefill("a", list(range(1, 41)), [3, 4, 5], 1)
    yield each.pool
    each.close()
