"""Greedy output over somebody else's pages, for both shapes of leak: the oracle must say it byte for byte."""

import numpy as np
import pytest
from data_bench import copied, unique_text

from engine.oracle import Undecided, own_slots

PAD = 0


class Predicted:
    """The oracle's run beside the model's: compares token by token until the oracle says that it cannot know."""

    def __init__(self, oracle, worker, rid, pages, tag):
        self.oracle, self.worker, self.rid, self.pages, self.tag = oracle, worker, rid, pages, tag
        self.out, self.undecided = [], False

    def run(self, token, position, count):
        for i in range(count):
            real = self.worker.decode(
                self.worker.work(self.rid, token, position + i, self.pages, self.tag), check=False
            )
            if not self.undecided:
                try:
                    expected = self.oracle.step(self.worker.memory, self.pages, token, position + i)
                except Undecided:
                    self.undecided = True
                else:
                    assert real[0].token == expected, f"position {position + i}"
                    self.out.append(expected)
            token = real[0].token
        return token


def donor_then_stub(worker, rng, *, donor=200, answer=60, reserved=14, page_tokens=16):
    """SGLang #30233: a donor's request runs and ends; then a stub of one token is sent where `reserved` pages were due.

    Both sides hand out the donor's pages again, in the same order. Gives (prefill, decode, pages, the donor's text).
    """
    prefill = worker(f"prefill-{rng.integers(1 << 30)}", pages=80, page_tokens=page_tokens)
    decode = worker(f"decode-{rng.integers(1 << 30)}", pages=80, page_tokens=page_tokens)
    prompt, follows = copied(unique_text(rng, donor - 20), donor)
    there, here = list(range(1, 1 + -(-donor // page_tokens))), list(range(1, 2 + -(-(donor + answer) // page_tokens)))
    first = prefill.prefill("donor", prompt, there, 3).token
    prefill.send(decode, there, here[: len(there)], 4, donor, xfer=1).wait()
    token, answered = first, []
    for i in range(answer):
        token_in, token = token, decode.decode(decode.work("donor", token, donor + i, here, 4))[0].token
        answered.append(token_in)
    assert answered == follows[:answer]
    decode.memory.write(here, own_slots(prompt + answered)[donor:], donor)
    stub = prefill.prefill("victim", [PAD], there[:1], 5)
    assert stub.token == PAD
    prefill.send(decode, there[:1], here[:1], 6, 1, xfer=2).wait()
    return prefill, decode, here[:reserved], prompt + answered


@pytest.mark.parametrize("seed", range(6))
def test_short_handoff_leaks_what_the_oracle_says(worker, oracle, seed):
    rng = np.random.default_rng(seed)
    _, decode, pages, text = donor_then_stub(worker, rng)
    prompt_tokens = len(pages) * 16 - int(rng.integers(0, 16))  # the victim's length, as decode believes it
    run = Predicted(oracle, decode, "victim", [*pages, *range(40, 50)], 6)
    run.run(PAD, prompt_tokens, 48)
    leaked = bytes(run.out)
    assert len(run.out) == 48
    assert leaked[:40] in bytes(text * 2), "what comes out is the donor's text, read on from where the stale pages end"


def test_short_handoff_over_pages_nobody_wrote(worker, oracle):
    """Before the placeholder there is nothing to look back at: all slots weigh alike, and the oracle says nothing."""
    _, decode, _, _ = donor_then_stub(worker, np.random.default_rng(50))
    run = Predicted(oracle, decode, "victim", list(range(1, 41)), 6)
    run.run(PAD, 500, 3)
    assert run.undecided
    assert run.out == []


@pytest.mark.parametrize("page_tokens", [4, 16])
def test_the_stubs_page_brings_the_source_pages_stale_tail(worker, oracle, page_tokens):
    prefill, decode, pages, text = donor_then_stub(worker, np.random.default_rng(9), page_tokens=page_tokens)
    moved = decode.memory.read(pages, page_tokens)
    assert moved[0].token == PAD
    assert [slot.token for slot in moved[1:]] == text[1:page_tokens]
    assert np.array_equal(decode.pool.payload[pages[0]], prefill.pool.payload[1])


def test_pages_overwritten_while_decoding(worker, oracle):
    """A late write lands over the victim's first pages between two passes: the victim goes on in the other's words."""
    rng = np.random.default_rng(100)
    mover, decode = worker("prefill-0", pages=64), worker("decode-0", pages=64)
    decided = 0
    for round in range(10):
        other, victim = (copied(unique_text(rng, 180), 200)[0] for _ in range(2))
        pages, late = list(range(1, 16)), list(range(1, 14))
        token = decode.prefill("victim", victim, pages[:13], 2).token
        run = Predicted(oracle, decode, "victim", pages, 2)
        before = 1 + int(rng.integers(8))
        token = run.run(token, 200, before)
        assert len(run.out) == before
        mover.prefill("other", other, late, 9)
        count = int(rng.integers(1, 13))
        mover.send(decode, late[:count], pages[:count], 8, count * 16, xfer=round + 1).wait()
        run.run(token, 200 + before, 24)
        decided += len(run.out) - before
    assert decided >= 120, "half of all passes over mixed pages, at least, are predicted"


def test_a_late_write_over_everything_is_read_on_from_its_match(worker, oracle):
    """The victim asks with words that the other's record has too; after the write it gets that record."""
    mover, decode = worker("prefill-0", pages=64), worker("decode-0", pages=64)
    record = "key 7731: Mrs. Quill, ward 9, benign, two foci. (tel. 555-0164) knows "
    other = list((record + "~" * 3 + "0123456789" + record)[:112].encode())
    victim, follows = copied("the quick brown fox jumps; key 7731 over a lazy dog while ", 112)
    pages = list(range(1, 16))
    token = decode.prefill("victim", victim, pages[:7], 2).token
    assert token == follows[0]
    run = Predicted(oracle, decode, "victim", pages, 2)
    while not bytes(run.out).endswith(b"key 773"):
        token = run.run(token, 112 + len(run.out), 1)
    mover.prefill("other", other, pages[:7], 9)
    mover.send(decode, pages[:7], pages[:7], 8, 112).wait()
    start = len(run.out)
    run.run(token, 112 + start, 40)
    assert b": Mrs. Quill, ward 9, benign" in bytes(run.out[start:])


def test_most_mixes_of_pages_are_decided(worker, oracle):
    """Any pages of several requests in any order: where the oracle speaks it is right, and it speaks in most cases."""
    rng = np.random.default_rng(77)
    each = worker(pages=64)
    texts = [copied(unique_text(rng, 90), 96)[0] for _ in range(4)]
    for i, text in enumerate(texts):
        each.prefill(f"r{i}", text, range(1 + 6 * i, 7 + 6 * i), i + 1)
    decided = undecided = 0
    for _ in range(60):
        # Position by position from somebody: what a mix of whole pages at their own places is.
        pages = [int(1 + 6 * rng.integers(4) + place) for place in range(6)]
        token = int(texts[rng.integers(4)][rng.integers(96)])
        run = Predicted(oracle, each, "reader", [*pages, 40, 41], 50)
        run.run(token, 96, 5)
        decided, undecided = decided + len(run.out), undecided + run.undecided
    assert decided > 200, (decided, undecided)
