import itertools

import numpy as np
import pytest
from control_bench import PAGE, int32

from engine.request import TRANSITIONS, GenerateRequest, IllegalTransition, Request, RequestStatus
from engine.transfer import POLL_TRANSITIONS, Grant, KVPoll, KVSender
from engine.transport import BATCH_PAGES


def request_in(status):
    request = Request(1, GenerateRequest("r", "t", 1, (1, 2), 3), stamp=7)
    request.status = status
    return request


def grant(pages=20):
    return Grant(xfer=5, room=9, rid="r", tag=77, pages=np.arange(1, pages + 1, dtype=np.int32), decode="decode-0",
                 decode_address="mem://decode")  # fmt: skip


@pytest.mark.parametrize(("old", "new"), list(itertools.product(RequestStatus, RequestStatus)))
def test_a_request_moves_only_along_its_table(old, new):
    request = request_in(old)
    if new in TRANSITIONS[old]:
        request.move(new)
        assert request.status is new
    else:
        with pytest.raises(IllegalTransition, match=f"r: {old.name} -> {new.name}"):
            request.move(new)
        assert request.status is old


def test_ends_are_ends_and_every_state_is_reached():
    ends = {RequestStatus.FINISHED, RequestStatus.ABORTED, RequestStatus.REJECTED}
    assert {status for status, onward in TRANSITIONS.items() if not onward} == ends
    reached = set().union(*TRANSITIONS.values()) | {RequestStatus.RECEIVED}
    assert reached == set(RequestStatus) == set(TRANSITIONS)


def test_rejection_is_never_reached_once_a_pass_has_run():
    assert RequestStatus.REJECTED not in TRANSITIONS[RequestStatus.RUNNING]


@pytest.mark.parametrize(("old", "new"), list(itertools.product(KVPoll, KVPoll)))
def test_a_handoff_moves_only_along_its_table(old, new):
    sender = KVSender(grant())
    sender.poll = old
    if new in POLL_TRANSITIONS[old]:
        sender.move(new)
        assert sender.poll is new
    else:
        with pytest.raises(ValueError, match=f"room 9: {old.name} -> {new.name}"):
            sender.move(new)


def test_success_and_failure_are_final():
    assert not POLL_TRANSITIONS[KVPoll.SUCCESS]
    assert not POLL_TRANSITIONS[KVPoll.FAILED]


@pytest.mark.parametrize("count", [1, BATCH_PAGES - 1, BATCH_PAGES, BATCH_PAGES + 1, 2 * BATCH_PAGES + 3])
def test_batches_are_bounded_and_cover_each_page_once(count):
    source = np.arange(100, 100 + count, dtype=np.int32)
    tokens = count * PAGE - 1
    batches = KVSender(grant(count)).batches(source, np.ones(len(source), np.int64), tokens, PAGE)
    assert [batch.chunk for batch in batches] == list(range(-(-count // BATCH_PAGES)))
    assert max(len(batch.src_pages) for batch in batches) <= BATCH_PAGES
    assert np.concatenate([batch.src_pages for batch in batches]).tolist() == source.tolist()
    assert np.concatenate([batch.dst_pages for batch in batches]).tolist() == list(range(1, count + 1))
    valid = np.concatenate([batch.tokens for batch in batches])
    assert valid.sum() == tokens
    assert valid.tolist() == [PAGE] * (count - 1) + [PAGE - 1]
    assert {batch.dst_tag for batch in batches} == {77}


def test_fewer_pages_than_granted_go_to_the_first_of_them():
    (batch,) = KVSender(grant(8)).batches(int32(50), np.ones(1, np.int64), 1, PAGE)
    assert batch.dst_pages.tolist() == [1]
