"""What a request gets over its own pages: the text itself says what must follow, whatever the paging and batching."""

import numpy as np
import pytest
from data_bench import copied, unique_text

from engine.executor import PrefillWork
from engine.truth import stamp_of

COUNT = 40


def prompt_of(seed, length=150, text=110):
    return copied(unique_text(np.random.default_rng(seed), text), length)


@pytest.mark.parametrize("chunk", [None, 1, 7, 16, 33])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_output_continues_the_text_however_it_is_chunked(worker, oracle, seed, chunk):
    each = worker()
    prompt, expected = prompt_of(seed, length=130, text=100)
    pages = list(range(1, 13))
    first = each.prefill("a", prompt, pages, 5, chunk=chunk).token
    out = [first, *each.generate("a", first, len(prompt), pages, 5, COUNT - 1)]
    assert out == expected[:COUNT]
    assert oracle.continuation(prompt, COUNT) == out


@pytest.mark.parametrize("page_tokens", [1, 4, 16, 32])
def test_paging_changes_nothing(worker, page_tokens):
    prompt, expected = prompt_of(11)
    count = -(-(len(prompt) + COUNT) // page_tokens)
    each = worker(pages=count + 40, page_tokens=page_tokens)
    pages = 1 + np.random.default_rng(page_tokens).permutation(count + 39)[:count]
    first = each.prefill("a", prompt, pages, 5, chunk=31).token
    assert [first, *each.generate("a", first, len(prompt), pages, 5, COUNT - 1)] == expected[:COUNT]


@pytest.mark.parametrize("size", range(1, 9))
def test_batches_of_mixed_lengths_do_not_mix(worker, size):
    each = worker(pages=160)
    rng = np.random.default_rng(size)
    free = list(1 + rng.permutation(159))
    running = []
    for i in range(size):
        length = int(rng.integers(40, 200))
        prompt, expected = copied(unique_text(rng, length - int(rng.integers(4, 12))), length)
        pages = [free.pop() for _ in range(-(-(length + 24) // 16))]
        first = each.prefill(f"r{i}", prompt, pages, i + 1).token
        running.append((f"r{i}", prompt, [first], pages, i + 1, expected))
    for _ in range(23):
        results = each.decode(
            *[
                each.work(rid, out[-1], len(prompt) + len(out) - 1, pages, tag)
                for rid, prompt, out, pages, tag, _ in running
            ]
        )
        for (_, _, out, *_), result in zip(running, results, strict=True):
            assert result.mismatches == ()
            out.append(result.token)
    for _, _, out, _, _, expected in running:
        assert out == expected[: len(out)]


def test_requests_join_and_leave_a_running_batch(worker):
    each = worker(pages=64)
    (one, follows_one), (two, follows_two) = prompt_of(21, 100, 80), prompt_of(22, 57, 40)
    pages_one, pages_two = list(range(1, 10)), list(range(20, 26))
    out_one, out_two = [each.prefill("one", one, pages_one, 1).token], []
    for step in range(30):
        if step == 10:
            out_two.append(each.prefill("two", two, pages_two, 2).token)
        works = [each.work("one", out_one[-1], len(one) + len(out_one) - 1, pages_one, 1)]
        if out_two and len(out_two) < 12:
            works.insert(0, each.work("two", out_two[-1], len(two) + len(out_two) - 1, pages_two, 2))
        results = each.decode(*works)
        out_one.append(results[-1].token)
        if len(works) == 2:
            out_two.append(results[0].token)
    assert out_one == follows_one[:31]
    assert out_two == follows_two[:12]


def test_one_prefill_pass_takes_several_prompts(worker):
    each = worker(pages=64)
    works, expected = [], []
    for i in range(3):
        prompt, follows = prompt_of(30 + i, 60 + 20 * i, 50 + 20 * i)
        pages = each.table(range(1 + 10 * i, 1 + 10 * i + -(-len(prompt) // 16)))
        works.append(PrefillWork(i, stamp_of(str(i)), np.array(prompt, np.int32), 0, pages, each.tags(pages, i + 1)))
        expected.append(follows[0])
    results = each.executor.prefill(works, check_tags=True, step=1, before_write=lambda: None)
    assert [result.token for result in results] == expected
    assert all(result.mismatches == () for result in results)


def test_every_byte_can_be_said(worker, oracle):
    each = worker(pages=64)
    text = [int(byte) for byte in np.random.default_rng(5).permutation(np.arange(1, 256))]
    prompt, pages = text + text[:4], list(range(1, 40))
    first = each.prefill("a", prompt, pages, 1).token
    out = [first, *each.generate("a", first, len(prompt), pages, 1, 250)]
    assert out == text[4:]
    assert oracle.continuation(prompt, 251) == out


def test_a_long_context_is_still_copied(worker, oracle):
    each = worker(pages=256)
    prompt, expected = copied(unique_text(np.random.default_rng(8), 3_000), 3_600)
    pages = list(range(1, 240))
    first = each.prefill("a", prompt, pages, 1, chunk=900).token
    out = [first, *each.generate("a", first, len(prompt), pages, 1, 15)]
    assert out == expected[:16]
    assert oracle.continuation(prompt, 16) == out


def test_padding_in_the_context_lends_no_weight(worker, oracle):
    """A three-byte match behind padding must not outdo a four-byte match, wherever each of the two stands."""
    each = worker()
    for text in (b"abcdX .. a\0cdY -- abcd", b"a\0cdY .. abcdX -- abcd"):
        assert each.prefill("a", list(text), [1, 2], 1).token == ord("X")
        assert oracle.continuation(list(text), 1) == [ord("X")]
