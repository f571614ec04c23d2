"""One worker's data plane without a control plane, and the view an oracle has of its pool."""

import itertools
import string
import threading

import numpy as np

from engine.executor import DecodeWork, PrefillWork
from engine.kv_cache import KVCachePool, PageGeometry
from engine.oracle import SlotMemory, own_slots
from engine.torch_executor import TorchExecutor
from engine.transport import Callbacks, SharedMemoryTransport, WriteBatch
from engine.truth import TruthLog, stamp_of

DEADLINE = 20.0
ALPHABET = string.ascii_letters + string.digits + " .,:;-"


def unique_text(rng, length, taken=()):
    """A random text of which no 4-gram occurs twice, nor in any text of `taken`."""
    seen = {text[i : i + 4] for text in taken for i in range(len(text) - 3)}
    text = ""
    while len(text) < length:
        text += ALPHABET[rng.integers(len(ALPHABET))]
        if len(text) >= 4 and text[-4:] in seen:
            text = text[:-1]
        elif len(text) >= 4:
            seen.add(text[-4:])
    return text


def copied(text, length):
    """(prompt of `length` tokens, what must follow): the text, and its beginning again as far as it fits."""
    assert len(text) + 4 <= length < 2 * len(text)
    return tokens_of((text + text)[:length]), tokens_of(text[length - len(text) :])


def tokens_of(text):
    return list(text.encode())


class Handed:
    """Callbacks that note what happened; `wait` returns when the batch is over."""

    def __init__(self, on_post=None, on_done=None):
        self.events, self.over = [], threading.Event()
        self._on_post, self._on_done = on_post, on_done

    def callbacks(self):
        return Callbacks(self._post, self._done, self._failed)

    def _post(self):
        self.events.append("post")
        if self._on_post:
            self._on_post()

    def _done(self, count):
        self.events.append(("done", count))
        if self._on_done:
            self._on_done()
        self.over.set()

    def _failed(self, message, count):
        self.events.append(("failed", message, count))
        self.over.set()

    def wait(self):
        assert self.over.wait(DEADLINE), f"the batch is not over: {self.events}"
        return self


class DataWorker:
    def __init__(self, directory, name, llama, pages, page_tokens):
        self.name, self.truth_path = name, directory / "truth"
        config = llama.config
        geometry = PageGeometry(config.layers, page_tokens, config.kv_heads, config.head_dim)
        self.pool = KVCachePool(directory / f"{name}.kv", pages, geometry, create=True)
        self.truth = TruthLog(self.truth_path, name)
        self._ticks = itertools.count(1_000_000, 1_000)
        self.now = 0
        self.executor = TorchExecutor(llama, self.pool, self.truth, self.tick)
        self.transport = SharedMemoryTransport(self.pool)
        self.memory = SlotMemory(pages, page_tokens)
        self.step = 0

    def tick(self):
        self.now = next(self._ticks)
        return self.now

    def close(self):
        self.transport.close()
        self.pool.unlink()

    def table(self, pages):
        return np.array(pages, np.int32)

    def tags(self, pages, tag):
        return np.broadcast_to(np.array(tag, np.int64), (len(pages),)).copy()

    def prefill(self, rid, tokens, pages, tag, *, chunk=None, check=True):
        """All of a prompt in chunks; the last pass's result. The oracle's memory is written alike."""
        pages, tags = self.table(pages), self.tags(pages, tag)
        chunk = chunk or len(tokens)
        for start in range(0, len(tokens), chunk):
            part = np.array(tokens[start : start + chunk], np.int32)
            covered = -(-(start + len(part)) // self.memory.page_tokens)
            work = PrefillWork(1, stamp_of(rid), part, start, pages[:covered], tags[:covered])
            self.step += 1
            result = self.executor.prefill([work], check_tags=check, step=self.step, before_write=lambda: None)[0]
        self.memory.write(pages, own_slots(tokens))
        return result

    def work(self, rid, token, position, pages, tag):
        """`tag` may be one number or one a page."""
        count = position // self.memory.page_tokens + 1
        return DecodeWork(1, stamp_of(rid), token, position, self.table(pages)[:count], self.tags(pages, tag)[:count])

    def decode(self, *works, check=True):
        """One pass; its results."""
        self.step += 1
        return self.executor.decode(works, check_tags=check, step=self.step).results

    def generate(self, rid, token, position, pages, tag, count, *, check=True):
        """`count` tokens after `token`, which is written at `position`."""
        out = []
        for i in range(count):
            result = self.decode(self.work(rid, token, position + i, pages, tag), check=check)[0]
            assert not (check and result.mismatches)
            token = result.token
            out.append(token)
        return out

    def send(self, to, src_pages, dst_pages, dst_tag, tokens, *, xfer=1, on_post=None, on_done=None):
        """Submit one batch that carries `tokens` tokens; the oracle's memory of the receiver is written alike."""
        to.memory.receive(self.memory, src_pages, dst_pages)
        self.transport.connect(to.name, to.pool.describe())
        handed = Handed(on_post, on_done)
        batch = self.batch(to.name, src_pages, dst_pages, dst_tag, tokens, xfer=xfer)
        self.transport.submit(batch, handed.callbacks())
        return handed

    def batch(self, dst, src_pages, dst_pages, dst_tag, tokens, *, xfer=1, chunk=0):
        page_tokens = self.memory.page_tokens
        valid = np.clip(tokens - np.arange(len(src_pages)) * page_tokens, 0, page_tokens).astype(np.int32)
        return WriteBatch(xfer, 7, chunk, self.table(src_pages), dst, self.table(dst_pages), dst_tag, valid)
