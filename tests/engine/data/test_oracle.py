"""The oracle by hand: what it knows, and what it must refuse to say."""

import numpy as np
import pytest

from engine.oracle import Slot, SlotMemory, Undecided, own_slots

PAD = 0


def test_continuation_of_a_repeated_text(oracle):
    assert bytes(oracle.continuation(list(b"abcdefghij abcd"), 6)) == b"efghij"


def test_the_longer_match_wins(oracle):
    assert bytes(oracle.continuation(list(b"xbcdP abcdQ zabcd"), 1)) == b"Q"


def test_a_tie_between_different_bytes_is_refused(oracle):
    with pytest.raises(Undecided, match=r"bytes \[80, 81\] match alike after position 14"):
        oracle.continuation(list(b"abcdP abcdQabcd"), 1)


def test_a_tie_between_equal_bytes_is_no_tie(oracle):
    assert bytes(oracle.continuation(list(b"abcdP abcdP-abcd"), 1)) == b"P"


def test_a_missing_predecessor_is_refused(oracle):
    slots = own_slots(list(b"abcdefghij abcd"))
    del slots[13]
    with pytest.raises(Undecided, match="position 13 is missing"):
        oracle.decode(slots, ord("e"), 15, 1)


def test_a_position_held_twice_by_different_tokens_is_refused(oracle):
    slots = [*own_slots(list(b"abcdefghij abcd")), Slot(14, ord("z"), (1, 2, 3, 4))]
    with pytest.raises(Undecided, match="position 14"):
        oracle.decode(slots, ord("e"), 15, 1)


def test_a_position_held_twice_by_the_same_token_is_certain(oracle):
    slots = own_slots(list(b"abcdefghij abcd"))
    assert bytes(oracle.decode([*slots, slots[14]], ord("e"), 15, 3)) == b"fgh"


def test_slots_may_come_in_any_order(oracle):
    slots = own_slots(list(b"abcdefghij abcd"))
    assert oracle.decode(slots[::-1], ord("e"), 15, 5) == oracle.decode(slots, ord("e"), 15, 5)


def test_position_outranks_place(oracle):
    """RoPE counts where a token was computed: slots found at other places keep their old positions."""
    slots = own_slots(list(b"abcdefghij abcd"), start=0)
    assert bytes(oracle.decode(slots[4:] + slots[:4], ord("e"), 15, 5)) == b"fghij"


def test_a_placeholder_says_nothing_and_looks_back_like_any_token(oracle):
    assert oracle.next_token([], Slot(0, PAD, (PAD,) * 4)) == PAD
    slots = own_slots(list(b"abcdefghij abcd"))
    # Its own place counts as one: what comes is the byte after the one that the text has next.
    assert oracle.predecessors(slots, PAD, 15) == tuple(b"dcba")
    assert bytes(oracle.decode(slots, PAD, 15, 4)) == b"fghi"


def test_padding_never_wins_over_a_byte_that_weighs_anything(oracle):
    slots = [Slot(0, PAD, tuple(b"dcba")), Slot(1, ord("x"), tuple(b"dcbz"))]
    with pytest.raises(Undecided):
        oracle.next_token(slots, Slot(9, ord("d"), tuple(b"cbaz")))


def test_memory_moves_whole_pages():
    source, target = SlotMemory(3, 4), SlotMemory(3, 4)
    source.write([2, 1], own_slots([5, 6, 7, 8, 9]))
    target.write([1], own_slots([1, 2, 3, 4]))
    source.write([2], own_slots([30]))
    target.receive(source, [2], [1])
    assert [slot.token for slot in target.read([1], 4)] == [30, 6, 7, 8]
    assert target.read([0], 2) == [None, None]
    assert [slot.position for slot in source.read([2, 1], 5)] == [0, 1, 2, 3, 4]


def test_a_step_leaves_its_own_slot_behind(oracle):
    memory = SlotMemory(8, 4)
    table, prompt = [3, 1, 2, 5], list(b"abcdefg abcd")
    memory.write(table, own_slots(prompt))
    assert oracle.step(memory, table, ord("e"), 12) == ord("f")
    assert memory.read(table, 13)[12] == Slot(12, ord("e"), tuple(b"dcba"))


@pytest.mark.parametrize("seed", range(4))
def test_steps_and_decode_agree(oracle, seed):
    rng = np.random.default_rng(seed)
    text = [int(byte) for byte in rng.permutation(np.arange(1, 256))[:60]]
    prompt = text + text[:6]
    memory, table = SlotMemory(40, 4), [int(page) for page in rng.permutation(40)]
    memory.write(table, own_slots(prompt))
    token, out = text[6], []
    for i in range(30):
        token = oracle.step(memory, table, token, len(prompt) + i)
        out.append(token)
    assert out == oracle.decode(own_slots(prompt), text[6], len(prompt), 30) == text[7:37]
