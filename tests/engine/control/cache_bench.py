"""One worker's pools and caches over a ledger that can be read back; bytes are an array of who wrote what."""

import numpy as np

from engine.block_pool import BlockPool
from engine.clock import ManualClock
from engine.host_tier import HostTier
from engine.ledger.reader import read_ledger
from engine.ledger.recorder import Recorder
from engine.ledger.refs import expand_pages
from engine.page_keys import Identity, PageKeys
from engine.prefix_cache import RadixCache

PAGE = 4  # tokens a page
SECRET = b"cache-secret"
ANN = Identity("t-a", "org", "ann", weights="w", kv_format="f32")
BOB = Identity("t-b", "org", "bob", weights="w", kv_format="f32")


class Pages:
    """A prompt given by its page digests, with `rest` tokens in a last page that is not full."""

    def __init__(self, *digests, rest=0):
        self.digests, self.rest = digests, rest

    def __len__(self):
        return PAGE * len(self.digests) + self.rest

    def page_digests(self, page_tokens):
        assert page_tokens == PAGE
        return np.array(self.digests, np.int64)


class Memory:
    """Content of the pages of each pool, as numbers; `fail_at` makes the copy with that number fail."""

    def __init__(self, **pools):
        self.content = {name: np.zeros(pages, np.int64) for name, pages in pools.items()}
        self.copies, self.fail_at = [], None

    def forget(self, stamp):
        pass

    def copy(self, src_pool, src_pages, dst_pool, dst_pages, dst_tag):
        if len(self.copies) == self.fail_at:
            raise OSError("host memory is gone")
        self.copies.append((src_pool, src_pages.tolist(), dst_pool, dst_pages.tolist(), dst_tag))
        self.content[dst_pool][dst_pages] = self.content[src_pool][src_pages]
        return 64 * len(src_pages)


class CacheBench:
    def __init__(self, directory, pages=33, *, host_pages=0, batch_pages=256, **keys):
        self.directory = directory
        self.recorder = Recorder(
            directory, "prefill-0", ordinal=1, now_us=ManualClock().now_us, digest_key=b"k", threaded=False
        )
        self.recorder.record("workers", "start", role="prefill", ordinal=1)
        self.pool = BlockPool("kv", pages, PAGE, self.recorder)
        self.keys = PageKeys(SECRET, PAGE, **keys)
        self.cache = RadixCache(self.pool, self.recorder, salt_fp=self.keys.salt_fp)
        self.memory = Memory(kv=pages, host=max(host_pages, 1))
        if host_pages:
            self.host = BlockPool("host", host_pages, PAGE, self.recorder)
            self.tier = HostTier(
                self.host,
                self.pool,
                self.recorder,
                self.memory.copy,
                salt_fp=self.keys.salt_fp,
                batch_pages=batch_pages,
            )

    def of(self, identity, *digests):
        return self.keys.of(identity, Pages(*digests))

    def computed(self, req, identity, *digests):
        """A request that computes all of its pages and leaves them to the cache; returns (pages, tag, keys)."""
        keys = self.of(identity, *digests)
        pages, tag = self.pool.reserve(req, len(keys))
        self.memory.content["kv"][pages] = keys
        self.recorder.pages("write", "kv", req, tag, pages)
        inserted = self.cache.insert(req, identity, keys, pages, np.full(len(keys), tag))
        for page, its_tag in zip(inserted.duplicates, inserted.duplicate_tags, strict=True):
            self.pool.free(req, int(its_tag), np.array([page], np.int32), "finish")
        return pages, tag, keys

    def rows(self, table, *ops):
        """Rows of a table in order, page lists in full, without the columns that are null."""
        self.recorder.flush()
        rows = read_ledger(self.directory).tables[table]
        rows = expand_pages(rows) if table == "pages" else rows
        found = [{k: v for k, v in row.items() if v is not None} for row in rows.to_pylist()]
        return [row for row in found if not ops or row["op"] in ops]

    def assert_clean(self, tables=None):
        audit = self.pool.audit(tables)
        assert audit.findings == ()
        assert sum(audit.counts.values()) == self.pool.usable_pages
        assert self.cache.audit() == ()

    def close(self):
        self.recorder.close(seal=False)
