import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from runbooks.predicates import Op, Outcome, Predicate, evaluate, lookup
from runbooks.references import BadReference, compatible, field_annotation, from_run, parse_reference, resolve

HELD, REFUTED, UNDECIDED = Outcome.HELD, Outcome.REFUTED, Outcome.UNDECIDED


def check(value, **predicate):
    return evaluate(Predicate(field="x", **predicate), {"x": value}).outcome


@pytest.mark.parametrize(
    ("op", "to", "held", "refuted"),
    [
        ("==", 3, 3, 4),
        ("==", "a", "a", "b"),
        ("!=", 3, 4, 3),
        ("<", 3, 2, 3),
        ("<=", 3, 3, 4),
        (">", 3, 4, 3),
        (">=", 3, 3, 2),
        ("in", ["a", "b"], "a", "c"),
        ("between", [1, 2], 2, 3),
        ("matches", "a+", "aaa", "aab"),
    ],
)
def test_operators(op, to, held, refuted):
    assert check(held, op=op, to=to) is HELD
    assert check(refuted, op=op, to=to) is REFUTED
    assert check(refuted, op=op, to=to, otherwise="undecided") is UNDECIDED


def test_empty_all_any_within():
    assert check([], op="empty") is HELD
    assert check(["a"], op="empty") is REFUTED
    assert check([1, 2], op="all", of={"op": "<=", "to": 2}) is HELD
    assert check([1, 3], op="all", of={"op": "<=", "to": 2}) is REFUTED
    assert check([1, None], op="all", of={"op": "<=", "to": 2}) is UNDECIDED
    assert check([3, None], op="all", of={"op": "<=", "to": 2}) is REFUTED
    assert check([3, 1], op="any", of={"op": "<=", "to": 2}) is HELD
    assert check([3, 4], op="any", of={"op": "<=", "to": 2}) is REFUTED
    assert check([3, None], op="any", of={"op": "<=", "to": 2}) is UNDECIDED
    assert check([], op="all", of={"op": "<=", "to": 2}) is HELD
    assert check([{"y": 1}], op="all", of={"field": "y", "op": "==", "to": 1}) is HELD
    assert check(99, op="within_pct", to=100, pct=1) is HELD
    assert check(98, op="within_pct", to=100, pct=1) is REFUTED


SOME_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(op=st.sampled_from([op for op in Op if op not in (Op.ALL, Op.ANY)]), value=SOME_VALUES, to=SOME_VALUES)
def test_no_value_of_a_wrong_kind_ever_passes_an_ordered_check(op, value, to):
    """Whatever stands on either side, evaluation ends in one of three outcomes, and null is never decided."""
    try:
        given_to = {} if op is Op.EMPTY else {"to": to}
        predicate = Predicate(field="x", op=op, pct=5 if op is Op.WITHIN_PCT else None, **given_to)
    except ValidationError:
        return
    outcome = evaluate(predicate, {"x": value}).outcome
    if value is None:
        assert outcome is UNDECIDED
    numbers = [type(side) is int for side in (value, to)]
    if op in (Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL) and not all(numbers):
        assert outcome is UNDECIDED


@pytest.mark.parametrize(
    ("value", "op", "to"), [(math.nan, "<", 1), (True, ">=", 0), ("5", ">", 1), (5, "matches", "5"), (1, "==", True)]
)
def test_unusable_values_are_undecided(value, op, to):
    assert check(value, op=op, to=to) is UNDECIDED


def test_missing_fields_are_undecided():
    assert evaluate(Predicate(field="a.b", op="==", to=1), {"a": {}}).outcome is UNDECIDED
    assert evaluate(Predicate(field="a.b", op="==", to=1), {"a": {"b": 1}}).outcome is HELD
    assert lookup({"a": [1]}, "a.0") is None


@pytest.mark.parametrize(
    "given",
    [
        {"op": "=="},
        {"op": "empty", "to": 1},
        {"op": "all"},
        {"op": "==", "to": 1, "of": {"op": "empty"}},
        {"op": "within_pct", "to": 1},
        {"op": "==", "to": 1, "pct": 1},
        {"op": "between", "to": [1]},
        {"op": "in", "to": "abc"},
        {"op": "matches", "to": "("},
        {"op": "eval", "to": "1"},
        {"op": "==", "to": 1, "otherwise": "held"},
    ],
)
def test_malformed_predicates_are_refused(given):
    with pytest.raises(ValidationError):
        Predicate(field="x", **given)


def test_sentences_say_what_was_found_and_expected():
    checked = evaluate(Predicate(field="x", op=">=", to=0, says="too small"), {"x": -3})
    assert checked.detail == "too small (x = -3, expected >= 0)"
    checked = evaluate(Predicate(field="x", op="empty", says="there are faults"), {"x": ["a", "b"]})
    assert checked.detail == "there are faults: a; b"


def test_references_are_whole_values():
    assert parse_reference("plain") is None
    assert parse_reference("$params.a").param == "a"
    assert (parse_reference("$steps.s-1.f.g").step, parse_reference("$steps.s-1.f.g").field) == ("s-1", "f.g")
    for text in ("$params", "$params.a ", "x$params.a", "$params.a$params.b", "${params.a}", "$env.HOME", "$steps.s"):
        with pytest.raises(BadReference):
            parse_reference(text)


def test_resolution_replaces_inside_lists_and_mappings_and_keeps_types():
    replace = from_run({"p": 3}, {"s": {"f": [1], "deep": {"g": "$params.p"}}})
    assert resolve({"a": ["$params.p", "$steps.s.f"], "b": "$steps.s.deep.g", "c": "$steps.t.f"}, replace) == {
        "a": [3, [1]],
        "b": "$params.p",  # what a reference gives is a value, never a reference
        "c": None,
    }


def test_type_compatibility():
    assert compatible(int, float) and not compatible(float, int)
    assert compatible(int, int | None) and compatible(int | None, int)
    assert compatible(list[str], list[str]) and not compatible(list[str], list[int])
    assert compatible(str, int | str) and not compatible(bytes, int | str)

    class Inner(BaseModel):
        value: int | None

    class Outer(BaseModel):
        inner: Inner

    assert field_annotation(Outer, "inner.value") is int
    with pytest.raises(KeyError):
        field_annotation(Outer, "inner.other")
