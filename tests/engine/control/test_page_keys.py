import numpy as np
import pytest
from cache_bench import ANN, BOB, PAGE, SECRET, Pages
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.page_keys import (
    ALL_FIELDS,
    IDENTITY_FIELDS,
    Identity,
    KeyFields,
    PageKeys,
    Scope,
    SegmentPrompt,
    TokenPrompt,
    chained_keys,
    matchable_keys,
    namespace,
    salt_fingerprint,
)  # fmt: skip
from engine.scope_cost import ScopeCost, scope_cost

TOKENS = st.lists(st.integers(0, 3), max_size=6 * PAGE)


@given(one=TOKENS, other=TOKENS)
def test_keys_are_equal_exactly_as_far_as_the_full_pages_are(one, other):
    keys, others = (PageKeys(SECRET, PAGE).of(ANN, TokenPrompt(tokens)) for tokens in (one, other))
    assert (len(keys), len(others)) == (len(one) // PAGE, len(other) // PAGE)
    for count in range(1, min(len(keys), len(others)) + 1):
        assert (keys[count - 1] == others[count - 1]) == (one[: count * PAGE] == other[: count * PAGE])


IDENTITY = st.builds(
    Identity,
    **{name: st.sampled_from(["a", "b", "ab", ""] if name == "tenant" else [None, "a", "b", ""]) for name in IDENTITY_FIELDS},
)  # fmt: skip


@settings(max_examples=300)
@given(one=IDENTITY, other=IDENTITY, scope=st.sampled_from(Scope), dropped=st.sampled_from([None, *IDENTITY_FIELDS]))
def test_a_namespace_is_the_fields_that_scope_and_key_take_in(one, other, scope, dropped):
    included = ALL_FIELDS if dropped is None else ALL_FIELDS.without(dropped)
    owner = {Scope.USER: {"user", "tenant", "organisation"}, Scope.TENANT: {"tenant", "organisation"},
             Scope.ORGANISATION: {"organisation"}, Scope.SHARED: set()}[scope]  # fmt: skip
    names = ({"adapter", "media", "weights", "kv_format"} | owner) - {dropped}
    same = all(getattr(one, name) == getattr(other, name) for name in names)
    spaces = [namespace(each, scope, included) for each in (one, other)]
    assert (spaces[0] == spaces[1]) == same
    keys = [chained_keys(np.arange(3), space, SECRET) for space in spaces]
    assert np.array_equal(*keys) == same
    assert len(set(keys[0].tolist()) & set(keys[1].tolist())) == (3 if same else 0)


def test_scopes_are_namespaces_of_their_own():
    assert len({namespace(Identity(None), scope) for scope in Scope}) == len(Scope)


def test_keys_are_not_negative_and_need_the_secret():
    space = namespace(ANN, Scope.TENANT)
    keys = chained_keys(np.arange(10_000), space, SECRET)
    assert keys.dtype == np.int64
    assert keys.min() >= 0
    assert len(np.unique(keys)) == len(keys)
    assert not set(keys.tolist()) & set(chained_keys(np.arange(10_000), space, b"another").tolist())
    assert len(chained_keys(np.zeros(0, np.int64), space, SECRET)) == 0


def test_the_salt_fingerprint_is_of_the_owner_whatever_the_key_takes_in():
    other = Identity("t-b", "org", "bob", weights="w2")
    for scope, same in ((Scope.USER, False), (Scope.TENANT, False), (Scope.ORGANISATION, True), (Scope.SHARED, True)):
        assert (salt_fingerprint(ANN, scope, SECRET) == salt_fingerprint(other, scope, SECRET)) == same
    careless = PageKeys(SECRET, PAGE, fields=ALL_FIELDS.without("tenant").without("user"))
    assert np.array_equal(careless.of(ANN, Pages(1, 2)), careless.of(BOB, Pages(1, 2)))
    assert careless.salt_fp(ANN) != careless.salt_fp(BOB)


def test_an_unknown_field_cannot_be_left_out():
    with pytest.raises(ValueError, match="no field 'salt'"):
        KeyFields().without("salt")


SEGMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11)), max_size=5)


@settings(max_examples=300)
@given(one=SEGMENTS, other=SEGMENTS)
def test_pages_of_texts_without_tokens_differ_where_their_content_does(one, other):
    contents = []
    for segments in (one, other):
        content = [(seed, place) for seed, length in segments for place in range(length)]
        digests = SegmentPrompt(tuple(segments)).page_digests(PAGE).tolist()
        assert len(digests) == len(content) // PAGE
        contents += [(tuple(content[i * PAGE : i * PAGE + PAGE]), digest) for i, digest in enumerate(digests)]
    for content, digest in contents:
        for content2, digest2 in contents:
            assert (content == content2) == (digest == digest2)


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token():
    keys = np.arange(3)
    assert [len(matchable_keys(keys, tokens, PAGE)) for tokens in (0, 1, 4, 5, 11, 12, 13)] == [0, 0, 0, 1, 2, 2, 3]


# What a scope costs


def test_every_wider_scope_finds_at_least_as_much():
    people = [Identity(f"t-{t}", "org", f"u-{u}") for t in range(2) for u in range(2)]
    shared = Pages(1, 2, 3, rest=1)
    rates = scope_cost([(each, shared) for each in people], PAGE, SECRET)
    total = 4 * len(shared)
    assert {scope: (each.hit_tokens, each.total_tokens) for scope, each in rates.items()} == {
        Scope.USER: (0, total),
        Scope.TENANT: (2 * 3 * PAGE, total),
        Scope.ORGANISATION: (3 * 3 * PAGE, total),
        Scope.SHARED: (3 * 3 * PAGE, total),
    }
    assert rates[Scope.SHARED].rate == pytest.approx(36 / 52)


REQUESTS = st.lists(
    st.tuples(IDENTITY, st.lists(st.integers(0, 1), max_size=4).map(lambda digests: Pages(*digests))), max_size=12
)


@given(requests=REQUESTS)
def test_a_wider_scope_never_finds_less(requests):
    rates = [scope_cost(requests, PAGE, SECRET)[scope] for scope in Scope]
    assert [each.hit_tokens for each in rates] == sorted(each.hit_tokens for each in rates)
    assert all(each.hit_tokens <= each.total_tokens for each in rates)


@given(requests=REQUESTS, capacity=st.integers(0, 8))
def test_a_bounded_scope_finds_beginnings_alone_and_a_larger_one_no_less(requests, capacity):
    bounded, larger = (ScopeCost(PAGE, SECRET, capacity_pages=pages) for pages in (capacity, capacity + 1))
    for identity, prompt in requests:
        found, more = bounded.note(identity, prompt), larger.note(identity, prompt)
        assert all(found[scope] <= more[scope] <= max(len(prompt) - 1, 0) for scope in Scope)
        for store in bounded._stores.values():
            assert len(store._keys) <= capacity


def test_nothing_asked_is_a_rate_of_nothing():
    assert scope_cost([], PAGE, SECRET)[Scope.USER].rate == 0
