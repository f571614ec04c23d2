"""Physical truth: what passes found, by the stamps in the pages, against what was done by hand."""

import numpy as np
import pytest
from data_bench import copied, unique_text

from engine.executor import PrefillWork
from engine.kv_cache import KVCachePool, PageGeometry
from engine.request import GenerateRequest
from engine.truth import POSITION_BITS, StampReader, TruthLog, read_truth, slot_stamps, stamp_of

PAGES = list(range(1, 16))


def given(rid, tokens=(1, 2, 3), tenant="t-acme"):
    return GenerateRequest(rid, tenant, 1, tuple(tokens), 1)


@pytest.fixture
def decode(worker):
    """Request `victim`, 200 tokens in pages 1 to 13 under tag 2, on decode-0; `other` is known by name."""
    each = worker("decode-0", pages=64)
    prompt, _ = copied(unique_text(np.random.default_rng(3), 180), 200)
    for rid in ("victim", "other", "third"):
        each.truth.stamp(stamp_of(rid), given(rid))
    each.first = each.prefill("victim", prompt, PAGES[:13], 2).token
    return each


@pytest.fixture
def mover(worker):
    each = worker("prefill-0", pages=64)
    each.prefill("other", copied(unique_text(np.random.default_rng(4), 180), 200)[0], PAGES[:13], 9)
    return each


def test_a_request_over_its_own_pages_is_clean(decode):
    decode.generate("victim", decode.first, 200, PAGES, 2, 30)
    decode.truth.finish("victim", 30, decode.tick())
    truth = read_truth(decode.truth_path)["victim"]
    assert (truth.contaminated, truth.undecided, truth.unwritten, truth.output_tokens) == (False, False, False, 30)
    assert truth.donors == {}


def test_a_late_write_makes_the_reader_contaminated_by_its_writer(decode, mover):
    decode.generate("victim", decode.first, 200, PAGES, 2, 5)
    mover.send(decode, [1, 2, 3], [4, 5, 9], 55, 48).wait()
    decode.generate("victim", 65, 205, PAGES, 2, 3, check=False)
    decode.truth.finish("victim", 8, decode.tick())
    truth = read_truth(decode.truth_path)["victim"]
    assert truth.contaminated
    assert truth.donors == {"other": {("decode-0", 4), ("decode-0", 5), ("decode-0", 9)}}
    assert (truth.first_worker, truth.first_step) == ("decode-0", 7), "step 1 was the prefill, 2 to 6 were clean"


def test_a_write_into_pages_that_are_no_longer_read_is_nothing(decode, mover):
    decode.generate("victim", decode.first, 200, PAGES, 2, 5)
    decode.truth.finish("victim", 5, decode.tick())
    mover.send(decode, [1], [4], 55, 16).wait()
    assert not read_truth(decode.truth_path)["victim"].contaminated


def test_a_foreign_read_after_the_last_token_left_is_no_contamination(decode, mover):
    decode.generate("victim", decode.first, 200, PAGES, 2, 5)
    left = decode.now
    mover.send(decode, [1], [4], 55, 16).wait()
    decode.generate("victim", 65, 205, PAGES, 2, 1, check=False)
    decode.truth.finish("victim", 5, left)
    assert not read_truth(decode.truth_path)["victim"].contaminated


def test_nothing_left_at_all_is_no_contamination(decode, mover):
    mover.send(decode, [1], [4], 55, 16).wait()
    decode.generate("victim", 65, 200, PAGES, 2, 1, check=False)
    decode.truth.finish("victim", 0, None)
    assert not read_truth(decode.truth_path)["victim"].contaminated


def test_short_handoff_over_two_earlier_owners(decode, mover):
    """Page 1 is the stub's with `other` behind its one token; 2 and 3 are left from `victim`, 30 from nobody."""
    mover.prefill("third", [0], [1], 10)
    mover.send(decode, [1], [1], 56, 1).wait()
    decode.truth.stamp(stamp_of("third"), given("third"))
    decode.generate("third", 0, 60, [1, 2, 3, 30], 56, 4, check=False)
    decode.truth.finish("third", 4, decode.tick())
    truth = read_truth(decode.truth_path)["third"]
    assert truth.donors == {"other": {("decode-0", 1)}, "victim": {("decode-0", 2), ("decode-0", 3)}}
    assert truth.contaminated
    assert truth.unwritten


def test_only_slots_below_the_readers_length_count(decode):
    """The reader's last page holds another's slots behind its own: they are never attended to."""
    decode.truth.stamp(stamp_of("short"), given("short"))
    decode.prefill("short", [5, 6, 7], [13], 70)
    decode.generate("short", 8, 3, [13], 70, 4)
    decode.truth.finish("short", 4, decode.tick())
    assert not read_truth(decode.truth_path)["short"].contaminated


def test_a_pass_is_told_once_while_nothing_changes(decode, mover):
    mover.send(decode, [1], [4], 55, 16).wait()
    decode.generate("victim", 65, 200, PAGES, 2, 6, check=False)
    rows = (decode.truth_path / "decode-0.jsonl").read_text().splitlines()
    assert sum('"read"' in row for row in rows) == 1


def test_a_write_during_the_pass_is_undecided_until_the_next(decode, mover):
    """Landed after the last gather: nothing foreign was read in this pass, and stamps alone cannot know."""
    decode.executor.after_gather = lambda: mover.send(decode, [1], [4], 55, 16).wait()
    decode.generate("victim", 65, 200, PAGES, 2, 1, check=False)
    decode.executor.after_gather = None
    decode.truth.finish("victim", 1, decode.tick())
    truth = read_truth(decode.truth_path)["victim"]
    assert (truth.contaminated, truth.undecided) == (False, True)
    decode.generate("victim", 65, 201, PAGES, 2, 1, check=False)
    decode.truth.finish("victim", 2, decode.tick())
    truth = read_truth(decode.truth_path)["victim"]
    assert (truth.contaminated, truth.undecided, truth.first_step) == (True, False, 3)


def test_a_write_still_open_is_torn_and_not_yet_anybodys(tmp_path):
    pool = KVCachePool(tmp_path / "pool", 4, PageGeometry(1, 4, 1, 2), create=True)
    log = TruthLog(tmp_path / "truth", "decode-0")
    log.stamp(stamp_of("a"), given("a"))
    log.stamp(stamp_of("b"), given("b"))
    pool.stamps[1:3] = slot_stamps(stamp_of("a"), np.arange(8)).reshape(2, 4)
    reader, table = StampReader(pool, log), np.array([1, 2])
    pool.headers["opened"][2] = 5  # the mover has begun, and goes no further
    pool.stamps[2, :2] = stamp_of("b")
    reader.before([(table, 8)])
    reader.after(stamp_of("a"), table, 8, step=1, t_us=10)
    log.finish("a", 1, 11)
    truth = read_truth(tmp_path / "truth")["a"]
    assert (truth.contaminated, truth.undecided) == (False, True)


def test_without_a_path_nothing_is_kept(tmp_path):
    log = TruthLog(None, "decode-0")
    log.stamp(1, given("a"))
    assert not log.on
    assert list(tmp_path.iterdir()) == []


def test_stamps_are_63_bits_and_never_nothing():
    stamps = {stamp_of(f"rid-{i}") for i in range(2_000)}
    assert len(stamps) == 2_000
    assert all(0 < stamp < 1 << 63 and stamp % (1 << POSITION_BITS) == 0 for stamp in stamps)


@pytest.fixture
def lender(worker):
    """`owner` of tenant t-acme has computed 48 tokens into pages 1 to 3 under tag 2; its truth knows three others."""
    each = worker("prefill-0", pages=32)
    each.text, _ = copied(unique_text(np.random.default_rng(8), 80), 90)
    each.truth.stamp(stamp_of("owner"), given("owner", each.text))
    each.truth.stamp(stamp_of("guest"), given("guest", each.text[:60]))
    each.truth.stamp(stamp_of("stranger"), given("stranger", each.text[:60], "t-brio"))
    each.truth.stamp(stamp_of("other"), given("other", [7, *each.text[1:60]]))
    each.prefill("owner", each.text[:48], [1, 2, 3], 2)
    return each


def taken_up(worker, rid, tokens, pages):
    """A prompt whose first 48 tokens are found computed; the rest is written under tag 5."""
    pages, tags = worker.table(pages), np.array([2, 2, 2, 5], np.int64)
    work = PrefillWork(1, stamp_of(rid), np.array(tokens[48:], np.int32), 48, pages, tags)
    (result,) = worker.executor.prefill([work], check_tags=True, step=9, before_write=lambda: None)
    worker.truth.finish(rid, 1, worker.tick())
    return result, read_truth(worker.truth_path)[rid]


@pytest.mark.parametrize(("rid", "cross"), [("guest", set()), ("stranger", {"owner"})])
def test_the_same_prompt_up_to_there_is_borrowed_and_not_foreign(lender, oracle, rid, cross):
    result, truth = taken_up(lender, rid, lender.text[:60], [1, 2, 3, 9])
    assert result.mismatches == ()  # the headers carry the giver's tags, as the table does
    assert (truth.contaminated, truth.misplaced, truth.donors, truth.cross_tenant) == (False, False, {}, cross)


def test_another_prompt_or_another_place_is_foreign_all_the_same(lender):
    _, truth = taken_up(lender, "other", [7, *lender.text[1:60]], [1, 2, 3, 9])
    assert truth.donors == {"owner": {("prefill-0", 1), ("prefill-0", 2), ("prefill-0", 3)}}
    _, truth = taken_up(lender, "guest", lender.text[:60], [2, 1, 3, 10])
    assert truth.donors == {"owner": {("prefill-0", 1), ("prefill-0", 2)}}


def test_own_content_in_a_wrong_place_is_misplaced(decode):
    swapped = [2, 1, *PAGES[2:]]
    decode.generate("victim", decode.first, 200, swapped, 2, 1, check=False)
    decode.truth.finish("victim", 1, decode.tick())
    truth = read_truth(decode.truth_path)["victim"]
    assert (truth.contaminated, truth.misplaced) == (False, True)
